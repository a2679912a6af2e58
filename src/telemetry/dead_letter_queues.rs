//! What is known of dead-letter queues, as gauges. They come and go with what can be known, so that nobody reads a number that is none.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::names::Name;
use crate::amqp::ids::{ShortStr, Vhost};

/// A dead-letter queue. Their number is bounded where they are known ([`crate::known`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabels {
    vhost: Name,
    queue: Name,
}

// === impl QueueLabels ===

impl QueueLabels {
    pub(super) fn new(vhost: &Vhost, queue: &ShortStr) -> QueueLabels {
        QueueLabels {
            vhost: Name::of(vhost),
            queue: Name::of(queue),
        }
    }
}

/// A number per dead-letter queue.
pub(super) type QueueGauge = Family<QueueLabels, Gauge>;

impl Metrics {
    /// What is known of a queue now.
    pub fn dead_letter_queue(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        messages: Option<u64>,
        oldest: Option<Duration>,
    ) {
        let inner = self.inner();
        let labels = QueueLabels::new(vhost, queue);
        let oldest = oldest.map(|oldest| oldest.as_secs());
        set(&inner.dead_letter_queue_messages, &labels, messages);
        set(&inner.dead_letter_queue_oldest, &labels, oldest);
    }
}

fn set(gauges: &QueueGauge, labels: &QueueLabels, value: Option<u64>) {
    match value {
        Some(value) => {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            gauges.get_or_create(labels).set(value);
        }
        None => drop(gauges.remove(labels)),
    }
}
