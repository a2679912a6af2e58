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

use crate::machine::{Cause, Mono, Now, Outcome, Purpose, Ticket};
use crate::publisher::Effects;

use super::Publisher;
use super::item::{Item, Key};

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
}

// === impl Away ===

impl Away {
    /// The state before the first link.
    pub(super) fn new(now: Now) -> Away {
        Away {
            since: Some(now.mono),
            down: Some(now.mono),
            refusing: false,
            handed_over: false,
            last: None,
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
        let due = self.down.filter(|_| !self.handed_over)?.after(PATIENCE);
        Some(
            self.last
                .map_or(due, |last| due.max(last.after(HAND_OVERS))),
        )
    }
}

// === impl Publisher ===

impl Publisher {
    /// The broker reads what we publish, as far as it is known.
    pub(super) fn is_reachable(&self) -> bool {
        self.link.is_up() && !self.link.is_blocked()
    }

    /// The link is up, down, blocked or unblocked, or was silent.
    pub(super) fn reachable(&mut self, now: Now) {
        let reachable = self.is_reachable();
        self.clock.run(reachable, now.mono);
        let away = &mut self.away;
        if reachable {
            away.since = None;
            away.refusing = false;
        } else {
            away.since.get_or_insert(now.mono);
        }
        if self.link.is_up() {
            away.down = None;
        } else {
            away.down.get_or_insert(now.mono);
        }
        if reachable {
            self.resume_turn(now.mono);
        }
    }

    pub(super) fn still_away(&mut self, now: Now, fx: &mut Effects) {
        let since = self.away.since.map(|since| since.after(PATIENCE));
        self.away.refusing |= since.is_some_and(|due| due <= now.mono);
        if self.away.hand_over().is_some_and(|due| due <= now.mono) {
            self.hand_over(now, fx);
        }
    }

    /// Leaves the intake queue to others, and forgets what was taken from it.
    pub(super) fn hand_over(&mut self, now: Now, fx: &mut Effects) {
        if std::mem::replace(&mut self.away.handed_over, true) {
            return;
        }
        self.away.last = Some(now.mono);
        for key in self.items.keys() {
            let item = self.items.get(key);
            if item.is_some_and(|item| self.quota.is_signal(item)) {
                self.remove(key);
            }
        }
        self.lanes.forget_ended(&self.items);
        let intake = self.settings.intake.map(|intake| (intake, false));
        fx.out.takes.extend(intake);
    }

    /// Takes the intake's dead letters again, if they can leave.
    pub(super) fn take_over(&mut self, fx: &mut Effects) {
        if self.away.handed_over && self.is_reachable() && !self.draining {
            self.away.handed_over = false;
            let intake = self.settings.intake.map(|intake| (intake, true));
            fx.out.takes.extend(intake);
        }
    }

    /// Refuses what sessions have waited for long enough.
    pub(super) fn relieve(&mut self, now: Now, fx: &mut Effects) {
        if self.clock.runs() {
            return;
        }
        let stood = self.clock.stood(now.mono);
        self.refuse(fx, |item| {
            let bound = match (item.sent, item.publication.purpose) {
                (false, _) => PATIENCE,
                (true, Purpose::Delay(_) | Purpose::Return) => RETURN_IN_DOUBT,
                (true, _) => IN_DOUBT,
            };
            stood.since(item.waits) >= bound
        });
    }

    /// Refuses those of the sessions, in the order of their deaths.
    pub(super) fn refuse(&mut self, fx: &mut Effects, which: impl Fn(&Item) -> bool) {
        let refused = self.items.keys().into_iter().filter_map(|key| {
            let item = self.items.get(key)?;
            (!self.quota.is_signal(item) && which(item)).then_some((item.ticket, key))
        });
        let mut refused: Vec<(Ticket, Key)> = refused.collect();
        refused.sort_unstable_by_key(|(ticket, _)| *ticket);
        for (_, key) in &refused {
            let may_have_arrived = self
                .items
                .get(*key)
                .is_some_and(|item| item.sent && item.publication.purpose == Purpose::Redrive);
            let cause = match may_have_arrived {
                true => Cause::Unconfirmed,
                false => Cause::PublisherAway,
            };
            self.finish(*key, Outcome::Refused(cause), fx);
        }
        if !refused.is_empty() {
            self.lanes.forget_ended(&self.items);
        }
    }
}
