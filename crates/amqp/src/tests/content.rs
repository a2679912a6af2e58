use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::content::{Assembly, Content, body_size};
use crate::frame::{self, Front, Kind};
use crate::ids::ChannelId;

/// The payloads of frames in a buffer, which must hold nothing else.
fn frames(mut bytes: &[u8]) -> Vec<(Kind, ChannelId, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let Front::Whole(head, payload, length) = frame::front(bytes) else {
            panic!("not a whole frame");
        };
        frames.push((head.kind, head.channel, payload.to_vec()));
        bytes = &bytes[length..];
    }
    frames
}

proptest! {
    /// Put out in frames and taken in again, in other pieces, it is the same.
    #[test]
    fn a_content_goes_through_frames(properties in vec(any::<u8>(), 2..40), body in vec(any::<u8>(), 0..200), frame_max in 9..80usize, piece in 1..50usize) {
        let content = Content { properties: properties.into(), body: body.into() };
        let mut out = Vec::new();
        content.put(&mut out, ChannelId(7), frame_max);
        let frames = frames(&out);
        prop_assert_eq!(frames[0].0, Kind::Header);
        prop_assert_eq!(frames[0].2.len() + frame::HEAD + 1, content.header_frame());
        prop_assert!(frames.iter().all(|(_, channel, _)| *channel == ChannelId(7)));
        prop_assert!(frames[1..].iter().all(|(kind, _, body)| *kind == Kind::Body && !body.is_empty() && body.len() + 8 <= frame_max));

        prop_assert_eq!(body_size(&frames[0].2), Ok(content.body.len() as u64));
        prop_assert!(Assembly::begin(&frames[0].2, content.len() - 1).is_none(), "over the limit");
        let mut assembly = Assembly::begin(&frames[0].2, content.len()).unwrap();
        prop_assert_eq!(assembly.whole(), content.len());
        let bodies: Vec<u8> = frames[1..].iter().flat_map(|(_, _, body)| body.clone()).collect();
        for piece in bodies.chunks(piece) {
            prop_assert!(!assembly.is_complete());
            assembly.push(piece);
        }
        assembly.push(b"beyond");
        prop_assert!(assembly.is_complete());
        prop_assert_eq!(assembly.finish(), content);
    }
}

#[test]
fn without_a_limit_a_body_is_one_frame_and_an_empty_one_is_none() {
    for (size, frame_max, count) in [(300_000, 0, 2), (0, 4096, 1)] {
        let content = Content {
            properties: Bytes::from_static(&[0, 0]),
            body: vec![1; size].into(),
        };
        let mut out = Vec::new();
        content.put(&mut out, ChannelId(1), frame_max);
        let frames = frames(&out);
        assert_eq!(frames.len(), count);
        let begun = Assembly::begin(&frames[0].2, 400_000).unwrap();
        assert_eq!(begun.is_complete(), size == 0);
    }
}

#[test]
fn a_header_that_is_cut_or_boasts_is_none() {
    assert!(Assembly::begin(&[0, 60, 0, 0, 0, 0], 99).is_none());
    let boast = [&[0, 60, 0, 0][..], &u64::MAX.to_be_bytes(), &[0, 0]].concat();
    assert!(Assembly::begin(&boast, usize::MAX).is_none());
}
