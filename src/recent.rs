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

/// How many may come before a subscriber that does not listen misses the oldest of them.
const MOST_UNHEARD: usize = 1024;

/// A dead letter that has come to its end. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentDeath {
    /// Greater than that of all before it, in any vhost; that of an earlier process, too, as far as the clock on the wall tells.
    pub number: u64,
    /// When its publication came to its end.
    pub at: Wall,
    /// The vhost of the death.
    pub vhost: Vhost,
    /// What is known of the dead letter.
    pub dead: Arc<DeadLetter>,
}

/// The last dead letters of this process. Clones are the same.
#[derive(Clone)]
pub struct RecentDeaths(Arc<Inner>);

struct Inner {
    memory: Mutex<Memory>,
    /// Says that there is one more.
    more: watch::Sender<()>,
    heard: broadcast::Sender<RecentDeath>,
}

// === impl RecentDeaths ===

impl RecentDeaths {
    /// Of a process that began then.
    pub fn new(began: Wall) -> RecentDeaths {
        RecentDeaths(Arc::new(Inner {
            memory: Mutex::new(Memory::new(began)),
            more: watch::Sender::new(()),
            heard: broadcast::Sender::new(MOST_UNHEARD),
        }))
    }

    /// One more has come to its end.
    pub fn add(&self, vhost: &Vhost, at: Wall, dead: &Arc<DeadLetter>) {
        let death = self.memory().add(vhost, at, dead.clone());
        // Nobody may be listening.
        let _ = self.0.heard.send(death);
        self.0.more.send_replace(());
    }

    /// Those of a vhost behind that number, the oldest first, `most` of them. 0: from the beginning.
    pub fn list(&self, vhost: &[u8], after: u64, most: usize) -> Listed {
        self.memory().list(vhost, after, most)
    }

    /// The last ones of a vhost, the oldest of them first.
    pub fn newest(&self, vhost: &[u8], most: usize) -> Listed {
        self.memory().newest(vhost, most)
    }

    /// Done when [`RecentDeaths::list`] has something behind that number.
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

    /// Deaths of a vhost in each of the last [`MINUTES`] minutes, by queue and reason.
    pub fn rates(&self, vhost: &[u8], now: Wall) -> Vec<Rate> {
        self.memory().rates(vhost, now)
    }

    /// Hears of each from now on, in all vhosts. Who is too slow is told how many it has missed (`RecvError::Lagged`).
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
