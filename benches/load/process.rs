//! The two proxies as processes: started, asked for their CPU time, and ended with the bench.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::client::Connection;
use crate::settings::{Address, Broker, Settings};

/// The proxy's `prefix`: what it makes on the broker is told apart from that of a proxy in use, and deleted at the end.
pub(crate) const PREFIX: &str = "dlx-proxy-bench";

/// How long a proxy may take until it answers.
const START: Duration = Duration::from_secs(60);

/// A way to the broker.
pub(crate) struct Route {
    /// Where clients connect.
    pub(crate) address: Address,
    /// What is in between.
    pub(crate) process: Option<Process>,
}

/// A proxy that we started.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// The port of dlx-proxy's admin server.
    admin: Option<u16>,
    /// Where it takes connections; those of the bench may get there through something else.
    pub(crate) port: u16,
}

/// A directory for configuration and logs.
pub(crate) struct Scratch(PathBuf);

/// What every process needs to know.
pub(crate) struct Site<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) broker: &'s Broker,
    pub(crate) scratch: Scratch,
}

type Environment<'a> = &'a [(&'a str, String)];

// === impl Site ===

impl Site<'_> {
    /// haproxy in TCP mode. `port`: where it takes clients.
    pub(crate) fn haproxy(&self, name: &str, port: u16, listeners: &str) -> anyhow::Result<Route> {
        let threads = self.settings.haproxy_threads;
        let configuration = self.scratch.file(&format!("{name}.cfg"));
        fs::write(
            &configuration,
            format!(
                "global\n  nbthread {threads}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n{listeners}"
            ),
        )?;
        let mut command = Command::new(haproxy_binary());
        command.arg("-db").arg("-f").arg(configuration);
        self.start(name, port, command, None)
    }

    /// A dlx-proxy. `prefix`: its setting, and its name here.
    pub(crate) fn dlx_proxy(
        &self,
        binary: &Path,
        prefix: &str,
        environment: Environment<'_>,
    ) -> anyhow::Result<Route> {
        let port = free_port()?;
        let own = [
            ("DLX_PROXY_UPSTREAM", self.broker.url.clone()),
            ("DLX_PROXY_LISTEN", format!("127.0.0.1:{port}")),
            ("DLX_PROXY_PREFIX", prefix.to_owned()),
        ];
        self.dlx_proxy_at(binary, prefix, port, &[&own, environment].concat())
    }

    /// One whose settings say where it listens, and to which broker it connects. `port`: where it takes clients.
    pub(crate) fn dlx_proxy_at(
        &self,
        binary: &Path,
        name: &str,
        port: u16,
        environment: Environment<'_>,
    ) -> anyhow::Result<Route> {
        let admin = free_port()?;
        let mut command = Command::new(binary);
        command
            .arg("run")
            .arg("--admin")
            .arg(format!("127.0.0.1:{admin}"))
            // Not settings of the proxy, which refuses what it does not know. Real ones (DLX_PROXY_INTAKE_QUEUE_TYPE, …) pass.
            .env_remove("DLX_TEST_BROKERS")
            .env_remove("DLX_TEST_PROXY")
            .env("DLX_PROXY_MODE", &self.settings.mode)
            .envs(environment.iter().map(|(key, value)| (key, value)));
        self.start(name, port, command, Some(admin))
    }

    fn start(
        &self,
        name: &str,
        port: u16,
        mut command: Command,
        admin: Option<u16>,
    ) -> anyhow::Result<Route> {
        let address = self.broker.address.at(port);
        let log = self.scratch.file(&format!("{name}.log"));
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
        let mut process = Process {
            name: name.to_owned(),
            child,
            log,
            admin,
            port,
        };
        let begun = Instant::now();
        loop {
            let refused = match Connection::open(&address) {
                Ok(connection) => break connection.close()?,
                Err(refused) => refused,
            };
            if let Some(status) = process.child.try_wait()? {
                bail!("{name} ended with {status}{}", process.last_words());
            }
            if begun.elapsed() > START {
                return Err(
                    refused.context(format!("{name} does not answer{}", process.last_words()))
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Route {
            address,
            process: Some(process),
        })
    }
}

// === impl Route ===

impl Route {
    /// No proxy at all.
    pub(crate) fn direct(broker: &Broker) -> Route {
        Route {
            address: broker.address.clone(),
            process: None,
        }
    }

    pub(crate) fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("no proxy")
    }

    /// Seconds of processor time that the proxy has used; not a number where there is none.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let process = self.process.as_ref();
        process.map_or(Ok(f64::NAN), |process| cpu(process.child.id()))
    }
}

// === impl Process ===

impl Process {
    /// The memory that it has now, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        memory(self.child.id(), "VmRSS:")
    }

    /// The most memory that it has had since it began, or since [`Process::forget_peak`], in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<f64> {
        memory(self.child.id(), "VmHWM:")
    }

    /// The most memory that it has had is what it has now.
    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(fs::write(
            format!("/proc/{}/clear_refs", self.child.id()),
            "5",
        )?)
    }

    /// Its name and how many threads it has.
    pub(crate) fn about(&self) -> anyhow::Result<String> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))?.count();
        Ok(format!("{} has {threads} threads", self.name))
    }

    /// Waits until dlx-proxy says that its links are up; haproxy has none.
    pub(crate) fn wait_ready(&self) -> anyhow::Result<()> {
        if self.admin.is_none() {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            let answer = match self.get("/readyz") {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return Ok(()),
                Ok(answer) => answer,
                Err(error) => format!("{error:#}"),
            };
            if begun.elapsed() > START {
                bail!("/readyz: {}{}", answer.trim(), self.last_words());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many returned messages it has sent away to wait.
    pub(crate) fn sent_away(&self) -> anyhow::Result<f64> {
        self.sum("dlx_proxy_retries_total", "outcome=\"confirmed\"")
    }

    fn sum(&self, metric: &str, label: &str) -> anyhow::Result<f64> {
        let metrics = self.get("/metrics")?;
        let samples = metrics
            .lines()
            .filter(|line| line.starts_with(metric) && line.contains(label));
        Ok(samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        self.ask("GET", path, "")
    }

    /// The answer of its admin port, see [`ask`].
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> anyhow::Result<String> {
        ask(
            self.admin.context("it has no admin port")?,
            method,
            path,
            headers,
        )
    }

    /// The end of its log, for an error message.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines
            .get(lines.len().saturating_sub(5)..)
            .unwrap_or_default();
        tail.iter().map(|line| format!("\n    {line}")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Neither holds anything that a kill would lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer of a local port, with its head. `headers`: further ones, each with its line break.
pub(crate) fn ask(port: u16, method: &str, path: &str, headers: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Login and port of a management API.
pub(crate) fn parts(api: &str) -> anyhow::Result<(&str, u16)> {
    let (login, host) = api
        .trim_start_matches("http://")
        .split_once('@')
        .context("no login")?;
    let port = host.rsplit(':').next().context("no port")?;
    Ok((login, port.parse()?))
}

/// A header with its line end. `login`: `USER:PASSWORD`.
pub(crate) fn authorization(login: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(login))
}

/// A figure of /proc/PID/status, in bytes.
pub(crate) fn memory(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = value.and_then(|value| value.trim().split(' ').next());
    let kilobytes: f64 = kilobytes.context(name.to_owned())?.parse()?;
    Ok(kilobytes * 1024.0)
}

/// Seconds that the threads of a process have run. Those that have ended are missing, but nothing that is measured here ends any.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<f64> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // Exact, where /proc/PID/stat counts ticks.
        let statistics = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += statistics
            .split(' ')
            .next()
            .context("schedstat")?
            .parse::<u64>()?;
    }
    Ok(nanos as f64 / 1e9)
}

// === impl Scratch ===

impl Scratch {
    /// Makes it.
    pub(crate) fn new(name: &str) -> anyhow::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("{PREFIX}-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `haproxy -v`, its first line; none if it is not installed.
pub(crate) fn haproxy_version() -> Option<String> {
    let output = Command::new(haproxy_binary()).arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.split_whitespace().nth(2)?.to_owned())
}

/// Debian installs it where a user's PATH does not look.
fn haproxy_binary() -> &'static Path {
    let debian = Path::new("/usr/sbin/haproxy");
    if debian.exists() {
        debian
    } else {
        Path::new("haproxy")
    }
}

/// A port that is free now, below those that outgoing connections take. haproxy cannot say which one it was given, so both are told.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // tests/lab takes what is above 20,000.
    let first = std::process::id() as u16 % 5_000;
    for _ in 0..10_000 {
        let port = 10_000 + (first + NEXT.fetch_add(1, Relaxed)) % 10_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between 10,000 and 20,000")
}
