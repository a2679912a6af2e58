//! A link on which nothing is heard is no target's fault.

use super::*;

fn batch() -> Vec<(u64, Publication)> {
    let exchanges = ["", "x"].into_iter().cycle();
    (1..=8)
        .zip(exchanges)
        .map(|(n, exchange)| (n, message(exchange, "k", "1")))
        .collect()
}

#[test]
fn while_the_link_is_silent_nothing_is_late_and_the_next_link_gets_it_all() {
    let mut rig = rig();
    rig.publish_as(INTAKE, batch());
    rig.published();
    rig.pass(3_000);
    assert_eq!(rig.asked(), [1, 3], "once, by each open channel");
    // Our heartbeat is 30 s: after twice that the link is given up.
    rig.pass(56_000);
    assert!(rig.asked().is_empty());
    rig.publish_as(INTAKE, vec![(9, message("", "k", "2"))]);
    assert_eq!(rig.published(), [row(1, "", "k", "2")], "no target is busy");
    rig.pass(2_000);
    assert!(matches!(rig.machine.flow(), Flow::Reconnect(_)));
    rig.fx.broker.finish().0.clear();
    rig.up("4.3.6");
    let published = rig.published();
    assert_eq!(published.len(), 9);
    assert!(published.iter().all(|row| row.1 != "dlx-proxy.parked"));
}

#[test]
fn time_goes_on_with_the_answer_and_was_not_lost_on_anybody() {
    let mut rig = rig();
    rig.publish_as(INTAKE, batch());
    rig.published();
    rig.pass(9_000);
    rig.answer(1);
    rig.pass(200);
    assert_eq!(
        rig.published(),
        [],
        "nine seconds of silence count as less than three"
    );
    rig.ack(1, 4, true);
    rig.ack(3, 4, true);
    assert_eq!(rig.settled().len(), 8);
}

#[test]
fn a_broker_that_answers_when_it_is_asked_leaves_the_blame_to_the_target() {
    let mut rig = rig();
    rig.publish(1, message("", "stuck", "1"));
    rig.published();
    let mut attempts = 0;
    for _ in 0..120 {
        rig.pass(100);
        let sent = rig.sent();
        attempts += publishes(&sent).len();
        for ask in sent
            .iter()
            .filter(|sent| sent.method() == Some(MethodId::CONFIRM_SELECT))
        {
            rig.answer(ask.channel);
        }
    }
    assert_eq!(attempts, 1, "after confirm-timeout");
}
