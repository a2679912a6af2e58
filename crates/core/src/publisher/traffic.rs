//! What goes over the channels: which item goes next, and how much may be on its way; what the broker says; and what has waited for too long.

use crate::amqp::frame::Kind;
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::link::{Frame, Link};
use crate::machine::{Cause, Event, Limit, Now, Outcome, Purpose};
use crate::objects::Names;
use crate::publisher::Effects;

use super::channel::{Attempt, Channel, State};
use super::delays::{self, Delays};
use super::item::{Item, Key, Place, Stage};
use super::outcomes::TIMED_OUT;
use super::returns::{self, Returning};
use super::{Publisher, away, bridges, edits};

/// Unconfirmed publications per channel, without late ones.
const MOST_IN_FLIGHT: usize = 2_048;
/// Bytes of unconfirmed publications on all channels, without late ones.
const MOST_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Attempts in the books of a channel, including abandoned ones that may be confirmed late.
pub(super) const MOST_BOOKED: usize = 1 << 18;
/// Bytes waiting for the socket; above this, publishing pauses.
const MOST_UNWRITTEN: usize = 1 << 20;
/// Publishes on one channel before the next one has its turn.
const TURN: usize = 64;

/// The last publish of a careful publisher. The next one waits until the broker has processed it,
/// so the cause of a lost connection is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    channel: usize,
    key: Option<(Key, u64)>,
}

// === impl Doubt ===

impl Doubt {
    fn next(self) -> usize {
        self.key.map_or(0, |_| self.channel + 1)
    }
}

// === impl Publisher ===

impl Publisher {
    pub(super) fn pump(&mut self, now: Now, fx: &mut Effects) {
        if !self.link.is_open() {
            return;
        }
        self.note_drained(now, fx);
        let mut progress = self.store.waiting > 0;
        while progress {
            progress = false;
            // Each time: what waited for a channel may have ended there, which leaves it to the next exchange.
            self.store.channels.assign(&self.store.items);
            let (len, first) = (self.store.channels.len(), self.doubt.next());
            for at in (0..len).map(|at| (first + at) % len) {
                for _ in 0..TURN {
                    if !self.send_next(at, now, fx) {
                        break;
                    }
                    progress = true;
                }
            }
        }
    }

    fn note_drained(&mut self, now: Now, fx: &Effects) {
        if fx.broker.buffered() == 0 {
            self.answers.drained = self.clock.at(now.mono);
        }
    }

    fn send_next(&mut self, at: usize, now: Now, fx: &mut Effects) -> bool {
        let in_doubt = self.doubt.key.is_some_and(|(key, tag)| {
            let processed = self.store.channels.look(self.doubt.channel).processed;
            tag > processed && self.store.is_in_flight(key, self.doubt.channel, tag)
        });
        let channel = self.store.channels.get(at);
        let Some(&key) = channel.waiting.front() else {
            return false;
        };
        let has_room = channel.in_flight - channel.late < MOST_IN_FLIGHT
            && channel.span() < MOST_BOOKED
            && self.store.in_flight_bytes < MOST_BYTES_IN_FLIGHT
            && fx.broker.buffered() < MOST_UNWRITTEN;
        if !has_room || in_doubt {
            return false;
        }
        if channel.state == State::Shut {
            channel.open(fx.broker.build(&[]));
        }
        if channel.state != State::Ready {
            return false;
        }
        channel.waiting.pop_front();
        let uptime = self.clock.at(now.mono);
        if !self.holds.hold(&mut self.store, key, uptime) {
            self.send(at, key, now, fx);
        }
        true
    }

    fn send(&mut self, at: usize, key: Key, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let frame_max = self.link.frame_max();
        let items = &mut self.store.items;
        // An old key: its item was confirmed by an attempt that had been given up.
        let Some(item) = items.get(key) else { return };
        let is_stamped = self.settings.is_stamped(&item.publication);
        let sent = edits::sent(item, frame_max, is_stamped, now.wall, &mut fx.events);
        if let Some(content) = sent {
            items.replace(key, content);
        }
        let Some(item) = items.get_mut(key) else {
            return;
        };
        let unproven = !self.provable && item.needs_proof(self.link.user());
        if item.foreign && self.foreign_refused || unproven {
            return self.refuse_user(key, fx);
        }
        if item.publication.content.header_frame() > frame_max {
            return self.finish(key, Outcome::Refused(Cause::TooBig), fx);
        }
        let retry_for = self.settings.limits.now().retry_for;
        let tried_for = item.since.map(|since| uptime.since(since));
        if tried_for.is_some_and(|tried_for| tried_for >= retry_for) {
            let cause = match self.holds.knows(item) {
                true => Cause::Poison,
                false => Cause::TimedOut,
            };
            return self.give_up(key, cause, now, fx);
        }
        let channel = self.store.channels.get(at);
        let out = fx.broker.build(&[]);
        let names = &self.settings.names;
        write(out, channel, item, names, &mut self.delays, &self.link);
        let tag = channel.book(Attempt::new(key, uptime, item.stage));
        item.since.get_or_insert(uptime);
        if !std::mem::replace(&mut item.sent, true) {
            item.waits = self.clock.stood(now.mono);
        }
        self.answers.sent = uptime;
        if self.settings.careful {
            // The next one need not wait for the confirm.
            channel.ask(fx.broker.build(&[]));
            let key = Some((key, tag));
            self.doubt = Doubt { channel: at, key };
        }
        self.store
            .move_to(key, Place::InFlight { channel: at, tag });
    }

    /// A frame on one of the publisher's channels.
    ///
    /// # Errors
    /// When the broker violates the protocol.
    pub(super) fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let Some(at) = self.store.channels.of(frame.channel) else {
            return Ok(());
        };
        let channel = self.store.channels.get(at);
        match (frame.kind, MethodId::peek(frame.payload)) {
            (Kind::Method, Some(id @ (MethodId::BASIC_ACK | MethodId::BASIC_NACK))) => {
                let confirm = Settle::parse(frame.payload)
                    .map_err(|_| "the broker sent a confirm that cannot be read")?;
                self.proven = true;
                let acked = id == MethodId::BASIC_ACK;
                while let Some((tag, attempt)) = self.store.channels.get(at).confirm(confirm) {
                    self.settle(at, tag, attempt, acked, now, fx);
                }
            }
            (Kind::Method, Some(MethodId::BASIC_RETURN)) => {
                let returning = Returning::parse(frame.payload)
                    .ok_or("the broker sent a return that cannot be read")?;
                channel.returning = Some(Incoming::new(returning));
            }
            (Kind::Method, Some(MethodId::CONFIRM_SELECT_OK)) => channel.answered(),
            (Kind::Method, Some(MethodId::CHANNEL_CLOSE)) => {
                self.channel_closed(at, frame, now, fx);
            }
            (Kind::Method, Some(MethodId::CHANNEL_FLOW)) => {
                let active = frame.payload.get(4).copied().unwrap_or(1);
                let out = fx.broker.build(&[]);
                reply::method(out, frame.channel, MethodId::CHANNEL_FLOW_OK, |a| {
                    a.octet(active).end()
                });
            }
            (Kind::Header, _) => {
                // Headers can be larger when they come back; bodies cannot.
                let limit = self.store.items.bytes() + frame.payload.len();
                let returning = channel.returning.as_mut();
                let fits = returning.map(|returning| returning.header(frame.payload, limit));
                if fits != Some(Ok(true)) {
                    return Err("the broker returned what was not published");
                }
                returns::mark(&mut self.store, at, self.settings.names.parking());
            }
            (Kind::Body, _) => {
                if let Some(returning) = &mut channel.returning {
                    returning.body(frame.payload);
                }
                returns::mark(&mut self.store, at, self.settings.names.parking());
            }
            (Kind::Method | Kind::Heartbeat | Kind::Other(_), _) => {}
        }
        Ok(())
    }

    pub(super) fn look(&mut self, now: Now, fx: &mut Effects) {
        self.note_drained(now, fx);
        let limits = self.settings.limits.now();
        let (patience, retry_for) = (limits.confirm_timeout / 4, limits.retry_for);
        drop(limits);
        if self.clock.runs() && self.link.last_heard().until(now.mono) >= patience {
            // A broker that says nothing at all: a broken link that nobody has noticed yet, or a broker that stands still. That is no target's
            // fault: it is asked, once, and time stands still until the next byte comes. The link's own silence ends that.
            self.clock.run(false, now.mono);
            self.store.channels.ask_all(fx.broker.build(&[]));
        }
        let uptime = self.clock.at(now.mono);
        self.store
            .channels
            .begin_later(self.answers.drained, uptime);
        if self.clock.runs() {
            let (store, out) = (&mut self.store, fx.broker.build(&[]));
            for key in self.answers.find_stalled(store, uptime, patience, out) {
                self.give_up(key, Cause::TargetBusy, now, fx);
            }
            self.overdue(now, fx);
        } else if !self.settings.careful {
            let stood = self.clock.stood(now.mono);
            self.refuse(fx, |item| {
                item.place != Place::Careful && stood.since(item.waits) >= away::patience(item)
            });
        }
        for (since, key) in self.holds.waiting() {
            let item = self.store.items.get(key);
            let Some(item) = item.filter(|item| item.place == Place::Held) else {
                continue;
            };
            if item.since.is_some_and(|of| uptime.since(of) >= retry_for) {
                self.give_up(key, Cause::Poison, now, fx);
            } else if item.late || uptime.since(since) < patience {
            } else if self.store.quota.is_full(item) && !item.stage.is_parking() {
                self.give_up(key, Cause::TargetBusy, now, fx);
            } else {
                self.store.set_late(key, true);
            }
        }
        for key in self.holds.probes(|since| uptime.since(since) >= patience) {
            let handed = self.holds.hand(&mut self.store, key, uptime);
            fx.out.careful.extend(handed);
        }
        let store = &self.store;
        self.holds.retain(|key| store.is_at(key, Place::Held));
        self.tick = None;
    }

    fn overdue(&mut self, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let limits = self.settings.limits.now();
        let (confirm_timeout, retry_for) = (limits.confirm_timeout, limits.retry_for);
        for at in 0..self.store.channels.len() {
            let old = |sent| uptime.since(sent) >= confirm_timeout;
            while let Some((tag, attempt)) = self.store.channels.get(at).next_due(old) {
                if !self.store.is_in_flight(attempt.key, at, tag) {
                    continue;
                }
                let Some(item) = self.store.items.get_mut(attempt.key) else {
                    continue;
                };
                fx.events.push(Event::LimitMet(Limit::ConfirmTimeout));
                let since = item.since.unwrap_or(uptime);
                if uptime.since(since) >= retry_for {
                    self.give_up(attempt.key, Cause::TimedOut, now, fx);
                } else {
                    let wait = TIMED_OUT * (1 << item.timeouts.min(3));
                    item.timeouts += 1;
                    self.store.back_off(attempt.key, wait, now);
                }
            }
            let (items, channel) = (&self.store.items, self.store.channels.get(at));
            channel.forget(|attempt| items.get(attempt.key).is_none());
            // Before one that nobody answers, in front of the books, holds up all that is behind it.
            while self.store.channels.get(at).span() > MOST_BOOKED / 2
                && let Some((tag, attempt)) = self.store.channels.get(at).drop_oldest()
            {
                if self.store.is_in_flight(attempt.key, at, tag) {
                    self.store.back_off(attempt.key, TIMED_OUT, now);
                }
            }
        }
    }
}

fn write(
    out: &mut Vec<u8>,
    channel: &mut Channel,
    item: &Item,
    names: &Names,
    delays: &mut Delays,
    link: &Link,
) {
    let publication = &item.publication;
    let exchange = item.exchange(item.stage, names.parking());
    if item.stage == Stage::Bridge && !channel.built {
        match delays::leads_to(names, publication) {
            Some(queue) => delays::lead_to(out, channel.id(), exchange, queue),
            None => bridges::build(out, channel.id(), exchange, &publication.exchange),
        }
        channel.built = true;
    }
    if let (Purpose::Delay(_), Stage::Target) = (publication.purpose, item.stage) {
        delays.build(&publication.routing_key, link.dialect(), out, channel.id());
    }
    reply::method(out, channel.id(), MethodId::BASIC_PUBLISH, |a| {
        a.short(0)
            .shortstr(exchange)
            .shortstr(&publication.routing_key)
            .octet(1)
            .end();
    });
    publication.content.put(out, channel.id(), link.frame_max());
}
