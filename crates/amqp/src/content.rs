//! A message's header and body in one exact-size copy: what is retained of a delivery, and what a dead letter is made of.

use bytes::Bytes;

use super::cursor::{Cursor, Malformed};
use super::frame;
use super::ids::ChannelId;

const BASIC: u16 = 60;
/// Size of class, weight and body size, which precede the property flags.
pub const PREFIX: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// From the property flags on: two octets of flags, then the properties that they announce.
    pub properties: Bytes,
    pub body: Bytes,
}

#[derive(Debug)]
pub struct Assembly {
    bytes: Vec<u8>,
    properties: usize,
    whole: usize,
}

/// The body size that a content header announces.
///
/// # Errors
/// When the payload is shorter than its fixed part.
pub fn body_size(header: &[u8]) -> Result<u64, Malformed> {
    let mut cursor = Cursor::new(header);
    cursor.take(4)?;
    cursor.longlong()
}

// === impl Content ===

impl Content {
    pub fn with_properties(&self, properties: Bytes) -> Content {
        Content {
            properties,
            body: self.body.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.properties.len() + self.body.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the header frame with head and end. It must not exceed frame_max.
    pub fn header_frame(&self) -> usize {
        frame::HEAD + PREFIX + self.properties.len() + 1
    }

    /// Appends the header frame and as many body frames as frame_max (0: no limit) asks for.
    pub fn put(&self, out: &mut Vec<u8>, channel: ChannelId, frame_max: usize) {
        frame::put(out, 2, channel, |out| {
            out.extend_from_slice(&BASIC.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&(self.body.len() as u64).to_be_bytes());
            out.extend_from_slice(&self.properties);
        });
        let piece = match frame_max {
            0 => usize::MAX,
            max => max.saturating_sub(frame::HEAD + 1).max(1),
        };
        for body in self.body.chunks(piece) {
            frame::put(out, 3, channel, |out| out.extend_from_slice(body));
        }
    }
}

// === impl Assembly ===

impl Assembly {
    /// Begins with the payload of a content header. `None`: it needs more than `limit` octets, or
    /// it cannot be read.
    pub fn begin(header: &[u8], limit: usize) -> Option<Assembly> {
        let body = usize::try_from(body_size(header).ok()?).ok()?;
        let properties = header.get(PREFIX..)?;
        let whole = properties.len().checked_add(body)?;
        if whole > limit {
            return None;
        }
        let mut bytes = Vec::with_capacity(whole);
        bytes.extend_from_slice(properties);
        Some(Assembly {
            bytes,
            properties: properties.len(),
            whole,
        })
    }

    /// Octets held when the content is complete.
    pub fn whole(&self) -> usize {
        self.whole
    }

    /// Adds a piece of a body frame. Anything beyond the announced size is cut.
    pub fn push(&mut self, piece: &[u8]) {
        let room = self.whole - self.bytes.len();
        self.bytes
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    pub fn is_complete(&self) -> bool {
        self.bytes.len() == self.whole
    }

    pub fn finish(self) -> Content {
        let mut properties = Bytes::from(self.bytes);
        let body = properties.split_off(self.properties);
        Content { properties, body }
    }
}
