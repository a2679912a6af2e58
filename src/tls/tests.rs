//! Certificates made for each test; handshakes over a socket of this machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::words::Failure;
use super::{Certificates, ClientAuth, Contents, Material, Problem, Settings, Uses};
use crate::net::dial::connect;
use crate::net::stream::plain;
use crate::telemetry::Metrics;

mod late;
mod reload;

const BOTH: Uses = Uses {
    upstream: true,
    hook: false,
    clients: true,
    admin: false,
};

struct Folder(PathBuf);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dlx-proxy-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Option<String> {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        Some(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new([]).expect("no names");
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, name: &str, end: (i32, u8, u8)) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.0).expect("signed");
        (signed.pem(), key.serialize_pem())
    }
}

fn none() -> Settings {
    Settings {
        upstream_ca_file: None,
        upstream_tls_name: None,
        upstream_cert_file: None,
        upstream_key_file: None,
        upstream_tls_verify: true,
        tls_cert_file: None,
        tls_key_file: None,
        tls_client_ca_file: None,
        tls_client_auth: ClientAuth::Off,
    }
}

fn good(folder: &Folder, authority: &Authority) -> Settings {
    let (certificate, key) = authority.sign("localhost", (2090, 1, 1));
    Settings {
        upstream_ca_file: folder.write("ca.pem", authority.pem()),
        tls_cert_file: folder.write("cert.pem", certificate),
        tls_key_file: folder.write("key.pem", key),
        ..none()
    }
}

fn problems(settings: &Settings, uses: Uses) -> Vec<Problem> {
    let checked = Material::new(settings, uses, &Contents::read(settings));
    checked.err().unwrap_or_default()
}

fn wrong(settings: &Settings, uses: Uses) -> Vec<(&'static str, String)> {
    let problems = problems(settings, uses).into_iter();
    problems
        .map(|problem| (problem.setting, problem.what))
        .collect()
}

#[test]
fn each_mistake_is_told_with_its_setting() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let good = good(&folder, &authority);
    assert_eq!(wrong(&good, BOTH), []);
    let (other, _) = authority.sign("localhost", (2090, 1, 1));
    let missing = Some(folder.0.join("none.pem").display().to_string());
    for (settings, setting, words) in [
        (
            Settings {
                tls_cert_file: missing.clone(),
                ..good.clone()
            },
            "tls-cert-file",
            "cannot be read: No such file",
        ),
        (
            Settings {
                tls_cert_file: good.tls_key_file.clone(),
                ..good.clone()
            },
            "tls-cert-file",
            "there is no certificate",
        ),
        (
            Settings {
                tls_key_file: good.tls_cert_file.clone(),
                ..good.clone()
            },
            "tls-key-file",
            "there is no private key",
        ),
        (
            Settings {
                tls_key_file: folder.write(
                    "secret.pem",
                    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
                ),
                ..good.clone()
            },
            "tls-key-file",
            "is encrypted",
        ),
        (
            Settings {
                tls_cert_file: folder.write("other.pem", other),
                ..good.clone()
            },
            "tls-key-file",
            "does not belong to the certificate",
        ),
        (
            Settings {
                tls_cert_file: None,
                ..good.clone()
            },
            "tls-cert-file",
            "set it too",
        ),
        (
            Settings {
                tls_key_file: None,
                ..good.clone()
            },
            "tls-key-file",
            "set it too",
        ),
        (
            Settings {
                tls_client_auth: ClientAuth::Required,
                ..good.clone()
            },
            "tls-client-ca-file",
            "set it too",
        ),
        (
            Settings {
                upstream_cert_file: good.tls_cert_file.clone(),
                ..good.clone()
            },
            "upstream-key-file",
            "set it too",
        ),
        (
            Settings {
                upstream_ca_file: missing,
                ..good.clone()
            },
            "upstream-ca-file",
            "cannot be read",
        ),
        (
            Settings {
                upstream_tls_name: Some("not a name".to_owned()),
                ..good.clone()
            },
            "upstream-tls-name",
            "write the name of a host",
        ),
        (
            Settings {
                upstream_tls_verify: false,
                ..good.clone()
            },
            "upstream-ca-file",
            "is of no use",
        ),
    ] {
        let found = wrong(&settings, BOTH);
        let told = found.len() == 1 && found[0].0 == setting && found[0].1.contains(words);
        assert!(told, "{setting}, {words}: {found:?}");
    }
}

#[test]
fn what_is_of_no_use_is_told_all_at_once() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = Settings {
        upstream_tls_verify: false,
        tls_client_auth: ClientAuth::Optional,
        ..good(&folder, &authority)
    };
    let found = wrong(&settings, Uses::default());
    let settings: Vec<_> = found.iter().map(|(setting, _)| *setting).collect();
    let expected = [
        "upstream-ca-file",
        "upstream-tls-verify",
        "tls-cert-file",
        "tls-key-file",
        "tls-client-auth",
    ];
    assert_eq!(settings, expected, "{found:?}");
}

/// The client's error, and the server's count.
async fn shake(
    certificates: &Certificates,
    host: &str,
) -> (Result<String, String>, Option<Failure>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let acceptor = certificates.clients().expect("TLS for clients");
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        match acceptor.accept(plain(stream)).await {
            Ok(mut socket) => {
                // A client of TLS 1.3 is through before its certificate is looked at.
                let _ = socket.write_all(b"hello").await;
                let _ = socket.shutdown().await;
                None
            }
            Err(error) => Some(Failure::of(&error)),
        }
    });
    let connector = certificates.upstream();
    let asked = async {
        let mut socket = connect(host, port, connector.as_ref()).await?;
        let mut text = String::new();
        socket.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let said = asked.await.map_err(|error| error.to_string());
    (said, server.await.expect("no panic"))
}

fn load(settings: &Settings) -> Certificates {
    Certificates::load(settings, BOTH, Metrics::new()).expect("good")
}

#[tokio::test]
async fn both_sides_say_what_they_do_not_accept() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let settings = good(&folder, &authority);
    let (said, failure) = shake(&load(&settings), "localhost").await;
    assert_eq!((said.as_deref(), failure), (Ok("hello"), None));

    let (said, failure) = shake(&load(&settings), "127.0.0.1").await;
    let said = said.expect_err("another name");
    assert!(
        said.contains(
            r#"not valid for name "127.0.0.1"; certificate is only valid for DnsName("localhost"): connect by that name"#
        ),
        "{said}"
    );
    assert_eq!(failure, Some(Failure::RefusedByClient));

    let named = Settings {
        upstream_tls_name: Some("localhost".to_owned()),
        ..settings.clone()
    };
    let (said, _) = shake(&load(&named), "127.0.0.1").await;
    assert_eq!(said.as_deref(), Ok("hello"));

    let stranger = Settings {
        upstream_ca_file: folder.write("stranger.pem", Authority::new().pem()),
        ..settings.clone()
    };
    let (said, failure) = shake(&load(&stranger), "localhost").await;
    let said = said.expect_err("signed by somebody else");
    assert!(
        said.contains("UnknownIssuer: set `upstream-ca-file`"),
        "{said}"
    );
    assert_eq!(failure, Some(Failure::RefusedByClient));

    let unverified = Settings {
        upstream_tls_verify: false,
        upstream_ca_file: None,
        ..settings.clone()
    };
    let (said, _) = shake(&load(&unverified), "127.0.0.1").await;
    assert_eq!(said.as_deref(), Ok("hello"));
}

#[tokio::test]
async fn clients_show_certificates_where_they_have_to() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let (certificate, key) = authority.sign("client", (2090, 1, 1));
    let asking = |auth| Settings {
        tls_client_ca_file: folder.write("ca.pem", authority.pem()),
        tls_client_auth: auth,
        ..good(&folder, &authority)
    };
    let shown = |settings| Settings {
        upstream_cert_file: folder.write("client.pem", &certificate),
        upstream_key_file: folder.write("client-key.pem", &key),
        ..settings
    };
    let (said, failure) = shake(&load(&asking(ClientAuth::Required)), "localhost").await;
    assert!(said.is_err(), "{said:?}");
    assert_eq!(failure, Some(Failure::ClientCertificate));
    for settings in [
        asking(ClientAuth::Optional),
        shown(asking(ClientAuth::Optional)),
        shown(asking(ClientAuth::Required)),
    ] {
        let (said, failure) = shake(&load(&settings), "localhost").await;
        assert_eq!((said.as_deref(), failure), (Ok("hello"), None));
    }
    let (certificate, key) = Authority::new().sign("client", (2090, 1, 1));
    let foreign = Settings {
        upstream_cert_file: folder.write("foreign.pem", certificate),
        upstream_key_file: folder.write("foreign-key.pem", key),
        ..asking(ClientAuth::Optional)
    };
    let (said, failure) = shake(&load(&foreign), "localhost").await;
    assert!(said.is_err(), "{said:?}");
    assert_eq!(failure, Some(Failure::ClientCertificate));
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_apart() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let certificates = load(&good(&folder, &authority));
    for (said, failure) in [
        (&b"AMQP\x00\x00\x09\x01"[..], Failure::NotTls),
        (b"GET / HTTP/1.1\r\n\r\n", Failure::NotTls),
        (b"", Failure::Ended),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(address).await.expect("connected");
        client.write_all(said).await.expect("sent");
        client.shutdown().await.expect("ended");
        let (stream, _) = listener.accept().await.expect("accepted");
        let acceptor = certificates.clients().expect("TLS for clients");
        let error = acceptor.accept(plain(stream)).await.expect_err("no TLS");
        assert_eq!(Failure::of(&error), failure, "{error}");
    }
    // And a server that speaks none.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        stream
            .write_all(b"AMQP\x00\x00\x09\x01")
            .await
            .expect("sent");
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let connector = certificates.upstream();
    let said = connect("localhost", port, connector.as_ref()).await;
    let said = said.expect_err("no TLS").to_string();
    assert!(said.contains("does not speak TLS at this port"), "{said}");
}
