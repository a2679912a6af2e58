//! The broker's alarms, as its management API shows them: one book for the line, the gauge, the API and the page.

use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tracing::{info, warn};

use super::Metrics;
use super::metrics::ResourceLabels;

/// What is short on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    pub node: String,
    /// `memory`, `disk` or another one.
    pub resource: String,
}

/// How many nodes have an alarm, for each resource.
pub(super) type AlarmGauge = Family<ResourceLabels, Gauge>;

#[derive(Debug, Default)]
pub(super) struct Alarms(Mutex<Vec<Alarm>>);

// === impl Metrics ===

impl Metrics {
    /// The broker's alarms, as they are now: written when they have changed.
    pub fn alarms(&self, mut now: Vec<Alarm>) {
        now.sort();
        let inner = self.inner();
        let mut known = inner
            .alarms
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for resource in ["memory", "disk"] {
            let nodes = now
                .iter()
                .filter(|alarm| alarm.resource == resource)
                .count();
            let gauge = inner
                .broker_alarms
                .get_or_create(&ResourceLabels { resource });
            gauge.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        }
        if *known == now {
            return;
        }
        match now.is_empty() {
            true => info!("the broker has no alarm any more"),
            false => {
                let alarms = words(&now).join(", ");
                warn!(
                    alarms,
                    "the broker has an alarm: it takes no messages until that is over, so dead letters and retries wait"
                );
            }
        }
        *known = now;
    }

    /// In words: none, or without a `management-url`.
    pub fn alarms_in_effect(&self) -> Vec<String> {
        let alarms = &self.inner().alarms.0;
        words(&alarms.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn words(alarms: &[Alarm]) -> Vec<String> {
    let alarms = alarms.iter();
    alarms
        .map(|Alarm { node, resource }| format!("{resource} of node {node}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_shown_until_they_are_over() {
        let metrics = Metrics::new();
        assert_eq!(metrics.alarms_in_effect(), [""; 0]);
        let (node, resource) = ("a@b".to_owned(), "disk".to_owned());
        metrics.alarms(vec![Alarm { node, resource }]);
        assert_eq!(metrics.alarms_in_effect(), ["disk of node a@b"]);
        assert!(
            metrics
                .encode()
                .contains("broker_alarms{resource=\"disk\"} 1")
        );
        metrics.alarms(vec![]);
        assert_eq!(metrics.alarms_in_effect(), [""; 0]);
        assert!(
            metrics
                .encode()
                .contains("broker_alarms{resource=\"disk\"} 0")
        );
    }
}
