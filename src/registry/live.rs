//! The policies in force, and where a queue's dead letters go by them *now*: a change acts at the next death.
//!
//! The queue's own arguments come first, then the policy of ours that it has, then what the broker's policy adds (S2.1), each key by
//! itself. So ours stand to the broker's as arguments do: it is as an argument that the broker is told of them, at a declare.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::dead_letter::Target;

use super::broker_policy::BrokerPolicies;
use super::intake_name::Intake;
use super::policy::{Policies, Queue};

/// Two cells that all machines share, each with a snapshot that is replaced as a whole; no lock. Clones are the same cells.
#[derive(Clone, Debug, Default)]
pub struct LivePolicies(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    ours: ArcSwap<Policies>,
    brokers: ArcSwap<BrokerPolicies>,
}

// === impl LivePolicies ===

impl LivePolicies {
    /// With these of ours, and nothing known of the broker's.
    pub fn new(ours: Policies) -> LivePolicies {
        let live = LivePolicies::default();
        live.set_ours(ours);
        live
    }

    /// Ours.
    pub fn ours(&self) -> Guard<Arc<Policies>> {
        self.0.ours.load()
    }

    /// From now on these are ours.
    pub fn set_ours(&self, ours: Policies) {
        self.0.ours.store(Arc::new(ours));
    }

    /// From now on these are the broker's.
    pub fn set_brokers(&self, brokers: BrokerPolicies) {
        self.0.brokers.store(Arc::new(brokers));
    }

    /// Where the dead letters go of a queue whose arguments say this. `None`: it has no dead-letter exchange any more, or only the broker
    /// can tell which key its policy sets. Then a death is the broker's.
    pub fn target(&self, queue: Queue<'_>, said: &Intake) -> Option<Target> {
        let target = self.without_the_broker_s(queue, said)?;
        match self.0.brokers.load().added(queue) {
            Some(added) => Some(added.to(target)),
            None => target.routing_key.is_some().then_some(target),
        }
    }

    /// The same for a message that the broker sent into an intake exchange, with that key.
    ///
    /// A key of the broker's policy is on it already: the one of the moment when it died. So what is known of the broker's policies only
    /// tells whether that key is a set key, which counts alone (S2.2), or the message's own, beside which `CC` may count.
    pub fn target_of_signal(
        &self,
        queue: Queue<'_>,
        said: &Intake,
        routing_key: &[u8],
    ) -> Option<Target> {
        let target = self.without_the_broker_s(queue, said)?;
        let brokers = self.0.brokers.load();
        let Some(added) = brokers.added(queue) else {
            return Some(target);
        };
        let set = added.routing_key.as_deref() == Some(routing_key);
        Some(Target {
            routing_key: target
                .routing_key
                .or_else(|| added.routing_key.clone().filter(|_| set)),
            at_least_once: target.at_least_once || added.at_least_once,
            ..target
        })
    }

    fn without_the_broker_s(&self, queue: Queue<'_>, said: &Intake) -> Option<Target> {
        said.target(self.ours().matching(queue))
    }
}
