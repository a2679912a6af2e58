//! How often, and how late, the messages of a queue come back.
//!
//! The words are those of RabbitMQ 4.3 (`x-delayed-retry-*`, `x-delivery-limit`) and, for the multiplier, of LavinMQ.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grid::{self, Jitter};
use super::schedule::Schedule;

pub const LONGEST_DELAY: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryType {
    All,
    /// Failures: by `basic.reject`.
    Failed,
    /// Others: by `basic.nack`.
    Returned,
    Disabled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counts {
    /// All returns, like RabbitMQ up to 4.2.
    #[default]
    All,
    /// Only failures, like RabbitMQ from 4.3 on.
    Failed,
}

/// The setting `on-crash`: for unsettled deliveries of a lost connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnCrash {
    #[default]
    Requeue,
    /// The oldest one per queue and channel counts as returned: it may have caused the crash.
    CountOldest,
    CountAll,
}

/// The method of a return with `requeue=true`. For RabbitMQ 4.3 only one of them is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    ByNack,
    ByReject,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// `x-acquired-count` of 4.3, `x-delivery-count` before.
    pub all: u64,
    /// After failures: `x-delivery-count` of 4.3.
    pub failed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    pub back_off: Option<BackOff>,
    /// After this many returns the next one is the message's death. `None`: no limit.
    pub limit: Option<u64>,
    pub counts: Counts,
    pub on_crash: OnCrash,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOff {
    pub after: RetryType,
    pub delays: Delays,
    pub jitter: Option<Jitter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delays {
    Growing {
        min: Duration,
        max: Duration,
        /// 1: constant; 2 and more: factor per return; `None`: linear, like RabbitMQ 4.3.
        multiplier: Option<u32>,
    },
    Listed(Schedule),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Neither delayed nor counted: left to the broker.
    Native,
    /// Comes back after this delay, with these counts.
    Back(Duration, Attempts),
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
    pub fn has_jitter(&self) -> bool {
        let back_off = self.back_off.as_ref();
        back_off.is_some_and(|back_off| back_off.jitter.is_some())
    }

    /// `before`: earlier returns. The limit takes precedence, as in RabbitMQ. `draw`: chooses where
    /// the jitter leaves a choice.
    pub fn decide(&self, before: Attempts, returned: Returned, draw: u64) -> Decision {
        let now = before.and(returned);
        let counts = match (self.counts, returned) {
            (Counts::All, _) | (Counts::Failed, Returned::ByReject) => true,
            (Counts::Failed, Returned::ByNack) => false,
        };
        let counted = now.counted(self.counts);
        let limit = self.limit.filter(|_| counts);
        if limit.is_some_and(|limit| counted > limit) {
            return Decision::Dies;
        }
        let back_off = self.back_off.as_ref();
        match back_off.filter(|back_off| back_off.delays(returned)) {
            Some(back_off) => {
                let delay = back_off.delay(counted);
                let jitter = back_off.jitter;
                let spread = jitter.map_or(delay, |jitter| grid::spread(delay, jitter, draw));
                Decision::Back(spread, now)
            }
            None if limit.is_some() => Decision::Back(Duration::ZERO, now),
            None => Decision::Native,
        }
    }

    /// The same with a delay that the client asks for: it counts instead of the queue's own, and
    /// also where that has none.
    pub fn decide_with(
        &self,
        before: Attempts,
        returned: Returned,
        delay: Option<Duration>,
        draw: u64,
    ) -> Decision {
        match (self.decide(before, returned, draw), delay) {
            (Decision::Back(_, attempts), Some(delay)) => Decision::Back(delay, attempts),
            (Decision::Native, Some(delay)) => Decision::Back(delay, before.and(returned)),
            (decision, _) => decision,
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

    /// `count`: number of this return. 4.3 counts failures alone, so after nacks the delay is
    /// always the shortest.
    fn delay(&self, count: u64) -> Duration {
        match &self.delays {
            Delays::Listed(schedule) => schedule.delay(count),
            Delays::Growing {
                min,
                max,
                multiplier,
            } => {
                let steps = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
                let factor = match multiplier {
                    None => steps,
                    Some(multiplier) => multiplier.saturating_pow(steps - 1),
                };
                min.saturating_mul(factor).min(*max)
            }
        }
    }

    /// Whether this jitter makes one of the first delays longer.
    pub fn spreads(&self, jitter: Jitter) -> bool {
        (1..=Schedule::MOST as u64).any(|count| grid::spreads(self.delay(count), jitter))
    }
}
