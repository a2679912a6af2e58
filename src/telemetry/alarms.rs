//! The broker's alarms, as its management API shows them: one book for the line, the gauge, the API and the page.

use std::sync::{Mutex, PoisonError};

use super::Metrics;
use super::metrics::number;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    pub node: String,
    pub resource: String,
}

#[derive(Debug, Default)]
pub(super) struct Alarms(Mutex<Vec<Alarm>>);

// === impl Metrics ===

impl Metrics {
    pub fn alarms(&self, mut now: Vec<Alarm>) {
        now.sort();
        for resource in ["memory", "disk"] {
            let of_it = |alarm: &&Alarm| alarm.resource == resource;
            let nodes = number(now.iter().filter(of_it).count());
            self.broker_alarms.with([resource.into()]).set(nodes);
        }
        let known = &self.inner().alarms.0;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == now {
            return;
        }
        match now.is_empty() {
            true => line!(self, ALARM_OVER, String::new(), ""),
            false => line!(
                self,
                ALARM,
                String::new(),
                "",
                alarms = words(&now).join(", ")
            ),
        }
        *known = now;
    }

    /// Empty without a `management-url`.
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
