//! The program itself, as a process that may be killed, paused and started again at the same ports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::admin;
use super::lab::{Fallible, until_for};
use super::port::Port;
use super::running::{self, Running, dlx_proxy};

/// After SIGTERM: `drain-timeout` by default, and what a busy machine adds.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// A proxy, running or not.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    admin: SocketAddr,
    _ports: [Port; 2],
    settings: Vec<(&'static str, String)>,
    log: PathBuf,
    running: Option<Running>,
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
            running: None,
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
        let mut command = dlx_proxy();
        command
            .arg("run")
            .env("DLX_PROXY_LISTEN", self.address.to_string())
            .env("DLX_PROXY_ADMIN", self.admin.to_string())
            .envs(self.settings.iter().cloned());
        self.running = Some(Running::start(&mut command, &self.log)?);
        self.starts += 1;
        Ok(())
    }

    /// Its links may wait for a minute, if they were refused.
    pub(crate) async fn until_ready(&self) -> Fallible<()> {
        let mut said = None;
        let ready = until_for(Duration::from_secs(180), "the proxy is ready", async || {
            said = self.get("/readyz").await;
            matches!(said, Some((200, _)))
        });
        let outcome = ready.await;
        outcome.map_err(|error| format!("{error}: {said:?}"))
    }

    pub(crate) fn signal(&self, name: &str) -> Fallible<()> {
        let running = self.running.as_ref().ok_or("the proxy does not run")?;
        running.signal(name)
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Fallible<()> {
        let running = self.running.take();
        let mut running = running.ok_or("the proxy does not run")?;
        let killed = running.child.kill().and_then(|()| running.child.wait());
        killed.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> Fallible<ExitStatus> {
        let running = self.running.as_mut().ok_or("the proxy does not run")?;
        let mut status = None;
        let ended = until_for(GRACE, "the proxy ends", async || {
            status = running.child.try_wait().ok().flatten();
            status.is_some()
        });
        ended.await?;
        self.running = None;
        status.ok_or_else(|| "no status".to_owned())
    }

    /// SIGTERM, and an orderly end within the grace that it has by default.
    pub(crate) async fn stop(&mut self) -> Fallible<()> {
        if self.running.is_none() {
            return Ok(());
        }
        self.signal("TERM")?;
        let status = self.ended().await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the proxy ended with {status}")),
        }
    }

    /// What must not be in its log.
    pub(crate) fn panics(&self) -> usize {
        running::lines(&self.log, &["panicked"]).len()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Whether its counters count from the beginning of the round.
    pub(crate) fn is_the_first(&self) -> bool {
        self.starts == 1 && self.running.is_some()
    }

    /// The sum of a metric over its labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics").await.unwrap_or_default();
        admin::sum(&text, name, &[])
    }

    /// Links of its own that it lost, and channels of them.
    pub(crate) async fn lost_channels(&self) -> u64 {
        let (_, text) = self.get("/metrics").await.unwrap_or_default();
        admin::sum(&text, "dlx_proxy_link_failures_total", &[])
            + admin::sum(&text, "dlx_proxy_events_total", &["channel_closed"])
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
