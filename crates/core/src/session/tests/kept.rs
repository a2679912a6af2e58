//! Rejects that the broker must not see, where a script as text would be too long or shows too little: see `testdata/scripts/kept.txt`.

use std::time::Duration;

use super::script::*;
use super::transcripts::after;
use super::words::frames;
use crate::amqp::properties::{Properties, Property};
use crate::machine::*;

pub(super) const AWAY: Outcome = Outcome::Refused(Cause::PublisherAway);
const SECOND: Duration = Duration::from_secs(1);

/// The queue `orders`, its target named by a policy of ours alone, and a consumer of it.
pub(super) fn open() -> Script {
    after(
        "session rejects-only
        policy ^orders$ exchange=dlx
        client declare orders +durable
        broker declare-ok orders
        consumes orders",
    )
}

#[test]
fn what_is_kept_for_long_is_returned_before_the_channel_is_closed_for_it() {
    let mut s = open();
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, AWAY)]).silent();
    for _ in 0..15 * 60 {
        s.wait(SECOND).silent();
        if let Some((ticket, _)) = s.dead.pop() {
            s.settled(&[(ticket, AWAY)]).silent();
        }
    }
    s.wait(60 * SECOND).broker_gets(&[&nack(1, false, true)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
}

#[test]
fn a_foreign_user_id_is_hidden_the_next_time() {
    let mut s = open();
    s.broker(&frames("deliver orders 1")).passes();
    let of_app = frames(
        r#"bytes "\x02\x00\x01\x00\x00\x00\x12\x00<\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x03app\xce""#,
    );
    s.broker(&of_app).passes();
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    let refused = Outcome::Refused(Cause::UserId);
    s.settled(&[(ticket, refused)]).silent();
    s.wait(SECOND).silent();
    let properties = &s.dead[0].1.content.properties;
    let properties = Properties::parse(properties).expect("properties");
    assert_eq!(
        properties.get(Property::UserId),
        Some(&b"dlx-proxy"[..]),
        "our own"
    );
}
