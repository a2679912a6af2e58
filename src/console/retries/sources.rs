//! Adds up what waits for each queue.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::letter::{Waiting, rfc_3339};
use crate::machine::Wall;

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
            earliest: sum.due.map(|[earliest, _]| rfc_3339(earliest)),
            latest: sum.due.map(|[_, latest]| rfc_3339(latest)),
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

#[cfg(test)]
mod tests {
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
        let found = sources.finish(&Vhost::ROOT).into_iter().map(|of| {
            let time = |time: Option<String>| time.unwrap_or_default();
            let (queue, earliest, latest) = (of.queue, time(of.earliest), time(of.latest));
            let [least, most] = of.attempts.unwrap_or_default();
            let (messages, overdue) = (of.messages, of.overdue);
            format!("{queue:?} {messages} from {earliest} to {latest}, attempts {least}-{most}, overdue {overdue}")
        });
        insta::assert_snapshot!(found.collect::<Vec<_>>().join("\n"), @r#"
        None 1 from  to , attempts 0-0, overdue 0
        Some("jobs") 2 from 2023-11-14T22:12:20Z to 2023-11-14T22:13:19Z, attempts 1-1, overdue 1
        Some("odd") 1 from 9999-12-31T23:59:59Z to 9999-12-31T23:59:59Z, attempts 1-1, overdue 0
        Some("orders") 2 from 2023-11-14T22:13:21Z to 2023-11-14T22:14:21Z, attempts 1-3, overdue 0
        "#);
    }
}
