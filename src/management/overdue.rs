//! Whether delay queues hold what should be out: a value without clocks, which is told of one look after the other.
//!
//! What has expired in a delay queue is in `messages_dlx` until the intake queue has confirmed it. That some is there says little, as under load
//! there always is. But if nothing is seen to leave for [`LOOKS`] looks, what is there should be out: neither `messages_dlx` nor all messages
//! become fewer. It is over when as many were seen to leave. What cannot be seen from here: a message that stays while others pass it, and a queue
//! that has lost its quorum, where nothing expires.

use std::collections::BTreeMap;

use super::queues::DelayQueue;

/// Looks in a row that must agree. A steady flow looks like a stalled queue: with 500 messages a
/// second neither number fell for 20 s.
pub(super) const LOOKS: u32 = 12;

#[derive(Debug, Default)]
pub(super) struct Watched(BTreeMap<u64, Seen>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Overdue { millis: u64, messages: u64 },
    Over { millis: u64 },
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    leaving: u64,
    messages: u64,
    /// Looks in a row without a message leaving.
    still: u32,
    overdue: u64,
}

// === impl Watched ===

impl Watched {
    pub(super) fn look(&mut self, queues: &[DelayQueue]) -> Vec<News> {
        let before = std::mem::take(&mut self.0);
        let mut news = Vec::new();
        for queue in queues {
            let seen = before.get(&queue.millis).copied().unwrap_or_default();
            self.0.insert(queue.millis, seen.then(queue));
        }
        for (millis, seen) in before {
            let is_overdue = self.0.get(&millis).is_some_and(|now| now.overdue > 0);
            if seen.overdue > 0 && !is_overdue {
                news.push(News::Over { millis });
            } else if seen.overdue == 0 && is_overdue {
                let messages = self.0[&millis].overdue;
                news.push(News::Overdue { millis, messages });
            }
        }
        news
    }

    pub(super) fn overdue(&self) -> u64 {
        self.0.values().map(|seen| seen.overdue).sum()
    }
}

// === impl Seen ===

impl Seen {
    fn then(self, queue: &DelayQueue) -> Seen {
        // A node that has just started does not know them yet.
        let (Some(leaving), Some(messages)) = (queue.leaving, queue.messages) else {
            return self;
        };
        let fewer = |before: u64, now| before.saturating_sub(now);
        let left = fewer(self.leaving, leaving).max(fewer(self.messages, messages));
        let still = match left {
            0 if leaving > 0 => self.still + 1,
            _ => 0,
        };
        let overdue = match still >= LOOKS {
            true => leaving,
            false => fewer(self.overdue, left).min(leaving),
        };
        Seen {
            leaving,
            messages,
            still,
            overdue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `LEAVING/MESSAGES`; else nothing is told of the queue, or it is deleted.
    fn look(watched: &mut Watched, queue: &str) -> Vec<News> {
        let number = |text: &str| text.parse().expect("a number");
        let told = queue.split_once('/');
        let delays = [DelayQueue {
            millis: 1000,
            messages: told.map(|(_, messages)| number(messages)),
            leaving: told.map(|(leaving, _)| number(leaving)),
            has_delivery_limit: false,
        }];
        watched.look(if queue == "deleted" { &[] } else { &delays })
    }

    /// So many looks, what they see, what the last of them says, and how much is overdue by then.
    type Looks = (u32, &'static str, &'static str, u64);

    #[test]
    fn what_does_not_leave_is_overdue_until_as_many_have_left() {
        let new: &[Looks] = &[
            (1, "5/10", "", 5),
            (1, "7/12", "", 7), // others become due
            (1, "0/5", "over", 0),
            (1, "0/5", "", 0),
        ];
        let left: &[Looks] = &[
            (1, "4/9", "", 4),
            (1, "8/13", "", 4), // new ones are behind them
            (1, "4/9", "over", 0),
        ];
        // One trouble, though some leave in between.
        let stops: &[Looks] = &[(1, "4/9", "", 4), (2 * LOOKS, "6/11", "", 6)];
        let silent: &[Looks] = &[(2 * LOOKS, "silent", "", 5)];
        let deleted: &[Looks] = &[(1, "deleted", "over", 0)];
        for looks in [new, left, stops, silent, deleted] {
            let stuck = [(LOOKS - 1, "5/10", "", 0), (1, "5/10", "overdue", 5)];
            let mut watched = Watched::default();
            for (times, queue, says, overdue) in stuck.iter().chain(looks) {
                let said = (0..*times).flat_map(|_| look(&mut watched, queue));
                let millis = 1000;
                assert!(
                    said.eq(match *says {
                        "overdue" => vec![News::Overdue {
                            millis,
                            messages: *overdue
                        }],
                        "over" => vec![News::Over { millis }],
                        _ => vec![],
                    }),
                    "{looks:?}: {queue}"
                );
                assert_eq!(watched.overdue(), *overdue, "{looks:?}: {queue}");
            }
        }
    }

    #[test]
    fn what_passes_is_not_overdue_however_much_it_is() {
        for looks in [
            &["2/502", "7/505", "9/505", "3/505"][..], // fewer are leaving
            &["1/51", "1/51", "1/51", "1/50"],         // there are fewer of all
            &["5/5", "0/5", "5/5"],                    // none is leaving
        ] {
            let mut watched = Watched::default();
            for queue in looks.iter().cycle().take(100) {
                assert_eq!(look(&mut watched, queue), []);
            }
            assert_eq!(watched.overdue(), 0);
        }
    }
}
