//! A message of a queue, put together from its frames.

use bytes::Bytes;

use crate::amqp::content::{Content, PREFIX, body_size};
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Deliver, GetOk};
use crate::letter::{Hash, Letter};

/// Largest message kept whole: RabbitMQ's default limit up to 3.13. Larger ones are skipped.
const LARGEST: u64 = 128 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Whole,
    /// The beginning of its body, and the hash of the whole.
    Begin(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Delivery {
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: ShortStr,
    pub(crate) routing_key: ShortStr,
    /// Its properties, and what is kept of its body: one copy.
    bytes: Vec<u8>,
    properties: usize,
    /// Bytes of the body: those that are kept at most, all, and those that have come, once the header has.
    most: usize,
    size: u64,
    came: Option<u64>,
    hash: Option<Hash>,
}

// === impl Delivery ===

impl Delivery {
    /// From `basic.deliver` or `basic.get-ok`.
    pub(super) fn begin(is_got: bool, payload: &[u8]) -> Result<Delivery, Malformed> {
        let (tag, redelivered, exchange, routing_key) = if is_got {
            let of = GetOk::parse(payload)?;
            (of.delivery_tag, of.redelivered, of.exchange, of.routing_key)
        } else {
            let of = Deliver::parse(payload)?;
            (of.delivery_tag, of.redelivered, of.exchange, of.routing_key)
        };
        Ok(Delivery {
            tag: tag.0,
            redelivered,
            exchange: ShortStr::copy(exchange).ok_or(Malformed)?,
            routing_key: ShortStr::copy(routing_key).ok_or(Malformed)?,
            ..Delivery::default()
        })
    }

    pub(super) fn header(&mut self, payload: &[u8], keep: Keep) -> Result<(), Malformed> {
        self.size = body_size(payload)?;
        let properties = payload.get(PREFIX..).ok_or(Malformed)?;
        self.properties = properties.len();
        (self.most, self.hash) = match keep {
            Keep::Whole if self.whole() > LARGEST => (0, None),
            Keep::Whole => (usize::MAX, None),
            Keep::Begin(bytes) => (bytes, Some(Hash::default())),
        };
        let expected = self.size.min(LARGEST) as usize;
        let kept = self.properties + expected.min(self.most);
        self.bytes = Vec::with_capacity(kept);
        self.bytes.extend_from_slice(properties);
        self.came = Some(0);
        Ok(())
    }

    pub(super) fn body(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        *self.came.as_mut().ok_or(Malformed)? += piece.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.bytes(piece);
        }
        let room = self.most - (self.bytes.len() - self.properties);
        self.bytes
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.came.is_some_and(|came| came >= self.size)
    }

    pub(crate) fn whole(&self) -> u64 {
        self.size.saturating_add((PREFIX + self.properties) as u64)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// `None`: it was too large.
    pub(crate) fn content(&mut self) -> Option<Content> {
        let kept = self.bytes.len() - self.properties;
        (kept as u64 == self.size).then(|| self.split())
    }

    /// Its properties alone.
    pub(crate) fn properties(&self) -> &[u8] {
        self.bytes.get(..self.properties).unwrap_or_default()
    }

    fn split(&mut self) -> Content {
        let mut properties = Bytes::from(std::mem::take(&mut self.bytes));
        let body = properties.split_off(self.properties);
        Content { properties, body }
    }

    /// It as the message at this place.
    pub(crate) fn letter(mut self, position: u64) -> Letter {
        let Content { properties, body } = self.split();
        Letter {
            position,
            exchange: self.exchange,
            routing_key: self.routing_key,
            redelivered: self.redelivered,
            properties,
            body,
            body_hash: self.hash.unwrap_or_default().finish(),
            size: self.size,
        }
    }
}
