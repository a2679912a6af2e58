//! How many connections a listener may have: a permit first, then `accept`, so that what is over the bound waits in the kernel's queue.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

#[derive(Clone, Debug)]
pub struct Permits {
    free: Arc<Semaphore>,
    all: Arc<AtomicUsize>,
}

/// Hold it as long as the connection.
pub type Permit = Option<OwnedSemaphorePermit>;

/// Separate permits for each key. Clones share them.
#[derive(Debug)]
pub struct Shares<K>(Arc<Mutex<HashMap<K, Arc<Semaphore>>>>);

// === impl Permits ===

impl Permits {
    pub fn new(all: usize) -> Permits {
        Permits {
            free: Arc::new(Semaphore::new(all)),
            all: Arc::new(AtomicUsize::new(all)),
        }
    }

    pub fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// Open connections stay; if there are too many, new ones wait.
    pub fn resize(&self, all: usize) {
        let before = self.all.swap(all, Ordering::Relaxed);
        if all > before {
            self.free.add_permits(all - before);
        } else if all < before {
            let less = u32::try_from(before - all).unwrap_or(u32::MAX);
            let free = self.free.clone();
            // Whoever waits for a permit already is the last to get one.
            tokio::spawn(async move {
                if let Ok(taken) = free.acquire_many(less).await {
                    taken.forget();
                }
            });
        }
    }

    pub fn try_acquire(&self) -> Permit {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Calls `met` if it has to wait.
    pub async fn acquire(&self, met: impl FnOnce()) -> Permit {
        if let Some(permit) = self.try_acquire() {
            return Some(permit);
        }
        met();
        self.free.clone().acquire_owned().await.ok()
    }
}

// === impl Shares ===

impl<K: Eq + Hash> Shares<K> {
    /// `all`: the key's permits while any is held or awaited. `None`: none was free in time.
    pub async fn acquire(&self, key: K, all: usize, patience: Duration) -> Permit {
        let of_key = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody holds or waits for; nobody can begin to, as that takes this lock.
            known.retain(|_, of_key| Arc::strong_count(of_key) > 1);
            let of_key = known.entry(key);
            of_key
                .or_insert_with(|| Arc::new(Semaphore::new(all)))
                .clone()
        };
        timeout(patience, of_key.acquire_owned()).await.ok()?.ok()
    }
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Shares(self.0.clone())
    }
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Shares(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_key_has_permits_of_its_own_and_is_forgotten_without_them() {
        let shares = Shares::default();
        let soon = Duration::ZERO;
        let one = shares.acquire("a", 2, soon).await;
        let two = shares.acquire("a", 2, soon).await;
        assert!(one.is_some() && two.is_some());
        assert!(shares.acquire("a", 2, soon).await.is_none());
        assert!(shares.acquire("b", 1, soon).await.is_some());
        let waits = tokio::spawn({
            let shares = shares.clone();
            async move { shares.acquire("a", 2, Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        assert!(waits.await.expect("no panic").is_some());
        drop(two);
        let _other = shares.acquire("c", 1, soon).await;
        let known = shares.0.lock().expect("no panic");
        assert_eq!(known.keys().collect::<Vec<_>>(), [&"c"]);
    }
}
