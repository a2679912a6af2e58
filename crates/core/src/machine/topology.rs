//! Exchanges and bindings of a vhost, as plain data: what a survey found.

use crate::amqp::ids::ShortStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub name: ShortStr,
    /// Its type: `direct`, `fanout`, `topic`, `headers`, or one of a plugin.
    pub kind: ShortStr,
    /// Takes what has no destination here.
    pub alternate: Option<ShortStr>,
    /// It may route as its type does not tell: a policy of the broker applies to it, or its arguments cannot be read.
    pub is_odd: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The exchange that messages come from.
    pub source: ShortStr,
    pub destination: Destination,
    pub routing_key: ShortStr,
}

/// What a binding leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    Queue(ShortStr),
    Exchange(ShortStr),
}

/// All exchanges and bindings of a vhost, read from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// All exchanges; the default exchange may be left out.
    pub exchanges: Vec<Exchange>,
    /// All bindings; those of the default exchange may be left out.
    pub bindings: Vec<Binding>,
}

// === impl Exchange ===

impl Exchange {
    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        let alternate = self.alternate.as_ref().map_or(0, |name| name.len());
        self.name.len() + self.kind.len() + alternate
    }
}

// === impl Binding ===

impl Binding {
    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        let (Destination::Queue(to) | Destination::Exchange(to)) = &self.destination;
        self.source.len() + to.len() + self.routing_key.len()
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
