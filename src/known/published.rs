//! When this process published to a queue, in a bounded memory, and what that tells of the oldest message that is left there.
//!
//! A queue is read from its head. So of `n` messages that are left, the oldest is the `n`-th newest that came, if nothing else came than what
//! is noted here. A count of the broker's is some seconds old ([`LAG`]): what was published since then may be in it or not, so that the oldest
//! is one of several, and what was known before is kept while it is one of these.
//!
//! The age is never too high, as long as nobody else publishes to the queue (what comes and goes between two counts is not seen). It is too low
//! where something else than the head is taken: priorities, or a redrive with a filter.

use std::collections::VecDeque;
use std::time::Duration;

use crate::machine::Mono;

/// Maximum age of a message count: queues report every five seconds, and the API collects every
/// five seconds.
pub(super) const LAG: Duration = Duration::from_secs(15);
/// Publications within this time form a run.
const NEAR: Duration = Duration::from_secs(1);
/// Above this number, neighbouring old runs merge, and count as published at the newer one's time.
const MOST_RUNS: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    runs: VecDeque<Run>,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    at: Mono,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) messages: u64,
    pub(super) at: Mono,
    /// Arrival of the oldest message; `None`: empty, or possibly another publisher's.
    pub(super) oldest: Option<Mono>,
    /// Publications of this process that were certainly counted, or have left again.
    settled: u64,
}

// === impl Published ===

impl Published {
    pub(super) fn add(&mut self, now: Mono) {
        self.number += 1;
        match self.runs.back_mut() {
            Some(run) if run.at.until(now) < NEAR => run.number += 1,
            _ => self.runs.push_back(Run { at: now, number: 1 }),
        }
        self.bound();
    }

    pub(super) fn merge(&mut self, other: &Published) {
        self.runs.extend(&other.runs);
        self.runs.make_contiguous().sort_by_key(|run| run.at);
        self.number += other.number;
        self.bound();
    }

    fn bound(&mut self) {
        while self.runs.len() > MOST_RUNS {
            let newer = self.runs.split_off(MOST_RUNS / 2);
            let older = self.runs.make_contiguous().chunks(2);
            let merged = older.filter_map(|pair| {
                let number = pair.iter().map(|run| run.number).sum();
                pair.last().map(|run| Run { number, ..*run })
            });
            self.runs = merged.chain(newer).collect();
        }
    }

    fn since(&self, then: Mono) -> u64 {
        let newest = self.runs.iter().rev();
        newest
            .take_while(|run| run.at > then)
            .map(|run| run.number)
            .sum()
    }

    fn newest(&self, n: u64) -> Option<Mono> {
        let mut left = n.checked_sub(1)?;
        for run in self.runs.iter().rev() {
            match left.checked_sub(run.number) {
                Some(rest) => left = rest,
                None => return Some(run.at),
            }
        }
        None
    }

    fn keep(&mut self, most: u64) {
        while self.number > most
            && let Some(run) = self.runs.front_mut()
        {
            let gone = run.number.min(self.number - most);
            run.number -= gone;
            self.number -= gone;
            if run.number == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// Evaluates a count. `ever`: total publications of this process; `before`: the previous count.
    pub(super) fn counted(
        &mut self,
        messages: u64,
        ever: u64,
        before: Option<Counted>,
        now: Mono,
    ) -> Counted {
        let lag = u64::try_from(LAG.as_micros()).unwrap_or(u64::MAX);
        let mut open = self.since(Mono(now.0.saturating_sub(lag)));
        let settled = ever.saturating_sub(open);
        let others_came = before.is_some_and(|before| {
            let ours = ever.saturating_sub(before.settled);
            messages > before.messages.saturating_add(ours)
        });
        if others_came {
            // Until all that is there now has gone, nobody knows which of them is the oldest.
            *self = Published::default();
            open = 0;
        }
        self.keep(messages.saturating_add(open));
        let newest_possible = self.newest(messages);
        let oldest = newest_possible.map(|newest| {
            let oldest = self.runs.front().map_or(newest, |run| run.at);
            let known = before.and_then(|before| before.oldest);
            known.map_or(newest, |known| known.clamp(oldest.min(newest), newest))
        });
        Counted {
            messages,
            at: now,
            oldest,
            settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Queue {
        published: Published,
        ever: u64,
        counted: Option<Counted>,
    }

    fn at(second: u64) -> Mono {
        Mono(0).after(Duration::from_secs(second))
    }

    impl Queue {
        fn publish(&mut self, number: u64, second: u64) {
            for _ in 0..number {
                self.published.add(at(second));
            }
            self.ever += number;
        }

        /// Arrival of the oldest as of this count.
        fn count(&mut self, messages: u64, second: u64) -> Option<u64> {
            let counted = self
                .published
                .counted(messages, self.ever, self.counted, at(second));
            self.counted = Some(counted);
            counted.oldest.map(|oldest| oldest.0 / 1_000_000)
        }
    }

    #[test]
    fn the_oldest_that_is_left_is_as_many_back_as_there_are() {
        let mut queue = Queue::default();
        for second in [10, 20, 30] {
            queue.publish(2, second);
        }
        assert_eq!(queue.count(6, 100), Some(10));
        assert_eq!(queue.count(5, 110), Some(10));
        assert_eq!(queue.count(4, 120), Some(20));
        assert_eq!(queue.count(1, 130), Some(30));
        assert_eq!(queue.count(0, 140), None);
    }

    #[test]
    fn what_was_there_before_makes_it_unknown_until_it_has_gone() {
        let mut queue = Queue::default();
        assert_eq!(queue.count(3, 10), None);
        queue.publish(2, 20);
        assert_eq!(queue.count(5, 50), None);
        assert_eq!(queue.count(3, 60), None);
        assert_eq!(queue.count(2, 70), Some(20));
    }

    #[test]
    fn when_others_publish_there_it_is_unknown_until_all_of_that_has_gone() {
        let mut queue = Queue::default();
        queue.publish(3, 10);
        assert_eq!(queue.count(3, 50), Some(10));
        assert_eq!(queue.count(4, 60), None, "somebody else's");
        assert_eq!(queue.count(3, 70), None, "it may still be there");
        queue.publish(2, 80);
        assert_eq!(queue.count(4, 100), None);
        assert_eq!(queue.count(2, 110), Some(80));
    }

    #[test]
    fn a_burst_that_is_not_counted_yet_does_not_make_the_old_one_young() {
        let mut queue = Queue::default();
        queue.publish(1, 10);
        assert_eq!(queue.count(1, 3600), Some(10));
        queue.publish(100, 3605);
        assert_eq!(queue.count(1, 3610), Some(10), "the count is from before");
        assert_eq!(queue.count(101, 3620), Some(10));
        assert_eq!(queue.count(100, 3630), Some(3605), "it has gone");
    }

    #[test]
    fn what_has_gone_does_not_make_a_young_one_old() {
        let mut queue = Queue::default();
        queue.publish(5, 10);
        assert_eq!(queue.count(5, 100), Some(10));
        assert_eq!(queue.count(0, 110), None);
        queue.publish(10, 3600);
        assert_eq!(queue.count(10, 3605), Some(3600));
    }

    #[test]
    fn memory_is_bounded_and_the_age_is_never_too_high() {
        let mut queue = Queue::default();
        for number in 0..100_000 {
            queue.publish(1, 2 * number);
        }
        assert!(queue.published.runs.len() <= MOST_RUNS);
        for (left, came) in [(100_000, 0), (50_000, 100_000), (60, 199_880)] {
            let told = queue.count(left, 300_000).expect("all are ours");
            assert!((came..=200_000).contains(&told), "{left}: {told}");
        }
        assert_eq!(
            queue.count(60, 300_000),
            Some(199_880),
            "the newest are exact"
        );
    }
}
