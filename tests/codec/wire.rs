//! Frames as octets.

use super::methods::{Args, BODY, Method};
use super::value::{Bytes, put};

pub(crate) const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY_FRAME: u8 = 3;
pub(crate) const HEARTBEAT: u8 = 8;

/// One frame.
pub(crate) fn frame(kind: u8, channel: u16, payload: &[u8]) -> Bytes {
    let mut out = vec![kind];
    put(&mut out, 2, u64::from(channel));
    put(&mut out, 4, payload.len() as u64);
    out.extend_from_slice(payload);
    out.push(0xce);
    out
}

/// A method, and its content if it carries one: the body in frames with at most so many octets of it.
pub(crate) fn method(channel: u16, method: &Method, args: &Args, piece: usize) -> Bytes {
    let mut out = frame(METHOD, channel, &method.encode(args));
    if method.content {
        out.extend(frame(HEADER, channel, &Method::encode_header(args)));
        let body = args.iter().find(|(name, _)| *name == BODY);
        let body = body.map_or(&[][..], |(_, body)| body.text());
        for piece in body.chunks(piece) {
            out.extend(frame(BODY_FRAME, channel, piece));
        }
    }
    out
}
