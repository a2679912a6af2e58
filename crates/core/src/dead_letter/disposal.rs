//! The one decision: what becomes of a message that died, whether a client rejected it or the broker signalled its death.

use crate::amqp::ids::ShortStr;
use crate::machine::{Cause, Fallback, Publication};

use super::plan::plan;
use super::{Death, Lookup, Rules};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposal {
    Publish(Publication),
    Retry(Publication),
    /// Dropped by a rule of RabbitMQ: an automatic cycle (S6.1). The lap for the log: the queue to
    /// enter again, then queues from newest to oldest.
    Drop(Vec<ShortStr>),
    /// From an `at-least-once` queue, which drops nothing (S6.3): publish to the parking queue.
    Park(Publication, Cause),
    /// The proxy knows too little: publish nothing, let the broker act.
    LeaveToBroker(Fallback),
}

/// `now`: the time of death in seconds since 1970. `lookup`: the target of its queue.
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
