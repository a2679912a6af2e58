//! What waits for the hook, and what is posted of it: values without clocks.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use crate::amqp::ids::Vhost;
use crate::known::Told;
use crate::machine::{DeadLetter, Wall};

/// Per POST. A single dead letter may exceed the bytes.
pub(super) const MOST_LETTERS: usize = 100;
const MOST_BYTES: usize = 256 << 10;

const HEAD: &[u8] = b"{\"dead-letters\":[";
const TAIL: &[u8] = b"]}";

#[derive(Debug, Default)]
pub(super) struct Waiting {
    letters: VecDeque<(Vhost, Wall, Arc<DeadLetter>)>,
    taken: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) letters: usize,
    pub(super) body: Bytes,
}

#[derive(Serialize)]
struct Posted {
    vhost: String,
    #[serde(flatten)]
    told: Told,
}

// === impl Waiting ===

impl Waiting {
    /// Adds one, and drops the oldest above `most`. Returns the number dropped.
    pub(super) fn add(
        &mut self,
        vhost: &Vhost,
        at: Wall,
        dead: &Arc<DeadLetter>,
        most: usize,
    ) -> usize {
        self.letters.push_back((vhost.clone(), at, dead.clone()));
        let too_many = self.letters.len().saturating_sub(most);
        self.letters.drain(..too_many);
        too_many
    }

    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn fill_a_batch(&self) -> bool {
        self.letters.len() >= MOST_LETTERS
    }

    pub(super) fn take(&mut self) -> Option<Batch> {
        let mut body = HEAD.to_vec();
        let mut letters = 0;
        while let Some((vhost, at, dead)) = self.letters.front() {
            let posted = Posted {
                vhost: vhost.to_string(),
                told: Told::of(*at, dead),
            };
            let told = serde_json::to_vec(&posted).unwrap_or_default();
            let is_full = letters >= MOST_LETTERS || body.len() + told.len() > MOST_BYTES;
            if letters > 0 && is_full {
                break;
            }
            if letters > 0 {
                body.push(b',');
            }
            body.extend(told);
            letters += 1;
            self.letters.pop_front();
        }
        body.extend(TAIL);
        self.taken = letters;
        let body = body.into();
        (letters > 0).then_some(Batch { letters, body })
    }

    pub(super) fn done(&mut self) {
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::amqp::ids::ShortStr;
    use crate::machine::{Outcome, Reason};

    fn name(text: &[u8]) -> ShortStr {
        ShortStr::copy(text).expect("short")
    }

    fn add(waiting: &mut Waiting, dead: &Arc<DeadLetter>, most: usize) -> usize {
        waiting.add(&Vhost::ROOT, Wall(1_000), dead, most)
    }

    fn dead(queue: &[u8]) -> Arc<DeadLetter> {
        Arc::new(DeadLetter {
            queue: name(queue),
            reason: Reason::Rejected,
            exchange: name(b"dlx"),
            routing_key: name(b"k"),
            bytes: 7,
            outcome: Outcome::Confirmed,
            by: None,
        })
    }

    fn read(batch: &Batch) -> Vec<Value> {
        let body: Value = serde_json::from_slice(&batch.body).expect("JSON");
        body["dead-letters"].as_array().expect("a list").clone()
    }

    #[test]
    fn a_batch_is_bounded_by_number_and_by_bytes() {
        let mut waiting = Waiting::default();
        for _ in 0..MOST_LETTERS + 1 {
            add(&mut waiting, &dead(b"q"), 1000);
        }
        let batch = waiting.take().expect("many");
        assert_eq!(
            (batch.letters, read(&batch).len()),
            (MOST_LETTERS, MOST_LETTERS)
        );
        assert_eq!((waiting.len(), waiting.taken()), (1, MOST_LETTERS));
        assert_eq!(waiting.take().expect("one").letters, 1);

        // Each byte of a hostile name takes six.
        let long = Arc::new(DeadLetter {
            exchange: name(&[1; 255]),
            routing_key: name(&[1; 255]),
            ..(*dead(&[1; 255])).clone()
        });
        for _ in 0..MOST_LETTERS {
            add(&mut waiting, &long, 1000);
        }
        let batch = waiting.take().expect("some");
        assert!(batch.letters < MOST_LETTERS && batch.body.len() <= MOST_BYTES + 1 + TAIL.len());
    }

    #[test]
    fn beyond_the_bound_the_oldest_go() {
        let mut waiting = Waiting::default();
        let dropped: usize = (0..5u8)
            .map(|number| add(&mut waiting, &dead(&[b'a' + number]), 3))
            .sum();
        assert_eq!(dropped, 2);
        let batch = waiting.take().expect("three");
        let queues: Vec<_> = read(&batch).iter().map(|it| it["queue"].clone()).collect();
        assert_eq!(queues, ["c", "d", "e"]);
        // A smaller bound acts at once.
        for _ in 0..3 {
            add(&mut waiting, &dead(b"q"), 3);
        }
        assert_eq!(add(&mut waiting, &dead(b"q"), 1), 3);
    }
}
