//! What this process knows of dead letters, in memory only: the last ones of each vhost (`recent.rs`), and the queues that they went to
//! (`book.rs`), both plain values. Without headers and bodies: what has to last is at the broker.
//!
//! Known queues are those that dead letters of this process went to, and the targets of the queues in its catalogue; by name or, where a survey
//! tells the bindings, behind a named exchange. With how many messages they have, and how old the oldest is, as far as that can be known without
//! fetching a message.
//!
//! **The age** comes from the times of the proxy's own publications (`known/published.rs`), and not from `head_message_timestamp`, which the
//! management API tells: that is the property `timestamp` of the first message, so what its first publisher chose to write there, mostly the
//! time long before its death; quorum queues do not tell it at all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter;
use crate::machine::{DeadLetter, Mono, Outcome, Wall};
use crate::net::clock::Clock;

pub(crate) use self::book::{Book, Leads};
pub use self::handlings::Handlings;
pub use self::recent::{
    Listed, MINUTES, MOST_DEATHS, MOST_SERIES, MOST_VHOSTS, Rate, Recent, RecentDeath,
};
pub(crate) use self::told::Told;

mod book;
mod handlings;
mod published;
mod recent;
mod told;

#[derive(Clone)]
pub struct Known {
    pub handlings: Handlings,
    book: Arc<Mutex<Book>>,
    recent: Arc<watch::Sender<Recent>>,
}

/// A queue, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DeadLetterQueue {
    /// Its name.
    #[schema(value_type = String)]
    pub queue: ShortStr,
    /// What nothing takes is parked there.
    pub parking: bool,
    /// By which dead letters came there.
    pub targets: Vec<Target>,
    /// How many this process has published there.
    pub dead_letters: u64,
    /// All messages there; none: that is not known.
    pub messages: Option<u64>,
    /// How long the oldest has been there at least; none: that is not known.
    pub oldest_seconds: Option<u64>,
}

/// An exchange, and a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Target {
    /// Empty is the default exchange.
    #[schema(value_type = String)]
    pub exchange: ShortStr,
    /// None: many keys, beyond those that are told apart.
    #[schema(value_type = Option<String>)]
    pub routing_key: Option<ShortStr>,
}

/// Whether a target leads to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It does.
    Queue,
    /// It does not.
    NoQueue,
    /// There is no such exchange.
    NoExchange,
    /// Nobody told.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    pub queues: Vec<DeadLetterQueue>,
    /// Targets that lead to unknown queues, with their numbers of dead letters.
    pub unknown: Vec<(Target, u64)>,
    /// Dead letters to other queues, beyond the limit.
    pub left_out: u64,
    /// Expected queues and targets beyond the limit.
    pub uncounted: usize,
    /// Parked messages as of the last try, with those that this process has parked since, by the cause in the message; empty: none.
    pub parked: Vec<(ShortStr, usize)>,
}

// === impl Known ===

impl Known {
    pub fn new(handlings: Handlings) -> Known {
        let began = handlings.clock.now().wall;
        Known {
            handlings,
            book: Arc::default(),
            recent: Arc::new(watch::Sender::new(Recent::new(began))),
        }
    }

    /// The last dead letters of all vhosts.
    pub fn recent(&self) -> watch::Ref<'_, Recent> {
        self.recent.borrow()
    }

    /// Done when there are more recent ones of the vhost after that number.
    pub async fn more(&self, vhost: &[u8], after: u64) {
        let mut recent = self.recent.subscribe();
        let more = recent.wait_for(|recent| recent.has_more(vhost, after));
        // It ends in no other way: the sender is in `self`.
        drop(more.await);
    }

    pub fn hear(&self, vhost: &Vhost, at: Wall, dead: &Arc<DeadLetter>) {
        self.recent.send_if_modified(|recent| {
            recent.add(vhost, at, dead.clone());
            // Who subscribes from now on sees it before it waits.
            self.recent.receiver_count() > 0
        });
        let DeadLetter {
            exchange,
            routing_key,
            outcome,
            ..
        } = &**dead;
        let (to, parked) = match outcome {
            Outcome::Confirmed => ([exchange, routing_key], None),
            Outcome::Parked(cause) => ([&ShortStr::EMPTY, self.parking()], Some(cause.as_str())),
            Outcome::Dropped(_) | Outcome::Refused(_) => return,
        };
        self.book().sent(vhost, to, parked, self.now());
    }

    /// For a user: the numbers of the vhost are renewed more often for a while.
    pub fn watch(&self, vhost: &Vhost) -> Queues {
        self.book().watched(vhost, self.now());
        self.of(vhost)
    }

    pub fn of(&self, vhost: &Vhost) -> Queues {
        self.look_up(vhost);
        self.book().known(vhost, self.now())
    }

    pub(crate) fn parking(&self) -> &ShortStr {
        self.handlings.names.parking()
    }

    pub fn standing(&self, vhost: &Vhost, target: &Target) -> Standing {
        let told = self.book().standing(vhost, target);
        let queue = target
            .routing_key
            .as_ref()
            .filter(|_| told == Standing::Unknown);
        let catalogue = &self.handlings.catalogue;
        let known = queue.and_then(|queue| catalogue.get(vhost, queue));
        match known.is_some_and(|known| target.exchange.is_empty() && known.queue_type().is_some())
        {
            true => Standing::Queue,
            false => told,
        }
    }

    /// Adds the targets of all known queues, unless this was just done.
    fn look_up(&self, vhost: &Vhost) {
        let now = self.now();
        if self.book().wants_targets(vhost, now) {
            let targets = self.handlings.targets(vhost);
            self.book().expect(vhost, self.parking(), &targets);
        }
    }

    pub(crate) fn wants_survey(&self, vhost: &Vhost) -> bool {
        self.look_up(vhost);
        let now = self.now();
        self.book().wants_survey(vhost, now)
    }

    pub(crate) fn now(&self) -> Mono {
        self.handlings.now()
    }

    /// For those who ask the broker.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    /// Dead letters that go here may go there: one of them has no key of its own, or both have the same.
    pub fn covers(&self, other: &Target) -> bool {
        let keys = [&self.routing_key, &other.routing_key];
        self.exchange == other.exchange && (keys[0] == keys[1] || keys.contains(&&None))
    }
}

impl From<dead_letter::Target> for Target {
    fn from(target: dead_letter::Target) -> Target {
        let dead_letter::Target {
            exchange,
            routing_key,
            ..
        } = target;
        Target {
            exchange,
            routing_key,
        }
    }
}
