//! What a copy of a message died of, counted by a stranger: from the broker's own words, and from the `x-death` that somebody published.

use std::collections::BTreeMap;
use std::fmt;

use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Table, Value};

/// How often by queue and reason, and in which second first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History(BTreeMap<(Bytes, Bytes), Deaths>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deaths {
    count: i128,
    first: i128,
}

/// A history without its seconds: those who count the same deaths need not look at one clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counts(BTreeMap<(Bytes, Bytes), i128>);

// === impl History ===

impl History {
    /// As `x-death` tells it.
    pub(crate) fn of(frame: &Frame) -> History {
        let mut history = History::default();
        let x_death = frame.headers().and_then(|headers| headers.get("x-death"));
        if let Some(Value::Array(deaths)) = x_death {
            for death in &deaths.items {
                if let Value::Table(death) = death {
                    let (queue, reason) = (text(death, "queue"), text(death, "reason"));
                    history.add(queue, reason, number(death, "count"), number(death, "time"));
                }
            }
        }
        history
    }

    fn add(&mut self, queue: Bytes, reason: Bytes, count: i128, second: i128) {
        let none = Deaths {
            count: 0,
            first: second,
        };
        self.0.entry((queue, reason)).or_insert(none).count += count;
    }

    pub(super) fn died(&mut self, queue: &[u8], reason: &str, second: i128) {
        self.add(queue.to_vec(), reason.as_bytes().to_vec(), 1, second);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn counts(&self) -> Counts {
        let counts = self.0.iter();
        Counts(
            counts
                .map(|(of, deaths)| (of.clone(), deaths.count))
                .collect(),
        )
    }

    /// Both, as lists of different deaths.
    pub(super) fn and(&self, since: &History) -> Counts {
        let mut counts = self.counts();
        for (of, deaths) in &since.0 {
            *counts.0.entry(of.clone()).or_default() += deaths.count;
        }
        counts
    }

    /// Whether this one could be that one with more deaths.
    pub(super) fn repeats(&self, given: &History) -> bool {
        let again = |(of, deaths): (&(Bytes, Bytes), &Deaths)| {
            let now = self.0.get(of);
            now.is_some_and(|now| now.first == deaths.first && now.count >= deaths.count)
        };
        !given.is_empty() && given.0.iter().all(again)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn and_rejected(&self, queue: &[u8]) -> Counts {
        self.and_died(queue, b"rejected")
    }

    pub(super) fn and_died(&self, queue: &[u8], reason: &[u8]) -> Counts {
        let mut counts = self.clone();
        let of = (queue.to_vec(), reason.to_vec());
        *counts.0.entry(of).or_default() += 1;
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, ((queue, reason), count)) in self.0.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let (queue, reason) = (
                String::from_utf8_lossy(queue),
                String::from_utf8_lossy(reason),
            );
            write!(f, "{comma}{queue} {reason} {count}")?;
        }
        f.write_str("]")
    }
}

fn text(death: &Table, name: &str) -> Bytes {
    match death.get(name) {
        Some(Value::Text(text)) => text.clone(),
        _ => Bytes::new(),
    }
}

fn number(death: &Table, name: &str) -> i128 {
    match death.get(name) {
        Some(Value::Integer(_, number)) => *number,
        _ => 0,
    }
}
