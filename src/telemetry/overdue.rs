//! What the watchdog of delay queues counts: the one gauge that no machine's fact changes.

use super::Metrics;
use super::metrics::VhostLabels;
use crate::amqp::ids::Vhost;

impl Metrics {
    /// Sets how many messages are in delay queues of this vhost although their delay is over.
    pub fn overdue(&self, vhost: &Vhost, messages: u64) {
        let inner = self.inner();
        let vhost = inner.names.vhost(vhost);
        let messages = i64::try_from(messages).unwrap_or(i64::MAX);
        let gauge = inner.retries_overdue.get_or_create(&VhostLabels { vhost });
        gauge.set(messages);
    }
}
