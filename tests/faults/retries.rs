//! What the clients of a source saw of its retries, against docs/reference/retries.md: a returned message comes back not earlier than its delay, and not more
//! often than its limit. All times are those of one clock, the clients'.
//!
//! A delivery says how often its message has come back. One that says N needs a return of a delivery that said N - 1: the earliest of them counts,
//! as a fault may double a message at any time. A copy says what its original said, so it is never early. In a classic queue nobody but the proxy
//! counts, and all of this holds whatever breaks. A quorum queue counts, too, what the broker returns for a connection that is lost, and what the
//! proxy could not send away: where that may have happened, its deliveries are not judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The proxy reckons in whole milliseconds, and cuts off the rest.
const GRAIN: Duration = Duration::from_millis(1);

/// Of one source, by number.
#[derive(Debug, Default)]
pub(crate) struct Deliveries(BTreeMap<usize, Vec<Delivery>>);

#[derive(Debug)]
struct Delivery {
    /// How often the message had come back, as the delivery says.
    count: u64,
    came: Instant,
    /// Connections of consumers of the source that were lost by then.
    lost: usize,
    /// When the client began to send its return.
    returned: Option<Instant>,
}

/// Which one: the number, and its place among those of the same number.
pub(crate) type Which = (usize, usize);

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub limit: u64,
    pub delay: Duration,
}

/// Who counts beside the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// The queue does.
    pub queue: bool,
    /// The proxy may have left returns to the broker.
    pub refused: bool,
    /// Connections of consumers that were lost in all, if one consumer may get what another had; else those count that were lost before.
    pub lost: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Deliveries of messages that had come back, and those among them of which nothing can be said.
    pub back: usize,
    pub unjudged: usize,
    pub early: Vec<String>,
    pub over: Vec<String>,
}

// === impl Deliveries ===

impl Deliveries {
    pub(crate) fn came(&mut self, number: usize, count: u64, lost: usize) -> Which {
        let all = self.0.entry(number).or_default();
        all.push(Delivery {
            count,
            came: Instant::now(),
            lost,
            returned: None,
        });
        (number, all.len() - 1)
    }

    /// The client returns these now.
    pub(crate) fn returned(&mut self, which: impl IntoIterator<Item = Which>) {
        let now = Instant::now();
        for (number, at) in which {
            let all = self.0.get_mut(&number);
            if let Some(delivery) = all.and_then(|all| all.get_mut(at)) {
                delivery.returned = Some(now);
            }
        }
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        self.0.contains_key(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn judge(&self, promise: Promise, others: Others) -> Judged {
        let mut judged = Judged::default();
        for (number, all) in &self.0 {
            for delivery in all.iter().filter(|delivery| delivery.count > 0) {
                judged.back += 1;
                let count = delivery.count;
                // How many of them the broker may have counted.
                let by_others = match others {
                    Others { queue: false, .. } => 0,
                    Others { refused: true, .. } => {
                        judged.unjudged += 1;
                        continue;
                    }
                    Others { lost, .. } => lost.unwrap_or(delivery.lost) as u64,
                };
                if count > promise.limit + by_others {
                    judged.over.push(format!("{number} ({count} times)"));
                }
                if by_others > 0 {
                    judged.unjudged += 1;
                    continue;
                }
                let before = all.iter().filter(|before| before.count + 1 == count);
                match before.filter_map(|before| before.returned).min() {
                    None => judged
                        .early
                        .push(format!("{number} ({count} times, and nobody returned it)")),
                    Some(returned) if delivery.came + GRAIN < returned + promise.delay => {
                        let waited = delivery.came.saturating_duration_since(returned);
                        judged.early.push(format!(
                            "{number} ({count} times, {waited:?} after its return)"
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        judged
    }
}
