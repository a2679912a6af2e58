//! While the broker cannot answer: the link is away, blocked by an alarm, or silent.
//!
//! Sessions can do without us, as the broker has their originals and can deal with them. A consumer whose prefetch is full of what is withheld gets
//! nothing more, and consumers are what ends an alarm. So what sessions handed over goes back to them after a while.
//!
//! The intake cannot: what it does not publish is parked. Its dead letters wait here, bounded by its prefetch and its bytes, and the rest waits
//! in its queue. That is left to another proxy only if our link is down, since an alarm blocks all of them; or if the intake asks for it, before
//! the broker takes back by itself what is held for too long. We forget what we hold then, and the intake returns it to its queue, which counts a
//! delivery on most versions: the queue parks what was delivered too often. So the intake consumes again when we can publish and not before,
//! however long that takes; if the link is up and down again and again, one hand-over a minute.

use std::time::Duration;

use crate::machine::{Mono, Now, Purpose};

use super::item::Item;

/// A session's unsent dead letter is refused after this time; when blocked for longer, new ones are
/// refused at once. Not earlier: a client that reconnects sooner than the link may use a broker
/// that has just started, and such a broker can lose the dead letters that it forwards.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for sent ones without an answer: a refusal may duplicate them. Few are affected,
/// because later ones are not sent.
const IN_DOUBT: Duration = Duration::from_secs(15);
/// The same for returned messages: after a refusal they are sent again, not left to the broker.
/// Together with the time that a session keeps them, this is less than the broker's
/// `consumer_timeout` (30 min).
const RETURN_IN_DOUBT: Duration = Duration::from_secs(10 * 60);
const HAND_OVERS: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Away {
    /// Since when nothing can be published.
    since: Option<Mono>,
    down: Option<Mono>,
    /// Sessions' dead letters are refused, at once or after their patience.
    pub(super) refusing: bool,
    pub(super) handed_over: bool,
    last: Option<Mono>,
    /// A careful publisher does not concern the intake.
    careful: bool,
}

// === impl Away ===

impl Away {
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

    pub(super) fn deadline(&self) -> Option<Mono> {
        let patience = self.since.filter(|_| !self.refusing);
        let patience = patience.map(|since| since.after(PATIENCE));
        [patience, self.hand_over()].into_iter().flatten().min()
    }

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

    pub(super) fn still(&mut self, now: Mono) -> bool {
        let since = self.since.map(|since| since.after(PATIENCE));
        self.refusing |= since.is_some_and(|due| due <= now);
        self.hand_over().is_some_and(|due| due <= now)
    }

    /// Everything was given back: new items get the full time.
    pub(super) fn begin_again(&mut self, now: Mono) {
        self.since = Some(now);
        self.refusing = false;
    }

    /// Leaves the intake queue to others. False: it was left before.
    pub(super) fn leave(&mut self, now: Mono) -> bool {
        let is_news = !std::mem::replace(&mut self.handed_over, true);
        if is_news {
            self.last = Some(now);
        }
        is_news
    }
}

/// How long a session waits for this item, while the broker cannot answer.
pub(super) fn patience(item: &Item) -> Duration {
    match (item.sent, item.publication.purpose) {
        (false, _) => PATIENCE,
        (true, Purpose::Delay(_) | Purpose::Return) => RETURN_IN_DOUBT,
        (true, _) => IN_DOUBT,
    }
}
