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
pub(crate) struct Deliveries {
    all: BTreeMap<usize, Vec<Delivery>>,
    /// When each was published first, its delay included.
    due: BTreeMap<usize, Instant>,
}

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
    pub ack_timeout: Option<Duration>,
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
    /// Those that nobody returned: the proxy has taken them back.
    pub taken_back: usize,
    pub early: Vec<String>,
    pub over: Vec<String>,
}

// === impl Deliveries ===

impl Deliveries {
    /// From now on, if it is the first time: what was refused may be there all the same.
    pub(crate) fn published(&mut self, number: usize, delay: Option<Duration>) {
        let due = Instant::now() + delay.unwrap_or_default();
        self.due.entry(number).or_insert(due);
    }

    pub(crate) fn came(&mut self, number: usize, count: u64, lost: usize) -> Which {
        let all = self.all.entry(number).or_default();
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
            let all = self.all.get_mut(&number);
            if let Some(delivery) = all.and_then(|all| all.get_mut(at)) {
                delivery.returned = Some(now);
            }
        }
    }

    pub(crate) fn count(&self, (number, at): Which) -> u64 {
        self.all[&number][at].count
    }

    /// Whether the number has come once more since.
    pub(crate) fn is_back(&self, (number, at): Which) -> bool {
        self.all[&number].len() > at + 1
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        self.all.contains_key(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn judge(&self, promise: Promise, others: Others) -> Judged {
        let mut judged = Judged::default();
        for (number, all) in &self.all {
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
                let mut before = all.iter().filter(|before| before.count + 1 == count);
                judged.taken_back += usize::from(before.all(|before| before.returned.is_none()));
                match self.earliest(*number, count, promise) {
                    None => judged
                        .early
                        .push(format!("{number} ({count} times, and nobody returned it)")),
                    Some(earliest) if delivery.came + GRAIN < earliest => {
                        let by = earliest - delivery.came;
                        let early = format!("{number} ({count} times, by {by:?})");
                        judged.early.push(early);
                    }
                    Some(_) => {}
                }
            }
        }
        judged
    }

    /// When it can have come back so often. An ack timeout begins when the proxy gets the delivery, which no client sees: at the earliest when the
    /// message can have been there. It also ends the wait for a client that is slow to return. `None`: nobody has returned it.
    fn earliest(&self, number: usize, count: u64, promise: Promise) -> Option<Instant> {
        let Some(count) = count.checked_sub(1) else {
            return self.due.get(&number).copied();
        };
        let there = self.earliest(number, count, promise);
        let taken_back = there.zip(promise.ack_timeout);
        let taken_back = taken_back.map(|(there, timeout)| there + timeout);
        let before = self.all[&number].iter().filter(|it| it.count == count);
        let returned = before.filter_map(|it| it.returned);
        let returned = returned.chain(taken_back).min();
        returned.map(|returned| returned + promise.delay)
    }

    /// How late those were that a publish delayed, of which each came; and what came before its time.
    pub(crate) fn late(&self, is_delayed: impl Fn(usize) -> bool) -> (Vec<Duration>, Vec<String>) {
        let (mut late, mut early) = (Vec::new(), Vec::new());
        for (number, all) in self.all.iter().filter(|(number, _)| is_delayed(**number)) {
            let (Some(first), Some(due)) = (all.first(), self.due.get(number)) else {
                continue;
            };
            late.push(first.came.saturating_duration_since(*due));
            if first.came + GRAIN < *due {
                early.push(format!("{number} (by {:?})", *due - first.came));
            }
        }
        (late, early)
    }
}

/// The half and 99 % of these were not longer, and the longest.
pub(crate) fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let last = times.len().saturating_sub(1);
    let part = |per_cent: usize| times.get(last * per_cent / 100);
    let seconds = |per_cent| part(per_cent).map_or(0.0, Duration::as_secs_f64);
    let [half, most, longest] = [50, 99, 100].map(seconds);
    format!("{half:.3}/{most:.3}/{longest:.3}s")
}
