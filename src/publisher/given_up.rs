//! What becomes of a publication whose stage has failed for good.

use std::time::Duration;

use crate::dead_letter;
use crate::machine::{Cause, Event, Mono, Now, Outcome, Purpose};
use crate::publisher::Effects;

use super::item::{Item, Key, Place, Stage};
use super::{Publisher, is_foreign, parked};

/// So long a message waits that comes back to a queue without room for it: doubled with each try in vain, up to the second.
const FOR_ROOM: Duration = Duration::from_secs(1);
const LONGEST_FOR_ROOM: Duration = Duration::from_secs(8);

/// A queue without room for what comes back to it. All of that waits as long, so that it stays in order.
#[derive(Debug, Default)]
pub(super) struct Full {
    /// What is refused until then belongs to the same try.
    until: Mono,
    pause: Duration,
}

impl Publisher {
    /// Its stage has failed for good: from the target to parking, from parking back to its owner.
    pub(super) fn give_up(&mut self, key: Key, cause: Cause, now: Now, fx: &mut Effects) {
        let of = |item: &Item| (item.stage, item.publication.purpose);
        match self.items.get(key).map(of) {
            // Where it came from it is safe.
            Some((Stage::Target, Purpose::Delay(_)))
            | Some((Stage::Target | Stage::Bridge, Purpose::Redrive)) => {
                self.finish(key, Outcome::Refused(cause), fx)
            }
            Some((Stage::Target | Stage::Bridge, Purpose::Return)) if is_full(cause) => {
                self.finds_no_room(key, now, fx)
            }
            Some((Stage::Target | Stage::Bridge, _)) => self.park(key, cause),
            Some((stage @ (Stage::Parking(_) | Stage::Apart), _)) => {
                let cause = match is_full(cause) {
                    true => Cause::ParkingBusy,
                    false => stage.cause(),
                };
                self.finish(key, Outcome::Refused(cause), fx);
            }
            None => {}
        }
    }

    /// Sends it to the parking queue, with headers that say why.
    pub(super) fn park(&mut self, key: Key, cause: Cause) {
        self.move_to(key, Place::BackingOff);
        self.describe(key, cause);
        self.restage(key, Stage::Parking(cause));
    }

    /// Gives it the headers that say where it should have gone, and why it did not.
    pub(super) fn describe(&mut self, key: Key, cause: Cause) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let publication = &item.publication;
        let frame_max = self.link.frame_max();
        let content = parked::content(
            &publication.content,
            &publication.exchange,
            cause,
            self.link.user(),
            self.provable,
            frame_max,
            self.is_stamped(key),
        );
        self.items.replace(key, content);
        let own_user = self.link.user();
        if let Some(item) = self.items.get_mut(key) {
            item.foreign = is_foreign(&item.publication, own_user);
        }
    }

    /// It alone can have closed the channel or the connection: to parking, by itself, if true; else it is back with its owner.
    pub(super) fn poisoned(&mut self, key: Key, fx: &mut Effects) -> bool {
        let of = |item: &Item| (item.stage, item.publication.purpose);
        match self.items.get(key).map(of) {
            Some((Stage::Target | Stage::Bridge, Purpose::Redrive)) => {
                self.finish(key, Outcome::Refused(Cause::Poison), fx);
            }
            Some((Stage::Target | Stage::Bridge, _)) => {
                self.describe(key, Cause::Poison);
                self.set_stage(key, Stage::Apart);
                return true;
            }
            Some((Stage::Parking(_) | Stage::Apart, _)) => {
                self.finish(key, Outcome::Refused(Cause::Poison), fx);
            }
            None => {}
        }
        false
    }

    /// A message comes back, and its queue does not take it: with an overflow of `reject-publish` that refuses what is published, but never what is
    /// requeued. A session has the original. What was away waits in a delay queue once more, and that counts for nothing.
    fn finds_no_room(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let outcome = Outcome::Refused(Cause::QueueFull);
        let (own_user, queue) = (self.link.user(), item.publication.queue.clone());
        let Some(mut away) = dead_letter::away_again(&item.publication, own_user, now.wall) else {
            return self.park(key, Cause::Nacked);
        };
        if self.settings.intake != Some(item.owner) {
            return self.finish(key, outcome, fx);
        }
        let full = self.full.entry(queue.clone()).or_default();
        if full.until <= now.mono {
            full.pause = full
                .pause
                .saturating_mul(2)
                .clamp(FOR_ROOM, LONGEST_FOR_ROOM);
            full.until = now.mono.after(full.pause);
        }
        let delay = full.pause;
        away.purpose = Purpose::Delay(delay);
        self.delays.address(&mut away, delay);
        fx.events.push(Event::Retried {
            queue,
            delay,
            outcome,
        });
        // Where it was is in the books by what it was.
        self.set_late(key, false);
        self.move_to(key, Place::BackingOff);
        self.items.replace(key, away.content.clone());
        if let Some(item) = self.items.get_mut(key) {
            item.publication = away;
        }
        self.restage(key, Stage::Target);
    }
}

/// Whether its queue is there, and does not take it now.
fn is_full(cause: Cause) -> bool {
    matches!(cause, Cause::Nacked | Cause::TimedOut | Cause::TargetBusy)
}
