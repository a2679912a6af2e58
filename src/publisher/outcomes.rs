//! The table of outcomes (design: "Publishing"), row by row: what follows from each answer of the broker, and from none.

use std::time::Duration;

use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::link::Loss;
use crate::machine::{Bound, Cause, Effects, Event, Now, Outcome, Role};

use super::item::{Key, Place, Stage};
use super::lane::Attempt;
use super::lanes::{ALONE, FOREIGN, Lanes};
use super::send::MOST_BOOKED;
use super::{OnUnroutable, Publisher, bridges, parked};

/// The first rest after a nack; doubled with each.
const NACKED: Duration = Duration::from_millis(100);
/// How often a parking exchange that is not there, or has no queue, is tried again: for six seconds in all.
const PARKING_RETRIES: u32 = 6;
/// The first rest after a timeout; doubled with each, up to eight times that.
const TIMED_OUT: Duration = Duration::from_secs(1);
/// Links lost in a row, with something in flight and nothing confirmed, until what is in flight is suspected.
const BARREN: u32 = 3;

/// What the broker says of a publish to an internal exchange (S2.4).
const INTERNAL: &[u8] = b"cannot publish to internal exchange";

/// Whom the broker's words accuse when it closes a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The exchange of all that was on it.
    Exchange(Cause),
    /// The same: it is internal.
    Internal,
    /// The user-id of all that was on it.
    UserId,
    /// One of those in flight (S8.5).
    OneOfThem,
}

impl Publisher {
    /// The broker confirmed one attempt.
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
        self.answered = self.answered.max(attempt.at);
        let Some(item) = self.items.get(key) else {
            return;
        };
        if acked && !attempt.returned {
            let outcome = if attempt.stage.is_parking() {
                Outcome::Parked(item.stage.cause())
            } else {
                Outcome::Confirmed
            };
            self.finish(key, outcome, fx);
        } else if item.place == (Place::Flying { lane: at, tag }) {
            if acked {
                self.unroutable(key, Cause::Unroutable, now, fx);
            } else {
                self.nacked(key, now, fx);
            }
        }
        // Else: bad news of an attempt that was given up. A better one is on its way.
    }

    /// Returned, or its exchange does not exist.
    fn unroutable(&mut self, key: Key, cause: Cause, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        if item.stage.is_parking() && item.nacks < PARKING_RETRIES {
            // The intake makes the parking objects; it may not have come so far.
            let wait = NACKED * (1 << item.nacks);
            item.nacks += 1;
            return self.rest(key, wait, now);
        }
        let drop = self.settings.on_unroutable == OnUnroutable::Drop
            && !item.stage.is_parking()
            && !item.publication.at_least_once;
        if drop {
            self.finish(key, Outcome::Dropped(cause), fx);
        } else {
            self.give_up(key, cause, fx);
        }
    }

    /// A queue refused it. Each attempt may have put copies into others (S8.6): there are few.
    fn nacked(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        if !item.late && self.window.is_full(item) {
            self.give_up(key, Cause::TargetBusy, fx);
        } else if item.nacks < self.settings.limits.now().nack_retries {
            let wait = NACKED * (1 << item.nacks.min(6));
            item.nacks += 1;
            self.rest(key, wait, now);
        } else {
            self.give_up(key, Cause::Nacked, fx);
        }
    }

    /// Looks for attempts without an answer for `confirm-timeout`.
    pub(super) fn overdue(&mut self, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let limits = self.settings.limits.now();
        let settings = (limits.confirm_timeout, limits.retry_for);
        for at in 0..self.lanes.len() {
            while let Some((tag, attempt)) = {
                let old = |sent| uptime.since(sent) >= settings.0;
                self.lanes.get(at).next_due(old)
            } {
                let Some(item) = self.items.get_mut(attempt.key) else {
                    continue;
                };
                if item.place != (Place::Flying { lane: at, tag }) {
                    continue;
                }
                fx.events.push(Event::BoundMet(Bound::ConfirmTimeout));
                if item
                    .since
                    .is_some_and(|since| uptime.since(since) >= settings.1)
                {
                    self.give_up(attempt.key, Cause::TimedOut, fx);
                } else {
                    let wait = TIMED_OUT * (1 << item.timeouts.min(3));
                    item.timeouts += 1;
                    self.rest(attempt.key, wait, now);
                }
            }
            let (items, lane) = (&self.items, self.lanes.get(at));
            lane.forget(|attempt| items.get(attempt.key).is_none());
            // Before one that nobody answers, in front of the books, holds up all that is behind it.
            while self.lanes.get(at).span() > MOST_BOOKED / 2
                && let Some((tag, attempt)) = self.lanes.get(at).drop_oldest()
            {
                let item = self.items.get(attempt.key);
                if item.is_some_and(|item| item.place == (Place::Flying { lane: at, tag })) {
                    self.rest(attempt.key, TIMED_OUT, now);
                }
            }
        }
    }

    /// Its stage has failed for good: from the target to parking, from parking back to its owner.
    pub(super) fn give_up(&mut self, key: Key, cause: Cause, fx: &mut Effects) {
        match self.items.get(key).map(|item| item.stage) {
            Some(Stage::Target | Stage::Bridge) => self.park(key, cause),
            Some(stage @ (Stage::Parking(_) | Stage::AsItCame)) => {
                self.finish(key, Outcome::Refused(stage.cause()), fx);
            }
            None => {}
        }
    }

    /// Sends it to the parking queue, with headers that say why.
    pub(super) fn park(&mut self, key: Key, cause: Cause) {
        self.land(key);
        let Some(item) = self.items.get(key) else {
            return;
        };
        let publication = &item.publication;
        let frame_max = self.link.frame_max();
        let content = parked::content(
            &publication.content,
            &publication.exchange,
            cause,
            frame_max,
        );
        self.items.replace(key, content);
        self.restage(key, Stage::Parking(cause));
    }

    /// It alone was in flight when the channel or the connection was closed: to parking as it is, or back to its owner.
    fn poisoned(&mut self, key: Key, fx: &mut Effects) {
        match self.items.get(key).map(|item| item.stage) {
            Some(Stage::Target | Stage::Bridge) => self.restage(key, Stage::AsItCame),
            Some(Stage::Parking(_) | Stage::AsItCame) => {
                self.finish(key, Outcome::Refused(Cause::Poison), fx);
            }
            None => {}
        }
    }

    pub(super) fn restage(&mut self, key: Key, stage: Stage) {
        if let Some(item) = self.items.get_mut(key) {
            item.stage = stage;
            item.nacks = 0;
            item.timeouts = 0;
            item.since = None;
            if std::mem::take(&mut item.late) {
                self.window.leave(item);
            }
        }
        self.enqueue(key);
    }

    fn suspect(&mut self, key: Key) {
        if let Some(item) = self.items.get_mut(key) {
            item.suspect = true;
        }
        self.enqueue(key);
    }

    /// The broker closed a channel.
    pub(super) fn channel_closed(&mut self, at: usize, payload: &[u8], now: Now, fx: &mut Effects) {
        let channel = self.lanes.get(at).channel();
        reply::close_ok(fx.broker.build(&[]), channel);
        let built = self.lanes.get(at).built;
        let mut keys = self.flight(at);
        let close = Close::parse(payload).unwrap_or(Close {
            code: 0,
            text: &[],
            class: 0,
            method: 0,
        });
        let blame = blame(at, &close);
        fx.events.push(self.closed_by(&close, blame, &keys));
        let moves = match blame {
            Blame::Internal => true,
            Blame::Exchange(Cause::NoExchange) => built,
            _ => false,
        };
        if moves && Lanes::has_one_exchange(at) {
            keys.extend(self.unqueue(at));
        }
        for key in keys {
            self.land(key);
            let stage = self.items.get(key).map(|item| item.stage);
            match blame {
                Blame::Internal => self.cross(key, fx),
                Blame::Exchange(cause) if stage == Some(Stage::Bridge) => {
                    self.turn_back(key, cause, fx)
                }
                Blame::Exchange(Cause::NoExchange) => {
                    self.unroutable(key, Cause::NoExchange, now, fx)
                }
                Blame::Exchange(cause) => self.give_up(key, cause, fx),
                Blame::UserId => self.finish(key, Outcome::Refused(Cause::UserId), fx),
                Blame::OneOfThem if at == ALONE => self.poisoned(key, fx),
                Blame::OneOfThem => self.suspect(key),
            }
        }
        self.foreign_refused |= blame == Blame::UserId;
    }

    /// The fact that a channel was closed; an internal exchange is nothing to worry about.
    fn closed_by(&self, close: &Close<'_>, blame: Blame, flight: &[Key]) -> Event {
        let item = flight.first().and_then(|key| self.items.get(*key));
        match item.filter(|item| blame == Blame::Internal && item.stage == Stage::Target) {
            Some(item) => Event::InternalExchange {
                exchange: item.publication.exchange.clone(),
            },
            None => Event::ChannelClosed {
                role: Role::Publisher,
                cause: format!("{} {}", close.code, String::from_utf8_lossy(close.text)),
            },
        }
    }

    /// The connection is lost.
    pub(super) fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects) {
        self.reachable(now);
        if self.flying > 0 {
            self.barren = if self.proven { 0 } else { self.barren + 1 };
        }
        let fault = match loss {
            // Not a message: our user may not open as many channels as that.
            Loss::Fault(MethodId::CHANNEL_OPEN) => {
                self.channels = self.lanes.open();
                false
            }
            Loss::Fault(_) => true,
            Loss::Lost => self.barren >= BARREN,
        };
        // While careful, only one was in flight.
        let certain = self.careful;
        for at in 0..self.lanes.len() {
            let flight = self.flight(at);
            if !fault {
                self.resend(at, &flight);
                continue;
            }
            self.barren = 0;
            for key in flight {
                self.careful = true;
                self.land(key);
                if certain {
                    self.poisoned(key, fx);
                } else {
                    self.suspect(key);
                }
            }
        }
        self.lanes.dissolve();
    }

    /// Shuts a lane: those whose latest attempt was in flight on it, in order.
    fn flight(&mut self, at: usize) -> Vec<Key> {
        let attempts = self.lanes.get(at).shut();
        let latest = attempts.filter(|&(tag, attempt)| {
            let item = self.items.get(attempt.key);
            item.is_some_and(|item| item.place == (Place::Flying { lane: at, tag }))
        });
        latest.map(|(_, attempt)| attempt.key).collect()
    }

    /// Tells the owner.
    pub(super) fn finish(&mut self, key: Key, outcome: Outcome, fx: &mut Effects) {
        self.land(key);
        let Some(item) = self.items.remove(key) else {
            return;
        };
        if item.place == Place::Waiting {
            self.waiting -= 1;
        }
        if item.late {
            self.window.leave(&item);
        }
        fx.settled.push((item.owner, item.ticket, outcome));
        let hidden_next = outcome == Outcome::Refused(Cause::UserId);
        if hidden_next && self.settings.intake == Some(item.owner) {
            // Not its end: the intake hides the user-id and comes again.
            return;
        }
        fx.events.push(Event::DeadLetter {
            queue: item.publication.queue,
            reason: item.publication.reason,
            exchange: item.publication.exchange,
            outcome,
        });
    }
}

/// Who is meant by the close of a channel.
fn blame(at: usize, close: &Close<'_>) -> Blame {
    let says = |words: &[u8]| memchr::memmem::find(close.text, words).is_some();
    if let Some(cause) = bridges::blame(close) {
        return Blame::Exchange(cause);
    }
    // On its own channel or alone, all that is in flight goes to one exchange.
    let one_exchange = Lanes::has_one_exchange(at) || at == ALONE;
    match close.code {
        403 if one_exchange && says(INTERNAL) => Blame::Internal,
        404 if one_exchange => Blame::Exchange(Cause::NoExchange),
        // A refused topic is a matter of the key: neighbours may have others.
        403 if at == ALONE || one_exchange && !says(b"topic") => Blame::Exchange(Cause::Forbidden),
        406 if matches!(at, FOREIGN | ALONE) && says(b"user_id property") => Blame::UserId,
        _ => Blame::OneOfThem,
    }
}
