//! Where the exchanges of a vhost lead, as far as is known: `rabbit_exchange:route` over bindings that were seen pass or read in a survey.
//!
//! Only a survey knows all bindings, and only those of one moment: AMQP cannot list them, whoever declares an exchange does not learn
//! whether it was there before, any client of the broker may bind to it at any time past this proxy, and queues that delete
//! themselves tell nobody. So what was seen pass is a guess, good for asking and never for dropping a message.

use std::collections::{BTreeMap, BTreeSet};

use crate::amqp::ids::ShortStr;
use crate::amqp::table::Table;
use crate::dead_letter::TargetQueues;
use crate::machine::{Binding, Change, Destination, Exchange, Survey};

use self::headers::Criteria;

mod headers;
mod leads;
#[cfg(test)]
pub(crate) mod tests;
mod topic;

/// Octets of all that is known; beyond, all is forgotten.
pub const MOST_OCTETS: usize = 64 << 20;
/// What an exchange or a binding costs beside its names (measured, with the allocator's part).
pub const OVERHEAD: usize = 320;
/// What it costs to know that an exchange leads to a destination; the names are those of a binding.
const SOURCE: usize = 200;
/// What finding the queues of one message may cost; beyond, they are unknown. That is 512 bindings, or fewer if the message has many keys or a
/// large header, which each binding is compared with.
const MOST_WORK: usize = 512 * LOOK;
/// What a look at one binding costs at least.
const LOOK: usize = 128;
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
    /// Which exchanges lead to a destination, or once did.
    sources: BTreeSet<(Destination, ShortStr)>,
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
    criteria: Criteria,
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
            sources: BTreeSet::new(),
            octets: 0,
        }
    }
}

// === impl Routing ===

impl Routing {
    /// All of it, as a survey found it; nothing, when that is more than fits.
    pub fn of(survey: Survey) -> Routing {
        let mut routing = Routing::default();
        let exchanges = survey.exchanges.into_iter().map(Change::Declared);
        let bindings = survey.bindings.into_iter().map(Change::Bound);
        for change in exchanges.chain(bindings) {
            if !routing.apply(change) {
                break;
            }
        }
        routing
    }

    /// A client changed something. False when that was too much, and all is forgotten.
    pub fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Declared(exchange) => self.declared(exchange),
            Change::Bound(binding) => self.bound(SortedBinding::of(binding)),
            Change::Unbound(binding) => self.unbound(&SortedBinding::of(binding)),
            Change::ExchangeDeleted(exchange) => {
                if let Some(known) = self.exchanges.remove(&exchange) {
                    self.octets = self.octets.saturating_sub(known.octets(&exchange));
                }
                for binding in self.range(&exchange).cloned().collect::<Vec<_>>() {
                    self.unbound(&binding);
                    self.leads_nowhere(&(binding.destination, binding.source));
                }
                self.cut_off(Destination::Exchange(exchange));
            }
            Change::QueueDeleted(queue) => self.cut_off(Destination::Queue(queue)),
        }
        let fits = self.octets <= MOST_OCTETS;
        if !fits {
            *self = Routing::default();
        }
        fits
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
        let source = (binding.destination.clone(), binding.source.clone());
        if self.sources.insert(source) {
            self.octets += SOURCE;
        }
        let octets = binding.octets();
        if self.bindings.insert(binding) {
            self.octets += octets;
        }
    }

    fn unbound(&mut self, binding: &SortedBinding) {
        if self.bindings.remove(binding) {
            self.octets = self.octets.saturating_sub(binding.octets());
        }
    }

    /// That exchange leads to that destination no more.
    fn leads_nowhere(&mut self, source: &(Destination, ShortStr)) {
        if self.sources.remove(source) {
            self.octets = self.octets.saturating_sub(SOURCE);
        }
    }

    /// Nothing leads there any more.
    fn cut_off(&mut self, destination: Destination) {
        let from = (destination.clone(), ShortStr::EMPTY);
        let sources: Vec<_> = self
            .sources
            .range(from..)
            .take_while(|(to, _)| *to == destination)
            .cloned()
            .collect();
        for source in sources {
            let lost: Vec<_> = self
                .range(&source.1)
                .filter(|binding| binding.destination == destination)
                .cloned()
                .collect();
            for binding in lost {
                self.unbound(&binding);
            }
            self.leads_nowhere(&source);
        }
    }

    /// The queues to which a message with these keys and headers would be routed by this exchange.
    pub fn targets(&self, exchange: &[u8], keys: &[&[u8]], headers: Table<'_>) -> TargetQueues {
        let mut queues = BTreeSet::new();
        let mut seen = BTreeSet::from([exchange]);
        let mut due = vec![exchange];
        let mut work = MOST_WORK;
        while let Some(next) = due.pop() {
            let Some((name, known)) = self.exchanges.get_key_value(next) else {
                return TargetQueues::Unknown;
            };
            let Some(found) = self.destinations(name, known.kind, keys, headers, &mut work) else {
                return TargetQueues::Unknown;
            };
            let alternate = known.alternate.as_ref().filter(|_| found.is_empty());
            for destination in found {
                match destination {
                    Destination::Queue(queue) => drop(queues.insert(queue.clone())),
                    Destination::Exchange(exchange) if seen.insert(exchange) => due.push(exchange),
                    Destination::Exchange(_) => {}
                }
            }
            if let Some(alternate) = alternate
                && seen.insert(alternate)
            {
                due.push(alternate);
            }
        }
        TargetQueues::Known(queues.into_iter().collect())
    }

    /// Where one exchange passes the message on to; `None`: unknown.
    fn destinations(
        &self,
        exchange: &ShortStr,
        kind: Kind,
        keys: &[&[u8]],
        headers: Table<'_>,
        work: &mut usize,
    ) -> Option<Vec<&Destination>> {
        let mut found = Vec::new();
        let mut look = |binding: &'_ SortedBinding| {
            let cost = match kind {
                Kind::Direct | Kind::Fanout | Kind::Unknown => LOOK,
                Kind::Topic => keys.len(),
                Kind::Headers => binding.criteria.cost(headers),
            };
            *work = work.checked_sub(cost.max(LOOK))?;
            match kind {
                Kind::Direct | Kind::Fanout => Some(true),
                Kind::Topic => Some(keys.iter().any(|k| topic::matches(&binding.routing_key, k))),
                Kind::Headers => binding.criteria.matches(headers),
                Kind::Unknown => None,
            }
        };
        match kind {
            Kind::Unknown => return None,
            Kind::Direct => {
                for key in keys {
                    for binding in self.with_key(exchange, key) {
                        look(binding)?;
                        found.push(&binding.destination);
                    }
                }
            }
            Kind::Fanout | Kind::Topic | Kind::Headers => {
                for binding in self.range(exchange) {
                    if look(binding)? {
                        found.push(&binding.destination);
                    }
                }
            }
        }
        Some(found)
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
        let alternate = match Table(&exchange.arguments).get(b"alternate-exchange") {
            Ok(None) => Some(None),
            Ok(Some(value)) => value.as_longstr().and_then(ShortStr::copy).map(Some),
            Err(_) => None,
        };
        let kind = match &*exchange.kind {
            _ if exchange.policy || alternate.is_none() => Kind::Unknown,
            b"direct" => Kind::Direct,
            b"fanout" => Kind::Fanout,
            b"topic" => Kind::Topic,
            b"headers" => Kind::Headers,
            _ => Kind::Unknown,
        };
        Known {
            kind,
            alternate: alternate.flatten(),
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
            criteria: Criteria::of(&binding.arguments),
        }
    }

    /// None with this source and key comes before it.
    fn first(source: ShortStr, routing_key: ShortStr) -> SortedBinding {
        SortedBinding {
            source,
            routing_key,
            destination: Destination::Queue(ShortStr::EMPTY),
            criteria: Criteria::default(),
        }
    }

    fn octets(&self) -> usize {
        let (Destination::Queue(to) | Destination::Exchange(to)) = &self.destination;
        OVERHEAD + self.source.len() + self.routing_key.len() + to.len() + self.criteria.len()
    }
}
