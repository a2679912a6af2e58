//! Queues that were declared otherwise than they are at the broker, where `declares = "lenient"` accepts that: what the last declare said counts.
//!
//! RabbitMQ keeps the dead-letter arguments with which a queue was made, whatever is declared later. So an entry says which those are: it
//! counts only for a queue that has them, and not for the next one of that name that is made with others.

use std::collections::BTreeMap;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::dead_letter::Target;

use super::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments};
use super::declared_target::DeclaredTarget;

/// The dead-letter arguments that a queue has at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    existing: Existing,
    said: DeclaredTarget,
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

    /// What they say.
    pub fn said(&self) -> DeclaredTarget {
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// What the last declare said of the queue, if that is not what its arguments say.
    pub fn said(&self, vhost: &[u8], queue: &[u8], existing: &Existing) -> Option<&DeclaredTarget> {
        if self.is_empty() {
            return None;
        }
        let key = (ShortStr::copy(vhost)?, ShortStr::copy(queue)?);
        let entry = self.queues.get(&key)?;
        (entry.existing == *existing).then_some(&entry.said)
    }

    /// The last declare of the queue said that.
    #[must_use]
    pub fn with(
        &self,
        vhost: Vhost,
        queue: ShortStr,
        existing: Existing,
        said: DeclaredTarget,
    ) -> Redeclared {
        let mut queues = self.queues.clone();
        queues.insert((vhost, queue), Entry { existing, said });
        Redeclared { queues }
    }

    /// The last declare of the queue said what its arguments say, or the queue has gone.
    #[must_use]
    pub fn without(&self, vhost: &Vhost, queue: &ShortStr) -> Redeclared {
        let mut queues = self.queues.clone();
        queues.remove(&(vhost.clone(), queue.clone()));
        Redeclared { queues }
    }
}
