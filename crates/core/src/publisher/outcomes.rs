//! The table of outcomes (docs/decisions.md), row by row: what follows from each answer of the broker, and from none.

use std::sync::Arc;
use std::time::Duration;

use crate::amqp::method::{Close, MethodId};
use crate::dead_letter;
use crate::link::{Frame, Loss};
use crate::machine::{Cause, DeadLetter, Event, Mono, Now, Outcome, Purpose, Role};
use crate::publisher::Effects;

use super::blame::{Blame, blame, is_publish};
use super::channel::Attempt;
use super::item::{Item, Key, Place, Stage};
use super::store::Store;
use super::traffic::Doubt;
use super::{OnUnroutable, Publisher, bridges, delays, edits, is_foreign};

/// First back-off after a nack; doubles each time.
const NACKED: Duration = Duration::from_millis(100);
/// Attempts at a missing or unbound parking exchange: six seconds in all.
const PARKING_RETRIES: u32 = 6;
/// First back-off after a timeout; doubles each time, up to a factor of eight.
pub(super) const TIMED_OUT: Duration = Duration::from_secs(1);
/// Links lost in a row, with something in flight and nothing confirmed, before the items in flight
/// are blamed.
const MOST_FRUITLESS_LOSSES: u32 = 3;
/// First wait for room in a message's own queue; doubles with each attempt, up to the second value.
const FOR_ROOM: Duration = Duration::from_secs(1);
const LONGEST_FOR_ROOM: Duration = Duration::from_secs(8);

/// A full queue with messages coming back. All of them wait equally, which keeps their order.
#[derive(Debug, Default)]
pub(super) struct Full {
    /// Refusals until then belong to the same attempt.
    until: Mono,
    pause: Duration,
}

impl Publisher {
    pub(super) fn settle(
        &mut self,
        at: usize,
        tag: u64,
        attempt: Attempt,
        acked: bool,
        now: Now,
        fx: &mut Effects,
    ) {
        let key = attempt.key;
        self.answers.answered = self.answers.answered.max(attempt.at);
        let Some(item) = self.store.items.get(key) else {
            return;
        };
        if acked && !attempt.returned {
            let outcome = match attempt.stage.is_parking() {
                true => Outcome::Parked(item.stage.cause()),
                false => Outcome::Confirmed,
            };
            self.finish(key, outcome, fx);
        } else if self.store.is_in_flight(key, at, tag) {
            match (acked, item.may_be_delayed()) {
                (true, true) => self.unroutable(key, Cause::Delayed, now, fx),
                (true, false) => self.unroutable(key, Cause::Unroutable, now, fx),
                (false, _) => self.nacked(key, now, fx),
            }
        }
        // Else: bad news of an attempt that was given up. A better one is on its way.
    }

    fn unroutable(&mut self, key: Key, cause: Cause, now: Now, fx: &mut Effects) {
        let Some(item) = self.store.items.get_mut(key) else {
            return;
        };
        let is_delayed = matches!(item.publication.purpose, Purpose::Delay(_));
        if is_delayed
            && item.stage == Stage::Target
            && cause == Cause::Unroutable
            && item.may_rebuild()
        {
            // Somebody has deleted the queue. Others may have been told so before, and have built it again.
            self.delays.forget(&item.publication.routing_key);
            return self.store.restage(key, Stage::Target);
        }
        if item.stage.is_parking() && item.nacks < PARKING_RETRIES {
            // The intake makes the parking objects; it may not have come so far.
            let wait = NACKED * (1 << item.nacks);
            item.nacks += 1;
            return self.store.back_off(key, wait, now);
        }
        let drop = self.settings.on_unroutable == OnUnroutable::Drop
            && !item.stage.is_parking()
            && !item.publication.at_least_once;
        match drop {
            true => self.finish(key, Outcome::Dropped(cause), fx),
            false => self.give_up(key, cause, now, fx),
        }
    }

    /// A queue refused it. Few attempts, because each may have put copies into other queues (S8.6).
    /// Only the parking queue is behind its exchange, and in a cluster it may lose its leader
    /// together with the target and the intake queue. The broker would lose the dead letter
    /// meanwhile, so parking is tried for `give-up-after` (see `traffic`).
    fn nacked(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.store.items.get_mut(key) else {
            return;
        };
        let comes_back = item.publication.purpose == Purpose::Return && !item.stage.is_parking();
        if comes_back || !item.late && self.store.quota.is_full(item) {
            self.give_up(key, Cause::TargetBusy, now, fx);
        } else if item.stage.is_parking() || item.nacks < self.settings.limits.now().nack_retries {
            let wait = NACKED * (1 << item.nacks.min(6));
            item.nacks += 1;
            self.store.back_off(key, wait, now);
        } else {
            self.give_up(key, Cause::Nacked, now, fx);
        }
    }

    /// The broker closed a channel.
    pub(super) fn channel_closed(
        &mut self,
        at: usize,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) {
        let close = frame.close(fx);
        let built = self.store.channels.get(at).built;
        let (done, open) = self.store.shut(at);
        let mut keys = [done.clone(), open].concat();
        let is_older = self.delays.learn(&close);
        self.delays.doubt();
        if is_older {
            return self.store.enqueue_in_front(&keys);
        }
        let own_user = self.link.user().clone();
        let has_user_id = |store: &Store, key: &Key| {
            let item = store.items.get(*key);
            item.is_some_and(|item| item.has_user_id(&own_user))
        };
        let blame = match blame(&close, self.settings.careful) {
            Blame::UserId if !keys.iter().any(|key| has_user_id(&self.store, key)) => {
                Blame::OneOfThem
            }
            blame => blame,
        };
        let first = keys.first().and_then(|key| self.store.items.get(*key));
        fx.events.push(match first {
            Some(first) if blame == Blame::Internal && first.stage == Stage::Target => {
                Event::InternalExchange {
                    exchange: first.publication.exchange.clone(),
                }
            }
            _ => Event::ChannelClosed {
                role: Role::Publisher,
                cause: format!("{} {}", close.code, String::from_utf8_lossy(close.text)),
            },
        });
        if blame == Blame::Internal || blame == Blame::Exchange(Cause::NoExchange) && built {
            keys.extend(self.store.unqueue(at));
        }
        let mut innocent = Vec::new();
        for key in keys {
            let is_open = !done.contains(&key);
            self.store.move_to(key, Place::BackingOff);
            match blame {
                Blame::OneOfThem if is_open => self.accused(key, true, now, fx),
                Blame::UserId if has_user_id(&self.store, &key) => self.user_refused(key, fx),
                Blame::OneOfThem | Blame::UserId => innocent.push(key),
                Blame::Internal => self.cross(key, now, fx),
                Blame::Exchange(cause) => self.exchange_failed(key, cause, &close, now, fx),
            }
        }
        self.store.enqueue_in_front(&innocent);
    }

    fn cross(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.store.items.get_mut(key) else {
            return;
        };
        item.crossings += 1;
        let may = item.stage == Stage::Target && item.crossings <= bridges::MOST_CROSSINGS;
        let bridge = self.internal.learn(&item.publication.exchange);
        match bridge.filter(|_| may) {
            Some(bridge) => {
                item.bridge = bridge;
                self.store.restage(key, Stage::Bridge);
            }
            None => self.give_up(key, Cause::Forbidden, now, fx),
        }
    }

    fn exchange_failed(
        &mut self,
        key: Key,
        cause: Cause,
        close: &Close<'_>,
        now: Now,
        fx: &mut Effects,
    ) {
        let Some(item) = self.store.items.get_mut(key) else {
            return;
        };
        let is_missing = cause == Cause::NoExchange;
        let comes_back = delays::leads_to(&self.settings.names, &item.publication).is_some();
        let stage = item.stage;
        match stage {
            // It went with its queue, which may have been made anew: a binding tells.
            Stage::Bridge if comes_back && is_publish(close) && item.may_rebuild() => {
                self.store.restage(key, Stage::Bridge);
            }
            Stage::Bridge if comes_back => {
                let cause = delays::no_way(close, cause, Some(item));
                self.give_up(key, cause, now, fx);
            }
            // The exchange may be gone, or be another by now: it tells, if it is tried without.
            Stage::Bridge => {
                self.internal.forget(&item.publication.exchange);
                match is_missing {
                    true => self.store.restage(key, Stage::Target),
                    false => self.give_up(key, cause, now, fx),
                }
            }
            Stage::Target | Stage::Parking(_) if is_missing => {
                self.unroutable(key, cause, now, fx);
            }
            Stage::Target | Stage::Parking(_) => self.give_up(key, cause, now, fx),
        }
    }

    pub(super) fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects) {
        self.reachable(now);
        if self.store.in_flight > 0 {
            self.fruitless_losses = match self.proven {
                true => 0,
                false => self.fruitless_losses + 1,
            };
        }
        // Whether it is a fault of what was said, which will be as wrong the next time, or one that may pass by itself.
        let words = match loss {
            // Not a message: our user may not open as many channels as that.
            Loss::Fault(_, MethodId::CHANNEL_OPEN) => {
                self.channels = self.store.channels.open();
                None
            }
            Loss::Fault(501..=505 | 530 | 540, _) => Some(true),
            Loss::Fault(..) => Some(false),
            Loss::Lost => (self.fruitless_losses >= MOST_FRUITLESS_LOSSES).then_some(false),
        };
        if words.is_some() {
            self.fruitless_losses = 0;
        }
        let mut innocent = Vec::new();
        for at in 0..self.store.channels.len() {
            let (done, open) = self.store.shut(at);
            innocent.extend(done);
            match words {
                Some(words) => {
                    for key in open {
                        self.accused(key, words, now, fx);
                    }
                }
                None => innocent.extend(open),
            }
        }
        for &key in &innocent {
            self.store.move_to(key, Place::BackingOff);
        }
        self.doubt = Doubt::default();
        self.store.channels.dissolve();
        self.store.enqueue_in_front(&innocent);
        self.delays.doubt();
    }

    /// It was in flight when its channel or connection closed, without a named culprit. The careful
    /// publisher, which publishes one at a time, finds out.
    fn accused(&mut self, key: Key, words: bool, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        if !self.settings.careful {
            let handed = self.holds.hand(&mut self.store, key, uptime);
            return fx.out.careful.extend(handed);
        }
        let Some(item) = self.store.items.get(key) else {
            return;
        };
        let is_parked = item.stage.is_parking();
        match (
            words,
            is_parked || item.publication.purpose == Purpose::Redrive,
        ) {
            (true, true) => self.finish(key, Outcome::Refused(Cause::Poison), fx),
            (true, false) => self.park(key, Cause::Poison),
            (false, _) => {
                let (exchange, routing_key) = self.holds.target(item);
                self.store.move_to(key, Place::Held);
                let target = (exchange.clone(), routing_key.clone());
                if self.holds.pause(target, key, now.mono, uptime) {
                    fx.events.push(Event::TargetClosesConnection {
                        exchange,
                        routing_key,
                    });
                }
            }
        }
    }

    /// The broker refused a user-id. If it was ours, the broker knows our user by another name
    /// (OAuth 2): until the next link, messages are parked without the proof, and those that need
    /// it are not published. Otherwise it was a foreign one.
    fn user_refused(&mut self, key: Key, fx: &mut Effects) {
        if let Some(item) = self.store.items.get(key)
            && item.publication.purpose != Purpose::Tail
            && edits::is_proven(&item.publication.content, self.link.user())
        {
            let stage = item.stage;
            self.provable = false;
            if stage.is_parking() {
                return self.park(key, stage.cause());
            }
        }
        self.foreign_refused = true;
        self.refuse_user(key, fx);
    }

    pub(super) fn refuse_user(&mut self, key: Key, fx: &mut Effects) {
        let item = self.store.items.get(key);
        let hidden = item.and_then(|item| edits::hidden(&item.publication, self.link.user()));
        let Some(content) = hidden else {
            return self.finish(key, Outcome::Refused(Cause::UserId), fx);
        };
        self.store.items.replace(key, content);
        if let Some(item) = self.store.items.get_mut(key) {
            item.foreign = false;
        }
        self.store.enqueue(key);
    }

    /// Its stage has failed for good: from the target to parking, from parking back to its owner.
    pub(super) fn give_up(&mut self, key: Key, cause: Cause, now: Now, fx: &mut Effects) {
        // Whether its queue is there, and does not take it now.
        let is_full = matches!(cause, Cause::Nacked | Cause::TimedOut | Cause::TargetBusy);
        let Some(item) = self.store.items.get(key) else {
            return;
        };
        match (item.stage, item.publication.purpose) {
            // Where it came from it is safe.
            (Stage::Target, Purpose::Delay(_))
            | (Stage::Target | Stage::Bridge, Purpose::Redrive) => {
                self.finish(key, Outcome::Refused(cause), fx);
            }
            (Stage::Target | Stage::Bridge, Purpose::Return) if is_full => {
                self.finds_no_room(key, now, fx);
            }
            (Stage::Target | Stage::Bridge, _) => self.park(key, cause),
            (Stage::Parking(_), _) => {
                let cause = match is_full {
                    true => Cause::ParkingBusy,
                    false => item.stage.cause(),
                };
                self.finish(key, Outcome::Refused(cause), fx);
            }
        }
    }

    /// To the parking queue, with headers for its destination and the cause.
    pub(super) fn park(&mut self, key: Key, cause: Cause) {
        self.store.move_to(key, Place::BackingOff);
        let (own_user, frame_max) = (self.link.user(), self.link.frame_max());
        let Some(item) = self.store.items.get(key) else {
            return;
        };
        let Item { publication, .. } = item;
        let content = edits::parked(
            &publication.content,
            &publication.exchange,
            cause,
            own_user,
            self.provable,
            frame_max,
            self.settings.is_stamped(publication),
        );
        self.store.items.replace(key, content);
        if let Some(item) = self.store.items.get_mut(key) {
            item.foreign = is_foreign(&item.publication, own_user);
        }
        self.store.restage(key, Stage::Parking(cause));
    }

    /// A full queue with `reject-publish` refuses a message coming back (it never refuses a
    /// requeue). A session has the original. A message from a delay queue is delayed once more,
    /// which does not count.
    fn finds_no_room(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.store.items.get(key) else {
            return;
        };
        let outcome = Outcome::Refused(Cause::QueueFull);
        let (own_user, queue) = (self.link.user(), item.publication.queue.clone());
        let Some(mut away) = dead_letter::away_again(&item.publication, own_user, now.wall) else {
            return self.park(key, Cause::Nacked);
        };
        if self.settings.careful || !self.store.quota.is_signal(item) {
            return self.finish(key, outcome, fx);
        }
        let full = self.full.entry(queue.clone()).or_default();
        if full.until <= now.mono {
            full.pause = (full.pause * 2).clamp(FOR_ROOM, LONGEST_FOR_ROOM);
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
        self.store.set_late(key, false);
        self.store.move_to(key, Place::BackingOff);
        self.store.items.replace(key, away.content.clone());
        if let Some(item) = self.store.items.get_mut(key) {
            item.publication = away;
        }
        self.store.restage(key, Stage::Target);
    }

    pub(super) fn finish(&mut self, key: Key, outcome: Outcome, fx: &mut Effects) {
        let Some(item) = self.store.remove(key) else {
            return;
        };
        fx.out.settled.push((item.owner, item.ticket, outcome));
        let hidden_next = outcome == Outcome::Refused(Cause::UserId);
        let of_intake = self.store.quota.is_signal(&item);
        // Not its end: the intake hides the user-id and comes again. And what a careful publisher had, the other one counts.
        if hidden_next && of_intake || self.settings.careful {
            return;
        }
        if item.publication.purpose == Purpose::Return {
            self.full.remove(&item.publication.queue);
        }
        let queue = || item.publication.queue.clone();
        let retried = |delay| Event::Retried {
            queue: queue(),
            delay,
            outcome,
        };
        fx.events.push(match (item.publication.purpose, outcome) {
            // It died once, and was counted then. Who sent it counts what became of it.
            (Purpose::Unpark | Purpose::Tail, _) => return,
            (Purpose::Publish, outcome) => Event::Published {
                delay: None,
                outcome,
            },
            (Purpose::Delay(delay), outcome) if queue().is_empty() && !of_intake => {
                Event::Published {
                    delay: Some(delay),
                    outcome,
                }
            }
            // It was sent away once, and counted then: this is the rest of its delay.
            (Purpose::Delay(_), Outcome::Confirmed) if of_intake => return,
            (Purpose::Delay(delay), _) => retried(delay),
            // Who returned it has the original.
            (Purpose::Return, Outcome::Refused(_)) if !of_intake => retried(Duration::ZERO),
            (Purpose::Redrive, _) => Event::Redriven {
                queue: queue(),
                outcome,
            },
            (Purpose::Return, Outcome::Confirmed) => Event::CameBack { queue: queue() },
            (Purpose::Return | Purpose::Death | Purpose::Park(_), _) => {
                let dead = DeadLetter::of(item.publication, outcome);
                Event::DeadLetter(Arc::new(dead))
            }
        });
    }
}
