//! What machines hand to the publisher, and what names it until its outcome is known.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;

use super::outcome::{Cause, Reason};
use super::rejecter::Rejecter;

/// Ties a dead letter to its outcome. Unique within the machine that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A machine that sends publications to the publisher; the shell knows its inbox. Unique in the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// The publisher keeps it until its outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub content: Content,
    pub queue: ShortStr,
    pub reason: Reason,
    /// From a queue with the strategy `at-least-once`: parked instead of dropped, whatever `on-unroutable` says.
    pub at_least_once: bool,
    pub history_cut: bool,
    pub purpose: Purpose,
    pub by: Option<Box<Rejecter>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Death,
    /// To a delay queue for this time, whatever exchange and key say: a client returned or
    /// published the message.
    Delay(Duration),
    /// To where a client published it: its delay is over.
    Publish,
    /// To its own queue: a delayed message is due.
    Return,
    /// A parked message to its target, if that accepts it now.
    Unpark,
    /// A dead letter that an operator sends back: to this target or nowhere.
    Redrive,
    /// To the end of the parking queue, unchanged: a parked message that has to stay.
    Tail,
    /// To the parking queue, with headers that give the cause.
    Park(Cause),
}
