//! One copy of a message: what it carries and what it has been through; and a copy that somebody has been given.

use std::collections::BTreeSet;

use super::super::rulings::Target;
use super::duties::{Duty, Stay, Told};
use super::history::{Counts, History};
use super::{Bytes, Frame, Micros, names};

/// One copy of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Copy {
    /// The first bytes of its body.
    pub(super) body: Bytes,
    /// What somebody published it with.
    pub(super) given: History,
    /// Its deaths since, all of which the broker knows.
    pub(super) since: History,
    /// How often it died by itself since a client published or rejected it.
    pub(super) by_itself: usize,
    /// Its property, in milliseconds.
    pub(super) expiration: Option<u64>,
    /// What its publisher says of how often it came back.
    pub(super) written: [Option<u64>; 2],
    /// How often an operator has sent it back; and the queue that it died in last, as far as it says.
    pub(super) mark: u64,
    pub(super) died_in: Option<Bytes>,
    /// It was returned, and has come back; or it is away.
    pub(super) stay: Option<Stay>,
    pub(super) away: bool,
    /// In milliseconds of the wall clock: when it comes back at the earliest, by these accounts, and when its TTL is over, if a return has fixed
    /// that.
    pub(super) due: u64,
    pub(super) deadline: Option<u64>,
    /// While it is away, or parked: where its dead letter may be meant to go.
    pub(super) targets: BTreeSet<Target>,
}

impl Copy {
    /// What may be told of its deaths: all that there were; or only what the broker knows, where a reader of both cannot tell whether it is the
    /// same (docs/guarantees.md, "What dead letters look like").
    pub(super) fn told(&self) -> Vec<Counts> {
        let mut told = vec![self.given.and(&self.since)];
        if self.since.repeats(&self.given) {
            told.push(self.since.counts());
        }
        told
    }

    /// Deaths in queues of the proxy's own are none of the message's.
    pub(super) fn died_in(&mut self, queue: &Bytes) {
        if !is_ours(queue) {
            self.died_in = Some(queue.clone());
        }
    }

    /// Somebody has published it into the queues that it enters.
    pub(super) fn is_on_its_way(&mut self, duty: &Duty, due: u64, content: &Frame) {
        let (Duty::Leaves(stay) | Duty::Returns(stay)) = duty else {
            return;
        };
        self.stay = Some(stay.clone());
        self.due = due;
        let Some(told) = Told::of(content) else {
            return;
        };
        self.deadline = told.deadline;
        if let Some((due, deaths)) = told.away {
            // It may have been decided later, by other settings.
            (self.away, self.due) = (true, due.max(self.due));
            self.given = deaths;
        }
    }

    /// The broker's dead letter begins anew where it comes.
    pub(super) fn moved(&mut self) {
        if !self.away {
            self.stay = None;
            self.targets.clear();
            self.deadline = None;
            self.expiration = None;
        }
    }

    /// The same of one that is parked: a message of which the intake could make nothing is parked, and parked again, as the broker has it.
    pub(super) fn told_parked(&self) -> Vec<Counts> {
        let mut told = self.told();
        told.extend([self.since.counts(), self.given.counts()]);
        told
    }
}

/// A copy as somebody has it.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) queue: Bytes,
    /// Of the copy, as in the facts.
    pub(super) number: u64,
    pub(super) copy: Copy,
    pub(super) at: Micros,
    /// Its client had read before that there is such a queue; it was still the first one of that name.
    pub(super) declared: bool,
    pub(super) is_first: bool,
    /// It was another queue before.
    pub(super) changed: bool,
    /// Its session does not know the type of its queue, and may take for the queue's counts what a publisher wrote.
    pub(super) is_guessed: bool,
    /// Its client was given time until then: at least, and at most.
    pub(super) extended: (Micros, Micros),
    /// Its session has taken it back: what its client says from then on has no effect.
    pub(super) is_taken_back: bool,
    /// How often its queue says that it came back, and how often after failures.
    pub(super) counts: [Option<u64>; 2],
    /// Of its queue.
    pub(super) ttl: Option<u64>,
    /// What a client was told of its deaths.
    pub(super) seen: Option<Counts>,
    /// When its client had read all of it.
    pub(super) whole: Option<Micros>,
}

pub(super) fn is_ours(queue: &[u8]) -> bool {
    queue.starts_with(b"dlx-proxy")
}

pub(super) fn is_parking(queue: &Bytes) -> bool {
    queue == names().parking().as_bytes()
}

/// What may be told of a copy that the proxy took from that queue.
pub(super) fn told_in(queue: &Bytes, copy: &Copy) -> Vec<Counts> {
    match is_parking(queue) {
        true => copy.told_parked(),
        false => copy.told(),
    }
}

/// The property, in milliseconds.
pub(super) fn expiration(content: &Frame) -> Option<u64> {
    let text = content.arg("expiration")?.text();
    std::str::from_utf8(text).ok()?.parse().ok()
}
