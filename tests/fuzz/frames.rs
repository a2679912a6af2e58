//! Frame splitting: any bytes, in any pieces, give the frames that a slow and obvious reader finds in them.

use dlx_proxy::amqp::frame::{self, Front, HEAD, Head, Kind};
use dlx_proxy::amqp::ids::ChannelId;

use super::input::Input;

/// A frame, or why there is none.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Frame(u8, u16, Vec<u8>),
    /// So many octets of the beginning of one are left.
    Left(usize),
    Unterminated,
}

/// Slow and obvious: from the specification.
fn reference(bytes: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let left = bytes.len() - at;
        if left < 7 {
            found.push(Found::Left(left));
            return found;
        }
        let number = |from: usize, to: usize| {
            let octets = bytes[at + from..at + to].iter();
            octets.fold(0u64, |n, octet| n * 256 + u64::from(*octet))
        };
        let size = number(3, 7);
        if (left as u64) < size + 8 {
            found.push(Found::Left(left));
            return found;
        }
        let size = size as usize;
        if bytes[at + 7 + size] != 0xCE {
            found.push(Found::Unterminated);
            return found;
        }
        let payload = bytes[at + 7..at + 7 + size].to_vec();
        found.push(Found::Frame(bytes[at], number(1, 3) as u16, payload));
        at += size + 8;
    }
}

fn octet(kind: Kind) -> u8 {
    match kind {
        Kind::Method => 1,
        Kind::Header => 2,
        Kind::Body => 3,
        Kind::Heartbeat => 8,
        Kind::Other(octet) => octet,
    }
}

/// As a connection does: what is not consumed is offered again with more behind it.
fn in_pieces(bytes: &[u8], mut piece: impl FnMut() -> usize) -> Vec<Found> {
    let mut found = Vec::new();
    let mut buffer = Vec::new();
    let mut rest = bytes;
    loop {
        let (more, later) = rest.split_at(piece().clamp(1, rest.len().max(1)).min(rest.len()));
        buffer.extend_from_slice(more);
        rest = later;
        loop {
            let length = match frame::front(&buffer) {
                Front::Whole(head, payload, length) => {
                    assert!(length <= buffer.len() && length == head.whole());
                    assert_eq!(payload, &buffer[HEAD..length - 1]);
                    let mut again = Vec::new();
                    frame::put(&mut again, octet(head.kind), head.channel, |out| {
                        out.extend_from_slice(payload)
                    });
                    assert_eq!(again, buffer[..length], "put is the inverse of front");
                    found.push(Found::Frame(
                        octet(head.kind),
                        head.channel.0,
                        payload.to_vec(),
                    ));
                    length
                }
                Front::Unterminated(head) => {
                    assert!(head.whole() <= buffer.len());
                    found.push(Found::Unterminated);
                    return found;
                }
                Front::Part(head) => {
                    assert!(head.whole() > buffer.len());
                    assert_eq!(Head::peek(&buffer), Some(head));
                    break;
                }
                Front::Short => {
                    assert!(buffer.len() < HEAD);
                    break;
                }
            };
            assert!(length > HEAD, "each frame is progress");
            buffer.drain(..length);
        }
        if rest.is_empty() {
            found.push(Found::Left(buffer.len()));
            return found;
        }
    }
}

pub(crate) fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let pieces = input.bytes(4);
    let mut bytes = Vec::new();
    // Sound frames between the bytes, so that the way behind them is found.
    for _ in 0..input.below(4) {
        let (kind, channel) = (input.byte(), ChannelId(input.short()));
        let payload = input.text();
        frame::put(&mut bytes, kind, channel, |out| {
            out.extend_from_slice(payload)
        });
    }
    bytes.extend_from_slice(input.rest());
    let expected = reference(&bytes);
    assert_eq!(in_pieces(&bytes, || usize::MAX), expected);
    let mut next = pieces.iter().cycle();
    let drawn = || next.next().map_or(1, |piece| usize::from(*piece));
    assert_eq!(in_pieces(&bytes, drawn), expected);
}
