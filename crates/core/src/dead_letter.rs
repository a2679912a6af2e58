//! What becomes of a message that died, by RabbitMQ's rules: pure functions over raw bytes, recognisable beside `rabbit_dead_letter.erl` and `mc.erl`.
//!
//! The rules are numbered and written down in `docs/rabbitmq-semantics.md`: `(S4.2)`, here and in all of the source, is its rule 4.2. The blocks of
//! `dead_letter/testdata` show them at work.
//!
//! Rejects and signals meet here, in [`dispose()`]. [`private`] has the edits of messages that merely pass.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::version::Version;
use crate::machine::{Reason, Rejecter};

mod bridge;
mod cycle;
pub mod delivery_time;
mod disposal;
mod headers;
mod history;
pub mod imported;
mod mark;
mod plan;
pub mod private;
pub mod proof;
pub mod redrive;
pub mod rejected_by;
mod remembered;
pub mod retries;
pub mod retry;
mod returning;
mod route;
mod shown;
mod signal;
mod signalled;
mod standing;
pub mod unparked;
mod write;

pub use bridge::Bridges;
pub use disposal::{Disposal, dispose};
pub use plan::plan;
pub use returning::{CameBack, Return, away_again, come_back, give_back};
pub use shown::{Shown, shown};
pub use signal::{Implausible, Signal, signal, without_death};
pub use signalled::signalled;

/// Whose rules count: a generation of RabbitMQ (semantics differ in history, cycles and headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 3.10 to 3.12.
    V3,
    /// 3.13: supported by reading its source.
    V3_13,
    /// 4.0, and what comes after.
    V4,
}

/// Where a queue's dead letters go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The dead-letter exchange; empty is the default exchange.
    pub exchange: ShortStr,
    /// The dead-letter routing key, if one is set; an empty key is a set key (S2.2).
    pub routing_key: Option<ShortStr>,
    /// The strategy `at-least-once`: nothing is dropped, not even a cycle.
    pub at_least_once: bool,
}

/// The settings that shape a dead letter, whatever the broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// `history = "continue"`: a client's x-death counts on every version; else what the broker forgets is forgotten.
    pub continue_history: bool,
}

/// What shapes a dead letter: [`RuleSettings`] at one broker, with the limit of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The generation of the broker.
    pub dialect: Dialect,
    /// How many entries x-death may have; the oldest are dropped.
    pub max_history: usize,
    /// As in [`RuleSettings`].
    pub continue_history: bool,
    /// What the dead letter of a rejected message says of who rejected it.
    pub stamp: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    /// The queue in which it died.
    pub queue: &'a ShortStr,
    pub reason: Reason,
    /// The exchange it had been published to.
    pub exchange: &'a [u8],
    /// The routing key it had been published with.
    pub routing_key: &'a [u8],
    /// The message as the *broker* sent it: with the private headers that a client is not shown.
    pub content: &'a Content,
    /// True when the broker has written this death into x-death already (a signal); false for a reject that we withheld.
    pub recorded: bool,
    /// Who rejected it, if a client did whose session this is.
    pub by: Option<&'a Rejecter>,
}

/// Where the dead letters of a queue go now, as far as the proxy can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Target(Target),
    /// There is a dead-letter exchange, but only the broker can tell which key its own policy sets beside it.
    KeyUnknown,
    /// Only the broker can tell whether there is one: its policies were not read, or cannot be told apart, and nothing else names one.
    Unknown,
    /// The queue has no dead-letter exchange: neither its arguments nor any policy names one.
    NoExchange,
}

// === impl RuleSettings ===

impl RuleSettings {
    /// The rules at a broker of this generation.
    pub fn at(self, dialect: Dialect, max_history: usize, stamp: bool) -> Rules {
        Rules {
            dialect,
            max_history,
            continue_history: self.continue_history,
            stamp,
        }
    }
}

// === impl Dialect ===

impl Dialect {
    /// The dialect of a broker that calls itself this version: `3.10.8`, `4.3.6-rc.1`. None before 3.10, or when it is no version:
    /// then nothing is taken over. What is newer than 4.x is treated as 4.x.
    pub fn of_version(version: &[u8]) -> Option<Dialect> {
        match Version::parse(version)? {
            Version(0..=2, ..) | Version(3, 0..=9, _) => None,
            Version(3, 10..=12, _) => Some(Dialect::V3),
            Version(3, ..) => Some(Dialect::V3_13),
            Version(4.., ..) => Some(Dialect::V4),
        }
    }
}

#[cfg(test)]
mod tests;
