//! What a page for people shows of the metrics. Reading makes no series.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::super::names::Name;
use super::{LimitLabels, LinkLabels, Metrics, VhostLabels};
use crate::amqp::ids::Vhost;
use crate::machine::{Limit, Role};

/// How things stand in one vhost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Each link that was opened, and whether it is up.
    pub links: Vec<(&'static str, bool)>,
    /// All queues are left to the broker, as the proxy's user has no rights here.
    pub is_native: bool,
    /// The broker blocks the publisher.
    pub is_blocked: bool,
    /// Messages that wait in the parking queue, if that is known.
    pub parked: Option<u64>,
}

// === impl Metrics ===

impl Metrics {
    /// How things stand in this vhost.
    pub fn standing(&self, vhost: &Vhost) -> Standing {
        let name = Name::of(vhost);
        let labels = VhostLabels {
            vhost: name.clone(),
        };
        let number = |gauges: &Family<VhostLabels, Gauge>| gauges.get(&labels).map(|it| it.get());
        let inner = self.inner();
        let up = |role: Role| {
            let gauge = inner.link_up.get(&LinkLabels::new(&name, role))?;
            Some((role.as_str(), gauge.get() > 0))
        };
        let waiting = number(&inner.parked_waiting);
        let staying = number(&inner.parked_staying);
        let parked = waiting.map(|waiting| waiting.saturating_add(staying.unwrap_or(0)));
        Standing {
            links: [Role::Publisher, Role::Intake, Role::Recorder, Role::Pulse]
                .into_iter()
                .filter_map(up)
                .collect(),
            is_native: number(&inner.vhost_native) == Some(1),
            is_blocked: number(&inner.publisher_blocked) == Some(1),
            parked: parked.and_then(|it| u64::try_from(it).ok()),
        }
    }

    /// The limits that were met since the process began, and how often.
    pub fn limits_that_were_met(&self) -> Vec<(&'static str, u64)> {
        let met = |limit: Limit| {
            let limit = limit.as_str();
            let times = self.inner().limits_met.get(&LimitLabels { limit })?.get();
            (times > 0).then_some((limit, times))
        };
        Limit::ALL.into_iter().filter_map(met).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_that_were_met_and_no_series_is_made() {
        let metrics = Metrics::new();
        let before = metrics.encode();
        assert_eq!(metrics.limits_that_were_met(), []);
        assert_eq!(metrics.standing(&Vhost::ROOT), Standing::default());
        assert_eq!(metrics.encode(), before);
        metrics.limit_met(Limit::Looks);
        metrics.limit_met(Limit::Looks);
        assert_eq!(metrics.limits_that_were_met(), [(Limit::Looks.as_str(), 2)]);
    }
}
