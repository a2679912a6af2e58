//! What the sessions of all clients have learned, for each other. The shell holds the one value of the process behind a lock.
//!
//! It decides nothing where the broker can be asked, but for one thing: a permission that it granted not long ago is not asked for again, as
//! each question is an error line in its log. What is known of queues is used where no probe can be made.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Learned, Mono, Recall, Recalled};

/// How long the broker's yes to a user is believed.
pub const PERMITTED_FOR: Duration = Duration::from_secs(60);
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
    /// Vhost, user, exchange.
    permitted: Believed<(Vhost, ShortStr, ShortStr), ()>,
    /// By user: the limit is the same in all vhosts.
    limited: Believed<ShortStr, ()>,
    /// Vhost, queue; whether it has an intake exchange.
    queues: Believed<(Vhost, ShortStr), bool>,
}

/// Facts that are believed for a while. At the bound those go that are not believed any more; if there are none, all.
#[derive(Debug)]
struct Believed<K, V> {
    facts: BTreeMap<K, (V, Mono)>,
    lasting: Duration,
}

// === impl Shared ===

impl Shared {
    /// A session has learned something.
    pub fn learn(&mut self, who: &Who, learned: Learned, now: Mono) {
        let vhost = who.vhost.clone();
        match (learned, &who.user) {
            (Learned::MayWrite(exchange), Some(user)) => {
                self.permitted
                    .insert((vhost, user.clone(), exchange), (), now);
            }
            (Learned::ChannelLimit, Some(user)) => self.limited.insert(user.clone(), (), now),
            (Learned::MayWrite(_) | Learned::ChannelLimit, None) => {}
            (Learned::Queue { queue, taken_over }, _) => {
                self.queues.insert((vhost, queue), taken_over, now);
            }
            (Learned::Deleted(queue), _) => self.queues.forget(&(vhost, queue)),
        }
    }

    /// What is known of it.
    pub fn recall(&self, who: &Who, about: Recall, now: Mono) -> Recalled {
        let vhost = &who.vhost;
        let permitted = |(user, exchange): (&ShortStr, &ShortStr)| {
            let key = (vhost.clone(), user.clone(), exchange.clone());
            self.permitted.get(&key, now).is_some()
        };
        let limited = |user| self.limited.get(user, now).is_some();
        Recalled {
            may_write: who
                .user
                .as_ref()
                .zip(about.exchange.as_ref())
                .is_some_and(permitted),
            channel_limit: who.user.as_ref().is_some_and(limited),
            taken_over: self
                .queues
                .get(&(vhost.clone(), about.queue.clone()), now)
                .copied(),
            about,
        }
    }
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            permitted: Believed::lasting(PERMITTED_FOR),
            limited: Believed::lasting(LIMITED_FOR),
            queues: Believed::lasting(SEEN_FOR),
        }
    }
}

// === impl Believed ===

impl<K: Ord, V> Believed<K, V> {
    fn lasting(lasting: Duration) -> Believed<K, V> {
        Believed {
            facts: BTreeMap::new(),
            lasting,
        }
    }

    fn insert(&mut self, key: K, value: V, now: Mono) {
        if self.facts.len() >= MOST && !self.facts.contains_key(&key) {
            self.facts.retain(|_, (_, until)| *until > now);
            if self.facts.len() >= MOST {
                self.facts.clear();
            }
        }
        self.facts.insert(key, (value, now.after(self.lasting)));
    }

    fn get(&self, key: &K, now: Mono) -> Option<&V> {
        self.facts
            .get(key)
            .filter(|(_, until)| *until > now)
            .map(|(value, _)| value)
    }

    fn forget(&mut self, key: &K) {
        self.facts.remove(key);
    }
}
