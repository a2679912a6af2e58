//! What to measure, how much of it, and on which brokers: environment and arguments, read once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use dlx_proxy::amqp::version::Version;
use lapin::uri::AMQPUri;

use crate::process;

/// What the environment and the command line ask for.
pub(crate) struct Settings {
    /// The oldest first. Scenes that run on one broker run on the last.
    pub(crate) brokers: Vec<Broker>,
    /// The proxy's binary.
    pub(crate) binary: PathBuf,
    /// Another one, to be compared with it and nothing else.
    pub(crate) old: Option<PathBuf>,
    /// Its `mode`.
    pub(crate) mode: String,
    /// haproxy's `nbthread`. The proxy has one thread, too, until that is busy.
    pub(crate) haproxy_threads: u64,
    /// How much.
    pub(crate) scale: Scale,
    /// True for `BENCH_SMALL`: everything runs once, and no figure means anything.
    pub(crate) small: bool,
    /// Where the tables go, too.
    pub(crate) page: Option<PathBuf>,
    /// Only scenes whose name contains one of these words; none: all.
    pub(crate) only: Vec<String>,
}

/// One of the brokers.
pub(crate) struct Broker {
    pub(crate) version: String,
    pub(crate) address: Address,
    /// The same, for the proxy's `--upstream`.
    pub(crate) url: String,
    /// Its process, if it is one of the lab's.
    pub(crate) pid: Option<u32>,
    /// The same broker with TLS, if it is one of the lab's.
    pub(crate) encrypted: Option<Encrypted>,
    /// Its management API, if the lab has one.
    pub(crate) management: Option<String>,
}

/// The broker's port with TLS.
pub(crate) struct Encrypted {
    /// The port.
    pub(crate) broker: u16,
    /// Its URL, for the proxy.
    pub(crate) url: String,
    /// The folder of the certificates, see tests/lab/certificates.sh.
    pub(crate) certificates: PathBuf,
}

/// Where and as whom to log in.
#[derive(Clone)]
pub(crate) struct Address {
    /// The host.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// The user.
    pub(crate) user: String,
    /// The password.
    pub(crate) password: String,
    /// The vhost.
    pub(crate) vhost: String,
}

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How often every way has its turn.
    pub(crate) rounds: usize,
    /// How long messages are published in one run.
    pub(crate) time: Duration,
    /// The same where latency counts.
    pub(crate) paced: Duration,
    /// Until what a handshake needed is given back.
    pub(crate) rest: Duration,
    /// Messages of one redrive.
    pub(crate) redriven: u64,
    /// Idle and busy connections, at most.
    pub(crate) connections: u64,
    /// Messages that wait for their retry.
    pub(crate) waiting: u64,
    /// Proxies in front of one broker, at most.
    pub(crate) proxies: u64,
    /// Times that a queue is altered.
    pub(crate) alterations: u64,
}

const FULL: Scale = Scale {
    rounds: 5,
    time: Duration::from_millis(800),
    paced: Duration::from_millis(1_800),
    rest: Duration::from_secs(2),
    redriven: 40_000,
    connections: 8_000,
    waiting: 50_000,
    proxies: 200,
    alterations: 10,
};

const SMALL: Scale = Scale {
    rounds: 1,
    time: Duration::from_millis(30),
    paced: Duration::from_millis(350),
    rest: Duration::from_millis(50),
    redriven: 500,
    connections: 50,
    waiting: 500,
    proxies: 3,
    alterations: 2,
};

// === impl Settings ===

impl Settings {
    /// Reads environment and arguments.
    pub(crate) fn read() -> anyhow::Result<Settings> {
        let small = env("BENCH_SMALL").is_some_and(|value| value != "0");
        let mut scale = if small { SMALL } else { FULL };
        let number = |name: &str, usual: u64| -> anyhow::Result<u64> {
            env(name).map_or(Ok(usual), |text| {
                text.parse()
                    .with_context(|| format!("{name} is not a number"))
            })
        };
        scale.rounds = number("BENCH_ROUNDS", scale.rounds as u64)? as usize;
        scale.redriven = number("BENCH_MESSAGES", scale.redriven)?;
        scale.connections = number("BENCH_CONNECTIONS", scale.connections)?;
        scale.waiting = number("BENCH_WAITING", scale.waiting)?;
        scale.proxies = number("BENCH_PROXIES", scale.proxies)?;
        scale.alterations = number("BENCH_ALTERATIONS", scale.alterations)?;
        Ok(Settings {
            brokers: brokers()?,
            // Cargo builds it beside every bench, in the same profile.
            binary: env("DLX_TEST_PROXY").map_or_else(
                || PathBuf::from(env!("CARGO_BIN_EXE_dlx-proxy")),
                PathBuf::from,
            ),
            old: env("BENCH_OLD").map(PathBuf::from),
            mode: env("DLX_PROXY_MODE").unwrap_or_else(|| "full".into()),
            haproxy_threads: number("BENCH_HAPROXY_NBTHREAD", 1)?,
            scale,
            small,
            page: env("BENCH_PAGE").map(PathBuf::from),
            // `cargo bench` itself adds `--bench`.
            only: std::env::args()
                .skip(1)
                .filter(|argument| !argument.starts_with('-'))
                .collect(),
        })
    }
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Those of `3.10.8=amqp://…,4.3.6=amqp://…` that BENCH_BROKER allows.
fn brokers() -> anyhow::Result<Vec<Broker>> {
    let urls = env("DLX_TEST_BROKERS").context(
        "no broker to measure: set DLX_TEST_BROKERS, e.g. 4.3.6=amqp://guest:guest@127.0.0.1:5672 \
         (a comma between several). `make bench` starts two and sets it",
    )?;
    let mut brokers = entries(&urls, ',')
        .map(|(version, url)| Broker::new(version, url))
        .collect::<anyhow::Result<Vec<_>>>()?;
    brokers.sort_by_key(|broker| {
        let numbers = broker.version.split('.');
        numbers
            .map(|part| part.parse().unwrap_or(0))
            .collect::<Vec<u32>>()
    });
    match env("BENCH_BROKER").as_deref() {
        None => {}
        Some("oldest") => brokers.truncate(1),
        Some("newest") => drop(brokers.drain(..brokers.len().saturating_sub(1))),
        Some(version) => brokers.retain(|broker| broker.version == version),
    }
    ensure!(
        !brokers.is_empty(),
        "BENCH_BROKER is not in DLX_TEST_BROKERS"
    );
    Ok(brokers)
}

/// What `VERSION=TEXT` says of each version.
fn entries(text: &str, between: char) -> impl Iterator<Item = (&str, &str)> {
    text.split(between)
        .filter_map(|entry| entry.trim().split_once('='))
}

/// What a variable like `3.10.8=TEXT;4.3.6=TEXT` says of a version.
fn of(variable: &str, between: char, version: &str) -> Option<String> {
    let text = env(variable)?;
    let found = entries(&text, between).find(|(name, _)| *name == version);
    found.map(|(_, text)| text.to_owned())
}

// === impl Broker ===

impl Broker {
    fn new(version: &str, url: &str) -> anyhow::Result<Broker> {
        let folder = of("DLX_TEST_DIR", ';', version).map(PathBuf::from);
        let encrypted = of("DLX_TEST_TLS", ',', version).zip(folder.as_deref());
        let encrypted = encrypted.and_then(|(url, folder)| {
            let uri: AMQPUri = url.parse().ok()?;
            let (broker, certificates) = (uri.authority.port, folder.join("tls"));
            Some(Encrypted {
                broker,
                url,
                certificates,
            })
        });
        Ok(Broker {
            version: version.to_owned(),
            address: Address::parse(url)?,
            url: url.to_owned(),
            pid: folder.as_deref().and_then(node_pid),
            encrypted,
            management: of("DLX_TEST_MANAGEMENT", ',', version),
        })
    }

    /// Seconds of processor time that it has used; not a number where the bench cannot see its process.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        self.pid.map_or(Ok(f64::NAN), process::cpu)
    }

    /// Whether its quorum queues can delay what is returned.
    pub(crate) fn has_retries(&self) -> bool {
        Version::parse(self.version.as_bytes()) >= Some(Version(4, 3, 0))
    }
}

/// Its process.
fn node_pid(folder: &Path) -> Option<u32> {
    let node = std::fs::read_to_string(folder.join("node.env")).ok()?;
    node.lines()
        .find_map(|line| line.strip_prefix("NODE_PID="))?
        .trim_matches(['\'', '"'])
        .parse()
        .ok()
}

// === impl Address ===

impl Address {
    fn parse(url: &str) -> anyhow::Result<Address> {
        let uri: AMQPUri = url
            .parse()
            .map_err(|e| anyhow!("{url:?} is no AMQP URL: {e}"))?;
        if !url.starts_with("amqp://") {
            bail!("the bench speaks plain amqp:// only, not {url:?}");
        }
        Ok(Address {
            host: uri.authority.host,
            port: uri.authority.port,
            user: uri.authority.userinfo.username,
            password: uri.authority.userinfo.password,
            vhost: uri.vhost,
        })
    }

    /// The same login at a local port.
    pub(crate) fn at(&self, port: u16) -> Address {
        Address {
            host: "127.0.0.1".into(),
            port,
            ..self.clone()
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
