//! What becomes of a message that died, by RabbitMQ's rules: pure functions over raw bytes, recognisable beside `rabbit_dead_letter.erl` and `mc.erl`.
//!
//! The reject path and the intake path meet here, in `plan`.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::machine::{Publication, Reason};

/// Whose rules count: a generation of RabbitMQ (semantics differ in history, cycles and headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 3.10 to 3.12.
    V3,
    /// 3.13: supported by reading its source.
    V3_13,
    /// 4.0 to 4.3, and what comes after.
    V4,
}

/// Where a queue's dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The dead-letter exchange; empty is the default exchange.
    pub exchange: ShortStr,
    /// The dead-letter routing key, if one is set; an empty key is a set key (S2.2).
    pub routing_key: Option<ShortStr>,
    /// The strategy `at-least-once`: nothing is dropped, not even a cycle.
    pub at_least_once: bool,
}

/// The queues to which a dead letter would be routed, for the cycle rule (S6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetQueues {
    /// Exactly these.
    Known(Vec<ShortStr>),
    /// Not known: a cycle is caught one lap later, when it is.
    Unknown,
}

/// Settings that shape a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of the broker.
    pub dialect: Dialect,
    /// How many entries x-death may have; the oldest are dropped.
    pub max_history: usize,
    /// `history = "continue"`: a client's x-death counts on every version; else what the broker forgets is forgotten.
    pub continue_history: bool,
    /// `bcc = "carry"`: BCC keys count for a keyless death (S2.2), though the broker removes the header at publish.
    pub carry_bcc: bool,
}

/// A message that died.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    /// The queue.
    pub queue: &'a ShortStr,
    /// Why.
    pub reason: Reason,
    /// The exchange it had been published to.
    pub exchange: &'a [u8],
    /// The routing key it had been published with.
    pub routing_key: &'a [u8],
    /// The message.
    pub content: &'a Content,
    /// True when the broker has written this death into x-death already (a signal); false for a reject that we withheld.
    pub recorded: bool,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Publish this.
    Publish(Publication),
    /// An automatic cycle: drop it, and log the lap once (queues from newest to oldest).
    Cycle(Vec<ShortStr>),
}
