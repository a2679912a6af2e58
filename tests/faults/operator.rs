//! Somebody who sends dead letters away while all this happens: out of each target into one queue, again and again, over the API of a proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::admin;
use super::lab::Fallible;
use super::load::Source;

/// Where the operator sends all.
pub(crate) const REDRIVEN: &str = "redriven";
/// `guest:guest`, for HTTP Basic.
const LOGIN: &str = "Basic Z3Vlc3Q6Z3Vlc3Q=";
/// Between two looks at a redrive, and between two redrives.
const PAUSE: Duration = Duration::from_millis(100);
/// No answer takes longer, or there is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// The operator at work.
pub(crate) struct Operator {
    stop: Arc<AtomicBool>,
    gone: Arc<AtomicU64>,
    work: JoinHandle<()>,
}

/// What is to be done, and what was.
struct Work {
    vhost: String,
    proxies: Vec<SocketAddr>,
    targets: Vec<String>,
    stop: Arc<AtomicBool>,
    gone: Arc<AtomicU64>,
}

// === impl Operator ===

impl Operator {
    /// Begins to redrive out of the targets of these sources, by whichever proxy answers.
    pub(crate) fn begin(
        vhost: &str,
        proxies: Vec<SocketAddr>,
        sources: &[Arc<Source>],
    ) -> Operator {
        let (stop, gone) = (Arc::default(), Arc::default());
        let targets = sources.iter().filter(|source| !source.is_native);
        let work = Work {
            vhost: vhost.to_owned(),
            proxies,
            targets: targets.map(|source| source.target.clone()).collect(),
            stop: Arc::clone(&stop),
            gone: Arc::clone(&gone),
        };
        let work = tokio::spawn(work.carry_on());
        Operator { stop, gone, work }
    }

    /// Waits until the last redrive has ended, and says how many messages went in all.
    pub(crate) async fn end(self) -> Fallible<u64> {
        self.stop.store(true, Relaxed);
        self.work.await.map_err(|error| error.to_string())?;
        Ok(self.gone.load(Relaxed))
    }
}

// === impl Work ===

impl Work {
    async fn carry_on(self) {
        while !self.stop.load(Relaxed) {
            for target in &self.targets {
                for proxy in &self.proxies {
                    // Proxy or broker may be away, the queue may be gone: the next one will do.
                    let gone = self.redrive(*proxy, target).await.unwrap_or(0);
                    self.gone.fetch_add(gone, Relaxed);
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// One redrive to its end: how many messages went.
    async fn redrive(&self, proxy: SocketAddr, target: &str) -> Option<u64> {
        let vhost = format!("/api/v1/vhosts/{}", self.vhost);
        let begin = format!("{vhost}/queues/{target}/redrives?to-queue={REDRIVEN}");
        let begun = ask(proxy, "POST", &begin).await?;
        let id = begun["id"].as_u64()?;
        loop {
            let shown = ask(proxy, "GET", &format!("{vhost}/redrives/{id}")).await?;
            match shown["state"].as_str()? {
                "running" | "waiting" => sleep(PAUSE).await,
                _ => return shown["gone"].as_u64(),
            }
        }
    }
}

async fn ask(proxy: SocketAddr, method: &str, path: &str) -> Option<serde_json::Value> {
    let headers = [("Authorization", LOGIN), ("X-Dlx-Proxy-Request", "1")];
    let answer = timeout(PATIENCE, admin::ask(proxy, method, path, &headers));
    let (_, text) = answer.await.ok()?.ok()?;
    serde_json::from_str(&text).ok()
}
