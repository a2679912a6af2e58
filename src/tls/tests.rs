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
    let (cert, key) = (good.tls_cert_file.clone(), good.tls_key_file.clone());
    let missing = Some(folder.0.join("none.pem").display().to_string());
    let other = folder.write("other.pem", other);
    let secret = folder.write(
        "secret.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    type Mistake<'a> = &'a dyn Fn(&mut Settings);
    #[rustfmt::skip]
    let rows: [(Mistake<'_>, _, _); 12] = [
        (&|it| it.tls_cert_file = missing.clone(), "tls-cert-file", "cannot be read: No such file"),
        (&|it| it.tls_cert_file = key.clone(), "tls-cert-file", "there is no certificate"),
        (&|it| it.tls_key_file = cert.clone(), "tls-key-file", "there is no private key"),
        (&|it| it.tls_key_file = secret.clone(), "tls-key-file", "is encrypted"),
        (&|it| it.tls_cert_file = other.clone(), "tls-key-file", "does not belong to the certificate"),
        (&|it| it.tls_cert_file = None, "tls-cert-file", "set it too"),
        (&|it| it.tls_key_file = None, "tls-key-file", "set it too"),
        (&|it| it.tls_client_auth = ClientAuth::Required, "tls-client-ca-file", "set it too"),
        (&|it| it.upstream_cert_file = cert.clone(), "upstream-key-file", "set it too"),
        (&|it| it.upstream_ca_file = missing.clone(), "upstream-ca-file", "cannot be read"),
        (&|it| it.upstream_tls_name = Some("not a name".into()), "upstream-tls-name", "write the name of a host"),
        (&|it| it.upstream_tls_verify = false, "upstream-ca-file", "is of no use"),
    ];
    for (mistake, setting, words) in rows {
        let mut settings = good.clone();
        mistake(&mut settings);
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
    let named = Settings {
        upstream_tls_name: Some("localhost".to_owned()),
        ..settings.clone()
    };
    let stranger = Settings {
        upstream_ca_file: folder.write("stranger.pem", Authority::new().pem()),
        ..settings.clone()
    };
    let unverified = Settings {
        upstream_tls_verify: false,
        upstream_ca_file: None,
        ..settings.clone()
    };
    let another_name = r#"not valid for name "127.0.0.1"; certificate is only valid for DnsName("localhost"): connect by that name"#;
    let another_signer = "UnknownIssuer: set `upstream-ca-file`";
    for (settings, host, refused) in [
        (&settings, "localhost", None),
        (&settings, "127.0.0.1", Some(another_name)),
        (&named, "127.0.0.1", None),
        (&stranger, "localhost", Some(another_signer)),
        (&unverified, "127.0.0.1", None),
    ] {
        let (said, failure) = shake(&load(settings), host).await;
        match refused {
            None => assert_eq!((said.as_deref(), failure), (Ok("hello"), None)),
            Some(words) => {
                let said = said.expect_err(words);
                assert!(said.contains(words), "{said}");
                assert_eq!(failure, Some(Failure::RefusedByClient));
            }
        }
    }
}

#[tokio::test]
async fn clients_show_certificates_where_they_have_to() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let own = authority.sign("client", (2090, 1, 1));
    let asking = |auth| Settings {
        tls_client_ca_file: folder.write("ca.pem", authority.pem()),
        tls_client_auth: auth,
        ..good(&folder, &authority)
    };
    let foreign = Authority::new().sign("client", (2090, 1, 1));
    let (required, optional) = (ClientAuth::Required, ClientAuth::Optional);
    let refused = Some(Failure::ClientCertificate);
    for (shown, auth, failure) in [
        (None, required, refused),
        (None, optional, None),
        (Some(&own), optional, None),
        (Some(&own), required, None),
        (Some(&foreign), optional, refused),
    ] {
        let settings = Settings {
            upstream_cert_file: shown.and_then(|(it, _)| folder.write("client.pem", it)),
            upstream_key_file: shown.and_then(|(_, key)| folder.write("client-key.pem", key)),
            ..asking(auth)
        };
        let (said, found) = shake(&load(&settings), "localhost").await;
        assert_eq!(found, failure, "{said:?}");
        assert_eq!(said.is_ok(), failure.is_none(), "{said:?}");
    }
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
