//! How many messages a walk may hold at once: few at first, and more as it goes on. So what is found early, or limited to a few, takes few.
//!
//! A prefetch cannot be changed while its consumer is there. So a walk whose window is full cancels its consumer, which keeps what it holds, and
//! consumes again (S12.7). Nothing is on its way then (S12.6), and the tags sort by age, as a quorum queue puts back by consumers in the order of
//! their names: so the order stays.

use std::time::Duration;

use crate::amqp::ids::DeliveryTag;

use super::{Effects, LAST, QueueType, State, Walk};

/// The first window, where it is not known how many messages have to be passed.
pub(super) const FIRST: u64 = 16;
/// Each window is so many times larger than the one before.
pub(super) const FACTOR: u64 = 4;
const LARGEST: u64 = u16::MAX as u64;
/// So many consumers one after another: what more than 32 hold goes back to a quorum queue without an order (S12.7).
const MOST_CONSUMERS: u32 = 20;
/// A window has room for messages of so many octets in all, as far as those before it tell: a quorum queue sends that to the channel at once, and the
/// broker keeps it in memory until it is read.
const WINDOW_OCTETS: u64 = 128 << 20;
/// The broker has its usual time to answer at the end, and as much again for each so many messages that are held, ...
const AT_ONCE: u32 = 2_000;
const MOST_AWAITED: u64 = 100_000;

/// What the consumer of now may hold, and holds.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Its number on its channel.
    pub(super) number: u32,
    /// So many messages it may hold: its prefetch.
    room: u64,
    held: u64,
    /// The last delivery of the consumer before it.
    before: u64,
    last: u64,
    /// The broker is asked for it.
    pub(super) opens: bool,
}

// === impl Window ===

impl Window {
    fn of(room: u64) -> Window {
        Window {
            room,
            ..Window::default()
        }
    }

    /// As many as it may hold: none is on its way.
    pub(super) fn is_full(&self) -> bool {
        self.held >= self.room
    }

    /// So many may come, or are on their way.
    pub(super) fn awaited(&self) -> u64 {
        self.room.saturating_sub(self.held)
    }

    pub(super) fn shrink(&mut self, by: u64) {
        self.room = self.room.saturating_sub(by);
    }

    pub(super) fn came(&mut self, DeliveryTag(tag): DeliveryTag) {
        self.held += 1;
        self.last = tag;
    }

    /// A message is acked. Those of consumers before make no room. True: it does.
    pub(super) fn acked(&mut self, DeliveryTag(tag): DeliveryTag) -> bool {
        let makes_room = tag > self.before && self.held > 0;
        self.held -= u64::from(makes_room);
        makes_room
    }

    /// What the broker is told.
    pub(super) fn prefetch(&self) -> u16 {
        u16::try_from(self.room).unwrap_or(u16::MAX)
    }

    /// The name of its consumer.
    pub(super) fn tag(&self) -> Vec<u8> {
        format!("dlx-proxy-{:04}", self.number).into_bytes()
    }

    /// Room for so many more. Where messages are got, that is all.
    fn widen_gets(&mut self, room: u64) {
        *self = Window {
            before: self.last,
            last: self.last,
            ..Window::of(room)
        };
    }

    /// The same, for a consumer that the broker has yet to be asked for.
    fn widen(&mut self, room: u64) {
        let number = self.number + 1;
        self.widen_gets(room);
        (self.number, self.opens) = (number, true);
    }
}

impl Walk {
    /// Messages that it holds.
    pub(super) fn held(&self) -> u64 {
        self.delivered - self.acked
    }

    /// Octets of a message, on average.
    fn usual(&self) -> u64 {
        (self.octets / self.summary.taken.max(1)).max(1)
    }

    /// Octets of memory that the broker needs for what is held, about (S12.10).
    pub(super) fn weight(&self) -> u64 {
        let each = match self.summary.queue_type {
            QueueType::Quorum => 1 << 10,
            QueueType::Classic | QueueType::Stream => (3 << 10) + self.usual(),
        };
        self.held() * each
    }

    /// How long the broker may take to answer at the end: for each ack it looks through all that its channel holds, one after another.
    pub(super) fn patience(&self) -> Duration {
        let held = self.held().min(MOST_AWAITED) as u32;
        LAST * (1 + held / AT_ONCE)
    }

    /// Never more than there are: so none is on its way when the last of them was looked at.
    fn most_held(&self) -> u64 {
        let wanted = match &self.moving {
            _ if self.state == State::Passing => self.settings.bounds.held,
            None => self.settings.bounds.messages,
            Some(moving) => moving.most_held(),
        };
        let there = self.left().unwrap_or(u64::MAX);
        wanted.min(there).max(1)
    }

    /// The window that it begins with. A stream counts nothing and would begin anew with each consumer, so it gets the largest one.
    pub(super) fn first_window(&mut self, as_stream: bool) {
        let first = match &self.moving {
            _ if as_stream => LARGEST,
            None => FIRST,
            Some(moving) => moving.first_window(),
        };
        self.window = Window::of(first.min(self.most_held()).min(LARGEST));
    }

    /// So many consumers it has had, where their number counts.
    fn consumers_had(&self) -> u32 {
        match self.summary.queue_type {
            QueueType::Quorum => self.window.number,
            QueueType::Classic | QueueType::Stream => 0,
        }
    }

    /// It holds as many as it can, and they all stay.
    pub(super) fn has_no_room(&self) -> bool {
        let goes = self.moving.as_ref().is_some_and(|it| !it.is_settled());
        self.consumers_had() > MOST_CONSUMERS && self.window.is_full() && !goes
    }

    /// Opens the next window, if this one is full and more may be taken.
    pub(super) fn widen(&mut self, fx: &mut Effects) {
        let may = match self.state {
            State::Walking => self.paused.is_none(),
            State::Passing => true,
            _ => false,
        };
        if !may
            || self.window.opens
            || self.has_stash()
            || !self.window.is_full()
            || self.consumers_had() > MOST_CONSUMERS
            || self.summary.queue_type == QueueType::Stream
        {
            return;
        }
        let held = self.held();
        let more = match &self.moving {
            Some(moving) if self.state == State::Walking => moving.more(held),
            _ => held * (FACTOR - 1),
        };
        let left = self.settings.bounds.octets.saturating_sub(self.octets);
        let fits = (left.min(WINDOW_OCTETS) / self.usual()).max(1);
        let most = self.most_held().saturating_sub(held).min(LARGEST);
        let room = match self.consumers_had() >= MOST_CONSUMERS && more > 0 {
            true => fits.min(most),
            false => more.min(fits).min(most),
        };
        if room > 0 && self.gets {
            self.window.widen_gets(room);
            self.get_awaited(fx);
        } else if room > 0 {
            self.put_cancel(fx);
            self.window.widen(room);
            self.put_consume(false, fx);
        }
    }
}
