//! How often, and how late, the messages of a queue come back.
//!
//! The words are those of RabbitMQ 4.3 (`x-delayed-retry-*`, `x-delivery-limit`) and, for the multiplier, of LavinMQ.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest delay. A longer one counts as this one.
pub const LONGEST_DELAY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which returns are delayed: `delayed-retry-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryType {
    All,
    /// Those that count as failures: by `basic.reject`.
    Failed,
    /// The others: by `basic.nack`.
    Returned,
    Disabled,
}

/// What a delivery limit counts: `delivery-limit-counts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counts {
    /// Each return, as RabbitMQ up to 4.2 does.
    #[default]
    All,
    /// Failures alone, as RabbitMQ from 4.3 on does.
    Failed,
}

/// What becomes of the deliveries that a client had not settled when its connection was lost: `on-crash`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnCrash {
    /// The broker returns them, and nothing counts.
    #[default]
    Requeue,
    /// The oldest one of each queue on each channel counts as returned: it may have been the one that the client died of.
    CountOldest,
    /// Each counts as returned, as in quorum queues.
    CountAll,
}

/// By which method a client returned a message, with `requeue=true`. RabbitMQ 4.3 takes the one for a failure, the other not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    ByNack,
    ByReject,
}

/// How often a message has come back into its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// After whatever return: `x-acquired-count` of 4.3, `x-delivery-count` before.
    pub all: u64,
    /// After failures: `x-delivery-count` of 4.3.
    pub failed: u64,
}

/// What becomes of the messages that clients return to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// None: what comes back does so at once.
    pub back_off: Option<BackOff>,
    /// A message that has come back so often dies at the next return. None: it never does.
    pub limit: Option<u64>,
    /// What the limit and the delay count.
    pub counts: Counts,
    pub on_crash: OnCrash,
}

/// How late messages come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    pub after: RetryType,
    pub min: Duration,
    /// At most.
    pub max: Duration,
    /// 1: always the same; 2 and more: so many times as long after each return; none: by as much longer, as RabbitMQ 4.3 does.
    pub multiplier: Option<u32>,
}

/// What becomes of one returned message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Neither delayed nor counted: the broker returns it.
    Native,
    /// It comes back after this delay, and has come back so often then.
    Back(Duration, Attempts),
    /// It has come back as often as it may.
    Dies,
}

// === impl RetryType ===

impl RetryType {
    pub const ALL: [RetryType; 4] = [
        RetryType::All,
        RetryType::Failed,
        RetryType::Returned,
        RetryType::Disabled,
    ];

    /// As in arguments and policies.
    pub fn as_str(self) -> &'static str {
        match self {
            RetryType::All => "all",
            RetryType::Failed => "failed",
            RetryType::Returned => "returned",
            RetryType::Disabled => "disabled",
        }
    }

    pub fn parse(name: &[u8]) -> Option<RetryType> {
        let mut all = RetryType::ALL.into_iter();
        all.find(|of| of.as_str().as_bytes() == name)
    }
}

// === impl Attempts ===

impl Attempts {
    fn and(self, returned: Returned) -> Attempts {
        Attempts {
            all: self.all.saturating_add(1),
            failed: self.failed.saturating_add(match returned {
                Returned::ByNack => 0,
                Returned::ByReject => 1,
            }),
        }
    }

    pub fn plus(self, other: Attempts) -> Attempts {
        Attempts {
            all: self.all.saturating_add(other.all),
            failed: self.failed.saturating_add(other.failed),
        }
    }

    fn counted(self, counts: Counts) -> u64 {
        match counts {
            Counts::All => self.all,
            Counts::Failed => self.failed,
        }
    }
}

// === impl Retries ===

impl Retries {
    /// Decides about a message that had come back `before` so often. The limit comes first, as in RabbitMQ.
    pub fn verdict(&self, before: Attempts, returned: Returned) -> Verdict {
        let now = before.and(returned);
        let counts = match (self.counts, returned) {
            (Counts::All, _) | (Counts::Failed, Returned::ByReject) => true,
            (Counts::Failed, Returned::ByNack) => false,
        };
        let counted = now.counted(self.counts);
        let limit = self.limit.filter(|_| counts);
        if limit.is_some_and(|limit| counted > limit) {
            return Verdict::Dies;
        }
        match self.back_off.filter(|back_off| back_off.delays(returned)) {
            Some(back_off) => Verdict::Back(back_off.delay(counted), now),
            None if limit.is_some() => Verdict::Back(Duration::ZERO, now),
            None => Verdict::Native,
        }
    }
}

// === impl BackOff ===

impl BackOff {
    fn delays(&self, returned: Returned) -> bool {
        match (self.after, returned) {
            (RetryType::All, _)
            | (RetryType::Failed, Returned::ByReject)
            | (RetryType::Returned, Returned::ByNack) => true,
            (RetryType::Failed, Returned::ByNack)
            | (RetryType::Returned, Returned::ByReject)
            | (RetryType::Disabled, _) => false,
        }
    }

    /// The delay before a message comes back for the `count`th time. 4.3 counts failures alone, so that what was only nacked comes back after
    /// the shortest one each time.
    fn delay(&self, count: u64) -> Duration {
        let steps = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let factor = match self.multiplier {
            None => steps,
            Some(multiplier) => multiplier.saturating_pow(steps - 1),
        };
        self.min.saturating_mul(factor).min(self.max)
    }
}
