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

    /// What is told of fewer is in `testdata/book.txt`.
    #[test]
    fn memory_is_bounded_and_the_age_is_never_too_high() {
        let at = |second| Mono(0).after(Duration::from_secs(second));
        let mut published = Published::default();
        (0..100_000).for_each(|number| published.add(at(2 * number)));
        assert!(published.runs.len() <= MOST_RUNS);
        let mut before = None;
        // The newest are exact.
        for (left, came) in [
            (100_000, 0..=200_000),
            (50_000, 100_000..=200_000),
            (60, 199_880..=199_880),
        ] {
            let counted = published.counted(left, 100_000, before, at(300_000));
            let oldest = counted.oldest.expect("all are ours");
            assert!(came.contains(&(oldest.0 / 1_000_000)), "{left}: {oldest:?}");
            before = Some(counted);
        }
    }
}
