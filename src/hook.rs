//! The hook: posts to an HTTP server of the operator's what became of each dead letter (`on-dead-letter`). Metadata only, in batches, and never in
//! the way of a dead letter: what the server does not take waits in a bounded memory, where the oldest go first, and is lost with the process.
//!
//! One POST at a time, so that they come in order. One that failed may have been taken all the same: the server may see a batch twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, StatusCode, header};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::amqp::ids::Vhost;
use crate::http::{self, Login, Place};
use crate::machine::{DeadLetter, Limit, LiveLimits, Wall};
use crate::telemetry::Metrics;

use self::batch::{Batch, Waiting};

mod batch;

const GATHERED_FOR: Duration = Duration::from_secs(1);
/// Posts of a batch before it is dropped.
const ATTEMPTS: u32 = 5;
/// For one POST, from connect to status.
const PATIENCE: Duration = Duration::from_secs(5);
const WAITS: Waits = Waits {
    pause: Duration::from_secs(1),
    last: Duration::from_secs(5),
};

#[derive(Clone)]
pub struct Hook(Arc<Inner>);

#[derive(Clone)]
pub struct Server {
    pub place: Place,
    pub target: String,
    pub login: Option<Login>,
}

/// Why a batch was not accepted, or may not have been.
#[derive(Debug, Error)]
enum NotTaken {
    #[error(transparent)]
    Failed(#[from] http::Failed),
    #[error("it answers with {0}")]
    Status(StatusCode),
}

#[derive(Clone, Copy)]
struct Waits {
    /// After the first failure of a batch; doubles each time.
    pause: Duration,
    last: Duration,
}

struct Inner {
    server: Server,
    limits: LiveLimits,
    metrics: Metrics,
    waits: Waits,
    waiting: Mutex<Waiting>,
    more: Notify,
}

// === impl Server ===

impl Server {
    async fn post(&self, body: Bytes) -> Result<(), NotTaken> {
        let request = Request::post(&self.target).header(header::CONTENT_TYPE, "application/json");
        let posting =
            self.place.ask(
                self.login.as_ref(),
                PATIENCE,
                async |mut requests| match requests.send(request, body).await?.status() {
                    status if status.is_success() => Ok(()),
                    status => Err(NotTaken::Status(status)),
                },
            );
        posting.await
    }
}

// === impl Hook ===

impl Hook {
    pub fn new(server: Server, limits: LiveLimits, metrics: Metrics) -> Hook {
        Hook::with_waits(server, limits, metrics, WAITS)
    }

    fn with_waits(server: Server, limits: LiveLimits, metrics: Metrics, waits: Waits) -> Hook {
        Hook(Arc::new(Inner {
            server,
            limits,
            metrics,
            waits,
            waiting: Mutex::default(),
            more: Notify::new(),
        }))
    }

    /// Never waits or fails.
    pub fn add(&self, vhost: &Vhost, at: Wall, dead: &Arc<DeadLetter>) {
        let Inner {
            limits, metrics, ..
        } = &*self.0;
        let most = limits.now().max_hook_letters;
        let mut waiting = self.waiting();
        let dropped = waiting.add(vhost, at, dead, most);
        metrics.hook_waiting.set(waiting.len() as i64);
        drop(waiting);
        if dropped > 0 {
            ended(metrics, "dropped", dropped);
            metrics.limit_met(Limit::HookLetters);
        }
        self.0.more.notify_one();
    }

    pub async fn run(self, stopped: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let posting = self.post_on(stop.clone());
        tokio::pin!(posting);
        tokio::select! {
            () = &mut posting => {}
            () = stopped => {
                stop.cancel();
                let _ = timeout(self.0.waits.last, posting).await;
            }
        }
        let mut waiting = self.waiting();
        let left = waiting.len() + waiting.taken();
        if left > 0 {
            ended(&self.0.metrics, "dropped", left);
            warn!(left, "the hook did not take the last dead letters in time");
        }
        *waiting = Waiting::default();
    }

    async fn post_on(&self, stop: CancellationToken) {
        let mut is_failing = false;
        loop {
            self.gathered(&stop).await;
            let batch = self.waiting().take();
            if let Some(batch) = batch {
                self.post(batch, &mut is_failing, &stop).await;
                let mut waiting = self.waiting();
                waiting.done();
                self.0.metrics.hook_waiting.set(waiting.len() as i64);
            } else if stop.is_cancelled() {
                return;
            }
        }
    }

    async fn gathered(&self, stop: &CancellationToken) {
        let until_full = async {
            while !self.waiting().fill_a_batch() {
                self.0.more.notified().await;
            }
        };
        let until_old = async {
            while self.waiting().len() == 0 {
                self.0.more.notified().await;
            }
            let _ = timeout(GATHERED_FOR, until_full).await;
        };
        stop.run_until_cancelled(until_old).await;
    }

    async fn post(&self, batch: Batch, is_failing: &mut bool, stop: &CancellationToken) {
        let Inner {
            server, metrics, ..
        } = &*self.0;
        let mut pause = self.0.waits.pause;
        for attempt in 1..=ATTEMPTS {
            let is_last = stop.is_cancelled();
            let posted = server.post(batch.body.clone()).await;
            match posted {
                Ok(()) => {
                    ended(metrics, "taken", batch.letters);
                    if std::mem::take(is_failing) {
                        info!("the hook takes dead letters again");
                    }
                    return;
                }
                Err(error) => said(&error, std::mem::replace(is_failing, true)),
            }
            if is_last || attempt == ATTEMPTS {
                break;
            }
            // At the end of the process there is one more attempt, at once.
            stop.run_until_cancelled(sleep(pause)).await;
            pause *= 2;
        }
        ended(metrics, "dropped", batch.letters);
        debug!(batch.letters, "the hook did not take them");
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended(metrics: &Metrics, outcome: &'static str, letters: usize) {
    let counter = metrics.hook_dead_letters.with([outcome.into()]);
    counter.inc_by(letters as u64);
}

fn said(error: &NotTaken, again: bool) {
    match again {
        false => {
            warn!(%error, "the hook does not take dead letters: they wait, and the oldest are dropped")
        }
        true => debug!(%error, "the hook still does not take dead letters"),
    }
}

#[cfg(test)]
mod tests;
