//! Live answers about the last dead letters: how many there may be, how long each goes on, and their end.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::problem::Problem;
use crate::net::permits::{Permit, Permits};
use crate::recent::RecentDeaths;

/// Live answers at once, if there may be twice as many connections to the admin port: others have to be answered, too.
const MOST_LIVE: usize = 16;
/// How long one too many waits for another to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// A live answer ends then. Whoever wants more asks again, and goes on where it ended.
pub(super) const LIVE_FOR: Duration = Duration::from_secs(600);

/// What answers about the last dead letters need. Clones are the same.
#[derive(Clone)]
pub struct Watches {
    recent: RecentDeaths,
    permits: Permits,
    stop: CancellationToken,
}

/// Marks an answer that goes on for so long as [`LIVE_FOR`]: it is not cut for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live;

// === impl Watches ===

impl Watches {
    /// Of these, with so many connections to the admin port at once.
    pub fn new(recent: RecentDeaths, connections: usize) -> Watches {
        Watches {
            recent,
            permits: Permits::new(most(connections)),
            stop: CancellationToken::new(),
        }
    }

    /// Changes how many connections to the admin port there may be.
    pub fn change(&self, connections: usize) {
        self.permits.resize(most(connections));
    }

    pub(super) fn recent(&self) -> &RecentDeaths {
        &self.recent
    }

    /// For one live answer.
    ///
    /// # Errors
    /// When there are as many as there may be.
    pub(super) async fn permit(&self) -> Result<Permit, Problem> {
        let permit = timeout(PATIENCE, self.permits.acquire(|| {})).await;
        permit.map_err(|_| Problem::busy("as many live answers as there may be go on already"))
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Cancelled when they end.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

fn most(connections: usize) -> usize {
    MOST_LIVE.min(connections / 2)
}
