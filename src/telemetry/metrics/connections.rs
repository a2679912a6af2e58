//! The numbers of client connections: each counts what passes it, and takes what it holds away when it ends.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::machine::Leg;

use super::Metrics;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub channels: usize,
    pub retained_bytes: usize,
    pub withheld_rejects: usize,
}

/// Counts a client connection as open until dropped, with its [`Levels`].
#[derive(Debug)]
pub struct ConnectionMeter {
    metrics: Metrics,
    from_client: Counter,
    from_broker: Counter,
    levels: Levels,
}

// === impl Metrics ===

impl Metrics {
    pub fn connection(&self) -> ConnectionMeter {
        self.connections_open.inc();
        self.connections.inc();
        ConnectionMeter {
            metrics: self.clone(),
            from_client: self.bytes.with(["client_to_broker".into()]),
            from_broker: self.bytes.with(["broker_to_client".into()]),
            levels: Levels::default(),
        }
    }
}

// === impl ConnectionMeter ===

impl ConnectionMeter {
    /// Since the last call: once per wake-up, not per frame.
    pub fn passed(&self, from: Leg, bytes: u64) {
        let passed = match from {
            Leg::Client => &self.from_client,
            Leg::Broker => &self.from_broker,
        };
        passed.inc_by(bytes);
    }

    pub fn levels(&mut self, now: Levels) {
        let (metrics, old) = (&self.metrics, std::mem::replace(&mut self.levels, now));
        shift(&metrics.channels_open, old.channels, now.channels);
        shift(
            &metrics.retained_bytes,
            old.retained_bytes,
            now.retained_bytes,
        );
        shift(
            &metrics.withheld_rejects,
            old.withheld_rejects,
            now.withheld_rejects,
        );
    }
}

impl Drop for ConnectionMeter {
    fn drop(&mut self) {
        self.levels(Levels::default());
        self.metrics.connections_open.dec();
    }
}

fn shift(sum: &Gauge, old: usize, now: usize) {
    if old != now {
        sum.inc_by(now as i64 - old as i64);
    }
}
