//! A backlog on its way: out of the queue to one where it waits aside, or back.
//!
//! ```text
//! delivered ─▶ published with the same number ─▶ confirmed ─▶ acked ─▶ ... the queue counts none, all are confirmed ─▶ cancelled ─▶ got, until there is none
//! ```
//! It has a channel of its own, on which deliveries and publishes are counted from 1: so a confirm names the delivery. A message is in one of both
//! queues at least, at any time. What is on its way when the proxy is killed may be in both.

use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclareOk, Settle};
use crate::amqp::reply;
use crate::amqp::reply_code::{REPLY_SUCCESS, RESOURCE_LOCKED};
use crate::amqp::version::Version;
use crate::dead_letter::Rules;
use crate::dead_letter::aside::{self, Delivered};
use crate::link::Frame;
use crate::machine::Now;
use crate::mover::{Delivery, Keep, Mover};

use super::steps::{TAG, consume};
use super::{Alteration, Aside, Effects, Failure, Made, SLOW, State, Task, Told, Word};

/// Without a confirm.
const STALLS: Duration = Duration::from_secs(5);
/// Messages on their way at a time, when it is not known how large they are.
const WINDOW: u16 = 50;
const UNREADABLE: &str = "a message cannot be moved: its properties are malformed or too large";
const REFUSED: &str = "a message was refused there";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    Back,
}

#[derive(Debug)]
pub(super) struct Moving {
    channel: ChannelId,
    mover: Mover<()>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Consuming,
    Cancelling,
    /// Gets what the consumer has left, one by one: only the answer that there is none comes from the queue itself.
    Getting,
    Asking,
    Empty,
}

// === impl Moving ===

impl Moving {
    fn begin(channel: ChannelId, from: &[u8], window: u16, fx: &mut Effects) -> Moving {
        let out = fx.broker.build(&[]);
        reply::method(out, channel, MethodId::CONFIRM_SELECT, |a| {
            a.octet(0).end();
        });
        reply::qos(out, channel, window);
        consume(channel, from, TAG, 0, &[], fx);
        Moving {
            channel,
            mover: Mover::new(channel, 0),
            stage: Stage::Consuming,
        }
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Empty && self.mover.is_idle()
    }

    fn get(&mut self, from: &[u8], fx: &mut Effects) {
        if self.stage == Stage::Getting && self.mover.is_idle() {
            self.stage = Stage::Asking;
            reply::get(fx.broker.build(&[]), self.channel, from);
        }
    }

    /// Acks what is confirmed; returns how many.
    fn confirmed(&mut self, payload: &[u8], fx: &mut Effects) -> Result<u32, &'static str> {
        let confirm = Settle::parse(payload);
        let confirm = confirm.map_err(|_| "the broker sent a confirm that cannot be read")?;
        let last = confirm.delivery_tag.0;
        let held = self.mover.held().map(|(held, _)| held);
        let done = held.take_while(|held| *held <= last);
        let done = done.filter(|held| confirm.multiple || *held == last);
        for tag in done.collect::<Vec<_>>() {
            self.mover.ack(tag);
        }
        Ok(self.mover.flush(fx))
    }
}

impl Alteration {
    /// Whether what is ready is to be moved now: nobody reads it, or not fast enough.
    pub(super) fn may_move(&self, ok: QueueDeclareOk<'_>, now: Now) -> bool {
        let nobody_reads = ok.consumer_count == 0;
        (nobody_reads || now.mono >= self.moves_from)
            && ok.message_count <= self.most_moved()
            && !self.link.is_blocked()
    }

    pub(super) fn most_moved(&self) -> u32 {
        match self.settings.task {
            Task::Alter { backlog, .. } => backlog.most,
            Task::Finish | Task::Follow => 0,
        }
    }

    pub(super) fn begin_moving(&mut self, way: Way, now: Now, fx: &mut Effects) {
        let window = match self.settings.task {
            Task::Alter { backlog, .. } => backlog.window,
            Task::Finish | Task::Follow => WINDOW,
        };
        self.backlog = Aside::MayWait;
        let from = self.moved_from(way);
        self.open(fx);
        self.moving = Some(Moving::begin(self.channel, &from, window, fx));
        self.open(fx);
        self.goes_on(now);
        self.look_again(now, fx);
    }

    fn moved_from(&self, way: Way) -> ShortStr {
        match way {
            Way::Out => self.order().name(),
            Way::Back => self.aside(),
        }
    }

    fn goes_on(&mut self, now: Now) {
        self.until = Some(now.mono.after(STALLS));
    }

    /// Asks how many are left; and tells the others that it is at work.
    pub(super) fn look_again(&mut self, now: Now, fx: &mut Effects) {
        self.ask_at = Some(now.mono.after(SLOW));
        self.ask(fx);
        fx.out.swap.push(Told::Moving);
        self.say(Word::Told(Told::Moving), fx);
    }

    /// A frame of its channel.
    pub(super) fn moves(
        &mut self,
        mut moving: Moving,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(), &'static str> {
        let State::Moving(way) = self.state else {
            return Ok(());
        };
        match frame.method() {
            Some(MethodId::BASIC_ACK) => {
                let acked = moving.confirmed(frame.payload, fx)?;
                if way == Way::Back {
                    self.altered.moved += u64::from(acked);
                }
                self.goes_on(now);
            }
            Some(MethodId::BASIC_CANCEL_OK | MethodId::BASIC_GET_OK) => {
                moving.stage = Stage::Getting;
            }
            Some(MethodId::BASIC_GET_EMPTY) => moving.stage = Stage::Empty,
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                let is_single = code == RESOURCE_LOCKED && moving.stage == Stage::Asking;
                match way {
                    Way::Out if is_single => self.enter(State::Proving { last: true }, now, fx),
                    Way::Out | Way::Back => self.refused(code, text, now, fx),
                }
                return Ok(());
            }
            Some(MethodId::BASIC_NACK | MethodId::BASIC_RETURN | MethodId::BASIC_CANCEL) => {
                self.moving = Some(moving);
                self.cannot_move(REFUSED, way, now, fx);
                return Ok(());
            }
            _ => {}
        }
        let delivery = moving.mover.frame(frame, Keep::Whole)?;
        let passes = delivery.is_none_or(|of| self.passes_on(of, &mut moving, way, now, fx));
        match moving.is_over() {
            _ if !passes => {
                self.moving = Some(moving);
                self.cannot_move(UNREADABLE, way, now, fx);
            }
            false => {
                moving.get(&self.moved_from(way), fx);
                self.moving = Some(moving);
            }
            true if way == Way::Back => self.moved_back(Aside::Empty, now, fx),
            true => self.enter(State::Deleting, now, fx),
        }
        Ok(())
    }

    /// False: it cannot be moved.
    fn passes_on(
        &self,
        mut delivery: Delivery,
        moving: &mut Moving,
        way: Way,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        let queue = self.order().name();
        let rules = self.rules();
        let user = self.link.user();
        let counted = self.order().quorum && delivery.redelivered;
        let Some(content) = delivery.content() else {
            return false;
        };
        let version = self.link.version();
        let (to, moved) = match way {
            Way::Out => {
                let delivered = Delivered {
                    queue: &queue,
                    exchange: &delivery.exchange,
                    routing_key: &delivery.routing_key,
                    content: &content,
                    acquired: version.is_some_and(|version| version >= Version(4, 3, 0)),
                    counted,
                };
                let moved = aside::aside(delivered, &rules, user, now.wall);
                (self.aside(), moved)
            }
            Way::Back => {
                let moved = aside::back(&content, &rules, user, now.wall);
                (queue, moved)
            }
        };
        let Some(content) = moved
            .ok()
            .filter(|of| of.header_frame() <= self.link.frame_max())
        else {
            return false;
        };
        let out = fx.broker.build(&[]);
        reply::publish(out, moving.channel, &ShortStr::EMPTY, &to, true);
        content.put(out, moving.channel, self.link.frame_max());
        moving.mover.hold(delivery.tag, 0, now.mono, ());
        true
    }

    fn rules(&self) -> Rules {
        let rules = self.settings.rules;
        rules.at(self.link.dialect(), usize::MAX, false)
    }

    /// The number of those that are left has come.
    pub(super) fn is_moved(&mut self, is_empty: bool, fx: &mut Effects) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        if is_empty && moving.mover.is_idle() && moving.stage == Stage::Consuming {
            moving.stage = Stage::Cancelling;
            reply::cancel(fx.broker.build(&[]), moving.channel, TAG);
        }
    }

    /// What is on its way goes back to where it was.
    pub(super) fn end_moving(&mut self, fx: &mut Effects) {
        if let Some(moving) = self.moving.take() {
            let out = fx.broker.build(&[]);
            reply::close(out, moving.channel, REPLY_SUCCESS, b"", MethodId(0, 0));
        }
    }

    fn cannot_move(&mut self, why: &str, way: Way, now: Now, fx: &mut Effects) {
        match way {
            Way::Out => self.undo(why.to_owned(), now, fx),
            Way::Back => self.stays_aside(why.to_owned(), now, fx),
        }
    }

    /// The queue is there with all its messages.
    pub(super) fn moved_back(&mut self, backlog: Aside, now: Now, fx: &mut Effects) {
        self.backlog = backlog;
        match self.altered.made != Made::Stays || self.settings.task == Task::Finish {
            true => self.clean(now, fx),
            false => self.rest(now, fx),
        }
    }

    pub(super) fn stays_aside(&mut self, why: String, now: Now, fx: &mut Effects) {
        self.leave(Failure::Aside(why, self.aside()), now, fx);
    }
}
