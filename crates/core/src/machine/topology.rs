//! Exchanges and bindings of a vhost, as plain data: what a survey found.

use crate::amqp::ids::ShortStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub name: ShortStr,
    pub kind: ShortStr,
    /// Receives messages that no binding matches.
    pub alternate: Option<ShortStr>,
    /// May route unlike its type: a broker policy applies, or its arguments cannot be read.
    pub is_odd: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub source: ShortStr,
    pub destination: Destination,
    pub routing_key: ShortStr,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    Queue(ShortStr),
    Exchange(ShortStr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The default exchange may be missing.
    pub exchanges: Vec<Exchange>,
    pub bindings: Vec<Binding>,
}

// === impl Exchange ===

impl Exchange {
    pub fn octets(&self) -> usize {
        let alternate = self.alternate.as_ref().map_or(0, |name| name.len());
        self.name.len() + self.kind.len() + alternate
    }
}

// === impl Binding ===

impl Binding {
    pub fn octets(&self) -> usize {
        let (Destination::Queue(to) | Destination::Exchange(to)) = &self.destination;
        self.source.len() + to.len() + self.routing_key.len()
    }
}

/// Requests an intake exchange with its bindings before a declare goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ensure {
    pub exchange: ShortStr,
    /// The client's user, whose share of the exchanges is limited.
    pub user: Option<ShortStr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    pub exchange: ShortStr,
    /// False: the exchange cannot be had; the broker gets the declare unchanged.
    pub ready: bool,
}
