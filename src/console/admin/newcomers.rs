//! Connections that wait for their peer, and nobody knows yet who that is. Where there are too many connections, these make room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

const TO_ASK: Duration = Duration::from_millis(100);
const TO_READ: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(super) struct Newcomers(Arc<Mutex<BTreeMap<u64, Newcomer>>>);

struct Newcomer {
    /// May be dropped from then on.
    until: Instant,
    cut_off: CancellationToken,
}

// === impl Newcomers ===

impl Newcomers {
    /// The token is cancelled when the connection must close.
    pub(super) fn came(&self, number: u64) -> CancellationToken {
        let cut_off = CancellationToken::new();
        let newcomer = Newcomer {
            until: Instant::now() + TO_ASK,
            cut_off: cut_off.clone(),
        };
        self.all().insert(number, newcomer);
        cut_off
    }

    pub(super) fn reads(&self, number: u64) {
        if let Some(newcomer) = self.all().get_mut(&number) {
            newcomer.until = Instant::now() + TO_READ;
        }
    }

    /// It requested another path, or is gone. False: it was closed before.
    pub(super) fn left(&self, number: u64) -> bool {
        self.all().remove(&number).is_some()
    }

    /// Closes the connection whose time is over for longest, when there is one.
    pub(super) async fn one_goes(&self) {
        while let Some((number, until)) = self.first() {
            sleep_until(until).await;
            // Unless it has just asked.
            let mut all = self.all();
            if all.get(&number).is_some_and(|one| one.until == until)
                && let Some(one) = all.remove(&number)
            {
                return one.cut_off.cancel();
            }
        }
        std::future::pending().await
    }

    fn first(&self) -> Option<(u64, Instant)> {
        let all = self.all();
        let all = all.iter().map(|(number, one)| (*number, one.until));
        all.min_by_key(|(_, until)| *until)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Newcomer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_goes_before_there_was_time_to_be_heard_and_whoever_asked_stays() {
        let newcomers = Newcomers::default();
        let begun = Instant::now();
        let (first, second, third) = (newcomers.came(1), newcomers.came(2), newcomers.came(3));
        assert!(newcomers.left(1));
        newcomers.reads(2);
        newcomers.one_goes().await;
        assert!(third.is_cancelled() && !second.is_cancelled());
        assert!(begun.elapsed() >= TO_ASK);
        newcomers.one_goes().await;
        assert!(second.is_cancelled() && !first.is_cancelled());
        assert!(begun.elapsed() >= TO_READ);
        assert!(!newcomers.left(2));
        let nobody = tokio::time::timeout(TO_ASK, newcomers.one_goes()).await;
        assert!(nobody.is_err());
    }
}
