//! How the process ends: a [`Drain`] is a value that is handed to every task. It stops one phase after the other, because what sessions still
//! owe needs the publisher, and both need the admin port to be seen; all of it within one grace.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// In the order in which they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Listener,
    /// Clients are closed once their withheld rejects are settled.
    Sessions,
    Intake,
    Publisher,
    /// Last, so that the end can be watched.
    Admin,
}

#[derive(Clone, Debug)]
pub struct Drain(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: CancellationToken,
    /// A second request: no more waiting.
    hurried: CancellationToken,
    phases: [Stage; Phase::ALL.len()],
    /// In milliseconds.
    grace: AtomicU64,
}

#[derive(Debug, Default)]
struct Stage {
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Settled,
    /// Tasks still running when the grace ended, or at a second request.
    Cut(usize),
}

// === impl Phase ===

impl Phase {
    pub const ALL: [Phase; 5] = [
        Phase::Listener,
        Phase::Sessions,
        Phase::Intake,
        Phase::Publisher,
        Phase::Admin,
    ];
}

// === impl Drain ===

impl Drain {
    /// `grace`: for all phases together.
    pub fn new(grace: Duration) -> Self {
        let drain = Self(Arc::new(Inner {
            begun: CancellationToken::new(),
            hurried: CancellationToken::new(),
            phases: Default::default(),
            grace: AtomicU64::default(),
        }));
        drain.set_grace(grace);
        drain
    }

    /// A drain that has begun keeps its grace.
    pub fn set_grace(&self, grace: Duration) {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.0.grace.store(grace, Ordering::Relaxed);
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.0.grace.load(Ordering::Relaxed))
    }

    /// SIGTERM and SIGINT begin the drain; a second one ends it at once.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub fn on_signals(&self) -> io::Result<JoinHandle<()>> {
        let (mut term, mut int) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let drain = self.clone();
        Ok(tokio::spawn(async move {
            loop {
                let name =
                    tokio::select! { _ = term.recv() => "SIGTERM", _ = int.recv() => "SIGINT" };
                if drain.0.begun.is_cancelled() {
                    warn!(signal = name, "second signal: ending at once");
                    return drain.hurry();
                }
                info!(signal = name, grace = ?drain.grace(), "draining; a second signal ends at once");
                drain.begin();
            }
        }))
    }

    pub fn begin(&self) {
        self.0.begun.cancel();
    }

    pub fn hurry(&self) {
        self.0.begun.cancel();
        self.0.hurried.cancel();
    }

    pub async fn begun(&self) {
        self.0.begun.cancelled().await;
    }

    pub fn stopped(&self, phase: Phase) -> WaitForCancellationFutureOwned {
        self.stage(phase).stop.clone().cancelled_owned()
    }

    pub fn has_stopped(&self, phase: Phase) -> bool {
        self.stage(phase).stop.is_cancelled()
    }

    pub fn spawn_on<F>(&self, phase: Phase, task: F, runtime: &Handle) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.stage(phase).tasks.spawn_on(task, runtime)
    }

    pub fn spawn<F>(&self, phase: Phase, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.stage(phase).tasks.spawn(task)
    }

    /// Stops phase after phase and waits for its tasks, until the grace is over or a second request
    /// comes. Remaining tasks are told to stop too.
    pub async fn finish(&self) -> Ended {
        self.begin();
        let end = Instant::now() + self.grace();
        for stage in &self.0.phases {
            stage.stop.cancel();
            stage.tasks.close();
            tokio::select! {
                biased;
                _ = timeout_at(end, stage.tasks.wait()) => {}
                () = self.0.hurried.cancelled() => {}
            }
        }
        match self.0.phases.iter().map(|stage| stage.tasks.len()).sum() {
            0 => Ended::Settled,
            left => Ended::Cut(left),
        }
    }

    fn stage(&self, phase: Phase) -> &Stage {
        &self.0.phases[phase as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(25);

    #[tokio::test]
    async fn phases_end_one_after_the_other() {
        let drain = Drain::new(GRACE);
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        for phase in [
            Phase::Admin,
            Phase::Publisher,
            Phase::Sessions,
            Phase::Listener,
            Phase::Intake,
        ] {
            let (stopped, order) = (drain.stopped(phase), order.clone());
            drain.spawn(phase, async move {
                stopped.await;
                tokio::task::yield_now().await; // a later phase would overtake here if it were stopped already
                order.lock().expect("no test panics").push(phase);
            });
        }
        assert_eq!(drain.finish().await, Ended::Settled);
        assert_eq!(*order.lock().expect("no test panics"), Phase::ALL);
    }

    #[tokio::test]
    async fn a_second_signal_waits_for_nothing() {
        let drain = Drain::new(GRACE);
        drain.spawn(Phase::Sessions, std::future::pending::<()>());
        drain.hurry();
        assert_eq!(drain.finish().await, Ended::Cut(1));
    }

    #[tokio::test]
    async fn the_grace_is_one_for_all_phases() {
        let drain = Drain::new(Duration::from_millis(20));
        for phase in Phase::ALL {
            drain.spawn(phase, std::future::pending::<()>());
        }
        assert_eq!(drain.finish().await, Ended::Cut(Phase::ALL.len()));
    }
}
