//! Internal exchanges are reached over bridges.

use std::sync::Arc;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::method::ExchangeBind;

pub(super) const INTERNAL: &str =
    "ACCESS_REFUSED - cannot publish to internal exchange 'int-x' in vhost '/'";
pub(super) const BRIDGE: &str = "dlx-proxy.bridge/int-x";

/// What goes out on a channel without a bridge.
pub(super) const BUILT: [MethodId; 3] = [
    MethodId::EXCHANGE_DECLARE,
    MethodId::EXCHANGE_BIND,
    MethodId::BASIC_PUBLISH,
];

pub(super) fn bind_fails(rig: &mut PublisherRig, channel: u16, code: u16) {
    rig.broker(&close(channel, code, "no", MethodId::EXCHANGE_BIND));
}

/// What was sent since the last call on channels that stay open, those that had to be opened first included.
pub(super) fn methods(rig: &mut PublisherRig) -> Vec<(u16, MethodId)> {
    let mut methods = Vec::new();
    loop {
        let sent = rig.methods();
        let opened: Vec<u16> = sent
            .iter()
            .filter(|sent| sent.1 == MethodId::CHANNEL_OPEN)
            .map(|sent| sent.0)
            .collect();
        methods.extend(sent.into_iter().filter(|sent| BUILT.contains(&sent.1)));
        if opened.is_empty() {
            return methods;
        }
        opened.into_iter().for_each(|channel| rig.ready(channel));
    }
}

/// A dead letter of `int-x` is in flight over its bridge, on channel 4.
pub(super) fn bridged() -> PublisherRig {
    let mut rig = rig();
    rig.publish(1, message("int-x", "k", "1"));
    assert_eq!(rig.published(), [row(3, "int-x", "k", "1")]);
    rig.close(3, 403, INTERNAL);
    assert_eq!(rig.published(), [row(4, BRIDGE, "k", "1")]);
    rig
}

#[test]
fn a_bridge_is_built_in_front_of_the_first_publish() {
    let mut rig = rig();
    rig.publish(1, message("int-x", "k", "1"));
    rig.published();
    rig.close(3, 403, INTERNAL);
    rig.ready(4);
    let sent: Vec<Sent> = rig.sent().into_iter().filter(|s| s.channel == 4).collect();
    let methods: Vec<MethodId> = sent.iter().filter_map(Sent::method).skip(2).collect();
    assert_eq!(methods, BUILT);
    let declare = [
        b"\x00\x28\x00\x0a\x00\x00\x16dlx-proxy.bridge/int-x\x06fanout".as_slice(),
        &[4 | 16, 0, 0, 0, 0], // auto_delete, no_wait
    ];
    assert_eq!(sent[2].payload, declare.concat());
    let bind = ExchangeBind::parse(&sent[3].payload).unwrap();
    assert_eq!(
        (bind.source, bind.destination),
        (BRIDGE.as_bytes(), &b"int-x"[..])
    );
    assert_eq!(
        sent[3].payload[sent[3].payload.len() - 5..],
        [1, 0, 0, 0, 0]
    );

    rig.ack(4, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    let exchange = name("int-x");
    assert_eq!(
        rig.events(),
        [
            Event::InternalExchange {
                exchange: exchange.clone()
            },
            Event::DeadLetter(Arc::new(DeadLetter::of(
                message("int-x", "k", "1"),
                Outcome::Confirmed
            ))),
        ]
    );
}

#[test]
fn only_the_first_dead_letter_pays() {
    let mut rig = bridged();
    rig.publish(2, message("int-x", "l", "2"));
    assert_eq!(methods(&mut rig), [(4, MethodId::BASIC_PUBLISH)]);
    rig.ack(4, 2, true);
    let confirmed = [(1, Outcome::Confirmed), (2, Outcome::Confirmed)];
    assert_eq!(rig.settled(), confirmed);
}

#[test]
fn what_waits_for_an_internal_exchange_goes_along_in_order() {
    let mut rig = rig();
    let batch = (1..=3_000).map(|n| (n, message("int-x", "k", &format!("{n} "))));
    rig.publish_as(SESSION, batch.collect());
    assert_eq!(rig.published().len(), 2_048);
    rig.close(3, 403, INTERNAL);
    let mut published = rig.published();
    rig.ack(4, 2_048, true);
    published.extend(rig.published());
    assert!(published.iter().all(|row| row.0 == 4 && row.1 == BRIDGE));
    let order: Vec<u64> = published
        .iter()
        .map(|r| r.3.trim().parse().unwrap())
        .collect();
    assert!(order.into_iter().eq(1..=3_000));
    rig.ack(4, 3_000, true);
    assert_eq!(rig.settled().len(), 3_000);
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn an_exchange_that_is_gone_takes_its_bridge_along_and_is_missing_then() {
    let mut rig = bridged();
    rig.ack(4, 1, false);
    rig.publish(2, message("int-x", "k", "2"));
    rig.published();
    rig.close(
        4,
        404,
        "NOT_FOUND - no exchange 'dlx-proxy.bridge/int-x' in vhost '/'",
    );
    assert_eq!(rig.published(), [row(3, "int-x", "k", "2")]);
    rig.close(3, 404, "NOT_FOUND - no exchange 'int-x' in vhost '/'");
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "2")]);
    rig.ack(2, 1, false);
    let outcomes = [
        (1, Outcome::Confirmed),
        (2, Outcome::Parked(Cause::NoExchange)),
    ];
    assert_eq!(rig.settled(), outcomes);
}

#[test]
fn the_same_is_learnt_from_a_binding_that_fails() {
    let mut rig = bridged();
    bind_fails(&mut rig, 4, 404);
    assert_eq!(rig.published(), [row(3, "int-x", "k", "1")]);
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)], "internal no more");
    rig.publish(2, message("int-x", "k", "2"));
    assert_eq!(
        rig.published(),
        [row(3, "int-x", "k", "2")],
        "nor is it remembered so"
    );
}

#[test]
fn an_exchange_that_was_made_anew_gets_a_bridge_again() {
    let mut rig = bridged();
    rig.close(4, 404, "NOT_FOUND");
    rig.published();
    rig.close(3, 403, INTERNAL);
    let built = BUILT.map(|id| (4, id));
    assert_eq!(methods(&mut rig), built);
    rig.ack(4, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn nobody_looks_for_a_bridge_without_end() {
    let mut rig = bridged();
    for _ in 2..=3 {
        rig.close(4, 404, "NOT_FOUND");
        rig.published();
        rig.close(3, 403, INTERNAL);
        assert_eq!(rig.published(), [row(4, BRIDGE, "k", "1")]);
    }
    rig.close(4, 404, "NOT_FOUND");
    rig.published();
    rig.close(3, 403, INTERNAL);
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "1")]);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Forbidden))]);
}

#[test]
fn what_may_not_be_bridged_is_parked() {
    // 406: there is one, but not as we make them.
    for (code, failed) in [
        (403, MethodId::EXCHANGE_DECLARE),
        (406, MethodId::EXCHANGE_DECLARE),
        (403, MethodId::EXCHANGE_BIND),
    ] {
        let mut rig = bridged();
        rig.broker(&close(4, code, "no", failed));
        assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "1")]);
        rig.ack(2, 1, false);
        assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Forbidden))]);
        // It may be public by now, and no bridge would tell.
        rig.publish(2, message("int-x", "k", "2"));
        assert_eq!(rig.published(), [row(3, "int-x", "k", "2")]);
    }
}

#[test]
fn a_name_that_leaves_no_room_for_a_bridge_is_parked() {
    let mut rig = rig();
    let exchange = "x".repeat(239);
    rig.publish(1, message(&exchange, "k", "1"));
    rig.published();
    rig.close(3, 403, INTERNAL);
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "1")]);
}

#[test]
fn what_an_internal_exchange_does_not_route_is_returned_by_its_bridge() {
    let mut rig = bridged();
    rig.publish(2, message("int-x", "l", "2"));
    rig.published();
    rig.give_back(4, BRIDGE, "k", &message("", "", "1").content);
    rig.ack(4, 2, true);
    assert_eq!(rig.settled(), [(2, Outcome::Confirmed)]);
    let parked = rig.sent();
    assert_eq!(publishes(&parked), []);
    rig.ready(2);
    let parked = rig.sent();
    assert_eq!(publishes(&parked), [row(2, "dlx-proxy.parked", "k", "1")]);
    let told = [
        ("x-parked-exchange".to_owned(), b"int-x".to_vec()),
        ("x-parked-cause".to_owned(), b"unroutable".to_vec()),
        ("x-dlx-proxy-user-id".to_owned(), Vec::new()),
    ];
    assert_eq!(headers(&parked), told);
}

#[test]
fn so_many_internal_exchanges_are_remembered_and_no_more() {
    let mut rig = rig();
    let mut channels = |n: usize| {
        rig.publish(1, message(&format!("int-{n}"), "k", "1"));
        let mut rows = rig.published();
        if rows[0].1 == format!("int-{n}") {
            rig.close(rows[0].0, 403, INTERNAL);
            rows.extend(rig.published());
        }
        let last = rows.last().expect("published").clone();
        assert_eq!(last.1, format!("dlx-proxy.bridge/int-{n}"));
        rig.ack(last.0, 0, true);
        assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
        rows.len()
    };
    for n in 0..1_024 {
        assert_eq!(channels(n), 2);
    }
    assert_eq!(channels(0), 1);
    assert_eq!(channels(1_024), 2, "one too many");
    assert_eq!(channels(0), 2, "all are forgotten");
}

#[test]
fn a_parking_exchange_that_is_internal_gets_no_bridge() {
    let mut rig = rig();
    rig.publish(1, message("gone", "k", "1"));
    rig.published();
    rig.close(3, 404, "NOT_FOUND");
    rig.published();
    rig.close(2, 403, INTERNAL);
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::NoExchange))]);
}
