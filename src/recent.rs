//! The last dead letters of each vhost, with who rejected them: for people who watch. Only in memory, and
//! without headers and bodies: what has to last is at the broker.
//!
//! `memory` is a plain value; here is the lock around it, which wakes its readers when there is more.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::amqp::ids::Vhost;
use crate::machine::{DeadLetter, Wall};

mod memory;
mod rates;
mod told;

pub use memory::{Listed, MOST_DEATHS, MOST_VHOSTS};
pub use rates::{MINUTES, MOST_SERIES, Rate};
pub(crate) use told::Told;

use memory::Memory;

/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentDeath {
    /// Increases over all vhosts, and over earlier processes as far as the wall clock allows.
    pub number: u64,
    pub at: Wall,
    pub dead: Arc<DeadLetter>,
}

#[derive(Clone)]
pub struct RecentDeaths(Arc<watch::Sender<Memory>>);

// === impl RecentDeaths ===

impl RecentDeaths {
    pub fn new(began: Wall) -> RecentDeaths {
        RecentDeaths(Arc::new(watch::Sender::new(Memory::new(began))))
    }

    pub fn add(&self, vhost: &Vhost, at: Wall, dead: &Arc<DeadLetter>) {
        self.0
            .send_modify(|memory| memory.add(vhost, at, dead.clone()));
    }

    /// Deaths after that number (0: from the beginning), the oldest first.
    pub fn list(&self, vhost: &[u8], after: u64, most: usize) -> Listed {
        self.0.borrow().list(vhost, after, most)
    }

    /// The last deaths, the oldest of them first.
    pub fn newest(&self, vhost: &[u8], most: usize) -> Listed {
        self.0.borrow().newest(vhost, most)
    }

    /// Done when [`RecentDeaths::list`] has more after that number.
    pub async fn more(&self, vhost: &[u8], after: u64) {
        let mut memory = self.0.subscribe();
        let more = memory.wait_for(|memory| memory.has_more(vhost, after));
        // It ends in no other way: the sender is in `self`.
        drop(more.await);
    }

    pub fn rates(&self, vhost: &[u8], now: Wall) -> Vec<Rate> {
        self.0.borrow().rates(vhost, now)
    }
}

impl fmt::Debug for RecentDeaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecentDeaths")
    }
}

#[cfg(test)]
mod tests;
