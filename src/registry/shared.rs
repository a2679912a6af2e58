//! What the sessions of all clients have learned, for each other. The shell holds the one value of the process behind a lock.
//!
//! It decides nothing where the broker can be asked: what is known here is used where no probe can be made. It holds no permissions. They would
//! be kept by the name that a client claims, and a broker with OAuth 2 makes no use of that: the next one could claim it, too. (A limit on
//! channels is kept by that name: who claims another's has its queues native.)

use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Learned, Mono, Recall, Recalled};

use super::believed::Believed;

/// How long a user that met a limit on channels is not probed. A day: long enough that the limit costs its clients next to nothing, and an
/// operator who has raised it need not restart the proxy.
pub const LIMITED_FOR: Duration = Duration::from_secs(24 * 3600);
/// How long the last sight of a queue counts. An error costs one refused declare, which teaches the truth.
pub const SEEN_FOR: Duration = Duration::from_secs(24 * 3600);
/// Entries of each kind.
pub const MOST: usize = 10_000;

/// Who a session speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The vhost it opened.
    pub vhost: Vhost,
    /// The user, if the login showed one. Of a user without a name nothing is kept.
    pub user: Option<ShortStr>,
}

/// Knowledge that outlives a session.
#[derive(Debug)]
pub struct Shared {
    /// By user: the limit is the same in all vhosts.
    limited: Believed<ShortStr, ()>,
    /// Vhost, queue; its intake exchange, if it has one.
    queues: Believed<(Vhost, ShortStr), Option<ShortStr>>,
}

// === impl Shared ===

impl Shared {
    /// A session has learned something.
    pub fn learn(&mut self, who: &Who, learned: Learned, now: Mono) {
        let vhost = who.vhost.clone();
        match (learned, &who.user) {
            (Learned::ChannelLimit, Some(user)) => self.limited.insert(user.clone(), (), now),
            (Learned::ChannelLimit, None) => {}
            (Learned::Queue { queue, intake }, _) => {
                self.queues.insert((vhost, queue), intake, now);
            }
            (Learned::Deleted(queue), _) => self.queues.forget(&(vhost, queue)),
        }
    }

    /// What is known of it.
    pub fn recall(&self, who: &Who, about: Recall, now: Mono) -> Recalled {
        let vhost = &who.vhost;
        let limited = |user| self.limited.get(user, now).is_some();
        Recalled {
            channel_limit: who.user.as_ref().is_some_and(limited),
            seen: self
                .queues
                .get(&(vhost.clone(), about.queue.clone()), now)
                .cloned(),
            about,
        }
    }
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            limited: Believed::new(LIMITED_FOR, MOST),
            queues: Believed::new(SEEN_FOR, MOST),
        }
    }
}
