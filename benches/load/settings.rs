//! What to measure, how much of it, and on which broker: environment and arguments, read once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use lapin::uri::AMQPUri;

/// What the environment and the command line ask for.
pub(crate) struct Settings {
    /// The broker.
    pub(crate) broker: Address,
    /// Its URL, for the proxy's `--upstream`.
    pub(crate) url: String,
    /// Its process, if it is one of the lab's.
    pub(crate) broker_pid: Option<u32>,
    /// The same broker with TLS, if it is one of the lab's.
    pub(crate) encrypted: Option<Encrypted>,
    /// The proxy's binary.
    pub(crate) binary: PathBuf,
    /// Another one, to be compared with it and nothing else.
    pub(crate) old: Option<PathBuf>,
    /// Its `mode`.
    pub(crate) mode: String,
    /// haproxy's `nbthread`; none leaves its default, one per core.
    pub(crate) haproxy_threads: Option<u16>,
    /// How much.
    pub(crate) scale: Scale,
    /// Messages of one redrive.
    pub(crate) redriven: u64,
    /// Idle connections.
    pub(crate) connections: u64,
    /// Messages that wait for their retry.
    pub(crate) waiting: u64,
    /// True for `BENCH_SMALL`: everything runs once, and no figure means anything.
    pub(crate) small: bool,
    /// Only scenes whose name contains one of these words; none: all.
    only: Vec<String>,
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
    /// How often every path has its turn.
    pub(crate) rounds: usize,
    /// Messages of one throughput run.
    pub(crate) messages: u64,
    /// How long one latency run lasts, after its warm-up.
    pub(crate) latency: Duration,
    /// Dead letters of one run at prefetch 1; others make `deaths_faster` times as many.
    pub(crate) deaths: u64,
    /// See `deaths`: a run shall last about a second whatever the prefetch.
    pub(crate) deaths_faster: u64,
    /// How long the message at the head of the TTL scene's queue lives: all others must be in the queue by then.
    pub(crate) ttl: Duration,
    /// How long a retry takes.
    pub(crate) retry: Duration,
}

const FULL: Scale = Scale {
    // A multiple of two and three, see `report::interleave`.
    rounds: 6,
    messages: 300_000,
    latency: Duration::from_secs(4),
    deaths: 4_000,
    deaths_faster: 8,
    ttl: Duration::from_secs(4),
    retry: Duration::from_secs(1),
};

const SMALL: Scale = Scale {
    rounds: 1,
    messages: 2_000,
    latency: Duration::from_millis(200),
    deaths: 100,
    deaths_faster: 2,
    ttl: Duration::from_secs(3),
    retry: Duration::from_millis(200),
};

/// All that there are.
pub(crate) const SCALES: [Scale; 2] = [FULL, SMALL];

// === impl Settings ===

impl Settings {
    /// Reads environment and arguments.
    pub(crate) fn read() -> anyhow::Result<Settings> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let brokers = env("DLX_TEST_BROKERS").context(
            "no broker to measure: set DLX_TEST_BROKERS, e.g. 4.3.6=amqp://guest:guest@127.0.0.1:5672 \
             (a comma between several; the newest is used, or the one that BENCH_BROKER names, or the `oldest`). \
             `make bench` starts one and sets it",
        )?;
        let (version, url) = choose(&brokers, env("BENCH_BROKER").as_deref())?;
        let folder = env("DLX_TEST_DIR").and_then(|dirs| folder(&dirs, &version));
        let pid = folder.as_deref().and_then(node_pid);
        let encrypted = env("DLX_TEST_TLS").and_then(|urls| {
            let (_, url) = choose(&urls, Some(&version)).ok()?;
            let uri: AMQPUri = url.parse().ok()?;
            Some(Encrypted {
                broker: uri.authority.port,
                url,
                certificates: folder?.join("tls"),
            })
        });
        let small = env("BENCH_SMALL").is_some_and(|value| value != "0");
        let mut scale = if small { SMALL } else { FULL };
        if let Some(rounds) = env("BENCH_ROUNDS") {
            scale.rounds = rounds.parse().context("BENCH_ROUNDS is not a number")?;
        }
        let number = |name: &str, usual: u64| -> anyhow::Result<u64> {
            env(name).map_or(Ok(usual), |text| {
                text.parse()
                    .with_context(|| format!("{name} is not a number"))
            })
        };
        Ok(Settings {
            redriven: number("BENCH_MESSAGES", scale.messages)?,
            connections: number("BENCH_CONNECTIONS", if small { 50 } else { 8_000 })?,
            waiting: number("BENCH_WAITING", if small { 500 } else { 100_000 })?,
            broker: Address::parse(&url)?,
            url,
            broker_pid: pid,
            encrypted,
            // Cargo builds it beside every bench, in the same profile.
            binary: env("DLX_TEST_PROXY").map_or_else(
                || PathBuf::from(env!("CARGO_BIN_EXE_dlx-proxy")),
                PathBuf::from,
            ),
            old: env("BENCH_OLD").map(PathBuf::from),
            mode: env("DLX_PROXY_MODE").unwrap_or_else(|| "full".into()),
            haproxy_threads: env("BENCH_HAPROXY_NBTHREAD")
                .map(|threads| threads.parse())
                .transpose()
                .context("BENCH_HAPROXY_NBTHREAD is not a number")?,
            scale,
            small,
            // `cargo bench` itself adds `--bench`.
            only: std::env::args()
                .skip(1)
                .filter(|argument| !argument.starts_with('-'))
                .collect(),
        })
    }

    /// Whether the command line asks for that scene.
    pub(crate) fn wants(&self, scene: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| scene.contains(word.as_str()))
    }
}

/// Of `3.10.8=amqp://…,4.3.6=amqp://…` the newest, the `oldest`, or the version that was asked for, and its URL.
fn choose(brokers: &str, version: Option<&str>) -> anyhow::Result<(String, String)> {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect()
    };
    let mut brokers = brokers
        .split(',')
        .map(|entry| {
            entry
                .trim()
                .split_once('=')
                .ok_or_else(|| anyhow!("DLX_TEST_BROKERS: {entry:?} is not VERSION=URL"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    brokers.sort_by_key(|(name, _)| numbers(name));
    match version {
        Some("oldest") => brokers.truncate(1),
        Some(version) => brokers.retain(|(name, _)| *name == version),
        None => {}
    }
    brokers
        .pop()
        .map(|(version, url)| (version.to_owned(), url.to_owned()))
        .with_context(|| {
            format!(
                "BENCH_BROKER={} is not in DLX_TEST_BROKERS",
                version.unwrap_or_default()
            )
        })
}

/// The folder of a node of the lab, from `3.10.8=DIR;4.3.6=DIR`.
fn folder(dirs: &str, version: &str) -> Option<PathBuf> {
    let mut entries = dirs.split(';');
    let folder = entries.find_map(|entry| entry.strip_prefix(version)?.strip_prefix('='))?;
    Some(PathBuf::from(folder))
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
