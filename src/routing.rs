//! Where the exchanges of a vhost lead, as a survey found them: `rabbit_exchange:route`.

use std::collections::{BTreeMap, BTreeSet};

use crate::amqp::ids::ShortStr;
use crate::machine::{Binding, Destination, Exchange, Survey};

mod leads;
#[cfg(test)]
pub(crate) mod tests;
mod topic;

/// Octets of all that is known; beyond, all is forgotten.
pub const MOST_OCTETS: usize = 64 << 20;
/// What an exchange or a binding costs beside its names (measured, with the allocator's part).
pub const OVERHEAD: usize = 320;
/// Those that every vhost has.
const BUILT_IN: [(&[u8], Kind); 5] = [
    (b"amq.direct", Kind::Direct),
    (b"amq.fanout", Kind::Fanout),
    (b"amq.topic", Kind::Topic),
    (b"amq.headers", Kind::Headers),
    (b"amq.match", Kind::Headers),
];

/// The exchanges and bindings.
#[derive(Clone, Debug)]
pub struct Routing {
    exchanges: BTreeMap<ShortStr, Known>,
    bindings: BTreeSet<SortedBinding>,
    octets: usize,
}

#[derive(Clone, Debug)]
struct Known {
    kind: Kind,
    /// Takes what has no destination here.
    alternate: Option<ShortStr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Direct,
    Fanout,
    Topic,
    Headers,
    /// Of a plugin, or under a policy.
    Unknown,
}

/// A binding, in an order in which those of one exchange, and of one key there, are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortedBinding {
    source: ShortStr,
    routing_key: ShortStr,
    destination: Destination,
}

impl Default for Routing {
    /// Nothing but what every vhost has.
    fn default() -> Routing {
        let known = |(name, kind): (&[u8], Kind)| {
            let alternate = None;
            Some((ShortStr::copy(name)?, Known { kind, alternate }))
        };
        Routing {
            exchanges: BUILT_IN.into_iter().filter_map(known).collect(),
            bindings: BTreeSet::new(),
            octets: 0,
        }
    }
}

// === impl Routing ===

impl Routing {
    /// All of it, as a survey found it; nothing, when that is more than fits.
    pub fn of(survey: Survey) -> Routing {
        let mut routing = Routing::default();
        for exchange in survey.exchanges {
            routing.declared(exchange);
        }
        for binding in survey.bindings {
            routing.bound(SortedBinding::of(binding));
            if routing.octets > MOST_OCTETS {
                return Routing::default();
            }
        }
        routing
    }

    fn declared(&mut self, exchange: Exchange) {
        let known = Known::of(&exchange);
        self.octets += known.octets(&exchange.name);
        let name = exchange.name.clone();
        if let Some(before) = self.exchanges.insert(exchange.name, known) {
            self.octets = self.octets.saturating_sub(before.octets(&name));
        }
    }

    fn bound(&mut self, binding: SortedBinding) {
        let octets = binding.octets();
        if self.bindings.insert(binding) {
            self.octets += octets;
        }
    }

    /// The bindings of one exchange.
    fn range(&self, source: &ShortStr) -> impl Iterator<Item = &SortedBinding> {
        self.bindings
            .range(SortedBinding::first(source.clone(), ShortStr::EMPTY)..)
            .take_while(move |binding| binding.source == *source)
    }

    /// The bindings of this exchange with this key.
    fn with_key(&self, source: &ShortStr, key: &[u8]) -> impl Iterator<Item = &SortedBinding> {
        let first = ShortStr::copy(key).map(|key| SortedBinding::first(source.clone(), key));
        first.into_iter().flat_map(move |first| {
            self.bindings.range(first..).take_while(move |binding| {
                binding.source == *source && *binding.routing_key == *key
            })
        })
    }
}

// === impl Known ===

impl Known {
    fn of(exchange: &Exchange) -> Known {
        let kind = match &*exchange.kind {
            _ if exchange.is_odd => Kind::Unknown,
            b"direct" => Kind::Direct,
            b"fanout" => Kind::Fanout,
            b"topic" => Kind::Topic,
            b"headers" => Kind::Headers,
            _ => Kind::Unknown,
        };
        Known {
            kind,
            alternate: exchange.alternate.clone(),
        }
    }

    fn octets(&self, name: &ShortStr) -> usize {
        OVERHEAD + name.len() + self.alternate.as_ref().map_or(0, |name| name.len())
    }
}

// === impl SortedBinding ===

impl SortedBinding {
    fn of(binding: Binding) -> SortedBinding {
        SortedBinding {
            source: binding.source,
            routing_key: binding.routing_key,
            destination: binding.destination,
        }
    }

    /// None with this source and key comes before it.
    fn first(source: ShortStr, routing_key: ShortStr) -> SortedBinding {
        SortedBinding {
            source,
            routing_key,
            destination: Destination::Queue(ShortStr::EMPTY),
        }
    }

    fn octets(&self) -> usize {
        let (Destination::Queue(to) | Destination::Exchange(to)) = &self.destination;
        OVERHEAD + self.source.len() + self.routing_key.len() + to.len()
    }
}
