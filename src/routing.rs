//! Where the exchanges of a vhost lead, as a survey found them: `rabbit_exchange:route`.

use std::collections::{BTreeMap, BTreeSet};

use crate::amqp::ids::ShortStr;
use crate::machine::{Binding, Destination, Exchange, Survey};

mod leads;
#[cfg(test)]
pub(crate) mod tests;
mod topic;

/// Above this total everything is dropped.
pub const MOST_OCTETS: usize = 64 << 20;
/// Per exchange or binding, beside names (measured, with allocator overhead).
pub const OVERHEAD: usize = 320;
const BUILT_IN: [(&[u8], Kind); 5] = [
    (b"amq.direct", Kind::Direct),
    (b"amq.fanout", Kind::Fanout),
    (b"amq.topic", Kind::Topic),
    (b"amq.headers", Kind::Headers),
    (b"amq.match", Kind::Headers),
];

#[derive(Clone, Debug)]
pub struct Routing {
    exchanges: BTreeMap<ShortStr, Known>,
    bindings: BTreeSet<SortedBinding>,
    octets: usize,
}

#[derive(Clone, Debug)]
struct Known {
    kind: Kind,
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

/// Sorted, so that bindings of one exchange and key are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortedBinding {
    source: ShortStr,
    routing_key: ShortStr,
    destination: Destination,
}

impl Default for Routing {
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
    /// Empty if the survey is too large.
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

    fn range(&self, source: &ShortStr) -> impl Iterator<Item = &SortedBinding> {
        self.bindings
            .range(SortedBinding::first(source.clone(), ShortStr::EMPTY)..)
            .take_while(move |binding| binding.source == *source)
    }

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
