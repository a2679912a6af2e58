//! The dead-letter queues that the proxy knows: those that its dead letters went to, by name or, where a survey tells the bindings, behind a
//! named exchange. With how many messages they have, and how old the oldest is, as far as that can be known without fetching a message.
//!
//! **The age** comes from the times of the proxy's own publications (`known/published.rs`), and not from `head_message_timestamp`, which the
//! management API tells: that is the property `timestamp` of the first message, so what its first publisher chose to write there, mostly the
//! time long before its death; quorum queues do not tell it at all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{DeadLetter, Mono, Outcome, Survey};
use crate::net::clock::{Clock, SystemClock};
use crate::objects::Names;
use crate::routing::Routing;

use self::book::{Book, Went};

mod book;
mod published;

/// What is known of dead-letter queues. Clones are the same.
#[derive(Clone)]
pub struct KnownQueues {
    names: Names,
    clock: SystemClock,
    book: Arc<Mutex<Book>>,
}

/// A queue that dead letters of this process went to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterQueue {
    /// Its name.
    pub queue: ShortStr,
    /// It takes what nothing else takes.
    pub is_parking: bool,
    /// By which dead letters came there.
    pub targets: Vec<Target>,
    /// How many, since the process began.
    pub dead_letters: u64,
    /// All messages there, if the broker told not long ago.
    pub messages: Option<u64>,
    /// How long the oldest has been there, if that can be known: see `known/published.rs`.
    pub oldest: Option<Duration>,
}

/// An exchange and a key that dead letters were published with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Empty is the default exchange.
    pub exchange: ShortStr,
    /// `None`: many keys, beyond those that are told apart.
    pub routing_key: Option<ShortStr>,
}

/// All that is known of a vhost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// By name.
    pub queues: Vec<DeadLetterQueue>,
    /// Targets of which nobody told where they lead, and how many dead letters went there.
    pub unknown: Vec<(Target, u64)>,
    /// Dead letters that went elsewhere, beyond what is kept.
    pub left_out: u64,
}

// === impl KnownQueues ===

impl KnownQueues {
    /// A book in which no queue is known yet.
    pub fn new(names: Names, clock: SystemClock) -> KnownQueues {
        KnownQueues {
            names,
            clock,
            book: Arc::default(),
        }
    }

    /// A dead letter of that vhost has come to its end.
    pub fn hear(&self, vhost: &Vhost, dead: &DeadLetter) {
        let DeadLetter {
            exchange,
            routing_key,
            outcome,
            ..
        } = dead;
        let went = match outcome {
            Outcome::Confirmed if exchange.is_empty() => Went::Queue(routing_key),
            Outcome::Confirmed => Went::Exchange(exchange, routing_key),
            Outcome::Parked(_) => Went::Parking(self.names.parking()),
            Outcome::Dropped(_) | Outcome::Refused(_) => return,
        };
        self.book().sent(vhost, went, self.now());
    }

    /// All queues that are known in a vhost.
    pub fn of(&self, vhost: &Vhost) -> Known {
        self.book().known(vhost, self.now())
    }

    /// The queue of what nothing else takes.
    pub(crate) fn parking(&self) -> &ShortStr {
        self.names.parking()
    }

    /// The names of its queues.
    pub(crate) fn queues(&self, vhost: &Vhost) -> Vec<ShortStr> {
        self.book().queues(vhost)
    }

    /// The broker says that a queue has so many messages.
    pub(crate) fn counted(&self, vhost: &Vhost, queue: &ShortStr, messages: u64) {
        let now = self.now();
        self.book().counted(vhost, queue, messages, now);
    }

    /// The broker says that there is no such queue.
    pub(crate) fn gone(&self, vhost: &Vhost, queue: &ShortStr) {
        self.book().gone(vhost, queue);
    }

    /// Whether the bindings of the vhost should be looked at now.
    pub(crate) fn wants_survey(&self, vhost: &Vhost) -> bool {
        let now = self.now();
        self.book().wants_survey(vhost, now)
    }

    /// They were. Takes a while.
    pub(crate) fn surveyed(&self, vhost: &Vhost, survey: Survey) {
        let targets = self.book().targets(vhost);
        let found = book::resolve(&Routing::of(survey), targets);
        self.book().surveyed(vhost, found);
    }

    pub(crate) fn now(&self) -> Mono {
        self.clock.now().mono
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
