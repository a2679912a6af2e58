//! Queues that were declared otherwise than they are at the broker, where `declares = "lenient"` accepts that: what the last declare said counts.
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

/// The dead-letter arguments that a queue has at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Existing {
    /// `x-dead-letter-exchange`: the client's, or an intake exchange.
    pub exchange: Option<ShortStr>,
    /// `x-dead-letter-routing-key`.
    pub routing_key: Option<ShortStr>,
}

/// All such queues of all vhosts: an immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct Redeclared {
    queues: BTreeMap<(Vhost, ShortStr), Entry>,
}

/// What the last declare said of one queue. Of two entries for a queue the greater counts: it is the newer one, or, of two declares that no
/// proxy could tell apart, the same one for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// One more than that of the entry before.
    pub number: u64,
    /// The arguments of the queue that it is about.
    pub existing: Existing,
    /// Nothing: what these arguments say.
    pub said: Option<DeclaredTarget>,
}

// === impl Existing ===

impl Existing {
    /// Those of a declare that the broker accepted.
    pub fn of(arguments: &[u8]) -> Existing {
        let arguments = DeclareArguments::read(arguments);
        let name = |argument| ShortStr::copy(arguments.value(argument)?.as_text()?);
        Existing {
            exchange: name(DEAD_LETTER_EXCHANGE),
            routing_key: name(DEAD_LETTER_ROUTING_KEY),
        }
    }

    /// What they say; the name of an intake exchange says what the declare said that made the queue.
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

    /// Whether what dies in the queue comes to the proxy.
    pub fn is_taken_over(&self, names: &Names) -> bool {
        self.intake(names).is_some()
    }

    /// The intake exchange to which it comes then.
    pub fn intake(&self, names: &Names) -> Option<ShortStr> {
        let exchange = self.exchange.as_ref();
        exchange
            .filter(|exchange| names.is_intake_exchange(exchange))
            .cloned()
    }

    /// Those of a queue whose messages die into this intake exchange.
    pub fn taken_over(intake: &ShortStr) -> Existing {
        Existing {
            exchange: Some(intake.clone()),
            routing_key: None,
        }
    }
}

// === impl Redeclared ===

impl Redeclared {
    /// How many queues have another target than their arguments say.
    pub fn len(&self) -> usize {
        let entries = self.queues.values();
        entries.filter(|entry| entry.said.is_some()).count()
    }

    /// All that is known: the vhost, the queue, its entry.
    pub fn iter(&self) -> impl Iterator<Item = (&Vhost, &ShortStr, &Entry)> {
        let entries = self.queues.iter();
        entries.map(|((vhost, queue), entry)| (vhost, queue, entry))
    }

    /// Whether nothing is known of any queue.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// What the last declare said of the queue, if that is not what its arguments say.
    pub fn said(&self, vhost: &[u8], queue: &[u8], existing: &Existing) -> Option<&DeclaredTarget> {
        if self.is_empty() {
            return None;
        }
        self.of(vhost, queue, existing)?.said.as_ref()
    }

    /// What is known of the queue, if it has these arguments.
    pub fn of(&self, vhost: &[u8], queue: &[u8], existing: &Existing) -> Option<&Entry> {
        let entry = self.entry(&ShortStr::copy(vhost)?, &ShortStr::copy(queue)?)?;
        (entry.existing == *existing).then_some(entry)
    }

    /// What is known of the queue.
    pub fn entry(&self, vhost: &Vhost, queue: &ShortStr) -> Option<&Entry> {
        self.queues.get(&(vhost.clone(), queue.clone()))
    }

    /// All that is known of the queues of a vhost.
    pub fn of_vhost(&self, vhost: &Vhost) -> impl Iterator<Item = (&ShortStr, &Entry)> {
        let first = (vhost.clone(), ShortStr::EMPTY);
        self.queues
            .range(first..)
            .take_while(move |((of, _), _)| of == vhost)
            .map(|((_, queue), entry)| (queue, entry))
    }

    /// With an entry for a queue, unless what is known of it already is newer.
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
