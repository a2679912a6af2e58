//! The way out: which item goes next, on which channel, and how much may be on its way.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::dead_letter::private;
use crate::machine::{Cause, Effects, Now, Outcome};

use super::clock::Uptime;
use super::item::{Key, Place, Stage};
use super::lane::{Attempt, State};
use super::lanes::ALONE;
use super::{Publisher, TICK, bridges};

/// Unconfirmed publications of one channel, but for those that are late.
const MOST_FLYING: usize = 2_048;
/// Octets of unconfirmed publications on all channels, but for those that are late.
const MOST_BYTES_FLYING: usize = 64 << 20;
/// Attempts in the books of one channel, with those that were given up and may be confirmed late.
pub(super) const MOST_BOOKED: usize = 1 << 18;
/// Octets that wait for the socket; more is written when it has taken them.
const MOST_UNWRITTEN: usize = 1 << 20;
/// How many go out on one channel before another has its turn.
const TURN: usize = 64;

impl Publisher {
    /// Publishes what waits, as far as the bounds allow.
    pub(super) fn pump(&mut self, now: Now, fx: &mut Effects) {
        if self.careful && self.lanes.get(ALONE).is_idle() {
            self.careful = false;
        }
        if self.waiting == 0 || !self.is_reachable() {
            return;
        }
        let uptime = self.clock.at(now.mono);
        let mut progress = true;
        while progress {
            progress = false;
            // Each time: what waited for a lane may have ended there, which leaves it to the next exchange.
            self.lanes.assign(&self.items);
            for at in 0..self.lanes.len() {
                for _ in 0..TURN {
                    if !self.send_next(at, uptime, fx) {
                        break;
                    }
                    progress = true;
                }
            }
        }
        if self.flying > 0 && self.tick.is_none() {
            self.tick = Some(now.mono.after(TICK));
        }
    }

    /// One publish on that lane, if one waits and nothing is in its way.
    fn send_next(&mut self, at: usize, uptime: Uptime, fx: &mut Effects) -> bool {
        let lane = self.lanes.get(at);
        let Some(&key) = lane.waiting.front() else {
            return false;
        };
        let most = if at == ALONE { 1 } else { MOST_FLYING };
        if (self.careful && at != ALONE)
            || lane.flying - lane.late >= most
            || lane.span() >= MOST_BOOKED
            || self.flying_bytes >= MOST_BYTES_FLYING
            || fx.broker.buffered() >= MOST_UNWRITTEN
        {
            return false;
        }
        match lane.state {
            State::Ready => {}
            State::Opening => return false,
            State::Shut => {
                lane.open(fx.broker.build(&[]));
                return false;
            }
        }
        lane.waiting.pop_front();
        self.send(at, key, uptime, fx);
        true
    }

    fn send(&mut self, at: usize, key: Key, uptime: Uptime, fx: &mut Effects) {
        let frame_max = self.link.frame_max();
        self.fit(key, frame_max);
        // An old key: its item was confirmed by an attempt that had been given up.
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        let retry_for = self.settings.limits.now().retry_for;
        let exhausted = |since: Uptime| uptime.since(since) >= retry_for;
        if item.foreign && self.foreign_refused {
            return self.finish(key, Outcome::Refused(Cause::UserId), fx);
        }
        if item.publication.content.header_frame() > frame_max {
            return self.finish(key, Outcome::Refused(Cause::TooBig), fx);
        }
        if item.since.is_some_and(exhausted) {
            self.waiting -= 1;
            item.place = Place::Resting;
            return self.give_up(key, Cause::TimedOut, fx);
        }
        let lane = self.lanes.get(at);
        let publication = &item.publication;
        let exchange = item.exchange(item.stage, &self.settings.parking);
        let out = fx.broker.build(&[]);
        // Alone, each has its own bridge.
        if item.stage == Stage::Bridge && (at == ALONE || !lane.built) {
            bridges::build(out, lane.channel(), exchange, &publication.exchange);
            lane.built = true;
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
        lane.flying += 1;
        item.place = Place::Flying { lane: at, tag };
        item.since.get_or_insert(uptime);
        self.sent = uptime;
        self.waiting -= 1;
        self.flying += 1;
        if item.takes_room(at) {
            self.flying_bytes += item.len();
        } else {
            lane.late += 1;
        }
    }

    /// Rather no private history than a dead letter that nobody can publish.
    fn fit(&mut self, key: Key, frame_max: usize) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let content = &item.publication.content;
        if content.header_frame() > frame_max
            && let Some(properties) = private::without_history(&content.properties)
        {
            let body = content.body.clone();
            self.items.replace(key, Content { properties, body });
        }
    }

    /// Takes out all that waits for a lane, in order.
    pub(super) fn unqueue(&mut self, at: usize) -> Vec<Key> {
        let mut keys: Vec<Key> = std::mem::take(&mut self.lanes.get(at).waiting).into();
        keys.retain(|&key| {
            let item = self.items.get_mut(key);
            item.map(|item| item.place = Place::Resting).is_some()
        });
        self.waiting -= keys.len();
        keys
    }

    /// Takes an item out of the flight. Its attempt stays in the books: a late confirm still counts.
    pub(super) fn land(&mut self, key: Key) {
        if let Some(item) = self.items.get_mut(key)
            && let Place::Flying { lane, .. } = item.place
        {
            item.place = Place::Resting;
            self.flying -= 1;
            let room = item.takes_room(lane);
            let lane = self.lanes.get(lane);
            lane.flying -= 1;
            if room {
                self.flying_bytes -= item.len();
            } else {
                lane.late -= 1;
            }
        }
    }

    /// Lets an item wait behind all others of its lane.
    pub(super) fn enqueue(&mut self, key: Key) {
        self.land(key);
        if let Some(item) = self.items.get_mut(key) {
            item.place = Place::Waiting;
            self.waiting += 1;
            self.lanes.enqueue(key, &self.items);
        }
    }

    /// Lets items wait in front of all others of a lane, in their order.
    pub(super) fn resend(&mut self, at: usize, keys: &[Key]) {
        for &key in keys.iter().rev() {
            self.land(key);
            if let Some(item) = self.items.get_mut(key) {
                item.place = Place::Waiting;
                self.waiting += 1;
                self.lanes.get(at).waiting.push_front(key);
            }
        }
    }

    /// Lets an item rest before its next attempt. It closed nothing, so it is no suspect.
    pub(super) fn rest(&mut self, key: Key, wait: Duration, now: Now) {
        self.land(key);
        if let Some(item) = self.items.get_mut(key) {
            item.suspect = false;
            if !std::mem::replace(&mut item.late, true) {
                self.window.enter(item);
            }
            self.resting.insert((now.mono.after(wait), key));
        }
    }

    /// Its rest is over.
    pub(super) fn rested(&mut self, key: Key) {
        if self.items.get(key).map(|item| item.place) == Some(Place::Resting) {
            self.enqueue(key);
        }
    }
}
