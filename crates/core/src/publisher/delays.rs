//! The delay queues: which there are, and which one a message has to take.
//!
//! Each holds messages for one delay, so that the first that came is the first whose time is over, and none hides another. They are made when the
//! first message wants them, on the channel on which it is published, and never deleted: a quorum queue that expires takes its messages with it
//! (S11.7). Any client can ask for any delay, so there are only those of a [`grid`].
//!
//! A message can come back too soon where two proxies have clocks that differ, or one was set back. What is left of its delay then is rounded up, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::reply_code::RESOURCE_LOCKED;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Dialect;
use crate::dead_letter::grid;
use crate::machine::{Cause, Publication, Purpose};
use crate::objects::{Names, OwnObject};
use crate::registry::existing_delays::ExistingDelays;

use super::item::Item;

const QUEUE: u16 = MethodId::QUEUE_DECLARE.0;
const BIND_NO_WAIT: u8 = 1;
/// Delay queues made on 3.x lack this argument.
const DELIVERY_LIMIT: &[u8] = b"x-delivery-limit";

#[derive(Debug)]
pub(super) struct Delays {
    names: Names,
    existing: ExistingDelays,
    /// Queues used on this link, by milliseconds. True: exists, or its declare was sent.
    known: BTreeMap<u64, bool>,
    /// Queues made on 3.x before an upgrade: a current declare does not match, so they are only
    /// checked.
    older: BTreeSet<u64>,
}

pub(super) fn blame(close: &Close<'_>) -> Option<Cause> {
    (close.class == QUEUE).then_some(match close.code {
        404 => Cause::NoExchange,
        _ => Cause::Forbidden,
    })
}

/// Why nothing leads to the message's queue. A queue that is exclusive to another connection cannot
/// be bound; a redrive has another way there.
pub(super) fn no_way(close: &Close<'_>, cause: Cause, item: Option<&Item>) -> Cause {
    let is_redriven = item.is_some_and(|item| item.publication.purpose == Purpose::Redrive);
    match close.code {
        RESOURCE_LOCKED if is_redriven => Cause::NoExchange,
        _ => cause,
    }
}

pub(super) fn leads_to<'a>(names: &Names, publication: &'a Publication) -> Option<&'a [u8]> {
    match publication.purpose {
        Purpose::Return | Purpose::Unpark | Purpose::Redrive => {
            match names.parse(&publication.exchange) {
                Some(OwnObject::ReturnExchange(queue)) => Some(queue),
                Some(_) | None => None,
            }
        }
        Purpose::Death
        | Purpose::Publish
        | Purpose::Delay(_)
        | Purpose::Tail
        | Purpose::Park(_) => None,
    }
}

/// Makes the exchange that leads to one queue alone; it is deleted with the queue.
pub(super) fn lead_to(out: &mut Vec<u8>, channel: ChannelId, exchange: &ShortStr, queue: &[u8]) {
    super::bridges::declare(out, channel, exchange);
    bind(out, channel, queue, exchange, b"");
}

fn bind(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8], exchange: &[u8], key: &[u8]) {
    let binding = (exchange, key, queue);
    reply::bind(out, channel, MethodId::QUEUE_BIND, binding, BIND_NO_WAIT);
}

// === impl Delays ===

impl Delays {
    pub(super) fn new(names: Names, existing: ExistingDelays) -> Delays {
        Delays {
            names,
            existing,
            known: BTreeMap::new(),
            older: BTreeSet::new(),
        }
    }

    pub(super) fn address(&self, publication: &mut Publication, delay: Duration) {
        publication.exchange = self.names.delay().clone();
        publication.routing_key = key(delay);
    }

    /// Makes or checks the queue of that key, unless it is known. On failure the broker closes the
    /// channel.
    pub(super) fn build(
        &mut self,
        key: &ShortStr,
        dialect: Dialect,
        out: &mut Vec<u8>,
        channel: ChannelId,
    ) {
        let Some(millis) = millis(key) else { return };
        if self.known.insert(millis, true) == Some(true) {
            return;
        }
        self.existing.used(millis);
        let queue = self.names.delay_queue(millis);
        let passive = match self.older.contains(&millis) {
            true => QueueDeclare::PASSIVE,
            false => 0,
        };
        let mut arguments = TableBuilder::default();
        arguments
            .longstr(b"x-queue-type", b"quorum")
            .long(b"x-message-ttl", i64::try_from(millis).unwrap_or(i64::MAX))
            .longstr(b"x-dead-letter-exchange", self.names.due())
            .longstr(b"x-dead-letter-strategy", b"at-least-once")
            .longstr(b"x-overflow", b"reject-publish");
        dialect.lift_delivery_limit(&mut arguments);
        let bits = QueueDeclare::DURABLE | QueueDeclare::NO_WAIT | passive;
        reply::declare_queue(out, channel, &queue, bits, &arguments.finish());
        bind(out, channel, &queue, self.names.delay(), key);
    }

    /// Reads the reason of a closed channel. True: the queue is an older one, and what was
    /// published behind its declare may be sent again.
    pub(super) fn learn(&mut self, close: &Close<'_>) -> bool {
        let says = |words: &[u8]| memchr::memmem::find(close.text, words).is_some();
        match (close.class, close.code) {
            (QUEUE, 404) => {
                self.older.clear();
                false
            }
            (QUEUE, 406) if says(DELIVERY_LIMIT) => {
                let quoted = |millis: &u64| format!("'{}'", self.names.delay_queue(*millis));
                let mut known = self.known.keys().copied();
                let meant = known.find(|millis| says(quoted(millis).as_bytes()));
                meant.is_some_and(|millis| self.older.insert(millis))
            }
            _ => false,
        }
    }

    pub(super) fn forget(&mut self, key: &ShortStr) {
        if let Some(built) = millis(key).and_then(|millis| self.known.get_mut(&millis)) {
            *built = false;
        }
    }

    /// The link or channel is lost: unanswered declares may have failed.
    pub(super) fn doubt(&mut self) {
        for built in self.known.values_mut() {
            *built = false;
        }
    }
}

fn key(delay: Duration) -> ShortStr {
    ShortStr::new(grid::next(delay).to_string()).expect("a number is short")
}

fn millis(key: &ShortStr) -> Option<u64> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
