use proptest::collection::vec;
use proptest::prelude::*;

use crate::frame::{END, Front, HEARTBEAT, Head, Kind, front, put};
use crate::ids::ChannelId;

proptest! {
    /// However much of it is there, a frame is short, a part or whole; what follows does not matter.
    #[test]
    fn a_frame_is_found_when_it_is_all_there(kind: u8, channel: u16, payload in vec(any::<u8>(), 0..60), behind in vec(any::<u8>(), 0..9)) {
        let mut frame = Vec::new();
        put(&mut frame, kind, ChannelId(channel), |out| out.extend_from_slice(&payload));
        let length = frame.len();
        frame.extend_from_slice(&behind);
        for there in 0..frame.len() {
            let found = front(&frame[..there]);
            match there {
                0..7 => prop_assert_eq!(found, Front::Short),
                _ if there < length => prop_assert!(matches!(found, Front::Part(head) if head.whole() == length)),
                _ => prop_assert!(matches!(found, Front::Whole(head, got, whole)
                    if head.channel == ChannelId(channel) && got == payload && whole == length)),
            }
        }
        frame[length - 1] = END ^ 1;
        prop_assert!(matches!(front(&frame), Front::Unterminated(_)));
    }

    #[test]
    fn no_bytes_break_it(bytes in vec(any::<u8>(), 0..20)) {
        front(&bytes);
    }
}

#[test]
fn kinds_are_the_specifications() {
    let kind = |octet: u8| Head::peek(&[octet, 0, 0, 0, 0, 0, 0]).unwrap().kind;
    assert_eq!(
        [1, 2, 3, 8, 4].map(kind),
        [
            Kind::Method,
            Kind::Header,
            Kind::Body,
            Kind::Heartbeat,
            Kind::Other(4)
        ]
    );
    assert!(matches!(
        front(&HEARTBEAT),
        Front::Whole(
            Head {
                kind: Kind::Heartbeat,
                size: 0,
                ..
            },
            [],
            8
        )
    ));
}
