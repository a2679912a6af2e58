//! Live answers about the last dead letters: how many there may be, how long each goes on, and their end.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::problem::Problem;
use crate::net::permits::{Permit, Permits};

/// Concurrent live answers if there may be twice as many admin connections: others need some.
const MOST_LIVE: usize = 16;
/// How long a live answer waits for a permit.
const PATIENCE: Duration = Duration::from_secs(1);
/// Length of a live answer. The reader asks again and continues where it ended.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub struct Watches {
    permits: Permits,
    stop: CancellationToken,
}

/// Marks a live answer, which may last for [`LIVE_FOR`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Live;

// === impl Watches ===

impl Watches {
    pub fn new(connections: usize) -> Watches {
        Watches {
            permits: Permits::new(most(connections)),
            stop: CancellationToken::new(),
        }
    }

    pub fn change(&self, connections: usize) {
        self.permits.resize(most(connections));
    }

    pub(super) async fn permit(&self) -> Result<Permit, Problem> {
        let permit = timeout(PATIENCE, self.permits.acquire(|| {})).await;
        permit.map_err(|_| Problem::busy("as many live answers as there may be go on already"))
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

fn most(connections: usize) -> usize {
    MOST_LIVE.min(connections / 2)
}
