//! The link is away, blocked or silent: sessions get back what they handed over, and the intake waits.

use super::*;

const AWAY: Outcome = Outcome::Refused(Cause::PublisherAway);
const UNTOLD: [bool; 0] = [];

#[test]
fn away_it_keeps_what_is_new_for_five_seconds_and_what_flew_for_fifteen() {
    let mut rig = rig();
    rig.publish(1, message("", "k", "1"));
    rig.published();
    rig.cut();
    rig.pass(4_000);
    rig.publish(2, message("", "k", "2"));
    assert_eq!(rig.settled(), []);
    rig.pass(1_000);
    rig.publish(3, message("", "k", "3"));
    rig.pass(4_000);
    assert_eq!(rig.settled(), [(2, AWAY)]);
    rig.publish(4, message("", "k", "4"));
    rig.pass(1_000);
    assert_eq!(rig.settled(), [(3, AWAY)]);
    rig.pass(3_000);
    rig.publish(5, message("", "k", "5"));
    rig.pass(2_000);
    assert_eq!(rig.settled(), [(4, AWAY), (1, AWAY)]);
    assert_eq!(
        rig.machine.store.channels.get(0).waiting.len(),
        1,
        "no key of the others"
    );
    rig.up("4.3.6");
    assert_eq!(rig.published(), [row(1, "", "k", "5")]);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(5, Outcome::Confirmed)]);
}

#[test]
fn blocked_it_refuses_what_is_new_at_once() {
    let mut rig = rig();
    rig.publish(1, message("", "k", "1"));
    assert_eq!(rig.published().len(), 1);
    rig.alarm(true);
    assert_eq!(rig.events(), [Event::Blocked(true)]);
    rig.publish(2, message("", "k", "2"));
    assert_eq!(rig.published(), [], "not into a socket that nobody reads");
    rig.pass(5_000);
    assert_eq!(
        rig.settled(),
        [(2, AWAY)],
        "it came before the alarm was old"
    );
    rig.publish(3, message("", "k", "3"));
    assert_eq!(rig.settled(), [(3, AWAY)]);
    rig.pass(10_000);
    assert_eq!(rig.settled(), [(1, AWAY)]);
    rig.alarm(false);
    rig.ack(1, 1, false);
    assert_eq!((rig.published(), rig.settled()), (vec![], vec![]), "late");
    rig.publish(4, message("", "k", "4"));
    assert_eq!(rig.published(), [row(1, "", "k", "4")]);
}

#[test]
fn an_alarm_that_ends_sooner_costs_nothing() {
    let mut rig = rig();
    rig.alarm(true);
    rig.publish(1, message("", "k", "1"));
    rig.pass(4_500);
    rig.alarm(false);
    assert_eq!(rig.published(), [row(1, "", "k", "1")]);
    rig.alarm(true);
    rig.pass(14_000);
    rig.alarm(false);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn a_link_that_comes_and_goes_does_not_hold_a_reject_for_ever() {
    let mut rig = rig();
    rig.cut();
    rig.publish(1, message("", "k", "1"));
    for _ in 0..2 {
        rig.pass(2_000);
        rig.up("4.3.6");
        rig.pass(1_000);
        assert_eq!(rig.settled(), [], "no channel opens");
        rig.cut();
    }
    rig.pass(1_250);
    assert_eq!(rig.settled(), [(1, AWAY)]);
}

#[test]
fn a_silent_link_does_not_hold_rejects_either() {
    let mut rig = rig();
    rig.publish(1, message("", "k", "1"));
    rig.published();
    rig.pass(2_500 + 15_250);
    assert_eq!(rig.settled(), [(1, AWAY)]);
}

#[test]
fn the_intake_waits_for_the_end_of_an_alarm() {
    let mut rig = rig();
    let batch = (1..=2).map(|n| (n, message("", "k", &n.to_string())));
    rig.publish_as(INTAKE, batch.collect());
    assert_eq!(rig.published().len(), 2);
    rig.alarm(true);
    rig.live(60_000);
    rig.publish_as(INTAKE, vec![(3, message("", "k", "3"))]);
    // Heartbeats go on.
    rig.live(3_600_000);
    assert_eq!((rig.settled(), rig.told()), (vec![], vec![]));
    rig.alarm(false);
    assert_eq!(rig.published(), [row(1, "", "k", "3")]);
    rig.ack(1, 3, true);
    let confirmed = [1, 2, 3].map(|ticket| (ticket, Outcome::Confirmed));
    assert_eq!(rig.settled(), confirmed);
}

#[test]
fn without_a_link_the_intake_queue_is_left_to_others_and_what_came_from_it_is_forgotten() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.publish(2, message("", "k", "2"));
    assert_eq!(rig.published().len(), 2);
    rig.cut();
    rig.pass(4_999);
    assert_eq!(rig.told(), UNTOLD);
    rig.pass(1);
    assert_eq!(rig.told(), [false]);
    assert_eq!(rig.machine.held(), 1, "the session's");
    // What was on its way.
    rig.publish_as(INTAKE, vec![(3, message("", "k", "3"))]);
    assert_eq!(rig.settled(), [], "nobody asks for an outcome");
    rig.up("4.3.6");
    assert_eq!(rig.told(), [true]);
    rig.publish_as(INTAKE, vec![(4, message("", "k", "4"))]);
    assert_eq!(
        rig.published(),
        [row(1, "", "k", "2"), row(1, "", "k", "4")]
    );
    assert_eq!(
        rig.events().len(),
        2,
        "down and up: no dead letter has ended"
    );
}

#[test]
fn that_is_done_once_a_minute_at_most() {
    let mut rig = rig();
    rig.cut();
    rig.pass(10_000);
    rig.up("4.3.6");
    assert_eq!(rig.told(), [false, true]);
    rig.cut();
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.pass(54_999);
    assert_eq!((rig.told(), rig.machine.held()), (vec![], 1));
    rig.pass(1);
    assert_eq!((rig.told(), rig.machine.held()), (vec![false], 0));
    // And then it is for others until the link is up, however long.
    rig.pass(3_600_000);
    assert_eq!(rig.told(), UNTOLD);
}

#[test]
fn an_alarm_before_does_not_count_for_that() {
    let mut rig = rig();
    rig.alarm(true);
    rig.pass(20_000);
    rig.cut();
    rig.pass(4_999);
    assert_eq!(rig.told(), UNTOLD);
    rig.pass(1);
    assert_eq!(rig.told(), [false]);
}

#[test]
fn a_full_publisher_takes_what_it_can_only_refuse() {
    for alarm in [true, false] {
        let mut rig = rig();
        match alarm {
            true => rig.alarm(true),
            false => rig.cut(),
        }
        let batch = (0..65_536).map(|n| (n, message("", "k", "1")));
        rig.publish_as(INTAKE, batch.collect());
        assert!(!rig.machine.accepts());
        if !alarm {
            // The intake's are forgotten at the same moment: as they were once in the last minute.
            rig.machine.away.handed_over = true;
        }
        rig.pass(5_000);
        assert!(rig.machine.accepts());
        rig.publish(1, message("", "k", "1"));
        assert_eq!(rig.settled(), [(1, AWAY)]);
    }
}

#[test]
fn at_its_end_it_refuses_sessions_and_leaves_the_rest_to_the_intake_queue() {
    let mut rig = rig();
    rig.alarm(true);
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.publish(2, message("", "k", "2"));
    rig.pass(1_000);
    rig.drain();
    assert_eq!((rig.settled(), rig.told()), (vec![], vec![]));
    rig.pass(4_000);
    assert_eq!((rig.settled(), rig.told()), (vec![(2, AWAY)], vec![false]));
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
}

#[test]
fn a_vhost_that_lets_nobody_in_does_so_too() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.publish(2, message("", "k", "2"));
    rig.published();
    rig.cut();
    rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
    rig.broker(&crate::link::peer::start("4.3.6"));
    rig.broker(&crate::link::peer::tune(2047, 131_072, 60));
    rig.broker(&close(
        0,
        530,
        "NOT_ALLOWED - access to vhost '/' refused",
        MethodId::CONNECTION_OPEN,
    ));
    assert_eq!((rig.settled(), rig.told()), (vec![(2, AWAY)], vec![]));
    rig.pass(5_000);
    assert_eq!((rig.settled(), rig.told()), (vec![], vec![false]));
}

/// The intake asks for it before the broker takes back what is held for too long.
#[test]
fn what_the_intake_wants_back_in_an_alarm_is_forgotten_and_taken_again_after_it() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, message("", "k", "1"))]);
    rig.publish(2, message("", "k", "2"));
    assert_eq!(rig.published().len(), 2);
    rig.alarm(true);
    rig.publish_as(INTAKE, vec![(3, message("", "k", "3"))]);
    rig.input(Input::HandOver);
    assert_eq!(rig.told(), [false]);
    assert_eq!(rig.machine.held(), 1, "the session's");
    rig.live(60_000);
    assert_eq!(rig.told(), UNTOLD);
    rig.alarm(false);
    assert_eq!(rig.told(), [true]);
    assert_eq!(rig.published(), [], "it is in its queue");
    rig.ack(1, 2, true);
    rig.publish_as(INTAKE, vec![(4, message("", "k", "4"))]);
    assert_eq!(rig.published(), [row(1, "", "k", "4")]);
    rig.ack(1, 3, false);
    assert_eq!(rig.settled(), [(2, AWAY), (4, Outcome::Confirmed)]);
}

/// Its channel is gone, and the broker has again what was held on it.
#[test]
fn what_is_in_the_intake_queue_again_is_not_tried_again() {
    let mut rig = rig();
    let batch = (1..=2).map(|n| (n, message("", "k", &n.to_string())));
    rig.publish_as(INTAKE, batch.collect());
    assert_eq!(rig.published().len(), 2);
    rig.nack(1, 1);
    rig.input(Input::HandOver);
    assert_eq!(rig.told(), [false, true], "there is no reason to wait");
    assert_eq!(rig.machine.held(), 0);
    rig.ack(1, 2, false);
    rig.live(60_000);
    assert_eq!((rig.published(), rig.settled()), (vec![], vec![]));
    rig.cut();
    rig.up("4.3.6");
    assert_eq!(rig.published(), []);
}
