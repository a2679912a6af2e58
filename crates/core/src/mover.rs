//! One channel that takes the messages of a queue, and settles each of them when it is decided what becomes of it.
//!
//! ```text
//! deliver, get-ok ─▶ Delivery ─ a decision ─┬─ ack · reject · give back
//!                                           ├─ leave: unsettled until the channel ends
//!                                           └─ hold: published ─ the outcome of its ticket ─▶ one of these
//! ```
//! Acks wait for `Mover::flush`: the broker pays for each frame, so what has nothing unsettled before it is acked with `multiple`.

use std::collections::BTreeMap;

use crate::amqp::frame::Kind;
use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::link::Frame;
use crate::machine::{Effects, Mono, Ticket};

pub(crate) use self::delivery::{Delivery, Keep};

mod delivery;
#[cfg(test)]
mod tests;

const UNREADABLE: &str = "the broker sent a message that cannot be read";

/// `K`: data kept with each message without an outcome.
#[derive(Debug)]
pub(crate) struct Mover<K> {
    channel: ChannelId,
    arriving: Option<Delivery>,
    /// Ticket of tag 0 on this channel. Tickets of earlier channels are not above it, so they match
    /// nothing.
    base: u64,
    last: u64,
    held: BTreeMap<u64, Held<K>>,
    pub(crate) bytes: usize,
    /// Unsettled messages that stay, and the oldest of them.
    pub(crate) left: u64,
    first_left: Option<u64>,
    done: Vec<u64>,
}

#[derive(Debug)]
struct Held<K> {
    came: Mono,
    bytes: usize,
    kept: K,
}

// === impl Mover ===

impl<K> Mover<K> {
    /// All its tickets are above `base`.
    pub(crate) fn new(channel: ChannelId, base: u64) -> Mover<K> {
        Mover {
            channel,
            arriving: None,
            base,
            last: 0,
            held: BTreeMap::new(),
            bytes: 0,
            left: 0,
            first_left: None,
            done: Vec::new(),
        }
    }

    /// The channel is gone: the broker requeues unsettled messages. `next`: the next channel's
    /// number.
    pub(crate) fn forget(&mut self, next: ChannelId) {
        *self = Mover::new(next, self.base + self.last);
    }

    /// A frame of the channel; returns a complete message.
    ///
    /// # Errors
    /// When the broker violates the protocol.
    pub(crate) fn frame(
        &mut self,
        frame: Frame<'_>,
        keep: Keep,
    ) -> Result<Option<Delivery>, &'static str> {
        let read = match (frame.kind, frame.method(), &mut self.arriving) {
            (_, Some(id @ (MethodId::BASIC_DELIVER | MethodId::BASIC_GET_OK)), _) => {
                let begun = Delivery::begin(id == MethodId::BASIC_GET_OK, frame.payload);
                let begun = begun.map_err(|_| UNREADABLE)?;
                self.last += 1;
                if begun.tag != self.last {
                    return Err("the broker sent a delivery tag out of order");
                }
                self.arriving = Some(begun);
                return Ok(None);
            }
            (Kind::Header, _, Some(arriving)) => arriving.header(frame.payload, keep),
            (Kind::Body, _, Some(arriving)) => arriving.body(frame.payload),
            (Kind::Header | Kind::Body, _, None) => return Err(UNREADABLE),
            (Kind::Method | Kind::Heartbeat | Kind::Other(_), ..) => return Ok(None),
        };
        read.map_err(|_| UNREADABLE)?;
        Ok(self.arriving.take_if(|arriving| arriving.is_whole()))
    }

    // --- what has no outcome

    /// The message is published; its ticket gets an outcome.
    pub(crate) fn hold(&mut self, tag: u64, bytes: usize, came: Mono, kept: K) -> Ticket {
        self.bytes += bytes;
        self.held.insert(tag, Held { came, bytes, kept });
        Ticket(self.base + tag)
    }

    pub(crate) fn of(&mut self, ticket: Ticket) -> Option<(u64, &mut K)> {
        let tag = ticket.0.checked_sub(self.base)?;
        let held = self.held.get_mut(&tag)?;
        Some((tag, &mut held.kept))
    }

    /// Oldest first, with tags.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = (u64, &K)> {
        self.held.iter().map(|(tag, held)| (*tag, &held.kept))
    }

    /// Oldest first, with tickets.
    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = (Ticket, &mut K)> {
        let base = self.base;
        let held = self.held.iter_mut();
        held.map(move |(tag, held)| (Ticket(base + tag), &mut held.kept))
    }

    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn oldest(&self) -> Option<Mono> {
        self.held.values().next().map(|held| held.came)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.arriving.is_none()
    }

    // --- what becomes of a message, held or not

    pub(crate) fn ack(&mut self, tag: u64) {
        self.release(tag);
        self.done.push(tag);
    }

    pub(crate) fn reject<O>(&mut self, tag: u64, fx: &mut Effects<O>) {
        self.release(tag);
        let out = fx.broker.build(&[]);
        reply::reject(out, self.channel, DeliveryTag(tag), false);
    }

    pub(crate) fn give_back<O>(&mut self, tag: u64, fx: &mut Effects<O>) {
        self.release(tag);
        let out = fx.broker.build(&[]);
        reply::nack(out, self.channel, DeliveryTag(tag), false, true);
    }

    /// Requeues all held messages. Flush before.
    pub(crate) fn give_all_back<O>(&mut self, fx: &mut Effects<O>) {
        if let Some((last, _)) = self.held.pop_last() {
            self.held.clear();
            self.bytes = 0;
            let out = fx.broker.build(&[]);
            reply::nack(out, self.channel, DeliveryTag(last), true, true);
        }
    }

    /// Unsettled until the channel ends. Not remembered, because there may be many.
    pub(crate) fn leave(&mut self, tag: u64) {
        self.left += 1;
        self.first_left = self.first_left.into_iter().chain([tag]).min();
        self.release(tag);
    }

    fn release(&mut self, tag: u64) {
        let held = self.held.remove(&tag);
        self.bytes -= held.map_or(0, |held| held.bytes);
    }

    /// Acks finished messages; returns their number.
    pub(crate) fn flush<O>(&mut self, fx: &mut Effects<O>) -> u32 {
        if self.done.is_empty() {
            return 0;
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable();
        let held = self.held.keys().next().copied();
        let unsettled = self.first_left.into_iter().chain(held).min();
        let together = done.partition_point(|tag| unsettled.is_none_or(|first| *tag < first));
        let out = fx.broker.build(&[]);
        for (at, tag) in (1..).zip(&done).skip(together.saturating_sub(1)) {
            reply::ack(
                out,
                self.channel,
                DeliveryTag(*tag),
                at == together && at > 1,
            );
        }
        let acked = done.len() as u32;
        done.clear();
        self.done = done;
        acked
    }
}

#[cfg(test)]
impl<K> Mover<K> {
    /// The required tag of the next delivery.
    pub(crate) fn next_tag(&self) -> u64 {
        self.last + 1
    }
}
