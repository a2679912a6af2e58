//! A broker that says in TLS 1.3 what it thinks of the proxy's certificate: when the handshake is done for the proxy.

use tokio_rustls::rustls::{AlertDescription, Error};

use super::*;
use crate::net::dial::{Dialer, Way};
use crate::net::nodes::{Node, Nodes, Order};
use crate::net::proxy_protocol::Told;

#[tokio::test]
async fn a_broker_that_misses_a_certificate_is_told_of() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = Settings {
        tls_client_ca_file: folder.write("ca.pem", authority.pem()),
        tls_client_auth: ClientAuth::Required,
        ..good(&folder, &authority)
    };
    let metrics = Metrics::new();
    let certificates = Certificates::load(&settings, BOTH, metrics.clone()).expect("good");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let node = Node {
        host: "localhost".to_owned(),
        port: listener.local_addr().expect("bound").port(),
    };
    let acceptor = certificates.clients().expect("TLS for clients");
    let broker = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        acceptor.accept(plain(stream)).await.map(drop)
    });
    let dialer = Dialer {
        nodes: Nodes::new(&[node], Order::First, metrics.clone()),
        way: Way {
            tls: certificates.upstream(),
            told: Told::Off,
        },
        within: std::time::Duration::from_secs(60),
    };
    let mut dialed = dialer.dial(None).await.expect("connected");
    broker.await.expect("no panic").expect_err("no certificate");
    let error = dialed.socket.read_u8().await.expect_err("refused");
    let words = "localhost does not accept the certificate of `upstream-cert-file`, or misses one";
    assert!(error.to_string().contains(words), "{error}");
    let counted = metrics.encode();
    assert!(
        counted.contains("dlx_proxy_events_total{event=\"upstream_tls_failed\"} 1\n"),
        "{counted}"
    );
    assert_eq!(dialer.nodes.failing(), [dialed.address]);
}

#[test]
fn only_what_is_said_of_certificates_is_told_as_that() {
    for (alert, failure) in [
        (AlertDescription::UnknownCA, Failure::RefusedByClient),
        (AlertDescription::BadCertificate, Failure::RefusedByClient),
        (
            AlertDescription::CertificateRevoked,
            Failure::RefusedByClient,
        ),
        (AlertDescription::ProtocolVersion, Failure::NothingInCommon),
        (AlertDescription::InternalError, Failure::Alert),
        (AlertDescription::UserCanceled, Failure::Alert),
    ] {
        let error = std::io::Error::other(Error::AlertReceived(alert));
        assert_eq!(Failure::of(&error), failure, "{alert:?}");
    }
}
