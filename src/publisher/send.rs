//! The way out: which item goes next, on which channel, and how much may be on its way.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::dead_letter::{delivery_time, private, rejected_by};
use crate::machine::{Cause, Event, Now, Outcome, Purpose};
use crate::publisher::Effects;

use super::clock::Uptime;
use super::item::{Items, Key, Place, Stage};
use super::lane::Attempt;
use super::lanes::SUSPECTS;
use super::{Publisher, bridges, delays};

/// Unconfirmed publications of one channel, but for those that are late.
const MOST_IN_FLIGHT: usize = 2_048;
/// Octets of unconfirmed publications on all channels, but for those that are late.
const MOST_BYTES_IN_FLIGHT: usize = 64 << 20;
/// Attempts in the books of one channel, with those that were given up and may be confirmed late.
pub(super) const MOST_BOOKED: usize = 1 << 18;
/// Octets that wait for the socket; more is written when it has taken them.
const MOST_UNWRITTEN: usize = 1 << 20;
/// How many go out on one channel before another has its turn.
const TURN: usize = 64;

impl Publisher {
    /// Publishes what waits, as far as the bounds allow.
    pub(super) fn pump(&mut self, now: Now, fx: &mut Effects) {
        if !self.is_reachable() {
            return;
        }
        self.take_turns(now, fx);
        if self.quarantine.turn.is_none() {
            self.send_all(now, fx);
        }
    }

    fn send_all(&mut self, now: Now, fx: &mut Effects) {
        let mut progress = self.books.waiting > 0;
        while progress {
            progress = false;
            // Each time: what waited for a lane may have ended there, which leaves it to the next exchange.
            self.lanes.assign(&self.items);
            for at in 0..self.lanes.len() {
                for _ in 0..TURN {
                    if !self.send_next(at, now, fx) {
                        break;
                    }
                    progress = true;
                }
            }
        }
    }

    /// One publish on that lane, if one waits and nothing is in its way.
    fn send_next(&mut self, at: usize, now: Now, fx: &mut Effects) -> bool {
        let Some(&key) = self.lanes.get(at).waiting.front() else {
            return false;
        };
        if !self.has_room(at, fx) || !self.is_open_lane(at, fx) {
            return false;
        }
        self.lanes.get(at).waiting.pop_front();
        if !self.is_held(key, now, fx) {
            self.send(at, key, now, fx);
        }
        true
    }

    /// Whether one more may be on its way there.
    pub(super) fn has_room(&mut self, at: usize, fx: &Effects) -> bool {
        if at == SUSPECTS && !self.is_processed(SUSPECTS) {
            return false;
        }
        let lane = self.lanes.get(at);
        lane.in_flight - lane.late < MOST_IN_FLIGHT
            && lane.span() < MOST_BOOKED
            && self.books.in_flight_bytes < MOST_BYTES_IN_FLIGHT
            && fx.broker.buffered() < MOST_UNWRITTEN
    }

    pub(super) fn send(&mut self, at: usize, key: Key, now: Now, fx: &mut Effects) {
        let uptime = self.clock.at(now.mono);
        let frame_max = self.link.frame_max();
        self.fit(key, frame_max, fx);
        self.set_delivery_time(key, now, fx);
        // An old key: its item was confirmed by an attempt that had been given up.
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        let retry_for = self.settings.limits.now().retry_for;
        let exhausted = |since: Uptime| uptime.since(since) >= retry_for;
        let unproven = !self.provable && item.needs_proof(self.link.user());
        if item.foreign && self.foreign_refused || unproven {
            return self.refuse_user(key, fx);
        }
        if item.publication.content.header_frame() > frame_max {
            return self.finish(key, Outcome::Refused(Cause::TooBig), fx);
        }
        if item.since.is_some_and(exhausted) {
            return self.give_up(key, Cause::TimedOut, now, fx);
        }
        let lane = self.lanes.get(at);
        let publication = &item.publication;
        let exchange = item.exchange(item.stage, self.settings.names.parking());
        let out = fx.broker.build(&[]);
        // Alone, each has its own bridge.
        if item.stage == Stage::Bridge && (at == SUSPECTS || !lane.built) {
            match delays::leads_to(&self.settings.names, publication) {
                Some(queue) => delays::lead_to(out, lane.channel(), exchange, queue),
                None => bridges::build(out, lane.channel(), exchange, &publication.exchange),
            }
            lane.built = true;
        }
        if let (Purpose::Delay(_), Stage::Target) = (publication.purpose, item.stage) {
            let (key, dialect) = (&publication.routing_key, self.link.dialect());
            self.delays.build(key, dialect, out, lane.channel());
        }
        reply::method(out, lane.channel(), MethodId::BASIC_PUBLISH, |a| {
            a.short(0)
                .shortstr(exchange)
                .shortstr(&publication.routing_key)
                .octet(1)
                .end();
        });
        publication.content.put(out, lane.channel(), frame_max);

        let tag = lane.book(Attempt::new(key, uptime, item.stage));
        item.since.get_or_insert(uptime);
        if !std::mem::replace(&mut item.sent, true) {
            item.waits = self.clock.stood(now.mono);
        }
        self.sent = uptime;
        if at == SUSPECTS {
            // The next one need not wait for the confirm.
            lane.ask(fx.broker.build(&[]));
        }
        self.move_to(key, Place::InFlight { lane: at, tag });
    }

    /// Rather no word of who rejected it, and no private history, than a dead letter that nobody can publish.
    fn fit(&mut self, key: Key, frame_max: usize, fx: &mut Effects) {
        let too_large = |items: &Items| {
            let content = &items.get(key)?.publication.content;
            (content.header_frame() > frame_max).then(|| content.clone())
        };
        let Some(Content { properties, body }) = too_large(&self.items) else {
            return;
        };
        if self.is_stamped(key)
            && let Some(properties) = rejected_by::without(&properties)
        {
            self.items.replace(key, Content { properties, body });
            fx.events.push(Event::EditDropped);
        }
        if let Some(Content { properties, body }) = too_large(&self.items)
            && let Some(properties) = private::without_history(&properties)
        {
            self.items.replace(key, Content { properties, body });
        }
    }

    /// A header that lets the broker hold a message acts at its target, and in no queue of the proxy's own.
    fn set_delivery_time(&mut self, key: Key, now: Now, fx: &mut Effects) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let Content { properties, body } = &item.publication.content;
        let edited = match item.stays_ours() {
            true => delivery_time::set_aside(properties),
            false => delivery_time::for_target(properties, now.wall).map(|edited| {
                if edited.too_far {
                    let queue = item.publication.queue.clone();
                    fx.events.push(Event::DeliveryTimeDropped { queue });
                }
                edited.properties
            }),
        };
        if let Some(properties) = edited {
            let body = body.clone();
            self.items.replace(key, Content { properties, body });
        }
    }

    /// Whether the proxy has written into it who rejected its message. A header of that name that it did not write stays.
    pub(super) fn is_stamped(&self, key: Key) -> bool {
        let item = self.items.get(key);
        let is_rejected = item.is_some_and(|item| item.publication.by.is_some());
        is_rejected && self.settings.limits.now().stamp
    }

    /// Takes out all that waits for a lane, in order.
    pub(super) fn unqueue(&mut self, at: usize) -> Vec<Key> {
        let mut keys: Vec<Key> = std::mem::take(&mut self.lanes.get(at).waiting).into();
        keys.retain(|&key| self.items.get(key).is_some());
        for &key in &keys {
            self.move_to(key, Place::BackingOff);
        }
        keys
    }

    /// Lets an item wait behind all others of its lane.
    pub(super) fn enqueue(&mut self, key: Key) {
        self.move_to(key, Place::Waiting);
        self.lanes.enqueue(key, &self.items);
    }

    /// Lets items wait in front of all others of a lane, in their order.
    pub(super) fn resend(&mut self, at: usize, keys: &[Key]) {
        for &key in keys.iter().rev() {
            self.move_to(key, Place::Waiting);
            self.lanes.get(at).waiting.push_front(key);
        }
    }

    /// Lets items wait in front of all others, in their order.
    pub(super) fn enqueue_in_front(&mut self, keys: &[Key]) {
        for &key in keys.iter().rev() {
            self.move_to(key, Place::Waiting);
            self.lanes.enqueue_in_front(key, &self.items);
        }
    }

    /// Lets an item wait before its next attempt. It closed nothing, so it is no suspect.
    pub(super) fn back_off(&mut self, key: Key, wait: Duration, now: Now) {
        self.move_to(key, Place::BackingOff);
        self.set_late(key, true);
        if let Some(item) = self.items.get_mut(key) {
            item.suspect = false;
            self.backing_off.insert((now.mono.after(wait), key));
        }
    }

    pub(super) fn try_again(&mut self, key: Key) {
        if self.items.get(key).map(|item| item.place) == Some(Place::BackingOff) {
            self.enqueue(key);
        }
    }
}
