//! Confirmed, in order, each once.

use std::sync::Arc;

use super::*;
use crate::amqp::ids::name;

#[test]
fn a_dead_letter_is_published_and_its_owner_told() {
    let mut rig = rig();
    rig.publish(1, message("", "dead", "hi"));
    assert_eq!(rig.published(), [row(1, "", "dead", "hi")]);
    assert_eq!(rig.settled(), []);
    rig.ack(1, 1, false);
    assert_eq!(
        rig.fx.out.settled,
        [(SESSION, Ticket(1), Outcome::Confirmed)]
    );
    assert_eq!(
        rig.events(),
        [Event::DeadLetter(Arc::new(DeadLetter {
            queue: name("work"),
            reason: Reason::Rejected,
            exchange: name(""),
            routing_key: name("dead"),
            octets: 2,
            outcome: Outcome::Confirmed,
            by: None,
        }))]
    );
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn order_is_kept_and_confirms_may_be_multiple() {
    let mut rig = rig();
    let batch = (1..=5).map(|n| (n, message("", "dead", &n.to_string())));
    rig.publish_as(SESSION, batch.collect());
    let bodies: String = rig.published().into_iter().map(|row| row.3).collect();
    assert_eq!(bodies, "12345");
    rig.ack(1, 3, false);
    rig.ack(1, 4, true);
    let order: Vec<u64> = rig.settled().into_iter().map(|(n, _)| n).collect();
    assert_eq!(order, [3, 1, 2, 4]);
    // Confirms for what was confirmed, or never published, change nothing.
    rig.ack(1, 2, false);
    rig.ack(1, 99, false);
    rig.nack(1, 1);
    assert_eq!(rig.settled(), []);
    rig.ack(1, 0, true);
    assert_eq!(rig.settled(), [(5, Outcome::Confirmed)]);
}

#[test]
fn a_large_body_is_cut_into_frames() {
    let mut rig = rig();
    let body = "x".repeat(300_000);
    rig.publish(1, message("", "dead", &body));
    assert_eq!(rig.published(), [row(1, "", "dead", &body)]);
}

#[test]
fn each_named_exchange_has_a_channel_of_its_own() {
    let mut rig = rig();
    rig.publish_as(
        SESSION,
        vec![
            (1, message("a", "k", "1")),
            (2, message("b", "k", "2")),
            (3, message("a", "k", "3")),
            (4, message("", "k", "4")),
        ],
    );
    let mut published = rig.published();
    published.sort();
    let expected = [
        row(1, "", "k", "4"),
        row(3, "a", "k", "1"),
        row(3, "a", "k", "3"),
        row(4, "b", "k", "2"),
    ];
    assert_eq!(published, expected);
}

#[test]
fn more_exchanges_than_channels_take_turns() {
    let mut rig = rig();
    let batch = (0..200).map(|n| (n, message(&format!("x{}", n % 100), "k", &n.to_string())));
    rig.publish_as(SESSION, batch.collect());
    let mut done = Vec::new();
    for _ in 0..20 {
        for (channel, exchange, _, body) in rig.published() {
            assert!((3..67).contains(&channel), "{channel}");
            assert_eq!(exchange, format!("x{}", body.parse::<u64>().unwrap() % 100));
        }
        for channel in 3..67 {
            rig.ack(channel, 0, true);
        }
        done.extend(rig.settled());
    }
    let mut tickets: Vec<u64> = done.iter().map(|(n, _)| *n).collect();
    let position = |n| tickets.iter().position(|ticket| *ticket == n);
    assert!(
        (0..100).all(|n| position(n) < position(n + 100)),
        "order per exchange"
    );
    tickets.sort_unstable();
    assert!(tickets.into_iter().eq(0..200));
    assert!(
        done.iter()
            .all(|(_, outcome)| *outcome == Outcome::Confirmed)
    );
}

#[test]
fn drains_before_it_leaves() {
    let mut rig = rig();
    rig.publish(1, message("", "dead", "hi"));
    rig.published();
    rig.drain();
    rig.publish(2, message("", "dead", "too late"));
    assert_eq!(rig.settled(), [(2, Outcome::Refused(Cause::PublisherAway))]);
    assert_eq!(rig.methods(), []);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    rig.broker(&method(0, MethodId::CONNECTION_CLOSE_OK, |_| {}));
    assert_eq!(rig.machine.flow(), Flow::Finish);
}
