//! The last dead letters of each vhost, with who rejected them: for people who watch, and for whoever wants to hear of each. Only in memory, and
//! without headers and bodies: what has to last is at the broker.
//!
//! `memory` is a plain value; here is the lock around it, and how its readers learn that there is more.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};

use crate::amqp::ids::Vhost;
use crate::machine::{DeadLetter, Wall};

mod memory;
mod rates;
mod told;

pub use memory::{Listed, MOST_DEATHS, MOST_VHOSTS};
pub use rates::{MINUTES, MOST_SERIES, Rate};
pub(crate) use told::Told;

use memory::Memory;

/// Deaths buffered per subscriber; a slow one misses the oldest.
const MOST_UNHEARD: usize = 1024;

/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentDeath {
    /// Increases over all vhosts, and over earlier processes as far as the wall clock allows.
    pub number: u64,
    pub at: Wall,
    pub vhost: Vhost,
    pub dead: Arc<DeadLetter>,
}

#[derive(Clone)]
pub struct RecentDeaths(Arc<Inner>);

struct Inner {
    memory: Mutex<Memory>,
    more: watch::Sender<()>,
    heard: broadcast::Sender<RecentDeath>,
}

// === impl RecentDeaths ===

impl RecentDeaths {
    pub fn new(began: Wall) -> RecentDeaths {
        RecentDeaths(Arc::new(Inner {
            memory: Mutex::new(Memory::new(began)),
            more: watch::Sender::new(()),
            heard: broadcast::Sender::new(MOST_UNHEARD),
        }))
    }

    pub fn add(&self, vhost: &Vhost, at: Wall, dead: &Arc<DeadLetter>) {
        let death = self.memory().add(vhost, at, dead.clone());
        // Nobody may be listening.
        let _ = self.0.heard.send(death);
        self.0.more.send_replace(());
    }

    /// Deaths after that number (0: from the beginning), the oldest first.
    pub fn list(&self, vhost: &[u8], after: u64, most: usize) -> Listed {
        self.memory().list(vhost, after, most)
    }

    /// The last deaths, the oldest of them first.
    pub fn newest(&self, vhost: &[u8], most: usize) -> Listed {
        self.memory().newest(vhost, most)
    }

    /// Done when [`RecentDeaths::list`] has more after that number.
    pub async fn more(&self, vhost: &[u8], after: u64) {
        let mut more = self.0.more.subscribe();
        loop {
            more.borrow_and_update();
            if self.memory().has_more(vhost, after) {
                return;
            }
            if more.changed().await.is_err() {
                return std::future::pending().await; // it is in `self`
            }
        }
    }

    pub fn rates(&self, vhost: &[u8], now: Wall) -> Vec<Rate> {
        self.memory().rates(vhost, now)
    }

    /// All future deaths in all vhosts. A slow subscriber learns how many it missed
    /// (`RecvError::Lagged`).
    pub fn subscribe(&self) -> broadcast::Receiver<RecentDeath> {
        self.0.heard.subscribe()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RecentDeaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecentDeaths")
    }
}

#[cfg(test)]
mod tests;
