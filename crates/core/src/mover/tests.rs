//! Which frames settle which deliveries.

use super::*;
use crate::amqp::frame::{Front, front};
use crate::amqp::method::Settle;

/// Frames after these decisions: tag, and `*` for multiple.
fn written(decisions: &str) -> Vec<String> {
    let mut mover = Mover::new(ChannelId(1), 0);
    let mut fx = Effects::<()>::default();
    for decision in decisions.split(' ') {
        let (what, tag) = decision.split_at(1);
        let tag = tag.parse().unwrap_or_default();
        match what {
            "h" => assert_eq!(mover.hold(tag, 1, Mono(0), ()), Ticket(tag)),
            "a" => mover.ack(tag),
            "r" => mover.reject(tag, &mut fx),
            "b" => mover.give_back(tag, &mut fx),
            "B" => mover.give_all_back(&mut fx),
            "l" => mover.leave(tag),
            _ => _ = mover.flush(&mut fx),
        }
    }
    assert_eq!(mover.bytes, mover.count());
    let (bytes, mut at) = (fx.broker.finish().0, 0);
    let mut written = Vec::new();
    while let Front::Whole(_, payload, whole) = front(&bytes[at..]) {
        at += whole;
        let (id, settle) = (MethodId::peek(payload), Settle::parse(payload));
        let settle = settle.expect("a settlement");
        let name = match (id, settle.requeue) {
            (Some(MethodId::BASIC_ACK), _) => "a",
            (_, true) => "b",
            (_, false) => "r",
        };
        let multiple = if settle.multiple { "*" } else { "" };
        written.push(format!("{name}{}{multiple}", settle.delivery_tag.0));
    }
    written
}

#[test]
fn what_has_nothing_unsettled_before_it_is_acked_together() {
    for (decisions, expected) in [
        ("a1 f", &["a1"][..]),
        ("a1 a2 a3 f", &["a3*"]),
        ("h1 h2 h3 a3 a1 f", &["a1", "a3"]),
        ("h1 h2 h3 a2 f a1 f", &["a2", "a1"]),
        ("h1 h2 h3 a2 a1 f a3 f", &["a2*", "a3"]),
        ("l1 a2 a3 f", &["a2", "a3"]),
        ("a1 a2 l3 a4 f", &["a2*", "a4"]),
        ("h1 h2 h3 l2 a1 a3 f", &["a1", "a3"]),
        ("h1 r1 a2 a3 f", &["r1", "a3*"]),
        ("h1 h2 h3 b2 a1 a3 f", &["b2", "a3*"]),
        ("h1 h2 h3 a1 f B f", &["a1", "b3*"]),
        ("f B", &[]),
    ] {
        assert_eq!(written(decisions), expected, "{decisions}");
    }
}

#[test]
fn an_outcome_of_an_earlier_channel_finds_nothing() {
    let mut mover = Mover::new(ChannelId(1), 7);
    mover.last = 2;
    let old = mover.hold(2, 1, Mono(0), "old");
    assert_eq!(mover.of(old), Some((2, &mut "old")));
    mover.forget(ChannelId(2));
    assert_eq!(mover.bytes, 0);
    assert_eq!(mover.of(old), None);
    let new = mover.hold(1, 1, Mono(0), "new");
    assert_eq!(mover.of(new), Some((1, &mut "new")));
    assert!(new > old);
}

/// A broker that breaks the protocol costs the connection, not the process.
#[test]
fn a_second_header_begins_the_message_anew() {
    let header = |size: u64| [&[0, 60, 0, 0][..], &size.to_be_bytes(), &[0, 0]].concat();
    let mut delivery = Delivery::default();
    for (size, keep) in [
        (5, Keep::Whole),
        (1 << 40, Keep::Whole),
        (2, Keep::Begin(1)),
    ] {
        delivery.header(&header(size), keep).expect("a header");
        delivery.body(b"abc").expect("room");
    }
    assert!(delivery.is_whole());
    assert_eq!(delivery.content(), None);
    assert_eq!(&delivery.letter(1).body[..], b"a");
}
