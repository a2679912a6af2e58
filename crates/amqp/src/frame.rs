//! Finds frames in a buffer: a frame is a slice, not a copy (specification 4.2.3).

use super::ids::ChannelId;

/// Type, channel and size in front of each payload.
pub const HEAD: usize = 7;
pub const END: u8 = 0xCE;
pub const PROTOCOL: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
pub const HEARTBEAT: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, END];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Method,
    Header,
    Body,
    Heartbeat,
    Other(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub channel: ChannelId,
    pub size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front<'a> {
    /// Not even the head is complete.
    Short,
    /// The payload or the end octet is incomplete.
    Part(Head),
    /// A whole frame: its head, its payload, and its length with head and end.
    Whole(Head, &'a [u8], usize),
    Unterminated(Head),
}

pub fn front(bytes: &[u8]) -> Front<'_> {
    let Some(head) = Head::peek(bytes) else {
        return Front::Short;
    };
    let whole = head.whole();
    match bytes.get(HEAD..whole) {
        None => Front::Part(head),
        Some(rest) => match rest.split_last() {
            Some((&END, payload)) => Front::Whole(head, payload, whole),
            _ => Front::Unterminated(head),
        },
    }
}

// === impl Head ===

impl Head {
    pub fn peek(bytes: &[u8]) -> Option<Head> {
        let &[kind, c1, c0, s3, s2, s1, s0] = bytes.first_chunk::<HEAD>()?;
        Some(Head {
            kind: match kind {
                1 => Kind::Method,
                2 => Kind::Header,
                3 => Kind::Body,
                8 => Kind::Heartbeat,
                other => Kind::Other(other),
            },
            channel: ChannelId(u16::from_be_bytes([c1, c0])),
            size: u32::from_be_bytes([s3, s2, s1, s0]) as usize,
        })
    }

    /// Octets of the frame with head and end.
    pub fn whole(&self) -> usize {
        HEAD + self.size + 1
    }
}

/// Appends one frame; `payload` writes what is between head and end.
pub fn put(out: &mut Vec<u8>, kind: u8, channel: ChannelId, payload: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    out.extend_from_slice(&channel.0.to_be_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    payload(out);
    // A payload is built from parts that were frames themselves: it cannot reach 4 GiB.
    let size = (out.len() - at - 4) as u32;
    if let Some(place) = out.get_mut(at..at + 4) {
        place.copy_from_slice(&size.to_be_bytes());
    }
    out.push(END);
}
