//! Queues that were declared otherwise than they are at the broker, where the setting `lenient` accepts that: what the last declare said counts.
//!
//! RabbitMQ keeps the dead-letter arguments with which a queue was made, whatever is declared later. So an entry says which those are: it
//! counts only for a queue that has them, and not for the next one of that name that is made with others.
//!
//! All proxies of a vhost share these entries: each writes its own to a stream at the broker and reads those of the others there
//! ([`recorder`](crate::recorder)). The number of an entry tells which is the newer one, wherever it stands in the stream.

use std::collections::BTreeMap;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;
use crate::objects::{DeclaredTarget, Names, OwnObject};

use super::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments};

/// The dead-letter arguments of a queue at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Existing {
    /// The client's, or an intake exchange.
    pub exchange: Option<ShortStr>,
    pub routing_key: Option<ShortStr>,
}

/// In all vhosts: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct Redeclared {
    queues: BTreeMap<(Vhost, ShortStr), Entry>,
}

/// The last declare of a queue. The greater of two entries counts: the newer one; for concurrent
/// ones, the same choice everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// One more than the previous entry's.
    pub number: u64,
    /// Arguments of the queue that it concerns.
    pub existing: Existing,
    /// `None`: the target in these arguments.
    pub said: Option<DeclaredTarget>,
}

// === impl Existing ===

impl Existing {
    pub fn of(arguments: &[u8]) -> Existing {
        let arguments = DeclareArguments::read(arguments);
        let name = |argument| ShortStr::copy(arguments.value(argument)?.as_text()?);
        Existing {
            exchange: name(DEAD_LETTER_EXCHANGE),
            routing_key: name(DEAD_LETTER_ROUTING_KEY),
        }
    }

    /// Their target; for an intake exchange, the one in its name.
    pub fn said(&self, names: &Names) -> DeclaredTarget {
        let exchange = self.exchange.as_ref();
        let object = exchange.and_then(|exchange| names.parse(exchange));
        if let Some(OwnObject::IntakeExchange(said, _)) = object {
            return said;
        }
        match &self.exchange {
            Some(exchange) => DeclaredTarget::Target(Target {
                exchange: exchange.clone(),
                routing_key: self.routing_key.clone(),
                at_least_once: false,
            }),
            None => DeclaredTarget::Policy {
                at_least_once: false,
            },
        }
    }

    /// Whether deaths in the queue come to the proxy.
    pub fn is_taken_over(&self, names: &Names) -> bool {
        self.intake(names).is_some()
    }

    /// The intake exchange of a queue that was taken over.
    pub fn intake(&self, names: &Names) -> Option<ShortStr> {
        let exchange = self.exchange.as_ref();
        exchange
            .filter(|exchange| names.is_intake_exchange(exchange))
            .cloned()
    }

    /// For a queue with this intake exchange.
    pub fn taken_over(intake: &ShortStr) -> Existing {
        Existing {
            exchange: Some(intake.clone()),
            routing_key: None,
        }
    }
}

// === impl Redeclared ===

impl Redeclared {
    /// Number of queues with another target than in their arguments.
    pub fn len(&self) -> usize {
        let entries = self.queues.values();
        entries.filter(|entry| entry.said.is_some()).count()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Vhost, &ShortStr, &Entry)> {
        let entries = self.queues.iter();
        entries.map(|((vhost, queue), entry)| (vhost, queue, entry))
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The last declare, if its target differs from these arguments.
    pub fn said(&self, vhost: &[u8], queue: &[u8], existing: &Existing) -> Option<&DeclaredTarget> {
        if self.is_empty() {
            return None;
        }
        self.of(vhost, queue, existing)?.said.as_ref()
    }

    /// The entry, if the queue has these arguments.
    pub fn of(&self, vhost: &[u8], queue: &[u8], existing: &Existing) -> Option<&Entry> {
        let entry = self.entry(&ShortStr::copy(vhost)?, &ShortStr::copy(queue)?)?;
        (entry.existing == *existing).then_some(entry)
    }

    pub fn entry(&self, vhost: &Vhost, queue: &ShortStr) -> Option<&Entry> {
        self.queues.get(&(vhost.clone(), queue.clone()))
    }

    pub fn of_vhost(&self, vhost: &Vhost) -> impl Iterator<Item = (&ShortStr, &Entry)> {
        let first = (vhost.clone(), ShortStr::EMPTY);
        self.queues
            .range(first..)
            .take_while(move |((of, _), _)| of == vhost)
            .map(|((_, queue), entry)| (queue, entry))
    }

    /// Adds an entry, unless a known one is newer.
    #[must_use]
    pub fn with(
        &self,
        vhost: &Vhost,
        entries: impl IntoIterator<Item = (ShortStr, Entry)>,
    ) -> Redeclared {
        let mut queues = self.queues.clone();
        for (queue, entry) in entries {
            let known = queues
                .entry((vhost.clone(), queue))
                .or_insert(entry.clone());
            if entry > *known {
                *known = entry;
            }
        }
        Redeclared { queues }
    }
}
