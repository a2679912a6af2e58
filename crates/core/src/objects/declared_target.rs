//! What a queue's arguments say of where its dead letters go, and of its type: so much the name of its intake exchange tells.

use crate::dead_letter::Target;
use crate::machine::DeadLettersTo;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeclaredTarget {
    Target(Target),
    /// No target in the arguments; one of the proxy's policies has it.
    Policy {
        at_least_once: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    Classic,
    /// A declare without `x-queue-type`: classic, unless the vhost has another default, which is
    /// not visible.
    Default,
    Quorum,
    /// A stream or an unknown type: no dead-letter exchange that the proxy knows.
    Other,
}

// === impl DeclaredTarget ===

impl DeclaredTarget {
    pub fn at_least_once(&self) -> bool {
        match self {
            DeclaredTarget::Target(target) => target.at_least_once,
            DeclaredTarget::Policy { at_least_once } => *at_least_once,
        }
    }

    #[must_use]
    pub fn like(mut self, other: &DeclaredTarget) -> DeclaredTarget {
        let strategy = match &mut self {
            DeclaredTarget::Target(target) => &mut target.at_least_once,
            DeclaredTarget::Policy { at_least_once } => at_least_once,
        };
        *strategy = other.at_least_once();
        self
    }

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
