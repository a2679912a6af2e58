//! What a page for people shows of the metrics. Reading makes no series.

use prometheus_client::metrics::gauge::Gauge;

use super::super::series::{Label, Series};
use super::{Metrics, STATES};
use crate::amqp::ids::Vhost;
use crate::machine::{Limit, Role};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// By name: whether it is up.
    pub links: Vec<(&'static str, bool)>,
    /// The proxy's user lacks permissions: queues are left to the broker.
    pub is_native: bool,
    pub is_blocked: bool,
    pub parked: Option<u64>,
    /// Messages in delay queues, by state. `None`: not known.
    pub delayed: [(&'static str, Option<u64>); 2],
    /// Messages that should have left their delay queues.
    pub overdue: u64,
}

// === impl Metrics ===

impl Metrics {
    pub fn standing(&self, vhost: &Vhost) -> Standing {
        let name = Label::from(vhost);
        let number = |gauges: &Series<Gauge, 1>| gauges.get([name.clone()]).map(|it| it.get());
        let up = |role: Role| {
            let gauge = self.link_up.get([name.clone(), role.as_str().into()])?;
            Some((role.as_str(), gauge.get() > 0))
        };
        let waiting = number(&self.parked_waiting);
        let staying = number(&self.parked_staying);
        let parked = waiting.map(|waiting| waiting.saturating_add(staying.unwrap_or(0)));
        let delayed = |state: &'static str| {
            let labels = [name.clone(), state.into()];
            let gauge = self.delay_queue_messages.get(labels);
            (state, gauge.and_then(|it| u64::try_from(it.get()).ok()))
        };
        Standing {
            delayed: STATES.map(delayed),
            links: [Role::Publisher, Role::Intake, Role::Recorder, Role::Pulse]
                .into_iter()
                .filter_map(up)
                .collect(),
            is_native: number(&self.vhost_native) == Some(1),
            is_blocked: number(&self.publisher_blocked) == Some(1),
            parked: parked.and_then(|it| u64::try_from(it).ok()),
            overdue: number(&self.retries_overdue).map_or(0, i64::unsigned_abs),
        }
    }

    pub fn limits_that_were_met(&self) -> Vec<(&'static str, u64)> {
        let met = |limit: Limit| {
            let limit = limit.as_str();
            let times = self.limits_met.get([limit.into()])?.get();
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
        let nothing = Standing {
            delayed: STATES.map(|state| (state, None)),
            ..Standing::default()
        };
        assert_eq!(metrics.standing(&Vhost::ROOT), nothing);
        assert_eq!(metrics.encode(), before);
        metrics.limit_met(Limit::Browses);
        metrics.limit_met(Limit::Browses);
        assert_eq!(
            metrics.limits_that_were_met(),
            [(Limit::Browses.as_str(), 2)]
        );
    }
}
