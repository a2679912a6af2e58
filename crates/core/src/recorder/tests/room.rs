//! The stream has room for so many bytes, whoever publishes there.

use super::*;
use crate::amqp::frame;

impl RecorderRig {
    /// It has a message there with a body of that size, and nothing else.
    fn foreign(&mut self, octets: u64) {
        let tag = self.machine.mover.next_tag();
        let deliver = method(1, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(TAG)
                .longlong(tag)
                .octet(0)
                .shortstr(b"")
                .shortstr(b"s")
                .end();
        });
        let one = |kind: u8, payload: &[u8]| {
            let mut out = Vec::new();
            frame::put(&mut out, kind, CHANNEL, |out| out.extend(payload));
            out
        };
        let header = [&[0, 60, 0, 0][..], &octets.to_be_bytes(), &[0, 0]].concat();
        self.broker(&[deliver, one(2, &header)].concat());
        let mut left = octets as usize;
        while left > 0 {
            let piece = left.min(100_000);
            self.broker(&one(3, &vec![0; piece]));
            left -= piece;
        }
    }
}

/// Whoever may write to the default exchange writes there, too. Nothing of that says anything, but all of it takes room.
#[test]
fn what_stands_far_back_is_written_again() {
    let mut rig = current();
    rig.comes(1, &of("q", 1, "x"));
    rig.foreign(FAR - 20_000);
    assert_eq!(rig.published(), []);
    rig.foreign(20_000);
    assert_eq!(rig.published(), [of("q", 1, "x")]);
    rig.foreign(20_000);
    assert_eq!(rig.published(), [], "once");
    rig.comes(2, &of("q", 1, "x"));
    rig.foreign(FAR - 20_000);
    assert_eq!(rig.published(), []);
    rig.foreign(20_000);
    assert_eq!(rig.published(), [of("q", 1, "x")]);
}

#[test]
fn so_is_what_stands_far_back_at_the_start() {
    let mut rig = reading();
    rig.comes(1, &of("q", 1, "x"));
    rig.foreign(FAR);
    rig.comes(2, &of("other", 1, "x"));
    assert_eq!(rig.published(), [], "there may be a newer one");
    rig.comes(3, &mark("1-1"));
    assert_eq!(rig.published(), [of("q", 1, "x")]);
}

/// Small ones take more room than their bodies.
#[test]
fn small_messages_count_too() {
    let mut rig = current();
    let before = rig.machine.end;
    for _ in 0..100 {
        rig.foreign(1);
    }
    assert!(rig.machine.end - before >= 100 * BESIDE);
}

#[test]
fn messages_of_others_are_reported() {
    let mut rig = reading();
    rig.comes(1, &mark("2-1"));
    rig.foreign(12 << 20);
    let foreign = |event: &Event| matches!(event, Event::RecordForeign { messages: 1 });
    assert_eq!(rig.events().iter().filter(|it| foreign(it)).count(), 1);
}
