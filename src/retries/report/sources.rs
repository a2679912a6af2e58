//! Adds up what waits for each queue.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use humantime_serde::re::humantime::format_rfc3339_seconds;

use crate::amqp::ids::ShortStr;
use crate::machine::Wall;
use crate::retries::waiting::Waiting;

use super::Source;

/// The last millisecond that has a name in RFC 3339.
const LAST: u64 = 253_402_300_799_999;
/// A message whose time is over is gone a moment later; if it is still there after this, something holds it.
const OVERDUE_AFTER: Duration = Duration::from_secs(5);

/// Adds up what waits for each queue.
#[derive(Debug, Default)]
pub(in crate::retries) struct Sources(BTreeMap<Option<ShortStr>, Sum>);

#[derive(Debug)]
struct Sum {
    messages: u64,
    due: Option<[Wall; 2]>,
    attempts: Option<[u64; 2]>,
    overdue: u64,
}

// === impl Sources ===

impl Sources {
    pub(in crate::retries) fn add(&mut self, message: Option<Waiting>, now: Wall) {
        let (queue, message) = match message {
            None => (None, None),
            Some(Waiting {
                queue,
                due,
                attempts,
            }) => (Some(queue), Some((due, attempts))),
        };
        let sum = self.0.entry(queue).or_insert(Sum {
            messages: 0,
            due: None,
            attempts: None,
            overdue: 0,
        });
        sum.messages += 1;
        if let Some((due, attempts)) = message {
            sum.due = Some(widened(sum.due, due));
            sum.attempts = Some(widened(sum.attempts, attempts));
            sum.overdue += u64::from(due.after(OVERDUE_AFTER) < now);
        }
    }

    pub(in crate::retries) fn finish(self) -> Vec<Source> {
        let source = |(queue, sum): (Option<ShortStr>, Sum)| Source {
            queue: queue.map(|queue| queue.to_string()),
            messages: sum.messages,
            earliest: sum.due.map(|[earliest, _]| time(earliest)),
            latest: sum.due.map(|[_, latest]| time(latest)),
            attempts: sum.attempts,
            overdue: sum.overdue,
        };
        self.0.into_iter().map(source).collect()
    }
}

fn widened<T: Copy + Ord>(range: Option<[T; 2]>, value: T) -> [T; 2] {
    let [least, most] = range.unwrap_or([value, value]);
    [least.min(value), most.max(value)]
}

fn time(at: Wall) -> String {
    format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(at.0.min(LAST))).to_string()
}
