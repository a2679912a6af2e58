//! Nacks, timeouts, links lost: again, for a while.

use super::*;

#[test]
fn a_nacked_one_is_tried_four_times() {
    let mut rig = rig();
    rig.publish(1, message("", "full", "1"));
    assert_eq!(rig.published().len(), 1);
    for tag in 1..=3 {
        rig.nack(1, tag);
        assert_eq!(rig.published(), [], "not at once");
        rig.pass(1_000);
        assert_eq!(rig.published(), [row(1, "", "full", "1")]);
    }
    rig.nack(1, 4);
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "full", "1")]);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Nacked))]);
}

#[test]
fn while_the_parking_queue_nacks_too_it_is_tried_there_for_retry_for() {
    let mut rig = rig();
    rig.publish(1, message("", "full", "1"));
    for tag in 1..=4 {
        assert_eq!(rig.published().len(), 1);
        rig.nack(1, tag);
        rig.pass(1_000);
    }
    let mut waited = 0;
    let mut tag = 0;
    while rig.published() == [row(2, "dlx-proxy.parked", "full", "1")] {
        assert_eq!(rig.settled(), []);
        tag += 1;
        rig.nack(2, tag);
        rig.live(6_400);
        waited += 6_400;
    }
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::ParkingBusy))]);
    assert_eq!(waited, 64_000);
}

#[test]
fn silence_is_waited_out_then_tried_again_then_parked() {
    let mut rig = rig();
    rig.publish(1, message("", "stuck", "1"));
    rig.published();
    let mut attempts = 1;
    let mut parked_after = 0;
    for second in 1..=100 {
        rig.pass(1_000);
        rig.broker(&crate::amqp::frame::HEARTBEAT);
        for row in rig.published() {
            match row.1.as_str() {
                "" => attempts += 1,
                _ => parked_after = second,
            }
        }
        if parked_after > 0 {
            break;
        }
    }
    assert!((60..=72).contains(&parked_after), "{parked_after}");
    assert!((3..=6).contains(&attempts), "{attempts}");
    // The answer to the very first attempt still counts.
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), []);
}

#[test]
fn a_late_confirm_spares_the_next_attempt() {
    let mut rig = rig();
    rig.publish(1, message("", "slow", "1"));
    rig.published();
    rig.pass(10_500);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    rig.pass(5_000);
    assert_eq!(rig.published(), []);
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn a_late_refusal_of_an_old_attempt_changes_nothing() {
    let mut rig = rig();
    rig.publish(1, message("", "slow", "1"));
    rig.published();
    rig.live(12_000);
    assert_eq!(rig.published().len(), 1, "the second attempt");
    rig.nack(1, 1);
    rig.pass(1_000);
    assert_eq!(rig.published(), []);
    rig.ack(1, 2, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn of_two_attempts_of_which_one_came_back_neither_counts() {
    let mut rig = rig();
    let slow = message("", "slow", "1");
    rig.publish(1, slow.clone());
    rig.published();
    rig.live(12_000);
    assert_eq!(rig.published().len(), 1, "the second attempt");
    rig.give_back(1, "", "slow", &slow.content);
    rig.ack(1, 2, false);
    assert_eq!(rig.settled(), []);
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "slow", "1")]);
}

#[test]
fn a_lost_link_resends_in_order() {
    let mut rig = rig();
    let batch = (1..=3).map(|n| (n, message("x", "k", &n.to_string())));
    rig.publish_as(SESSION, batch.collect());
    rig.published();
    rig.ack(3, 1, false);
    rig.cut();
    rig.publish(4, message("x", "k", "4"));
    rig.publish(5, message("", "k", "5"));
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    rig.up("4.3.6");
    let bodies: String = rig.published().into_iter().map(|row| row.3).collect();
    assert_eq!(bodies, "5234");
    rig.ack(3, 3, true);
    rig.ack(1, 1, false);
    let done: Vec<u64> = rig.settled().into_iter().map(|(n, _)| n).collect();
    assert_eq!(done, [2, 3, 4, 5]);
}

#[test]
fn time_without_a_broker_does_not_count() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.published();
    rig.cut();
    rig.pass(4_000);
    rig.up("4.3.6");
    assert_eq!(rig.published(), [row(1, "", "k", "1")]);
    rig.broker(&method(0, MethodId::CONNECTION_BLOCKED, |a| {
        a.shortstr(b"low on memory").end();
    }));
    for _ in 0..60 {
        rig.pass(10_000);
        rig.broker(&crate::amqp::frame::HEARTBEAT);
    }
    assert_eq!(rig.published(), []);
    rig.broker(&method(0, MethodId::CONNECTION_UNBLOCKED, |_| {}));
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn a_lane_is_free_at_once_when_what_waited_for_it_has_ended() {
    let mut rig = rig();
    let batch = (1..=64).map(|n| (n, message(&format!("x{n}"), "k", "1")));
    rig.publish_as(SESSION, batch.collect());
    assert_eq!(rig.published().len(), 64);
    rig.live(10_500);
    rig.broker(&method(0, MethodId::CONNECTION_BLOCKED, |a| {
        a.shortstr(b"low on memory").end();
    }));
    rig.pass(2_000);
    assert_eq!(rig.published(), [], "all wait for their second attempt");
    rig.publish(65, message("y", "k", "1"));
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    rig.broker(&method(0, MethodId::CONNECTION_UNBLOCKED, |_| {}));
    let published = rig.published();
    assert!(published.contains(&row(3, "y", "k", "1")), "{published:?}");
}
