//! What a queue's arguments say of where its dead letters go.

use crate::dead_letter::Target;
use crate::machine::DeadLettersTo;

use super::policy::Policy;

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

impl DeclaredTarget {
    /// The strategy `at-least-once`.
    pub fn at_least_once(&self) -> bool {
        match self {
            DeclaredTarget::Target(target) => target.at_least_once,
            DeclaredTarget::Policy { at_least_once } => *at_least_once,
        }
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

    /// The target of a queue that says this, and has that policy. `None`: it has no dead-letter exchange.
    pub fn target(&self, policy: Option<&Policy>) -> Option<Target> {
        let said = match self {
            DeclaredTarget::Target(target) => (Some(&target.exchange), target.routing_key.as_ref()),
            DeclaredTarget::Policy { .. } => (None, None),
        };
        let set = policy.map(|policy| &policy.definition);
        let set = (
            set.and_then(|set| set.dead_letter_exchange.as_ref()),
            set.and_then(|set| set.dead_letter_routing_key.as_ref()),
        );
        let (first, then) = match policy.is_some_and(|policy| policy.overrules_arguments) {
            true => (set, said),
            false => (said, set),
        };
        Some(Target {
            exchange: first.0.or(then.0)?.clone(),
            routing_key: first.1.or(then.1).cloned(),
            at_least_once: self.at_least_once(),
        })
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
