//! A client is lost: what a retry of what it had not settled says. What else there is to it: `testdata/scripts/crashes.txt`.

use super::script::*;
use super::transcripts::after;
use crate::machine::*;
use crate::session::Input;

/// Channel 1 consumes from `orders`, which counts and delivered the first three tags; there may be one dead letter in flight.
fn delivered() -> Script {
    after(
        r#"session rejects-only tickets=1
        policy ^orders$ min=1000 on-crash=count-all
        consumes orders
        broker deliver orders 1 "" key ; content hi
        broker deliver orders 2 "" key ; content hi
        broker deliver orders 3 "" key ; content hi"#,
    )
}

/// Its last word about a delivery waits for a ticket, and is not heard any more.
#[test]
fn what_is_left_behind_counts_as_a_failure_whatever_its_client_still_said() {
    let cancelled = cancel_without_reply("orders");
    let retry = |s: &mut Script| s.dead.remove(0).1.content;
    let mut silent = delivered();
    silent.gone(Leg::Client).broker_gets(&[&cancelled]);

    let mut s = delivered();
    s.client(&nack(3, false, true)).silent();
    let ticket = s.ticket();
    s.client(&nack(1, false, true)).silent();
    assert_eq!(s.dead, []);
    let settled = Input::Settled(vec![(ticket, Outcome::Confirmed)]);
    s.session.input(settled.into(), s.now, &mut s.fx);
    s.gone(Leg::Client)
        .broker_gets(&[&ack(3, false), &cancelled]);
    assert_eq!(retry(&mut s), retry(&mut silent));
}
