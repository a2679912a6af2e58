//! While the broker cannot answer: the link is away, blocked by an alarm, or silent.
//!
//! Sessions can do without us, as the broker has their originals and can deal with them. A consumer whose prefetch is full of what is withheld gets
//! nothing more, and consumers are what ends an alarm. So what sessions handed over goes back to them after a while.
//!
//! The intake cannot: what it does not publish is parked. Its dead letters wait here, bounded by its prefetch and its octets, and the rest waits
//! in its queue. That is left to another proxy only if our link is down, since an alarm blocks all of them; or if the intake asks for it, before
//! the broker takes back by itself what is held for too long. We forget what we hold then, and the intake returns it to its queue, which counts a
//! delivery on most versions: the queue parks what was delivered too often. So the intake consumes again when we can publish and not before,
//! however long that takes; if the link is up and down again and again, one hand-over a minute.

use std::time::Duration;

use crate::machine::{Mono, Now, Purpose};

use super::item::Item;

/// A session's dead letter that has not left is refused after so long; blocked for longer, what is new is refused at once. Not before: a
/// client that is back sooner than the link comes from a broker that has just started, and what such a broker hands on by itself can be lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// One that has left, without an answer: when it is refused it can come to be at its target twice. That is rather a matter of a few, since
/// whatever comes later does not leave.
const IN_DOUBT: Duration = Duration::from_secs(15);
/// The same of what a client returned: that is not left to the broker when it is refused, but leaves once more. Together with the time for which a
/// session keeps it, that is less than the broker's `consumer_timeout` (30 min).
const RETURN_IN_DOUBT: Duration = Duration::from_secs(10 * 60);
/// Between two hand-overs of the intake queue.
const HAND_OVERS: Duration = Duration::from_secs(60);

/// Since when, and what has followed from it.
#[derive(Debug)]
pub(super) struct Away {
    /// Nothing can be published.
    since: Option<Mono>,
    down: Option<Mono>,
    /// For too long: sessions get no more than their patience, or none.
    pub(super) refusing: bool,
    /// The intake was told that its queue is for others.
    pub(super) handed_over: bool,
    /// When it was told so last.
    last: Option<Mono>,
    /// The intake has nothing to do with a careful publisher.
    careful: bool,
}

// === impl Away ===

impl Away {
    /// The state before the first link.
    pub(super) fn new(now: Now, careful: bool) -> Away {
        Away {
            since: Some(now.mono),
            down: Some(now.mono),
            refusing: false,
            handed_over: false,
            last: None,
            careful,
        }
    }

    /// When something follows.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let patience = self.since.filter(|_| !self.refusing);
        let patience = patience.map(|since| since.after(PATIENCE));
        [patience, self.hand_over()].into_iter().flatten().min()
    }

    /// When the intake queue is left to others.
    fn hand_over(&self) -> Option<Mono> {
        let due = self
            .down
            .filter(|_| !self.handed_over && !self.careful)?
            .after(PATIENCE);
        Some(
            self.last
                .map_or(due, |last| due.max(last.after(HAND_OVERS))),
        )
    }

    /// The link is up, down, blocked or unblocked, or was silent.
    pub(super) fn set(&mut self, is_up: bool, is_reachable: bool, now: Mono) {
        if is_reachable {
            self.since = None;
            self.refusing = false;
        } else {
            self.since.get_or_insert(now);
        }
        if is_up {
            self.down = None;
        } else {
            self.down.get_or_insert(now);
        }
    }

    /// Time has passed. True: the intake queue is left to others.
    pub(super) fn still(&mut self, now: Mono) -> bool {
        let since = self.since.map(|since| since.after(PATIENCE));
        self.refusing |= since.is_some_and(|due| due <= now);
        self.hand_over().is_some_and(|due| due <= now)
    }

    /// What was here has been given back: what comes has as much time.
    pub(super) fn begin_again(&mut self, now: Mono) {
        self.since = Some(now);
        self.refusing = false;
    }

    /// The intake queue is left to others. False: it was so before.
    pub(super) fn leave(&mut self, now: Mono) -> bool {
        let is_news = !std::mem::replace(&mut self.handed_over, true);
        if is_news {
            self.last = Some(now);
        }
        is_news
    }
}

/// How long a session waits for this one, in time in which the broker cannot answer.
pub(super) fn patience(item: &Item) -> Duration {
    match (item.sent, item.publication.purpose) {
        (false, _) => PATIENCE,
        (true, Purpose::Delay(_) | Purpose::Return) => RETURN_IN_DOUBT,
        (true, _) => IN_DOUBT,
    }
}
