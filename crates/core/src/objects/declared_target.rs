//! What a queue's arguments say of where its dead letters go, and of its type: so much the name of its intake exchange tells.

use crate::dead_letter::Target;
use crate::machine::DeadLettersTo;

/// What the arguments of a queue say of its dead letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeclaredTarget {
    /// An exchange, and maybe a routing key.
    Target(Target),
    /// Nothing: a policy of ours does.
    Policy {
        /// The strategy `at-least-once`.
        at_least_once: bool,
    },
}

/// The type of a queue, as far as one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    Classic,
    /// A declare without `x-queue-type`: classic, unless its vhost has another default, which cannot be seen.
    Default,
    Quorum,
    /// A stream, or a type that is new to us: it takes no dead-letter exchange that we know of.
    Other,
}

// === impl DeclaredTarget ===

impl DeclaredTarget {
    /// The strategy `at-least-once`.
    pub fn at_least_once(&self) -> bool {
        match self {
            DeclaredTarget::Target(target) => target.at_least_once,
            DeclaredTarget::Policy { at_least_once } => *at_least_once,
        }
    }

    /// With the strategy of the other.
    #[must_use]
    pub fn like(mut self, other: &DeclaredTarget) -> DeclaredTarget {
        let strategy = match &mut self {
            DeclaredTarget::Target(target) => &mut target.at_least_once,
            DeclaredTarget::Policy { at_least_once } => at_least_once,
        };
        *strategy = other.at_least_once();
        self
    }

    /// Whether they say the same of exchange and routing key.
    pub fn is_but_for_the_strategy(&self, other: &DeclaredTarget) -> bool {
        match (self, other) {
            (DeclaredTarget::Target(one), DeclaredTarget::Target(other)) => {
                (&one.exchange, &one.routing_key) == (&other.exchange, &other.routing_key)
            }
            (DeclaredTarget::Policy { .. }, DeclaredTarget::Policy { .. }) => true,
            (DeclaredTarget::Target(_), DeclaredTarget::Policy { .. })
            | (DeclaredTarget::Policy { .. }, DeclaredTarget::Target(_)) => false,
        }
    }
}

impl From<&DeclaredTarget> for DeadLettersTo {
    fn from(said: &DeclaredTarget) -> DeadLettersTo {
        match said {
            DeclaredTarget::Target(target) => DeadLettersTo {
                exchange: Some(target.exchange.clone()),
                routing_key: target.routing_key.clone(),
            },
            DeclaredTarget::Policy { .. } => DeadLettersTo::default(),
        }
    }
}
