//! The memory of files, all together: what has come of imports, and what is not yet read of exports.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::Problem;
use crate::machine::{Limit, LiveLimits};
use crate::telemetry::Metrics;

/// The total in units of `browse-bytes`; an export uses up to two.
const FILES: usize = 3;
const SHARES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Room {
    free: Arc<Semaphore>,
    limits: LiveLimits,
    metrics: Metrics,
}

pub(super) struct Taken {
    room: Room,
    shares: OwnedSemaphorePermit,
    share: usize,
}

// === impl Room ===

impl Room {
    pub fn new(limits: LiveLimits, metrics: Metrics) -> Room {
        Room {
            free: Arc::new(Semaphore::new(SHARES)),
            limits,
            metrics,
        }
    }

    pub(super) async fn begin(&self) -> Result<Taken, Problem> {
        let all = self.limits.now().browse_bytes.saturating_mul(FILES);
        let mut first = self.free.clone().try_acquire_owned().ok();
        if first.is_none() {
            let wait = timeout(PATIENCE, self.free.clone().acquire_owned()).await;
            first = wait.ok().and_then(Result::ok);
        }
        Ok(Taken {
            shares: first.ok_or_else(|| self.full())?,
            room: self.clone(),
            share: all.div_ceil(SHARES).max(1),
        })
    }

    fn full(&self) -> Problem {
        self.metrics.limit_met(Limit::BrowseBytes);
        Problem::busy(NO_ROOM)
    }
}

pub(super) const NO_ROOM: &str =
    "files that others send or read just now leave no room for this one; try again soon";

// === impl Taken ===

impl Taken {
    /// Grows or shrinks to this size.
    ///
    /// # Errors
    /// When there is not enough; the size stays.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Problem> {
        let (wanted, has) = (bytes / self.share + 1, self.shares.num_permits());
        if wanted <= has {
            drop(self.shares.split(has - wanted));
            return Ok(());
        }
        let more = u32::try_from(wanted - has).ok();
        let more = more.and_then(|more| self.room.free.clone().try_acquire_many_owned(more).ok());
        self.shares.merge(more.ok_or_else(|| self.room.full())?);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::machine::Limits;

    pub(in crate::console::admin) fn room(bytes: usize) -> Room {
        let limits = LiveLimits::new(Limits {
            browse_bytes: bytes / FILES,
            ..crate::config::Config::default().reloadable.limits
        });
        Room::new(limits, Metrics::new())
    }

    pub(in crate::console::admin) fn begun(room: &Room) -> Taken {
        let begun = room.begin().now_or_never().and_then(Result::ok);
        begun.expect("at once, as all is free")
    }

    #[test]
    fn what_one_file_has_is_missing_for_others_until_it_is_given_back() {
        let room = room(3 << 20);
        let (mut one, mut other) = (begun(&room), begun(&room));
        assert!(one.resize(2 << 20).is_ok());
        assert!(other.resize(2 << 20).is_err());
        assert!(other.resize(1 << 19).is_ok());
        assert!(one.resize(1 << 20).is_ok());
        assert!(other.resize(3 << 19).is_ok());
        drop(one);
        assert!(other.resize(5 << 19).is_ok());
        let met = "{limit=\"browse-bytes\"} 1\n";
        assert!(room.metrics.encode().contains(met));
        drop(other);
        assert_eq!(room.free.available_permits(), SHARES);
    }

    #[tokio::test]
    async fn whoever_finds_no_room_at_all_is_told_so_in_words_of_its_own() {
        let room = room(3 << 20);
        let mut all = begun(&room);
        assert!(all.resize((3 << 20) - 1).is_ok());
        let refused = room.begin().await.err().expect("no room");
        assert_eq!(refused.detail(), NO_ROOM);
    }
}
