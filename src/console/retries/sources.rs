//! Adds up what waits for each queue.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use humantime_serde::re::humantime::format_rfc3339_seconds;

use serde::Serialize;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::letter::Waiting;
use crate::machine::Wall;

/// The last millisecond of year 9999, the limit of RFC 3339.
const LAST: u64 = 253_402_300_799_999;
/// Normally a message leaves at once; later, something holds it.
const OVERDUE_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Source {
    vhost: String,
    /// `None`: not sent by a proxy.
    queue: Option<String>,
    messages: u64,
    earliest: Option<String>,
    latest: Option<String>,
    /// Minimum and maximum at their return.
    attempts: Option<[u64; 2]>,
    overdue: u64,
}

#[derive(Debug, Default)]
pub(super) struct Sources(BTreeMap<Option<ShortStr>, Sum>);

#[derive(Debug)]
struct Sum {
    messages: u64,
    due: Option<[Wall; 2]>,
    attempts: Option<[u64; 2]>,
    overdue: u64,
}

// === impl Sources ===

impl Sources {
    pub(super) fn add(&mut self, message: Option<Waiting>, now: Wall) {
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

    pub(super) fn finish(self, vhost: &Vhost) -> Vec<Source> {
        let source = |(queue, sum): (Option<ShortStr>, Sum)| Source {
            vhost: vhost.to_string(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::amqp::ids::name;

    const NOW: Wall = Wall(1_700_000_000_000);

    #[test]
    fn what_waits_is_added_up_by_queue() {
        let mut sources = Sources::default();
        for (queue, due, attempts) in [
            ("orders", NOW.0 + 61_000, 1),
            ("orders", NOW.0 + 1_000, 3),
            ("jobs", NOW.0 - 60_000, 1),
            ("jobs", NOW.0 - 1_000, 1),
            ("odd", u64::MAX, 1),
        ] {
            let (queue, due) = (name(queue), Wall(due));
            let message = Waiting {
                queue,
                due,
                attempts,
            };
            sources.add(Some(message), NOW);
        }
        sources.add(None, NOW);
        let found = sources.finish(&Vhost::ROOT);
        let of = |queue: Option<&str>, messages, due: [Option<&str>; 2], attempts, overdue| json!({"vhost": "/", "queue": queue, "messages": messages, "earliest": due[0], "latest": due[1], "attempts": attempts, "overdue": overdue});
        let last = Some("9999-12-31T23:59:59Z");
        let expected = json!([
            of(None, 1, [None, None], json!(null), 0),
            of(
                Some("jobs"),
                2,
                [Some("2023-11-14T22:12:20Z"), Some("2023-11-14T22:13:19Z")],
                json!([1, 1]),
                1
            ),
            of(Some("odd"), 1, [last, last], json!([1, 1]), 0),
            of(
                Some("orders"),
                2,
                [Some("2023-11-14T22:13:21Z"), Some("2023-11-14T22:14:21Z")],
                json!([1, 3]),
                0
            ),
        ]);
        assert_eq!(serde_json::to_value(found).expect("JSON"), expected);
    }
}
