//! TLS on both legs: clients speak it, and the broker is spoken to with it, as haproxy does the same.
//!
//! The clients of this bench speak plain AMQP. A haproxy of their own puts TLS on it, for each way the same; it costs time for both, so that the
//! processor time tells the two apart better than the rate does.

use std::fs::{self, File};
use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::floods::Going;
use crate::lab::{Lab, Way};
use crate::process::{PREFIX, Process, Route, Site, free_port};

/// A handshake that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ways, and what puts TLS on their clients' connections.
pub(crate) fn start(site: &Site<'_>) -> anyhow::Result<[(Way, Route); 3]> {
    let (settings, broker) = (site.settings, site.broker);
    let encrypted = broker.encrypted.as_ref().context("the broker has no TLS")?;
    let ports = [(); 5].map(|()| free_port());
    let [plain, to_haproxy, to_proxy, of_haproxy, of_proxy] = ports;
    let (to_haproxy, to_proxy) = (to_haproxy?, to_proxy?);
    let (plain, of_haproxy, of_proxy) = (plain?, of_haproxy?, of_proxy?);
    let wraps = |name: &str, port: u16, to: u16| {
        format!(
            "listen {name}\n  bind 127.0.0.1:{port}\n  server way 127.0.0.1:{to} ssl verify none\n"
        )
    };
    let listeners = [
        format!(
            "listen plain\n  bind 127.0.0.1:{plain}\n  server broker {}\n",
            broker.address
        ),
        wraps("haproxy", to_haproxy, of_haproxy),
        wraps("dlx-proxy", to_proxy, of_proxy),
    ];
    let clients = site.haproxy("clients", plain, &listeners.concat())?;

    let folder = &encrypted.certificates;
    let read = |name: &str| {
        let file = folder.join(name);
        fs::read_to_string(&file).with_context(|| file.display().to_string())
    };
    let both = site.scratch.file("server.pem");
    fs::write(&both, read("server.pem")? + &read("server.key")?)?;
    let authority = folder.join("ca.pem");
    let listener = format!(
        "listen amqp\n  bind 127.0.0.1:{of_haproxy} ssl crt {}\n  server broker 127.0.0.1:{} ssl verify required ca-file {} sni str(localhost)\n",
        both.display(),
        encrypted.broker,
        authority.display(),
    );
    let name = format!("{PREFIX}-tls");
    let environment = [
        ("DLX_PROXY_UPSTREAM", encrypted.url.clone()),
        (
            "DLX_PROXY_UPSTREAM_CA_FILE",
            authority.display().to_string(),
        ),
        ("DLX_PROXY_LISTEN", String::new()),
        ("DLX_PROXY_LISTEN_TLS", format!("127.0.0.1:{of_proxy}")),
        ("DLX_PROXY_TLS_CERT_FILE", both.display().to_string()),
        (
            "DLX_PROXY_TLS_KEY_FILE",
            folder.join("server.key").display().to_string(),
        ),
        ("DLX_PROXY_PREFIX", name.clone()),
    ];
    let mut haproxy = site.haproxy("haproxy-tls", to_haproxy, &listener)?;
    let mut proxy = site.dlx_proxy_at(&settings.binary, &name, to_proxy, &environment)?;
    for (route, port) in [(&mut haproxy, of_haproxy), (&mut proxy, of_proxy)] {
        route.process.as_mut().context("a process")?.port = port;
    }
    Ok([
        (Way::HaproxyTls, haproxy),
        (Way::ProxyTls, proxy),
        (Way::Direct, clients),
    ])
}

/// Clients that make a TLS handshake and go, as fast as they can.
pub(crate) fn handshakes(lab: &Lab<'_>, route: &Route, going: &Going) -> anyhow::Result<()> {
    let encrypted = lab
        .broker
        .encrypted
        .as_ref()
        .context("the broker has no TLS")?;
    let client = client(&encrypted.certificates.join("ca.pem"))?;
    let port = route.process.as_ref().map(|process: &Process| process.port);
    // The flood stands for other machines, so it yields the processor: the others are not to wait for what it computes.
    let _ = rustix::process::nice(19);
    while going.on() {
        handshake(port.context("no proxy")?, &client)?;
    }
    Ok(())
}

/// Without sessions that are resumed: each handshake is a whole one.
fn client(authority: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let file = File::open(authority).with_context(|| authority.display().to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn handshake(port: u16, client: &Arc<ClientConfig>) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost")?;
    let mut connection = ClientConnection::new(Arc::clone(client), name)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(())
}
