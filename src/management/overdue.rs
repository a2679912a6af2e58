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

    /// `leaving`: dead-lettered, not confirmed yet.
    fn look(watched: &mut Watched, leaving: u64, messages: u64) -> Vec<News> {
        watched.look(&[DelayQueue {
            millis: 1000,
            messages: Some(messages),
            leaving: Some(leaving),
            has_delivery_limit: false,
        }])
    }

    fn overdue(messages: u64) -> Vec<News> {
        let millis = 1000;
        vec![News::Overdue { millis, messages }]
    }

    const OVER: News = News::Over { millis: 1000 };

    fn stuck(leaving: u64) -> Watched {
        let mut watched = Watched::default();
        for _ in 1..LOOKS {
            assert_eq!(look(&mut watched, leaving, 10), []);
        }
        assert_eq!(look(&mut watched, leaving, 10), overdue(leaving));
        watched
    }

    #[test]
    fn what_does_not_leave_is_overdue_and_that_is_said_once() {
        let mut watched = stuck(3);
        assert_eq!(look(&mut watched, 3, 10), []);
        assert_eq!(look(&mut watched, 7, 12), [], "others become due");
        assert_eq!(watched.overdue(), 7);
        assert_eq!(look(&mut watched, 0, 5), [OVER]);
        assert_eq!(look(&mut watched, 0, 5), []);
        assert_eq!(watched.overdue(), 0);
    }

    #[test]
    fn what_passes_is_not_overdue_however_much_it_is() {
        for steps in [
            &[(2, 502), (7, 505), (9, 505), (3, 505)][..], // fewer are leaving
            &[(1, 51), (1, 51), (1, 51), (1, 50)],         // there are fewer of all
            &[(5, 5), (0, 5), (5, 5)],                     // none is leaving
        ] {
            let mut watched = Watched::default();
            for (leaving, messages) in steps.iter().cycle().take(100) {
                assert_eq!(look(&mut watched, *leaving, *messages), []);
            }
            assert_eq!(watched.overdue(), 0);
        }
    }

    #[test]
    fn it_is_over_when_as_many_have_left() {
        let mut watched = stuck(5);
        assert_eq!(look(&mut watched, 4, 9), []);
        assert_eq!(watched.overdue(), 4);
        assert_eq!(look(&mut watched, 8, 13), [], "new ones are behind them");
        assert_eq!(watched.overdue(), 4);
        assert_eq!(look(&mut watched, 4, 9), [OVER]);
    }

    #[test]
    fn what_begins_to_leave_and_stops_again_is_one_trouble() {
        let mut watched = stuck(5);
        assert_eq!(look(&mut watched, 4, 9), []);
        for _ in 0..2 * LOOKS {
            assert_eq!(look(&mut watched, 6, 11), []);
        }
        assert_eq!(watched.overdue(), 6);
    }

    #[test]
    fn a_queue_of_which_nothing_is_told_stays_as_it_was() {
        let mut watched = stuck(5);
        let silent = DelayQueue {
            millis: 1000,
            messages: None,
            leaving: None,
            has_delivery_limit: false,
        };
        for _ in 0..2 * LOOKS {
            assert_eq!(watched.look(&[silent]), []);
        }
        assert_eq!(watched.overdue(), 5);
    }

    #[test]
    fn with_a_queue_that_is_deleted_its_trouble_is_over() {
        let mut watched = stuck(5);
        assert_eq!(watched.look(&[]), [OVER]);
        assert_eq!(watched.overdue(), 0);
    }
}
