//! What has to be kept and has no copy: it is returned to its queue, after growing pauses.

use std::time::Duration;

use super::kept::*;
use super::script::*;
use crate::amqp::frame;
use crate::machine::*;

#[test]
fn without_a_copy_it_is_returned_after_growing_pauses() {
    let mut s = large(1);
    for (tag, pause) in (1..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
        s.client(&reject(tag, false)).silent();
        assert_eq!(s.events, [kept(Fallback::Budget)]);
        s.events.clear();
        s.wait(Duration::from_secs(pause) - Duration::from_millis(1))
            .silent();
        s.wait(Duration::from_millis(1))
            .broker_gets(&[&nack(tag, false, true)]);
        assert_eq!(s.events, [returned()]);
        s.broker(&deliver("orders", tag + 1, b"hi")).passes();
        s.events.clear();
    }
    // What the client settles in another way is settled.
    s.client(&ack(9, false)).passes();
    s.wait(1000 * SECOND).silent();
}

#[test]
fn a_multiple_spares_what_has_no_copy() {
    let mut s = large(4);
    s.client(&nack(3, true, false)).silent();
    s.client(&ack(4, true)).broker_gets(&[&ack(4, false)]);
    s.wait(SECOND).broker_gets(&[
        &nack(1, false, true),
        &nack(2, false, true),
        &nack(3, false, true),
    ]);
}

/// A delivery whose header table cannot be walked.
pub(super) fn unreadable(tag: u64) -> Vec<u8> {
    let mut out = deliver("orders", tag, b"");
    out.truncate(out.len() - header(0).len());
    frame::put(&mut out, 2, CH, |out| {
        out.extend_from_slice(&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&[0x20, 0, 0, 0, 0, 2, 9, b'x']);
    });
    out
}

#[test]
fn what_cannot_be_read_is_returned() {
    let mut s = with(0);
    s.broker(&unreadable(1)).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.events, [kept(Fallback::Unreadable)]);
    assert_eq!(s.session.retained(), 0, "the copy is of no use");
    s.wait(SECOND).broker_gets(&[&nack(1, false, true)]);
}
