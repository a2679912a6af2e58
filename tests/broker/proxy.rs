//! A proxy in this process: the real application with its ports, links and tasks. Nothing in it is global, so there may be many.

use std::net::{SocketAddr, TcpListener};
use std::sync::Once;
use std::time::Duration;

use dlx_proxy::app::App;
use dlx_proxy::config::{Config, LogFormat, LogLevel, Mode, Sources};
use dlx_proxy::drain::{Drain, Ended};
use dlx_proxy::telemetry::logging;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::lab::within;

/// A running proxy.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    pub admin: Admin,
    drain: Drain,
    run: JoinHandle<Ended>,
}

/// The admin port of a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admin(pub SocketAddr);

// === impl Proxy ===

impl Proxy {
    /// Starts one. It need not be ready yet.
    pub(crate) async fn start(
        upstream: &str,
        mode: Mode,
        vhosts: &str,
        settings: &[(&'static str, &str)],
    ) -> Proxy {
        log_if_asked();
        let drain = Drain::new(Duration::from_secs(20));
        for _ in 0..20 {
            let [address, admin] = free_addresses();
            let mode = format!("{mode:?}").to_lowercase();
            let (listen, admin_text) = (address.to_string(), admin.to_string());
            let mut flags = vec![
                ("upstream", upstream),
                ("listen", &listen),
                ("admin", &admin_text),
                ("mode", &mode),
                ("vhosts", vhosts),
            ];
            flags.extend_from_slice(settings);
            let sources = Sources {
                flags: flags
                    .into_iter()
                    .map(|(name, text)| (name, text.to_owned()))
                    .collect(),
                ..Sources::default()
            };
            let config = Config::load(&sources).expect("good settings");
            // Somebody else may have taken the port meanwhile.
            if let Ok(app) = App::bind(&config, &drain).await {
                return Proxy {
                    address,
                    admin: Admin(admin),
                    run: tokio::spawn(app.run(drain.clone())),
                    drain,
                };
            }
        }
        unreachable!("no two free ports in 20 attempts");
    }

    /// Ends it as SIGTERM would; all its tasks must end by themselves.
    pub(crate) async fn stop(self) {
        self.drain.begin();
        let ended = within("the proxy ends", self.run).await.expect("no panic");
        assert_eq!(ended, Ended::Settled);
    }
}

/// With DLX_TEST_LOG=debug the proxies write what they do.
fn log_if_asked() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = match std::env::var("DLX_TEST_LOG").as_deref() {
            Ok("trace") => LogLevel::Trace,
            Ok("debug") => LogLevel::Debug,
            Ok(_) => LogLevel::Info,
            Err(_) => return,
        };
        logging::start(LogFormat::Text, level).expect("nobody else logs");
    });
}

/// Different ones: both are taken at the same time.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("bound"))
}

// === impl Admin ===

impl Admin {
    /// Status and text of a page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = async {
            let mut stream = TcpStream::connect(self.0).await?;
            let request = format!("GET {path} HTTP/1.0\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        let answer = within(path, answer).await.expect("the admin port answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
        let status = head.split(' ').nth(1).expect("a status line");
        (status.parse().expect("a number"), body.to_owned())
    }

    pub(crate) async fn is_ready(&self) -> bool {
        self.get("/readyz").await.0 == 200
    }

    /// The sum of all samples of a metric whose labels contain all of these.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let (_, text) = self.get("/metrics").await;
        let fits = |line: &&str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| {
            line.rsplit(' ')
                .next()
                .and_then(|value| value.parse::<u64>().ok())
        };
        text.lines().filter(fits).filter_map(value).sum()
    }
}
