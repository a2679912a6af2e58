//! Bytes of one direction of a connection → methods with their contents, in the order in which they became whole.

use std::collections::HashMap;

use super::codec::frame::Frame;
use super::codec::methods::{Arg, BODY, Method};
use super::codec::value::Bytes;
use super::codec::wire::{BODY_FRAME, HEADER, HEARTBEAT, METHOD};

/// What came so far and is not whole.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    partial: HashMap<u16, Partial>,
    /// The protocol header of a client comes first, from a client.
    skip: usize,
}

#[derive(Debug)]
struct Partial {
    frame: Frame,
    length: u64,
    body: Bytes,
}

// === impl Decoder ===

impl Decoder {
    /// Of a peer that begins with a protocol header.
    pub(crate) fn behind_header() -> Decoder {
        Decoder {
            skip: 8,
            ..Decoder::default()
        }
    }

    /// # Errors
    /// What is no frame, or out of place.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<(u16, Frame)>, String> {
        self.bytes.extend_from_slice(bytes);
        let skipped = self.skip.min(self.bytes.len());
        self.bytes.drain(..skipped);
        self.skip -= skipped;
        let mut whole = Vec::new();
        while let Some(&[kind, c1, c0, l3, l2, l1, l0]) = self.bytes.first_chunk() {
            let length = u32::from_be_bytes([l3, l2, l1, l0]) as usize;
            let Some(frame) = self.bytes.get(..length + 8) else {
                break;
            };
            if frame[length + 7] != 0xce {
                return Err(format!("a frame of kind {kind} has no end: {frame:02x?}"));
            }
            let payload = frame[7..length + 7].to_vec();
            self.bytes.drain(..length + 8);
            let channel = u16::from_be_bytes([c1, c0]);
            whole.extend(
                self.frame(kind, channel, &payload)?
                    .map(|frame| (channel, frame)),
            );
        }
        Ok(whole)
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) -> Result<Option<Frame>, String> {
        if kind == HEARTBEAT {
            return Ok(None);
        }
        if kind == METHOD {
            if self.partial.contains_key(&channel) {
                return Err(format!("a method within a content on channel {channel}"));
            }
            let (method, args) = Method::decode(payload).ok_or_else(|| {
                format!("an undecodable method on channel {channel}: {payload:02x?}")
            })?;
            let frame = Frame::new(&method.name, args);
            if method.content {
                let (length, body) = (u64::MAX, Bytes::new());
                self.partial.insert(
                    channel,
                    Partial {
                        frame,
                        length,
                        body,
                    },
                );
                return Ok(None);
            }
            return Ok(Some(frame));
        }
        let out_of_place = || format!("a frame of kind {kind} out of place on channel {channel}");
        let partial = self.partial.get_mut(&channel).ok_or_else(out_of_place)?;
        match (kind, partial.length) {
            (HEADER, u64::MAX) => {
                let (length, properties) = Method::decode_header(payload)
                    .ok_or_else(|| format!("an undecodable header: {payload:02x?}"))?;
                partial.length = length;
                partial.frame.args.extend(properties);
            }
            (BODY_FRAME, length) if length != u64::MAX => partial.body.extend_from_slice(payload),
            _ => return Err(out_of_place()),
        }
        if (partial.body.len() as u64) < partial.length {
            return Ok(None);
        }
        let whole = self.partial.remove(&channel);
        Ok(whole.map(
            |Partial {
                 mut frame, body, ..
             }| {
                frame.args.push((BODY, Arg::Text(body)));
                frame
            },
        ))
    }
}
