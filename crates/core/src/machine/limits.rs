//! The limits in force: one cell that all machines read at the moment of use, so that a new value acts at once and everywhere.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use serde::Serialize;

/// Settings that may change while machines work. Their names are those of the settings, with `-` for `_`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Limits {
    pub max_history: usize,
    /// Dead letters say who rejected their messages.
    pub stamp: bool,
    /// Attempts after the first at a dead letter that was nacked.
    pub nack_retries: u32,
    /// How long a confirm is waited for.
    #[serde(with = "humantime_serde")]
    pub confirm_timeout: Duration,
    /// How long a dead letter is tried, in time connected and unblocked.
    #[serde(rename = "give-up-after", with = "humantime_serde")]
    pub retry_for: Duration,
    /// How long parked messages rest before they are tried again; zero: for good.
    #[serde(with = "humantime_serde")]
    pub parked_retry: Duration,
    /// How long the intake of a vhost hears nothing until it opens its channel anew; zero: for good.
    #[serde(with = "humantime_serde")]
    pub intake_quiet: Duration,
    /// Octets of dead letters that the publisher of a vhost holds.
    #[serde(skip)]
    pub publisher_bytes: usize,
    /// Octets of signals that the intake of a vhost holds.
    #[serde(skip)]
    pub intake_bytes: usize,
    /// Intake exchanges of a vhost.
    pub max_intake_exchanges: usize,
    /// Octets that one session may retain.
    #[serde(skip)]
    pub retained_bytes_per_connection: usize,
    /// Dead letters in flight of one session; it keeps the value with which it began, as its inbox has that size.
    pub max_tickets_per_connection: usize,
    /// How long a command waits behind withheld rejects.
    #[serde(with = "humantime_serde")]
    pub close_wait: Duration,
    /// How long a declare may be probed.
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
    /// How long a client may take until its connection is open.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// How long whoever asks at the admin port may take.
    #[serde(with = "humantime_serde")]
    pub admin_timeout: Duration,
    /// Octets of messages that one look passes.
    #[serde(skip)]
    pub look_bytes: usize,
    /// Messages that one look into a queue passes.
    pub look_limit: u64,
    /// How long one look may take.
    #[serde(with = "humantime_serde")]
    pub look_timeout: Duration,
    #[serde(skip)]
    pub fixed: Fixed,
}

/// Bounds without a setting. What happens at each is in docs/sizing.md, as for the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Queues that one session knows.
    pub queues: usize,
    /// Queues of all vhosts whose last declare said something else than their arguments do.
    pub redeclared_queues: usize,
    /// Replies that are due to one client.
    pub replies: usize,
    /// Redrives that may be at work at once.
    pub redrives: usize,
    /// Dead letters that wait for the hook.
    pub hook_letters: usize,
}

impl Default for Fixed {
    fn default() -> Fixed {
        Fixed {
            queues: 65_536,
            redeclared_queues: 10_000,
            replies: 8_192,
            redrives: 10,
            hook_letters: 10_000,
        }
    }
}

/// The cell, whose content is replaced as a whole, without a lock. Clones are the same cell.
#[derive(Clone, Debug)]
pub struct LiveLimits(Arc<ArcSwap<Limits>>);

// === impl LiveLimits ===

impl LiveLimits {
    /// A cell that holds these limits.
    pub fn new(limits: Limits) -> LiveLimits {
        LiveLimits(Arc::new(ArcSwap::from_pointee(limits)))
    }

    /// The limits in force at this moment.
    pub fn now(&self) -> Guard<Arc<Limits>> {
        self.0.load()
    }

    /// Replaces the limits: from now on, these are in force.
    pub fn set(&self, limits: Limits) {
        self.0.store(Arc::new(limits));
    }
}

impl Limits {
    /// Of so many places one user may take so many: so nobody alone keeps all others out.
    pub fn of_one_user(all: usize) -> usize {
        all.div_ceil(2)
    }
}

#[cfg(test)]
impl Limits {
    /// The defaults, but small where tests meet a limit.
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
            look_bytes: 16 * MIB,
            look_limit: 10_000,
            look_timeout: seconds(30),
            fixed: Fixed {
                queues: 100,
                replies: 1000,
                ..Fixed::default()
            },
        }
    }
}
