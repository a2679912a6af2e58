//! The table of outcomes (design: "Publishing"), row by row: what follows from each answer of the broker, and from none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::link::Loss;
use crate::machine::{Cause, DeadLetter, Event, Limit, Now, Outcome, Purpose, Role};
use crate::publisher::Effects;

use super::blame::Fault;
use super::item::{Key, Place, Stage};
use super::lane::Attempt;
use super::lanes::{FOREIGN, Lanes, PARKING, SUSPECTS};
use super::send::MOST_BOOKED;
use super::{OnUnroutable, Publisher, bridges, delays};

/// The first rest after a nack; doubled with each.
const NACKED: Duration = Duration::from_millis(100);
/// How often a parking exchange that is not there, or has no queue, is tried again: for six seconds in all.
const PARKING_RETRIES: u32 = 6;
/// The first rest after a timeout; doubled with each, up to eight times that.
const TIMED_OUT: Duration = Duration::from_secs(1);
/// Links lost in a row, with something in flight and nothing confirmed, until what is in flight is suspected.
const MOST_FRUITLESS_LOSSES: u32 = 3;

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
        } else if item.place == (Place::InFlight { lane: at, tag }) {
            if acked {
                let cause = match item.may_be_delayed() {
                    true => Cause::Delayed,
                    false => Cause::Unroutable,
                };
                self.unroutable(key, cause, now, fx);
            } else {
                self.nacked(key, now, fx);
            }
        }
        // Else: bad news of an attempt that was given up. A better one is on its way.
    }

    /// Returned, or its exchange does not exist.
    pub(super) fn unroutable(&mut self, key: Key, cause: Cause, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let delay = match item.publication.purpose {
            Purpose::Delay(_) if item.stage == Stage::Target => {
                Some(item.publication.routing_key.clone())
            }
            _ => None,
        };
        if let Some(delay) = delay
            && cause == Cause::Unroutable
            && self.may_rebuild(key)
        {
            // Somebody has deleted the queue. Others may have been told so before, and have built it again.
            self.delays.forget(&delay);
            return self.restage(key, Stage::Target);
        }
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        if item.stage.is_parking() && item.nacks < PARKING_RETRIES {
            // The intake makes the parking objects; it may not have come so far.
            let wait = NACKED * (1 << item.nacks);
            item.nacks += 1;
            return self.back_off(key, wait, now);
        }
        let drop = self.settings.on_unroutable == OnUnroutable::Drop
            && !item.stage.is_parking()
            && !item.publication.at_least_once;
        if drop {
            self.finish(key, Outcome::Dropped(cause), fx);
        } else {
            self.give_up(key, cause, now, fx);
        }
    }

    /// A queue refused it. Each attempt may have put copies into others (S8.6): there are few. The parking queue stands alone behind its exchange,
    /// and in a cluster it may lose its leader together with the target and the intake queue. Left to the broker meanwhile, a dead letter would be
    /// lost: so there it is tried for `retry-for` (see `send`).
    fn nacked(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        let comes_back = item.publication.purpose == Purpose::Return && !item.stage.is_parking();
        if comes_back || !item.late && self.quota.is_full(item) {
            self.give_up(key, Cause::TargetBusy, now, fx);
        } else if item.stage.is_parking() || item.nacks < self.settings.limits.now().nack_retries {
            let wait = NACKED * (1 << item.nacks.min(6));
            item.nacks += 1;
            self.back_off(key, wait, now);
        } else {
            self.give_up(key, Cause::Nacked, now, fx);
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
                if item.place != (Place::InFlight { lane: at, tag }) {
                    continue;
                }
                fx.events.push(Event::LimitMet(Limit::ConfirmTimeout));
                if item
                    .since
                    .is_some_and(|since| uptime.since(since) >= settings.1)
                {
                    self.give_up(attempt.key, Cause::TimedOut, now, fx);
                } else {
                    let wait = TIMED_OUT * (1 << item.timeouts.min(3));
                    item.timeouts += 1;
                    self.back_off(attempt.key, wait, now);
                }
            }
            let (items, lane) = (&self.items, self.lanes.get(at));
            lane.forget(|attempt| items.get(attempt.key).is_none());
            // Before one that nobody answers, in front of the books, holds up all that is behind it.
            while self.lanes.get(at).span() > MOST_BOOKED / 2
                && let Some((tag, attempt)) = self.lanes.get(at).drop_oldest()
            {
                let item = self.items.get(attempt.key);
                if item.is_some_and(|item| item.place == (Place::InFlight { lane: at, tag })) {
                    self.back_off(attempt.key, TIMED_OUT, now);
                }
            }
        }
    }

    pub(super) fn restage(&mut self, key: Key, stage: Stage) {
        self.set_stage(key, stage);
        self.enqueue(key);
    }

    /// A new stage, with all of its attempts.
    pub(super) fn set_stage(&mut self, key: Key, stage: Stage) {
        if let Some(item) = self.items.get_mut(key) {
            item.stage = stage;
            item.nacks = 0;
            item.timeouts = 0;
            item.since = None;
        }
        self.set_late(key, false);
    }

    fn suspect(&mut self, key: Key) {
        if let Some(item) = self.items.get_mut(key) {
            item.suspect = true;
        }
        self.enqueue(key);
    }

    fn absolve(&mut self, key: Key) {
        if let Some(item) = self.items.get_mut(key) {
            item.suspect = false;
        }
        self.enqueue(key);
    }

    /// The broker closed a channel.
    pub(super) fn channel_closed(&mut self, at: usize, payload: &[u8], now: Now, fx: &mut Effects) {
        let channel = self.lanes.get(at).channel();
        reply::close_ok(fx.broker.build(&[]), channel);
        let (built, processed) = (self.lanes.get(at).built, self.lanes.get(at).processed);
        let flight = self.flight(at);
        let innocent = flight.iter().filter(|(tag, _)| *tag <= processed);
        let innocent: BTreeSet<Key> = innocent.map(|(_, key)| *key).collect();
        let mut keys: Vec<Key> = flight.into_iter().map(|(_, key)| key).collect();
        let close = Close::parse(payload).unwrap_or(Close {
            code: 0,
            text: &[],
            class: 0,
            method: 0,
        });
        if self.delays.learn(&close) {
            self.delays.doubt();
            for key in keys {
                self.move_to(key, Place::BackingOff);
                self.absolve(key);
            }
            return;
        }
        let blame = blame(at, &close);
        fx.events.push(self.closed_by(&close, blame, &keys));
        let moves = match blame {
            Blame::Internal => true,
            Blame::Exchange(Cause::NoExchange) => built,
            _ => false,
        };
        self.delays.doubt();
        if moves && Lanes::has_one_exchange(at) {
            keys.extend(self.unqueue(at));
        }
        for key in keys {
            self.move_to(key, Place::BackingOff);
            let stage = self.items.get(key).map(|item| item.stage);
            let comes_back = self.items.get(key).map(|item| &item.publication);
            let comes_back =
                comes_back.is_some_and(|of| delays::leads_to(&self.settings.names, of).is_some());
            match blame {
                Blame::Internal => self.cross(key, now, fx),
                Blame::Exchange(cause) if stage == Some(Stage::Bridge) => match comes_back {
                    // It went with its queue, which may have been made anew: a binding tells.
                    true if is_publish(&close) && self.may_rebuild(key) => {
                        self.restage(key, Stage::Bridge)
                    }
                    true => {
                        let cause = delays::no_way(&close, cause, self.items.get(key));
                        self.give_up(key, cause, now, fx)
                    }
                    false => self.turn_back(key, cause, now, fx),
                },
                Blame::Exchange(Cause::NoExchange) => {
                    self.unroutable(key, Cause::NoExchange, now, fx)
                }
                Blame::Exchange(cause) => self.give_up(key, cause, now, fx),
                Blame::UserId if self.cannot_prove(key) => {}
                Blame::UserId => self.refuse_user(key, fx),
                Blame::OneOfThem if innocent.contains(&key) => self.absolve(key),
                Blame::OneOfThem if at == SUSPECTS => {
                    if self.poisoned(key, fx) {
                        self.enqueue(key);
                    }
                }
                Blame::OneOfThem => self.suspect(key),
            }
        }
    }

    /// Whether what leads to its queue is to be built again: once.
    fn may_rebuild(&mut self, key: Key) -> bool {
        let item = self.items.get_mut(key);
        item.is_some_and(|item| std::mem::replace(&mut item.crossings, 1) == 0)
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
        if self.books.in_flight > 0 {
            self.fruitless_losses = if self.proven {
                0
            } else {
                self.fruitless_losses + 1
            };
        }
        let fault = match loss {
            // Not a message: our user may not open as many channels as that.
            Loss::Fault(_, MethodId::CHANNEL_OPEN) => {
                self.channels = self.lanes.open();
                None
            }
            Loss::Fault(501..=505 | 530 | 540, _) => Some(Fault::Words),
            Loss::Fault(..) => Some(Fault::State),
            Loss::Lost => (self.fruitless_losses >= MOST_FRUITLESS_LOSSES).then_some(Fault::State),
        };
        if fault.is_some() {
            self.fruitless_losses = 0;
        }
        let (mut innocent, mut open) = (Vec::new(), Vec::new());
        for at in 0..self.lanes.len() {
            let processed = self.lanes.get(at).processed;
            for (tag, key) in self.flight(at) {
                match tag <= processed {
                    true => innocent.push(key),
                    false => open.push(key),
                }
            }
        }
        innocent.extend(self.judge(fault, open, now, fx));
        for at in 0..self.lanes.len() {
            let items = &self.items;
            let here = |key: &&Key| {
                let place = items.get(**key).map(|item| item.place);
                matches!(place, Some(Place::InFlight { lane, .. }) if lane == at)
            };
            let keys: Vec<Key> = innocent.iter().filter(here).copied().collect();
            self.resend(at, &keys);
        }
        self.lanes.dissolve();
        self.delays.doubt();
    }

    /// Shuts a lane: those whose latest attempt was in flight on it, in order.
    fn flight(&mut self, at: usize) -> Vec<(u64, Key)> {
        let attempts = self.lanes.get(at).shut();
        let latest = attempts.filter(|&(tag, attempt)| {
            let item = self.items.get(attempt.key);
            item.is_some_and(|item| item.place == (Place::InFlight { lane: at, tag }))
        });
        latest.map(|(tag, attempt)| (tag, attempt.key)).collect()
    }

    pub(super) fn finish(&mut self, key: Key, outcome: Outcome, fx: &mut Effects) {
        let Some(item) = self.remove(key) else {
            return;
        };
        fx.out.settled.push((item.owner, item.ticket, outcome));
        let hidden_next = outcome == Outcome::Refused(Cause::UserId);
        let of_intake = self.settings.intake == Some(item.owner);
        if hidden_next && of_intake {
            // Not its end: the intake hides the user-id and comes again.
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
        match (item.publication.purpose, outcome) {
            // It died once, and was counted then. Who sent it counts what became of it.
            (Purpose::Unpark | Purpose::Tail, _) => return,
            // It was sent away once, and counted then: this is the rest of its delay.
            (Purpose::Delay(_), Outcome::Confirmed) if of_intake => return,
            (Purpose::Delay(delay), _) => return fx.events.push(retried(delay)),
            // Who returned it has the original.
            (Purpose::Return, Outcome::Refused(_)) if !of_intake => {
                return fx.events.push(retried(Duration::ZERO));
            }
            (Purpose::Redrive, _) => {
                return fx.events.push(Event::Redriven {
                    queue: queue(),
                    outcome,
                });
            }
            (Purpose::Return, Outcome::Confirmed) => {
                return fx.events.push(Event::CameBack { queue: queue() });
            }
            (Purpose::Return | Purpose::Death | Purpose::Park(_), _) => {}
        }
        let dead = DeadLetter::of(item.publication, outcome);
        fx.events.push(Event::DeadLetter(Arc::new(dead)));
    }
}

/// Whether it is a publish that the broker refused.
fn is_publish(close: &Close<'_>) -> bool {
    (close.class, close.method) == (MethodId::BASIC_PUBLISH.0, MethodId::BASIC_PUBLISH.1)
}

/// Who is meant by the close of a channel.
fn blame(at: usize, close: &Close<'_>) -> Blame {
    let says = |words: &[u8]| memchr::memmem::find(close.text, words).is_some();
    if let Some(cause) = bridges::blame(close).or_else(|| delays::blame(close)) {
        return Blame::Exchange(cause);
    }
    // On its own channel or alone, all that is in flight goes to one exchange.
    let one_exchange = Lanes::has_one_exchange(at) || at == SUSPECTS;
    match close.code {
        403 if one_exchange && says(INTERNAL) => Blame::Internal,
        404 if one_exchange => Blame::Exchange(Cause::NoExchange),
        // A refused topic is a matter of the key: neighbours may have others.
        403 if at == SUSPECTS || one_exchange && !says(b"topic") => {
            Blame::Exchange(Cause::Forbidden)
        }
        406 if matches!(at, FOREIGN | SUSPECTS | PARKING) && says(b"user_id property") => {
            Blame::UserId
        }
        _ => Blame::OneOfThem,
    }
}
