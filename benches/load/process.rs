//! The two proxies as processes: started, asked for their CPU time, and ended with the bench.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::client::Connection;
use crate::settings::{Address, Settings};

/// The proxy's `prefix`: what it makes on the broker is told apart from that of a proxy in use, and deleted at the end.
pub(crate) const PREFIX: &str = "dlx-proxy-bench";

/// How long a proxy may take until it answers.
const START: Duration = Duration::from_secs(60);

/// A way to the broker.
pub(crate) struct Route {
    /// How the tables call it.
    pub(crate) name: &'static str,
    /// Where clients connect.
    pub(crate) address: Address,
    /// What is in between.
    pub(crate) process: Option<Process>,
}

/// A proxy that we started.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// The port of dlx-proxy's admin server.
    admin: Option<u16>,
}

/// A directory for configuration and logs.
pub(crate) struct Scratch(PathBuf);

// === impl Route ===

impl Route {
    /// No proxy at all.
    pub(crate) fn direct(settings: &Settings) -> Route {
        Route {
            name: "direct",
            address: settings.broker.clone(),
            process: None,
        }
    }

    /// haproxy in TCP mode, with its defaults.
    pub(crate) fn haproxy(settings: &Settings, scratch: &Scratch) -> anyhow::Result<Route> {
        let port = free_port()?;
        let listener = format!(
            "listen amqp\n  bind 127.0.0.1:{port}\n  server broker {}\n",
            settings.broker
        );
        Route::haproxy_with("haproxy", port, &listener, settings, scratch)
    }

    /// One that listens as it is told. `port`: where it takes clients.
    pub(crate) fn haproxy_with(
        name: &'static str,
        port: u16,
        listeners: &str,
        settings: &Settings,
        scratch: &Scratch,
    ) -> anyhow::Result<Route> {
        let threads = settings.haproxy_threads.map_or(String::new(), |threads| {
            format!("global\n  nbthread {threads}\n")
        });
        let configuration = scratch.file(&format!("{name}.cfg"));
        fs::write(
            &configuration,
            format!(
                "{threads}defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n{listeners}"
            ),
        )?;
        let mut command = Command::new(haproxy_binary());
        command.arg("-db").arg("-f").arg(configuration);
        Route::start(name, settings.broker.at(port), command, None, scratch)
    }

    /// The proxy that all this is about.
    pub(crate) fn dlx_proxy(settings: &Settings, scratch: &Scratch) -> anyhow::Result<Route> {
        Route::dlx_proxy_with("dlx-proxy", &[], settings, scratch)
    }

    /// The same under another name, with settings in its environment.
    pub(crate) fn dlx_proxy_with(
        name: &'static str,
        environment: &[(&str, String)],
        settings: &Settings,
        scratch: &Scratch,
    ) -> anyhow::Result<Route> {
        let port = free_port()?;
        let own = [
            ("DLX_PROXY_UPSTREAM", settings.url.clone()),
            ("DLX_PROXY_LISTEN", format!("127.0.0.1:{port}")),
        ];
        Route::dlx_proxy_at(name, port, &[&own, environment].concat(), settings, scratch)
    }

    /// One whose settings say where it listens, and to which broker it connects. `port`: where it takes clients.
    pub(crate) fn dlx_proxy_at(
        name: &'static str,
        port: u16,
        environment: &[(&str, String)],
        settings: &Settings,
        scratch: &Scratch,
    ) -> anyhow::Result<Route> {
        let binary = &settings.binary;
        Route::dlx_proxy_of(binary, name, port, environment, settings, scratch)
    }

    /// The same of another binary.
    pub(crate) fn dlx_proxy_of(
        binary: &Path,
        name: &'static str,
        port: u16,
        environment: &[(&str, String)],
        settings: &Settings,
        scratch: &Scratch,
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
            .env("DLX_PROXY_PREFIX", PREFIX)
            .env("DLX_PROXY_MODE", &settings.mode)
            .envs(environment.iter().map(|(key, value)| (key, value)));
        Route::start(
            name,
            settings.broker.at(port),
            command,
            Some(admin),
            scratch,
        )
    }

    fn start(
        name: &'static str,
        address: Address,
        mut command: Command,
        admin: Option<u16>,
        scratch: &Scratch,
    ) -> anyhow::Result<Route> {
        let log = scratch.file(&format!("{name}.log"));
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
        let mut process = Process { child, log, admin };
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
            name,
            address,
            process: Some(process),
        })
    }

    /// CPU time that the proxy has used; zero for no proxy.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process
            .as_ref()
            .map_or(Ok(Duration::ZERO), Process::cpu)
    }
}

// === impl Process ===

impl Process {
    fn cpu(&self) -> anyhow::Result<Duration> {
        cpu(self.child.id())
    }

    /// The memory that it has now, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<f64> {
        self.status("VmRSS:")
    }

    /// The most memory that it has had since it began, or since [`Process::forget_peak`], in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<f64> {
        self.status("VmHWM:")
    }

    /// The most memory that it has had is what it has now.
    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(fs::write(
            format!("/proc/{}/clear_refs", self.child.id()),
            "5",
        )?)
    }

    fn status(&self, name: &str) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = value.and_then(|value| value.trim().split(' ').next());
        let kilobytes: f64 = kilobytes.context(name.to_owned())?.parse()?;
        Ok(kilobytes * 1024.0)
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> anyhow::Result<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let threads = status
            .lines()
            .find_map(|line| line.strip_prefix("Threads:"));
        Ok(threads.unwrap_or("?").trim().to_owned())
    }

    /// Waits until dlx-proxy says that its links are up.
    pub(crate) fn wait_ready(&self) -> anyhow::Result<()> {
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

    /// How many dead letters dlx-proxy says that it has published.
    pub(crate) fn dead_lettered(&self) -> anyhow::Result<f64> {
        self.sum("dlx_proxy_messages_dead_lettered_total", "")
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

    /// The answer of its admin port, with its head. `headers`: further ones, each with its line break.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> anyhow::Result<String> {
        let port = self.admin.context("it has no admin port")?;
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

/// utime + stime of a process, all threads. Ticks are 1/100 s on every Linux that this runs on (USER_HZ).
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name may hold spaces and brackets; the fields behind it begin with the third (proc(5)).
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/PID/stat")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>())
        .sum::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

// === impl Scratch ===

impl Scratch {
    /// Makes it.
    pub(crate) fn new() -> anyhow::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("{PREFIX}-{}", std::process::id()));
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

/// A port that is free now. haproxy cannot say which one it was given, so both are told.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
