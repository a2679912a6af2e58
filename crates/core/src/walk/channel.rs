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
/// RabbitMQ's default, requested where possible, so that a shorter `consumer_timeout` does not end
/// the walk.
const HOLDS: Duration = Duration::from_secs(30 * 60);
/// A stream-only argument: the broker compares it with no other queue, and makes none that has it
/// (S7.3).
const ONLY_STREAMS: &[u8] = b"x-max-age";
/// Limit of bytes before a pending answer, if they cannot be processed now.
const MOST_STASHED: usize = 16 << 20;
/// Consumers per walk: a quorum queue requeues messages of more than 32 consumers without an order
/// (S12.7).
const MOST_CONSUMERS: u32 = 20;
/// Messages held per unit of the broker's timeout at the end, ...
const AT_ONCE: u32 = 2_000;
/// ... up to this number.
const MOST_AWAITED: u64 = 100_000;

#[derive(Debug)]
pub(super) struct Channel {
    queue: ShortStr,
    /// Each refusal closes a channel.
    number: u16,
    pub(super) queue_type: QueueType,
    pub(super) window: Window,
    /// Uses `basic.get` instead of a consumer.
    pub(super) gets: bool,
    /// Free room since the last request.
    room: u64,
    waiting: VecDeque<Delivery>,
    stashed: usize,
    /// Deliveries and acks since it holds its messages.
    pub(super) delivered: u64,
    pub(super) acked: u64,
    pub(super) taken: u64,
    pub(super) bytes: u64,
    /// The last message was redelivered.
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
            bytes: 0,
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

    pub(super) fn count(&self, out: &mut Vec<u8>) {
        reply::declare_queue(out, self.id(), &self.queue, QueueDeclare::PASSIVE, &[]);
    }

    /// Does the queue stay without consumers? The broker compares `durable` first, then
    /// `auto_delete`.
    pub(super) fn compare(&self, durable: bool, out: &mut Vec<u8>) {
        let mut arguments = TableBuilder::default();
        arguments.longstr(ONLY_STREAMS, b"never");
        let bits = u8::from(durable) * QueueDeclare::DURABLE;
        reply::declare_queue(out, self.id(), &self.queue, bits, &arguments.finish());
    }

    /// `as_stream`: other queues refuse that, and reveal their type (S12.4). `long`: the queue may
    /// have a shorter timeout.
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

    /// After all acks: the channel may delay some of them, but not behind this question (S9.1).
    pub(super) fn ask_for_acks(&self, out: &mut Vec<u8>) {
        reply::qos(out, self.id(), 1);
    }

    pub(super) fn get(&self, messages: u64, out: &mut Vec<u8>) {
        for _ in 0..messages {
            reply::get(out, self.id(), &self.queue);
        }
    }

    /// For `basic.get`: replaces finished messages, up to the number left.
    pub(super) fn get_more(&mut self, there: u64, out: &mut Vec<u8>) {
        let room = std::mem::take(&mut self.room);
        if self.gets {
            let on_their_way = self.window.awaited().saturating_sub(room);
            let more = room.min(there.saturating_sub(self.delivered + on_their_way));
            self.get(more, out);
            self.window.shrink(room - more);
        }
    }

    /// No more messages: all are requeued in their places.
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
        self.bytes += delivery.whole();
        self.window.came(delivery.tag);
        self.last_had_come_back = delivery.redelivered;
        self.stashed += delivery.bytes();
        self.waiting.push_back(delivery);
    }

    pub(super) fn acked(&mut self, tag: u64) {
        self.acked += 1;
        self.room += u64::from(self.window.acked(tag));
    }

    /// The oldest unprocessed message.
    pub(super) fn next(&mut self) -> Option<Delivery> {
        let whole = self.waiting.pop_front()?;
        self.stashed -= whole.bytes();
        Some(whole)
    }

    pub(super) fn has_next(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.stashed < MOST_STASHED
    }

    /// Drops unprocessed messages.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.stashed = 0;
    }

    // --- what it holds

    pub(super) fn held(&self) -> u64 {
        self.delivered - self.acked
    }

    pub(super) fn has_no_room(&self) -> bool {
        self.consumers_left().is_none() && self.window.is_full()
    }

    pub(super) fn usual(&self) -> u64 {
        (self.bytes / self.taken.max(1)).max(1)
    }

    /// Approximate memory of the broker for held messages (S12.10).
    pub(super) fn weight(&self) -> u64 {
        let each = match self.queue_type {
            QueueType::Quorum => 1 << 10,
            QueueType::Classic | QueueType::Stream => (3 << 10) + self.usual(),
        };
        self.held() * each
    }

    /// The broker's time to answer at the end: each ack searches all held messages of the channel.
    pub(super) fn patience(&self) -> Duration {
        let held = self.held().min(MOST_AWAITED) as u32;
        LAST * (1 + held / AT_ONCE)
    }

    /// Consumers left after this one, where their number matters. `None`: one too many already.
    pub(super) fn consumers_left(&self) -> Option<u32> {
        match self.queue_type {
            QueueType::Quorum => MOST_CONSUMERS.checked_sub(self.window.number),
            QueueType::Classic | QueueType::Stream => Some(MOST_CONSUMERS),
        }
    }
}
