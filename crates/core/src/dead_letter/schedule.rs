//! The delays of a message's returns, one by one, as `delayed-retry-delays` lists them.

use std::sync::Arc;
use std::time::Duration;

use humantime_serde::re::humantime;
use serde::{Serialize, Serializer};

use super::retries::LONGEST_DELAY;

/// In milliseconds, never empty. Queues without a list pay for a thin pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Arc<Vec<u32>>);

// === impl Schedule ===

impl Schedule {
    pub const MOST: usize = 32;
    /// What to write instead of a list that cannot be read.
    pub const MUST: &str =
        "must be 1 to 32 delays above 0, such as \"10s\", \"1m 30s\" or 500 (milliseconds)";

    /// A list with commas. A number without a unit has milliseconds.
    pub fn parse(text: &str) -> Option<Schedule> {
        let items = text.split(',').map(|item| millis(item.trim()));
        let delays = items.take(Schedule::MOST + 1).collect::<Option<Vec<_>>>()?;
        (delays.len() <= Schedule::MOST).then(|| Schedule(Arc::new(delays)))
    }

    /// Before the message comes back for the n-th time: the last delay repeats.
    pub(super) fn delay(&self, count: u64) -> Duration {
        let at = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
        let millis = self.0.get(at).or(self.0.last());
        Duration::from_millis(millis.copied().unwrap_or_default().into())
    }
}

/// A number without a unit has milliseconds. More than seven days count as seven days.
pub fn millis(text: &str) -> Option<u32> {
    let delay = match text.parse() {
        Ok(millis) => Duration::from_millis(millis),
        Err(_) => humantime::parse_duration(text).ok()?,
    };
    let millis = u32::try_from(delay.min(LONGEST_DELAY).as_millis()).ok();
    millis.filter(|millis| *millis > 0)
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |millis: &u32| {
            let delay = Duration::from_millis(u64::from(*millis));
            humantime::format_duration(delay).to_string()
        };
        serializer.collect_seq(self.0.iter().map(text))
    }
}
