//! The limits in force: one cell that all machines read at the moment of use, so that a new value acts at once and everywhere.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use serde::Serialize;

/// Settings that may change at run time, with `_` for the `-` in their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Limits {
    pub max_history: usize,
    pub stamp: bool,
    /// After the first attempt.
    pub nack_retries: u32,
    #[serde(with = "humantime_serde")]
    pub confirm_timeout: Duration,
    /// In time connected and unblocked.
    #[serde(rename = "give-up-after", with = "humantime_serde")]
    pub retry_for: Duration,
    /// Zero: parked messages are not tried again.
    #[serde(with = "humantime_serde")]
    pub parked_retry: Duration,
    /// How long the intake may receive nothing before it opens its channel anew; zero: forever.
    #[serde(with = "humantime_serde")]
    pub intake_quiet: Duration,
    #[serde(skip)]
    pub publisher_bytes: usize,
    #[serde(skip)]
    pub intake_bytes: usize,
    pub max_intake_exchanges: usize,
    #[serde(skip)]
    pub retained_bytes_per_connection: usize,
    /// A session keeps its first value, because its inbox has that size.
    pub max_tickets_per_connection: usize,
    #[serde(with = "humantime_serde")]
    pub close_wait: Duration,
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub admin_timeout: Duration,
    #[serde(skip)]
    pub browse_bytes: usize,
    pub browse_limit: u64,
    #[serde(with = "humantime_serde")]
    pub browse_timeout: Duration,
    pub max_queues_per_connection: usize,
    pub max_replies_per_connection: usize,
    /// In all vhosts: queues whose last declare differs from their arguments.
    pub max_redeclared_queues: usize,
    pub max_redrives: usize,
    pub max_hook_letters: usize,
}

/// Replaced as a whole, without a lock. Clones share one cell.
#[derive(Clone, Debug)]
pub struct LiveLimits(Arc<ArcSwap<Limits>>);

// === impl LiveLimits ===

impl LiveLimits {
    pub fn new(limits: Limits) -> LiveLimits {
        LiveLimits(Arc::new(ArcSwap::from_pointee(limits)))
    }

    pub fn now(&self) -> Guard<Arc<Limits>> {
        self.0.load()
    }

    pub fn set(&self, limits: Limits) {
        self.0.store(Arc::new(limits));
    }
}

impl Limits {
    /// The share of one user, so that no user alone keeps out all others.
    pub fn of_one_user(all: usize) -> usize {
        all.div_ceil(2)
    }
}

#[cfg(test)]
impl Limits {
    pub(crate) fn of_tests() -> Limits {
        const MIB: usize = 1 << 20;
        let seconds = Duration::from_secs;
        Limits {
            max_history: 256,
            stamp: false,
            nack_retries: 3,
            confirm_timeout: seconds(10),
            retry_for: seconds(60),
            parked_retry: Duration::ZERO,
            intake_quiet: Duration::ZERO,
            publisher_bytes: 64 * MIB,
            intake_bytes: 64 * MIB,
            max_intake_exchanges: 3,
            retained_bytes_per_connection: MIB,
            max_tickets_per_connection: 4,
            close_wait: seconds(5),
            probe_timeout: seconds(5),
            handshake_timeout: seconds(10),
            admin_timeout: seconds(10),
            browse_bytes: 16 * MIB,
            browse_limit: 10_000,
            browse_timeout: seconds(30),
            max_queues_per_connection: 100,
            max_replies_per_connection: 1000,
            max_redeclared_queues: 10_000,
            max_redrives: 10,
            max_hook_letters: 10_000,
        }
    }
}
