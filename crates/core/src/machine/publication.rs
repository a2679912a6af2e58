//! What machines hand to the publisher, and what names it until its outcome is known.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;

use super::outcome::{Cause, Reason};
use super::rejecter::Rejecter;

/// Ties one dead letter to the outcome of its publication. Unique within the machine that drew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A machine that hands publications to the publisher; the shell knows its inbox. Unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// A dead letter ready to be published. The publisher keeps it until its outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The dead-letter exchange; empty is the default exchange.
    pub exchange: ShortStr,
    /// The key it is routed by.
    pub routing_key: ShortStr,
    /// Edited properties and the body as it was.
    pub content: Content,
    /// The queue it died in: for order, metrics and the log.
    pub queue: ShortStr,
    /// Why it died: for metrics and the log.
    pub reason: Reason,
    /// From a queue with the strategy `at-least-once`: parked instead of dropped, whatever `on-unroutable` says.
    pub at_least_once: bool,
    /// Its history had more entries than `max-history`.
    pub history_cut: bool,
    pub purpose: Purpose,
    /// Who rejected the message, if a client of this proxy did.
    pub by: Option<Box<Rejecter>>,
}

/// Why something is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Death,
    /// A client returned it: into a delay queue for so long, whatever its exchange and its key are.
    Delay(Duration),
    /// A client returned it, and its time has come: into the queue that it came from.
    Return,
    /// It died before and was parked: to its target, if that can take it now.
    Unpark,
    /// An operator sends a dead letter back: there, or nowhere.
    Redrive,
    /// It was parked and has to stay so: to the end of the parking queue, as it is.
    Tail,
    /// A message died, and its dead letter is not for its target: to the parking queue, with headers that say why.
    Park(Cause),
}
