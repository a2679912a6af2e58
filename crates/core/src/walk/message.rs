//! A message that is coming: its properties are kept, of its body the first octets, and the hash of all of it.

use bytes::Bytes;

use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::amqp::method::Deliver;
use crate::letter::{BodyHash, Hash, Letter};

/// A message whose frames are still coming.
#[derive(Debug)]
pub(super) struct Arriving {
    tag: DeliveryTag,
    letter: Letter,
    body: Vec<u8>,
    hash: Hash,
    /// Octets of the body that have not come, once its header has.
    left: Option<u64>,
}

impl Arriving {
    /// Its method has come; it is the message at this place.
    pub(super) fn begin(deliver: &Deliver<'_>, position: u64) -> Arriving {
        let name = |octets| ShortStr::copy(octets).unwrap_or_default();
        Arriving {
            tag: deliver.delivery_tag,
            letter: Letter {
                position,
                exchange: name(deliver.exchange),
                routing_key: name(deliver.routing_key),
                redelivered: deliver.redelivered,
                properties: Bytes::new(),
                body: Bytes::new(),
                body_hash: BodyHash::of(b""),
                size: 0,
            },
            body: Vec::new(),
            hash: Hash::default(),
            left: None,
        }
    }

    /// The payload of its header.
    ///
    /// # Errors
    /// When that is shorter than its fixed part.
    pub(super) fn header(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let size = body_size(payload)?;
        let properties = payload.get(PREFIX..).ok_or(Malformed)?;
        self.letter.properties = Bytes::copy_from_slice(properties);
        self.letter.size = size;
        self.left = Some(size);
        Ok(())
    }

    /// A body frame. `most`: octets of the body that are kept in all.
    ///
    /// # Errors
    /// When no body was announced.
    pub(super) fn piece(&mut self, piece: &[u8], most: usize) -> Result<(), Malformed> {
        let left = self.left.as_mut().ok_or(Malformed)?;
        *left = left.saturating_sub(piece.len() as u64);
        self.hash.octets(piece);
        let room = most.saturating_sub(self.body.len());
        self.body
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        Ok(())
    }

    /// True when its last octet has come.
    pub(super) fn is_whole(&self) -> bool {
        self.left == Some(0)
    }

    /// Octets of it that are kept.
    pub(super) fn octets(&self) -> usize {
        self.letter.properties.len() + self.body.len()
    }

    /// The message, and the number of its delivery.
    pub(super) fn finish(self) -> (Letter, DeliveryTag) {
        let letter = Letter {
            body: self.body.into(),
            body_hash: self.hash.finish(),
            ..self.letter
        };
        (letter, self.tag)
    }
}
