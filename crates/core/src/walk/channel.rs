//! The channel of a walk: what is said on it, and which messages it holds.
//!
//! A queue that is deleted with its last consumer (`auto-delete`) must not have its last one in a walk. `basic.get` is no consumer, so there the
//! messages are got, as many at once as the window has room for (S12.8).

use std::collections::VecDeque;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::amqp::{CONSUMER_TIMEOUT, STREAM_OFFSET};
use crate::mover::Delivery;

use super::rights::QUESTIONS;
use super::window::Window;
use super::{LAST, QueueType};

pub(super) const UNREADABLE: &str = "the broker sent what cannot be read";
/// RabbitMQ's default, which a walk asks for where it may: then no shorter `consumer_timeout` ends it.
const HOLDS: Duration = Duration::from_secs(30 * 60);
/// An argument that only a stream may have: the broker compares it with no other queue, and makes none that has it (S7.3).
const ONLY_STREAMS: &[u8] = b"x-max-age";
/// No more is read for the sake of an answer when so many octets have come before it, and cannot be taken now.
const MOST_STASHED: usize = 16 << 20;
/// So many consumers one after another: what more than 32 hold goes back to a quorum queue without an order (S12.7).
const MOST_CONSUMERS: u32 = 20;
/// The broker has its usual time to answer at the end, and as much again for each so many messages that are held, ...
const AT_ONCE: u32 = 2_000;
/// ... up to so many.
const MOST_AWAITED: u64 = 100_000;

#[derive(Debug)]
pub(super) struct Channel {
    queue: ShortStr,
    /// Each refusal closes one.
    number: u16,
    pub(super) queue_type: QueueType,
    pub(super) window: Window,
    /// It gets messages, and does not consume them.
    pub(super) gets: bool,
    /// For so many more there is room since messages were asked for.
    room: u64,
    /// Messages that have come, and were not looked at.
    waiting: VecDeque<Delivery>,
    /// Octets of these.
    stashed: usize,
    /// Messages that came, and those that were acked, since it holds what it holds.
    pub(super) delivered: u64,
    pub(super) acked: u64,
    /// All that ever came, and its octets.
    pub(super) taken: u64,
    pub(super) octets: u64,
    /// The last message had been somebody's before.
    pub(super) last_had_come_back: bool,
}

// === impl Channel ===

impl Channel {
    pub(super) fn new(queue: ShortStr) -> Channel {
        Channel {
            queue,
            number: 0,
            queue_type: QueueType::default(),
            window: Window::default(),
            gets: false,
            room: 0,
            waiting: VecDeque::new(),
            stashed: 0,
            delivered: 0,
            acked: 0,
            taken: 0,
            octets: 0,
            last_had_come_back: false,
        }
    }

    pub(super) fn id(&self) -> ChannelId {
        ChannelId(self.number)
    }

    // --- what is said

    pub(super) fn open(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        if self.id() == QUESTIONS {
            self.number += 1;
        }
        reply::channel_open(out, self.id());
    }

    /// How many messages are there?
    pub(super) fn count(&self, out: &mut Vec<u8>) {
        reply::declare_queue(out, self.id(), &self.queue, QueueDeclare::PASSIVE, &[]);
    }

    /// Is it a queue that stays without consumers? The broker compares `durable` first, then `auto_delete`.
    pub(super) fn compare(&self, durable: bool, out: &mut Vec<u8>) {
        let mut arguments = TableBuilder::default();
        arguments.longstr(ONLY_STREAMS, b"never");
        let bits = u8::from(durable) * QueueDeclare::DURABLE;
        reply::declare_queue(out, self.id(), &self.queue, bits, &arguments.finish());
    }

    /// `as_stream`: what is none refuses that, and says what it is (S12.4). `long`: the queue may have a shorter timeout of its own.
    pub(super) fn consume(&self, as_stream: bool, long: bool, out: &mut Vec<u8>) {
        let mut arguments = TableBuilder::default();
        if as_stream {
            arguments.longstr(STREAM_OFFSET, b"first");
        } else if long {
            arguments.long(CONSUMER_TIMEOUT, HOLDS.as_millis() as i64);
        }
        reply::qos(out, self.id(), self.window.prefetch());
        let (tag, arguments) = (self.window.tag(), arguments.finish());
        reply::consume(out, self.id(), &self.queue, &tag, &arguments);
    }

    pub(super) fn cancel(&self, out: &mut Vec<u8>) {
        reply::cancel(out, self.id(), &self.window.tag());
    }

    /// Behind all acks: the channel may hold some of them back, but not behind this question (S9.1).
    pub(super) fn ask_for_acks(&self, out: &mut Vec<u8>) {
        reply::qos(out, self.id(), 1);
    }

    pub(super) fn get(&self, messages: u64, out: &mut Vec<u8>) {
        for _ in 0..messages {
            reply::get(out, self.id(), &self.queue);
        }
    }

    /// Where messages are got: as many in the place of those that have gone, but no more than there are.
    pub(super) fn get_more(&mut self, there: u64, out: &mut Vec<u8>) {
        let room = std::mem::take(&mut self.room);
        if self.gets {
            let on_their_way = self.window.awaited().saturating_sub(room);
            let more = room.min(there.saturating_sub(self.delivered + on_their_way));
            self.get(more, out);
            self.window.shrink(room - more);
        }
    }

    /// No message comes any more: all go back to their places.
    pub(super) fn put_back(&self, harmless: bool, out: &mut Vec<u8>) {
        if harmless {
            reply::nack(out, self.id(), DeliveryTag(0), true, true);
        }
        reply::close(out, self.id(), 200, b"Goodbye", MethodId(0, 0));
    }

    // --- what comes

    pub(super) fn came(&mut self, delivery: Delivery) {
        self.delivered += 1;
        self.taken += 1;
        self.octets += delivery.whole();
        self.window.came(delivery.tag);
        self.last_had_come_back = delivery.redelivered;
        self.stashed += delivery.octets();
        self.waiting.push_back(delivery);
    }

    /// One is acked.
    pub(super) fn acked(&mut self, tag: u64) {
        self.acked += 1;
        self.room += u64::from(self.window.acked(tag));
    }

    /// The oldest message that was not looked at.
    pub(super) fn next(&mut self) -> Option<Delivery> {
        let whole = self.waiting.pop_front()?;
        self.stashed -= whole.octets();
        Some(whole)
    }

    /// Messages are there that were not looked at.
    pub(super) fn has_next(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// There is room for more of them.
    pub(super) fn has_room(&self) -> bool {
        self.stashed < MOST_STASHED
    }

    /// None of them is wanted any more.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.stashed = 0;
    }

    // --- what it holds

    pub(super) fn held(&self) -> u64 {
        self.delivered - self.acked
    }

    /// It holds as many as it can.
    pub(super) fn has_no_room(&self) -> bool {
        self.consumers_left().is_none() && self.window.is_full()
    }

    /// Octets of a message, on average.
    pub(super) fn usual(&self) -> u64 {
        (self.octets / self.taken.max(1)).max(1)
    }

    /// Octets of memory that the broker needs for what is held, about (S12.10).
    pub(super) fn weight(&self) -> u64 {
        let each = match self.queue_type {
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

    /// Consumers that it may still have after this one, where their number counts. `None`: this one is one too many already.
    pub(super) fn consumers_left(&self) -> Option<u32> {
        match self.queue_type {
            QueueType::Quorum => MOST_CONSUMERS.checked_sub(self.window.number),
            QueueType::Classic | QueueType::Stream => Some(MOST_CONSUMERS),
        }
    }
}
