//! What becomes of a message that died, by RabbitMQ's rules: pure functions over raw bytes, recognisable beside `rabbit_dead_letter.erl` and `mc.erl`.
//!
//! The rules are numbered and written down in `docs/rabbitmq-semantics.md`: `(S4.2)`, here and in all of the source, is its rule 4.2. The blocks of
//! `dead_letter/testdata` show them at work.
//!
//! Rejects and signals meet here, in [`dispose()`]. [`private`] has the edits of messages that merely pass.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::table::TableBuilder;
use crate::amqp::version::Version;
use crate::machine::{Reason, Rejecter};

pub mod aside;
mod bridge;
mod compact;
pub mod copy_id;
mod cycle;
pub mod delayed;
pub mod delivery_time;
mod disposal;
pub mod edited;
pub mod grid;
mod headers;
pub mod hex;
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
pub mod schedule;
mod shown;
mod signal;
mod signalled;
mod standing;
pub mod unparked;
pub mod verdict;
mod write;

pub use bridge::Bridges;
pub use disposal::{Disposal, dispose};
pub use plan::plan;
pub use returning::{CameBack, Return, away_again, come_back, give_back};
pub use shown::{Shown, shown};
pub use signal::{Implausible, Signal, signal, without_death};
pub use signalled::signalled;

/// A generation of RabbitMQ: these differ in history, cycles and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V3,
    /// Supported from its sources, untested.
    V3_13,
    V4,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub exchange: ShortStr,
    /// An empty key is a set key (S2.2).
    pub routing_key: Option<ShortStr>,
    /// The strategy `at-least-once`: nothing is dropped, not even a cycle.
    pub at_least_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// `history = "continue"`: a client's x-death counts on every version; else it is forgotten
    /// where the broker forgets it.
    pub continue_history: bool,
    pub history_form: HistoryForm,
}

/// How a private history is written; all forms are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryForm {
    Table,
    /// One string; see `compact`. A proxy before 0.3 would take it for no history.
    Compact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub dialect: Dialect,
    /// Entries of x-death; the oldest are dropped.
    pub max_history: usize,
    pub continue_history: bool,
    pub history_form: HistoryForm,
    pub stamp: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    pub queue: &'a ShortStr,
    pub reason: Reason,
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    /// As the *broker* sent it: with private headers, which clients do not see.
    pub content: &'a Content,
    /// The broker has added this death to x-death (a signal); false for a withheld reject.
    pub recorded: bool,
    pub by: Option<&'a Rejecter>,
}

/// The current dead-letter target of a queue, as far as the proxy knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Target(Target),
    /// There is a dead-letter exchange, but only the broker knows the key that its policy sets.
    KeyUnknown,
    /// Only the broker knows: its policies were not read or are ambiguous, and nothing else names
    /// an exchange.
    Unknown,
    NoExchange,
}

// === impl HistoryForm ===

impl HistoryForm {
    /// What proxies write from 0.4 on. 0.3 reads it, and writes the table: a vhost may have proxies of both.
    pub const WRITTEN: HistoryForm = HistoryForm::Compact;
}

// === impl RuleSettings ===

impl RuleSettings {
    pub fn at(self, dialect: Dialect, max_history: usize, stamp: bool) -> Rules {
        Rules {
            dialect,
            max_history,
            continue_history: self.continue_history,
            history_form: self.history_form,
            stamp,
        }
    }
}

// === impl Dialect ===

impl Dialect {
    /// From a version like `3.10.8` or `4.3.6-rc.1`. `None` before 3.10, or for no version: then
    /// nothing is taken over. Newer versions count as 4.x.
    pub fn of_version(version: &[u8]) -> Option<Dialect> {
        match Version::parse(version)? {
            Version(0..=2, ..) | Version(3, 0..=9, _) => None,
            Version(3, 10..=12, _) => Some(Dialect::V3),
            Version(3, ..) => Some(Dialect::V3_13),
            Version(4.., ..) => Some(Dialect::V4),
        }
    }

    /// For a quorum queue of ours: however often its messages come back, none is dropped. The default of 4.x is 20. On 3.x there is none, and a
    /// negative limit drops a message at its first return (both measured).
    pub fn lift_delivery_limit(self, arguments: &mut TableBuilder) {
        if self == Dialect::V4 {
            arguments.long(b"x-delivery-limit", -1);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
