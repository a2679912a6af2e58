//! How many may ask at once, and for what: some connections are kept for what is open to all, so that a load of other requests does not stand
//! before the question whether the process works. And live answers about the last dead letters: how many, for how long, and their end.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::problem::Problem;
use crate::net::permits::{Permit, Permits};

/// Connections for open paths, and for peers without a request yet; at most half of all.
const OPEN: usize = 8;
/// Concurrent live answers if there may be twice as many connections: others need some.
const MOST_LIVE: usize = 16;
/// How long a live answer waits for a permit.
const PATIENCE: Duration = Duration::from_secs(1);
/// Length of a live answer. The reader asks again and continues where it ended.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub struct Rooms {
    connections: Permits,
    requests: Permits,
    live: Permits,
    stop: CancellationToken,
}

/// Marks a live answer, which may last for [`LIVE_FOR`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Live;

// === impl Rooms ===

impl Rooms {
    pub fn new(connections: usize) -> Rooms {
        Rooms {
            connections: Permits::new(connections),
            requests: Permits::new(others(connections)),
            live: Permits::new(live(connections)),
            stop: CancellationToken::new(),
        }
    }

    pub fn change(&self, connections: usize) {
        self.connections.resize(connections);
        self.requests.resize(others(connections));
        self.live.resize(live(connections));
    }

    /// Calls `met` if it has to wait.
    pub(super) async fn connection(&self, met: impl FnOnce()) -> Permit {
        self.connections.acquire(met).await
    }

    pub(super) fn request(&self) -> Permit {
        self.requests.try_acquire()
    }

    pub(super) async fn live(&self) -> Result<Permit, Problem> {
        let permit = timeout(PATIENCE, self.live.acquire(|| {})).await;
        permit.map_err(|_| Problem::busy("as many live answers as there may be go on already"))
    }

    /// Ends all live answers.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

fn others(connections: usize) -> usize {
    connections - OPEN.min(connections / 2)
}

fn live(connections: usize) -> usize {
    MOST_LIVE.min(connections / 2)
}
