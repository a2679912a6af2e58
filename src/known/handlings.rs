//! How the queues of a vhost are handled, and where their dead letters go, by what all sessions know of them.

use std::collections::{BTreeMap, BTreeSet};

use super::Target;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::Mono;
use crate::net::clock::{Clock, SystemClock};
use crate::objects::Names;
use crate::registry::catalogue::Catalogue;
use crate::registry::handling::{Circumstances, Handling};
use crate::registry::live::LivePolicies;
use crate::registry::policy::Mode;
use crate::registry::redeclared::Existing;
use crate::telemetry::Metrics;

/// All that it depends on. Clones are the same.
#[derive(Clone)]
pub struct Handlings {
    /// What is known of queues.
    pub catalogue: Catalogue,
    pub policies: LivePolicies,
    pub mode: Mode,
    /// The names of the proxy's own objects.
    pub names: Names,
    /// The proxy's own, who works for all clients.
    pub user: ShortStr,
    /// They have seen why declares were left to the broker.
    pub metrics: Metrics,
    /// The clock of all machines.
    pub clock: SystemClock,
}

// === impl Handlings ===

impl Handlings {
    /// The queues of a vhost of which there is something to say, those first that need attention. Looks at all queues that are known.
    pub fn of(&self, vhost: &Vhost) -> Vec<(ShortStr, Handling)> {
        let left = self.metrics.declares_left(vhost);
        let circumstances = Circumstances {
            policies: &self.policies,
            mode: self.mode,
            names: &self.names,
            version: self.metrics.broker_version(),
        };
        let mut queues = Vec::new();
        self.catalogue.each(|of, queue, known| {
            if of == vhost
                && let Some(handling) =
                    circumstances.of(vhost, queue, known, left.get(queue).copied())
            {
                queues.push((queue.clone(), handling));
            }
        });
        let mut redeclared = self.redeclared(vhost);
        for (queue, _) in &queues {
            redeclared.remove(queue);
        }
        queues.extend(redeclared.into_iter().map(|(queue, existing)| {
            let taken_over = existing.is_taken_over(&self.names);
            (queue, Handling::redeclared(taken_over))
        }));
        queues.sort_by(|(a, of_a), (b, of_b)| {
            let rank = |of: &Handling| (of.why.advice.is_empty(), of.state, of.why.name);
            (rank(of_a), a).cmp(&(rank(of_b), b))
        });
        queues
    }

    /// The queues whose last declare said something else than their own arguments, and what those say.
    pub fn redeclared(&self, vhost: &Vhost) -> BTreeMap<ShortStr, Existing> {
        let redeclared = self.policies.redeclared();
        let of_vhost = redeclared.iter().filter(|(of, ..)| *of == vhost);
        let counts = of_vhost.filter(|(_, _, entry)| entry.said.is_some());
        counts
            .map(|(_, queue, entry)| (queue.clone(), entry.existing.clone()))
            .collect()
    }

    /// Where their dead letters go, each target once.
    pub(super) fn targets(&self, vhost: &Vhost) -> BTreeSet<Target> {
        let targets = self.of(vhost).into_iter();
        let targets = targets.filter_map(|(_, handling)| handling.target);
        targets.map(Target::from).collect()
    }

    /// The time as of the catalogue.
    pub fn now(&self) -> Mono {
        self.clock.now().mono
    }

    #[cfg(test)]
    pub(crate) fn of_tests() -> Handlings {
        Handlings {
            catalogue: Catalogue::default(),
            policies: LivePolicies::default(),
            mode: Mode::Full,
            names: Names::default(),
            user: ShortStr::EMPTY,
            metrics: Metrics::new(),
            clock: SystemClock::start(),
        }
    }
}
