//! Somebody who sends dead letters away while all this happens: out of each target into one queue, again and again, over the API of a proxy. By
//! draw some go back to their source first and die once more there, or only those that a filter takes, or after a pause; and a few are purged.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::http;
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

/// So many go back to their source at once, at most.
const A_FEW: usize = 50;
/// How slow one is that is paused, in messages a second, so that something is left to be paused.
const SLOW: u32 = 300;
/// Until a redrive that was begun has ended.
const END: Duration = Duration::from_secs(60);

/// What was moved in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    /// To the queue that counts.
    pub redriven: u64,
    /// To the source, where they die once more.
    pub to_source: u64,
    /// With a filter that took a part.
    pub filtered: u64,
    pub purged: u64,
    /// Redrives that were paused, and went on.
    pub paused: u64,
}

/// One thing that an operator does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Redrive,
    ToSource,
    Filter,
    Purge,
    Pause,
}

/// The operator at work.
pub(crate) struct Operator {
    stop: Arc<AtomicBool>,
    work: JoinHandle<Fallible<Moved>>,
}

/// What is to be done, and what was.
struct Work {
    vhost: String,
    proxies: Vec<SocketAddr>,
    sources: Vec<Arc<Source>>,
    rng: Rng,
    moved: Moved,
    stop: Arc<AtomicBool>,
}

// === impl Operator ===

impl Operator {
    /// Begins to redrive out of the targets of these sources, by whichever proxy answers.
    pub(crate) fn begin(
        vhost: &str,
        proxies: Vec<SocketAddr>,
        sources: &[Arc<Source>],
        rng: Rng,
    ) -> Operator {
        let stop: Arc<AtomicBool> = Arc::default();
        let sources = sources.iter().filter(|source| !source.is_native);
        let work = Work {
            vhost: vhost.to_owned(),
            proxies,
            sources: sources.cloned().collect(),
            rng,
            moved: Moved::default(),
            stop: Arc::clone(&stop),
        };
        let work = tokio::spawn(work.carry_on());
        Operator { stop, work }
    }

    /// Waits until the last redrive has ended, and says how many messages went in all.
    pub(crate) async fn end(self) -> Fallible<Moved> {
        self.stop.store(true, Relaxed);
        self.work.await.map_err(|error| error.to_string())?
    }
}

// === impl Work ===

impl Work {
    async fn carry_on(mut self) -> Fallible<Moved> {
        while !self.stop.load(Relaxed) {
            for source in self.sources.clone() {
                for proxy in self.proxies.clone() {
                    // Half of them lead on, so that there is an end.
                    let deed = match self.rng.u8(..8) {
                        0 => Deed::ToSource,
                        1 => Deed::Filter,
                        2 => Deed::Purge,
                        3 => Deed::Pause,
                        _ => Deed::Redrive,
                    };
                    self.act(deed, proxy, &source).await?;
                }
            }
            sleep(PAUSE).await;
        }
        Ok(self.moved)
    }

    /// Proxy or broker may be away, the queue may be gone: the next one will do.
    async fn act(&mut self, deed: Deed, proxy: SocketAddr, source: &Source) -> Fallible<()> {
        let digit = self.rng.u8(1..10);
        let order = match deed {
            Deed::Redrive => format!("redrives?to-queue={REDRIVEN}"),
            Deed::ToSource => format!("redrives?limit={A_FEW}"),
            Deed::Filter => {
                format!(
                    "redrives?to-queue={REDRIVEN}&body={}%20{digit}",
                    source.name
                )
            }
            Deed::Purge => {
                let prefix = source.ledger.purged().begin(self.rng.usize(10..100));
                format!("purges?body={}%20{prefix}", source.name)
            }
            Deed::Pause => format!("redrives?to-queue={REDRIVEN}&rate={SLOW}"),
        };
        let gone = self.carry_out(deed, proxy, source, &order).await?;
        if matches!(deed, Deed::Purge) {
            source.ledger.purged().end(gone);
        }
        let gone = gone.unwrap_or(0);
        let moved = &mut self.moved;
        match deed {
            Deed::ToSource => moved.to_source += gone,
            Deed::Purge => moved.purged += gone,
            Deed::Filter => {
                (moved.filtered, moved.redriven) = (moved.filtered + gone, moved.redriven + gone)
            }
            Deed::Redrive | Deed::Pause => moved.redriven += gone,
        }
        Ok(())
    }

    /// One to its end: how many messages went, if that is known.
    ///
    /// # Errors
    /// It was paused, and does not go on.
    async fn carry_out(
        &mut self,
        deed: Deed,
        proxy: SocketAddr,
        source: &Source,
        order: &str,
    ) -> Fallible<Option<u64>> {
        let vhost = format!("/api/v1/vhosts/{}", self.vhost);
        let begin = format!("{vhost}/queues/{}/{order}", source.target);
        let begun = ask(proxy, "POST", &begin).await;
        let Some(id) = begun.as_ref().and_then(|begun| begun["id"].as_u64()) else {
            // Refused in so many words, nothing has begun.
            let refused = begun.is_some_and(|answer| answer.is_object());
            return Ok(refused.then_some(0));
        };
        let this = format!("{vhost}/redrives/{id}");
        if matches!(deed, Deed::Pause)
            && let Some(shown) = ask(proxy, "POST", &format!("{this}/pause")).await
            && shown["state"] == "paused"
        {
            sleep(2 * PAUSE).await;
            if ask(proxy, "POST", &format!("{this}/resume"))
                .await
                .is_none()
            {
                return Ok(None);
            }
            self.moved.paused += 1;
        }
        let begun = Instant::now();
        loop {
            let Some(shown) = ask(proxy, "GET", &this).await else {
                return Ok(None);
            };
            let Some(state) = shown["state"].as_str() else {
                return Ok(None);
            };
            match state {
                "paused" if begun.elapsed() > END => {
                    return Err(format!("a redrive was told to go on: {shown}"));
                }
                "running" | "waiting" | "paused" => sleep(PAUSE).await,
                _ => return Ok(shown["gone"].as_u64()),
            }
        }
    }
}

// === impl Moved ===

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved {
            redriven,
            to_source,
            filtered,
            purged,
            paused,
        } = self;
        write!(
            f,
            "redriven={redriven} to_source={to_source} filtered={filtered} purged={purged} paused={paused}"
        )
    }
}

async fn ask(proxy: SocketAddr, method: &str, path: &str) -> Option<serde_json::Value> {
    let headers = [("Authorization", LOGIN), ("X-Dlx-Proxy-Request", "1")];
    let answer = timeout(PATIENCE, http::request(proxy, method, path, &headers, ""));
    let (_, text) = answer.await.ok()?.ok()?;
    serde_json::from_str(&text).ok()
}
