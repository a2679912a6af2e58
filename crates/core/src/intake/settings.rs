//! What an intake is told when it is made.

use crate::dead_letter::{Lookup, RuleSettings};
use crate::link::Login;
use crate::machine::LiveLimits;
use crate::objects::{self, DeclaredTarget, Names};
use crate::registry::catalogue::Catalogue;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Queue;

use super::QueueType;

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub names: Names,
    /// For queues whose intake exchange does not name the target.
    pub policies: LivePolicies,
    /// For deaths during a delay, and messages parked without a known target.
    pub catalogue: Catalogue,
    pub queue_type: QueueType,
    pub prefetch: u16,
    /// Uses `max-intake-exchanges`, `intake-bytes` and `max-history`.
    pub limits: LiveLimits,
    pub rules: RuleSettings,
    /// Redeclared queues are recorded: no signal is taken before the record counts.
    pub recorded: bool,
}

// === impl Settings ===

impl Settings {
    /// What the name of an intake exchange says of a queue. An adopted queue has that name from a
    /// policy, which may be for several types, and which a policy of ours overrules.
    pub(super) fn said(
        &self,
        queue: &[u8],
        (said, queue_type): (DeclaredTarget, objects::QueueType),
    ) -> (DeclaredTarget, objects::QueueType) {
        let vhost = &self.login.vhost;
        let known = self.catalogue.get(vhost, queue);
        if let Some(declared) = known.as_ref().and_then(|known| known.declared()) {
            let declared = &declared.value;
            let queue_type = declared.queue_type;
            let queue = Queue {
                vhost,
                name: queue,
                queue_type,
            };
            if self.policies.is_adopted(queue, declared) {
                let at_least_once = said.at_least_once();
                return (DeclaredTarget::Policy { at_least_once }, queue_type);
            }
        }
        (said, queue_type)
    }

    /// The current target of a queue. "No target" is certain only where the broker would discard
    /// the message.
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
