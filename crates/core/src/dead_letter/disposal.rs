//! The one decision: what becomes of a message that died, whether a client rejected it or the broker signalled its death.

use crate::amqp::ids::ShortStr;
use crate::machine::{Cause, Fallback, Publication};

use super::plan::plan;
use super::{Death, Lookup, Rules};

/// What becomes of a message that died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// Publish its dead letter.
    Publish(Publication),
    /// Publish it into a delay queue, from which it comes back; or, when its time has come, into its own queue.
    Retry(Publication),
    /// A rule of RabbitMQ drops it: an automatic cycle (S6.1). The lap is for the log: the queue that it would enter again, then queues from
    /// newest to oldest.
    Drop(Vec<ShortStr>),
    /// It comes from an `at-least-once` queue, which drops nothing (S6.3): publish this into the parking queue.
    Park(Publication, Cause),
    /// The proxy publishes nothing, as it does not know enough: what the broker does with the message is right.
    LeaveToBroker(Fallback),
}

/// Decides what becomes of a message that died at `now` (seconds since 1970). `lookup`: where the dead letters of its queue go.
pub fn dispose(death: &Death<'_>, lookup: &Lookup, rules: &Rules, now: u64) -> Disposal {
    match lookup {
        Lookup::Target(target) => {
            plan(death, target, rules, now).unwrap_or(Disposal::LeaveToBroker(Fallback::Unreadable))
        }
        Lookup::KeyUnknown | Lookup::Unknown | Lookup::NoExchange => {
            Disposal::LeaveToBroker(Fallback::TargetUnknown)
        }
    }
}
