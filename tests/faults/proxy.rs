//! The program itself, as a process that may be killed, paused and started again at the same ports.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::admin;
use super::lab::{Fallible, signal, until_for};
use super::port::Port;

/// After SIGTERM: `drain-timeout` by default, and what a busy machine adds.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// A proxy, running or not.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    admin: SocketAddr,
    _ports: [Port; 2],
    settings: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Option<Child>,
    starts: usize,
}

// === impl Proxy ===

impl Proxy {
    /// One with these settings; not started. `log`: where it writes.
    pub(crate) fn new(settings: Vec<(&'static str, String)>, log: PathBuf) -> Fallible<Proxy> {
        let port = || Port::free().map_err(|error| error.to_string());
        let ports = [port()?, port()?];
        let [address, admin] = ports.each_ref().map(|port| port.address);
        Ok(Proxy {
            address,
            admin,
            _ports: ports,
            settings,
            log,
            child: None,
            starts: 0,
        })
    }

    /// Its admin port.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// From the next start on.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.settings.retain(|(other, _)| *other != name);
        self.settings.push((name, value));
    }

    /// Starts it. It need not be ready yet.
    pub(crate) fn start(&mut self) -> Fallible<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log: File = log.map_err(|error| format!("{:?}: {error}", self.log))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dlx-proxy"));
        command
            .arg("run")
            .env_clear()
            .env("NO_COLOR", "1")
            .env("DLX_PROXY_LISTEN", self.address.to_string())
            .env("DLX_PROXY_ADMIN", self.admin.to_string())
            .envs(self.settings.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().map_err(|error| error.to_string())?;
        self.child = Some(child);
        self.starts += 1;
        Ok(())
    }

    /// Its links may wait for a minute, if they were refused.
    pub(crate) async fn until_ready(&self) -> Fallible<()> {
        until_for(Duration::from_secs(180), "the proxy is ready", async || {
            matches!(self.get("/readyz").await, Some((200, _)))
        })
        .await
    }

    pub(crate) async fn signal(&self, name: &str) -> Fallible<()> {
        let child = self.child.as_ref().ok_or("the proxy does not run")?;
        signal(child.id(), name).await
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self) -> Fallible<()> {
        let mut child = self.child.take().ok_or("the proxy does not run")?;
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> Fallible<ExitStatus> {
        let child = self.child.as_mut().ok_or("the proxy does not run")?;
        let mut status = None;
        let ended = until_for(GRACE, "the proxy ends", async || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        ended.await?;
        self.child = None;
        status.ok_or_else(|| "no status".to_owned())
    }

    /// SIGTERM, and an orderly end within the grace that it has by default.
    pub(crate) async fn stop(&mut self) -> Fallible<()> {
        if self.child.is_none() {
            return Ok(());
        }
        self.signal("TERM").await?;
        let status = self.ended().await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the proxy ended with {status}")),
        }
    }

    /// What must not be in its log.
    pub(crate) fn panics(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.matches("panicked").count()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Whether its counters count from the beginning of the round.
    pub(crate) fn is_the_first(&self) -> bool {
        self.starts == 1 && self.child.is_some()
    }

    /// The sum of a metric over its labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics").await.unwrap_or_default();
        admin::sum(&text, name, &[])
    }

    /// Returned messages that it could not send away, and those that it left to the broker.
    pub(crate) async fn refused_retries(&self) -> u64 {
        let (_, text) = self.get("/metrics").await.unwrap_or_default();
        admin::sum(&text, "dlx_proxy_retries_total", &["refused"])
            + admin::sum(&text, "dlx_proxy_fallbacks_total", &["return"])
    }

    /// Status and text of a page, if it answers.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let page = admin::page(self.admin, path);
        let page = tokio::time::timeout(Duration::from_secs(5), page).await;
        page.ok()?.ok()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
