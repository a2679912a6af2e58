//! The limits in force: one cell that all machines read at the moment of use, so that a new value acts at once and everywhere.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

/// Settings that may change while machines work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of `x-death`.
    pub max_history: usize,
    /// Attempts after the first at a dead letter that was nacked.
    pub nack_retries: u32,
    /// How long a confirm is waited for.
    pub confirm_timeout: Duration,
    /// How long a dead letter is tried, in time connected and unblocked.
    pub retry_for: Duration,
    /// Octets of dead letters that the publisher of a vhost holds.
    pub publisher_bytes: usize,
    /// Octets of signals that the intake of a vhost holds.
    pub intake_bytes: usize,
    /// Intake exchanges of a vhost.
    pub max_intake_exchanges: usize,
    /// Octets that one session may retain.
    pub retained_per_connection: usize,
    /// Dead letters in flight of one session; it keeps the value with which it began, as its inbox has that size.
    pub max_tickets: usize,
    /// Queues that one session knows.
    pub max_queues: usize,
    /// Replies that are due to one client.
    pub max_replies: usize,
    /// How long a command waits behind withheld rejects.
    pub close_wait: Duration,
    /// How long a declare may be probed.
    pub probe_timeout: Duration,
    /// How long a client may take until its connection is open.
    pub handshake_timeout: Duration,
    /// How long whoever asks at the admin port may take.
    pub admin_timeout: Duration,
}

/// The cell, whose content is replaced as a whole, without a lock. Clones are the same cell.
#[derive(Clone, Debug)]
pub struct LiveLimits(Arc<ArcSwap<Limits>>);

// === impl LiveLimits ===

impl LiveLimits {
    /// With these.
    pub fn new(limits: Limits) -> LiveLimits {
        LiveLimits(Arc::new(ArcSwap::from_pointee(limits)))
    }

    /// Those of now.
    pub fn now(&self) -> Guard<Arc<Limits>> {
        self.0.load()
    }

    /// From now on these.
    pub fn set(&self, limits: Limits) {
        self.0.store(Arc::new(limits));
    }
}

#[cfg(test)]
impl Limits {
    /// Ordinary ones.
    pub(crate) fn of_tests() -> Limits {
        Limits {
            max_history: 256,
            nack_retries: 3,
            confirm_timeout: Duration::from_secs(10),
            retry_for: Duration::from_secs(60),
            publisher_bytes: 128 << 20,
            intake_bytes: 64 << 20,
            max_intake_exchanges: 3,
            retained_per_connection: 1 << 20,
            max_tickets: 4,
            max_queues: 100,
            max_replies: 1000,
            close_wait: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            admin_timeout: Duration::from_secs(10),
        }
    }
}
