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

#[derive(Clone)]
pub struct Handlings {
    pub catalogue: Catalogue,
    pub policies: LivePolicies,
    pub mode: Mode,
    pub names: Names,
    pub user: ShortStr,
    pub metrics: Metrics,
    pub clock: SystemClock,
}

// === impl Handlings ===

impl Handlings {
    /// Queues worth showing, most urgent first. Reads all known queues.
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

    /// Queues whose last declare differs from their arguments, with these arguments.
    pub fn redeclared(&self, vhost: &Vhost) -> BTreeMap<ShortStr, Existing> {
        let redeclared = self.policies.redeclared();
        let of_vhost = redeclared.iter().filter(|(of, ..)| *of == vhost);
        let counts = of_vhost.filter(|(_, _, entry)| entry.said.is_some());
        counts
            .map(|(_, queue, entry)| (queue.clone(), entry.existing.clone()))
            .collect()
    }

    pub(super) fn targets(&self, vhost: &Vhost) -> BTreeSet<Target> {
        let targets = self.of(vhost).into_iter();
        let targets = targets.filter_map(|(_, handling)| handling.target);
        targets.map(Target::from).collect()
    }

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
