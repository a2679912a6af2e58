//! How many connections a listener may have: a permit first, then `accept`, so that what is over the bound waits in the kernel's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit for each connection. Clones share the same permits.
#[derive(Clone, Debug)]
pub struct Permits {
    free: Arc<Semaphore>,
    all: Arc<AtomicUsize>,
}

/// To be dropped when the connection has ended.
pub type Permit = Option<OwnedSemaphorePermit>;

// === impl Permits ===

impl Permits {
    /// As many permits as `all` says.
    pub fn new(all: usize) -> Permits {
        Permits {
            free: Arc::new(Semaphore::new(all)),
            all: Arc::new(AtomicUsize::new(all)),
        }
    }

    /// Changes the number of permits. Connections that are open stay; if there are too many, no other is accepted until enough have ended.
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

    /// A permit; `met` is called if it has to be waited for.
    pub async fn acquire(&self, met: impl FnOnce()) -> Permit {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(permit);
        }
        met();
        self.free.clone().acquire_owned().await.ok()
    }
}
