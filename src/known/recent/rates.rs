//! Deaths per minute, by queue and reason.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::amqp::ids::ShortStr;
use crate::machine::{Reason, Wall};

pub const MINUTES: usize = 60;
/// Per vhost; further deaths are combined by reason.
pub const MOST_SERIES: usize = 100;

const MINUTE: u64 = 60_000;

/// How many died in one queue for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Rate {
    /// Without one: of all queues that have no counts of their own.
    #[schema(value_type = Option<String>)]
    pub queue: Option<ShortStr>,
    /// `rejected`, `expired`, `maxlen` or `delivery_limit`.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    pub reason: Reason,
    /// In each of the last 60 minutes, that of now last.
    #[serde(serialize_with = "<[u32]>::serialize")]
    #[schema(value_type = Vec<u32>)]
    pub per_minute: [u32; MINUTES],
}

fn as_text<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.as_str())
}

#[derive(Debug, Default)]
pub(super) struct Rates {
    series: BTreeMap<(Option<ShortStr>, Reason), Series>,
}

/// One queue and reason; a ring of minutes.
#[derive(Debug)]
struct Series {
    newest: u64,
    counts: [u32; MINUTES],
}

// === impl Rates ===

impl Rates {
    pub(super) fn count(&mut self, queue: &ShortStr, reason: Reason, at: Wall) {
        let minute = at.0 / MINUTE;
        let mut key = (Some(queue.clone()), reason);
        if !self.series.contains_key(&key) && self.own() >= MOST_SERIES {
            self.series.retain(|_, series| !series.is_over(minute));
            if self.own() >= MOST_SERIES {
                key.0 = None;
            }
        }
        let series = self.series.entry(key).or_insert(Series {
            newest: minute,
            counts: [0; MINUTES],
        });
        series.count(minute);
    }

    fn own(&self) -> usize {
        let named = self.series.keys().filter(|(queue, _)| queue.is_some());
        named.count()
    }

    pub(super) fn list(&self, now: Wall) -> Vec<Rate> {
        let minute = now.0 / MINUTE;
        let counted = self.series.iter();
        let counted = counted.filter(|(_, series)| !series.is_over(minute));
        let rates = counted.map(|((queue, reason), series)| Rate {
            queue: queue.clone(),
            reason: *reason,
            per_minute: series.until(minute),
        });
        rates.collect()
    }
}

// === impl Series ===

impl Series {
    fn count(&mut self, minute: u64) {
        // The clock on the wall may be set back: then the newest minute goes on.
        let minute = minute.max(self.newest);
        for passed in self.newest + 1..=minute.min(self.newest + MINUTES as u64) {
            if let Some(count) = self.at(passed) {
                *count = 0;
            }
        }
        self.newest = minute;
        if let Some(count) = self.at(minute) {
            *count = count.saturating_add(1);
        }
    }

    fn at(&mut self, minute: u64) -> Option<&mut u32> {
        self.counts.get_mut((minute % MINUTES as u64) as usize)
    }

    fn is_over(&self, minute: u64) -> bool {
        self.newest.saturating_add(MINUTES as u64) <= minute
    }

    fn until(&self, now: u64) -> [u32; MINUTES] {
        let now = now.max(self.newest);
        std::array::from_fn(|at| {
            let minute = (now + at as u64 + 1).checked_sub(MINUTES as u64);
            let kept = minute
                .filter(|minute| *minute <= self.newest && minute + MINUTES as u64 > self.newest);
            let count = kept.and_then(|minute| self.counts.get((minute % MINUTES as u64) as usize));
            count.copied().unwrap_or(0)
        })
    }
}
