//! What an intake is told when it is made.

use crate::dead_letter::{Lookup, RuleSettings};
use crate::link::Login;
use crate::machine::LiveLimits;
use crate::objects::Names;
use crate::registry::catalogue::Catalogue;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Queue;

use super::QueueType;

/// The settings of an intake.
#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    /// The names of its objects.
    pub names: Names,
    /// For queues whose target is not in the name of their intake exchange.
    pub policies: LivePolicies,
    /// What is known of queues: for what died while it was away from its queue, or was parked as nobody knew a target.
    pub catalogue: Catalogue,
    pub queue_type: QueueType,
    pub prefetch: u16,
    /// `max-intake-exchanges`, `intake-bytes` and `max-history`.
    pub limits: LiveLimits,
    pub rules: RuleSettings,
    /// There is a record of redeclared queues: no signal is taken before it counts.
    pub recorded: bool,
}

// === impl Settings ===

impl Settings {
    /// Where the dead letters of a queue go now, as far as anybody knows. That they go nowhere is known only where the broker would discard them.
    pub(super) fn lookup(&self, queue: &[u8]) -> Lookup {
        let vhost = &self.login.vhost;
        let known = self.catalogue.get(vhost, queue);
        let Some(declared) = known.as_ref().and_then(|known| known.declared()) else {
            return Lookup::Unknown;
        };
        let declared = &declared.value;
        let queue = Queue {
            vhost,
            name: queue,
            queue_type: declared.queue_type,
        };
        let policies = &self.policies;
        match policies.target_of_declared(queue, declared, &self.names) {
            Lookup::NoExchange if policies.broker_dead_letters(queue, declared) => Lookup::Unknown,
            lookup => lookup,
        }
    }
}
