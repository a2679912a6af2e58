//! Exchanges and bindings of a vhost, as plain data: what a session saw change, and what a survey found.

use crate::amqp::ids::ShortStr;

use super::Mono;

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub name: ShortStr,
    /// Its type: `direct`, `fanout`, `topic`, `headers`, or one of a plugin.
    pub kind: ShortStr,
    /// The arguments table, without its length.
    pub arguments: Vec<u8>,
    /// A policy of the broker applies to it: it may route as its type and arguments do not tell. A declare does not show that.
    pub policy: bool,
}

/// Arguments that are not known: a table that cannot be walked (a name of 255 octets that is not there).
pub const UNREADABLE: &[u8] = &[u8::MAX];

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The exchange that messages come from.
    pub source: ShortStr,
    /// Where they go.
    pub destination: Destination,
    /// The binding key.
    pub routing_key: ShortStr,
    /// The arguments table, without its length.
    pub arguments: Vec<u8>,
}

/// What a binding leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// This queue.
    Queue(ShortStr),
    /// This exchange.
    Exchange(ShortStr),
}

/// What a client changed: the broker accepted it, or was not asked to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The exchange is there, with this type and these arguments.
    Declared(Exchange),
    /// `queue.bind`, `exchange.bind`.
    Bound(Binding),
    /// `queue.unbind`, `exchange.unbind`.
    Unbound(Binding),
    /// An exchange is gone, and what was bound to it.
    ExchangeDeleted(ShortStr),
    /// A queue is gone, and what was bound to it.
    QueueDeleted(ShortStr),
}

/// All exchanges and bindings of a vhost, read from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// When the first of it was asked for: it tells what was so at some moment after that.
    pub begun: Mono,
    /// All exchanges; the default exchange may be left out.
    pub exchanges: Vec<Exchange>,
    /// All bindings; those of the default exchange may be left out.
    pub bindings: Vec<Binding>,
}

// === impl Change ===

impl Change {
    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        match self {
            Change::Declared(exchange) => exchange.octets(),
            Change::Bound(binding) | Change::Unbound(binding) => binding.octets(),
            Change::ExchangeDeleted(name) | Change::QueueDeleted(name) => name.len(),
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        self.name.len() + self.kind.len() + self.arguments.len()
    }
}

// === impl Binding ===

impl Binding {
    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        let (Destination::Queue(to) | Destination::Exchange(to)) = &self.destination;
        self.source.len() + to.len() + self.routing_key.len() + self.arguments.len()
    }
}

/// Asks for an intake exchange (and the objects behind it) to exist before a declare goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ensure {
    /// The name of the intake exchange.
    pub exchange: ShortStr,
    /// Who wants it, as the client calls itself: nobody may have all of them.
    pub user: Option<ShortStr>,
}

/// The answer to [`Ensure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// The exchange that was asked for.
    pub exchange: ShortStr,
    /// True when it exists now; else the declare is left alone.
    pub ready: bool,
}
