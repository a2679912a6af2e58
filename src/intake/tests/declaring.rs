//! The topology.

use super::*;

#[test]
fn declares_its_objects_then_consumes() {
    let mut rig = fresh();
    rig.up("4.3.6");
    let sent = rig.sent();
    let parking = ExchangeName::parse(&sent[1].payload).unwrap();
    assert_eq!(parking.exchange, b"dlx-proxy.parked");
    let queue = QueueDeclare::parse(&sent[2].payload).unwrap();
    assert_eq!((queue.queue, queue.bits), (&b"dlx-proxy.parked"[..], 2));
    let bind = QueueBind::parse(&sent[3].payload).unwrap();
    assert_eq!(
        (bind.queue, bind.exchange),
        (&b"dlx-proxy.parked"[..], &b"dlx-proxy.parked"[..])
    );
    let intake = QueueDeclare::parse(&sent[4].payload).unwrap();
    assert_eq!(intake.queue, b"dlx-proxy.intake");
    let arguments: Vec<_> = Table(intake.arguments)
        .fields()
        .map(|field| {
            let field = field.unwrap();
            let name = std::str::from_utf8(field.name).unwrap();
            let value = field.value.as_longstr().map(|text| text.escape_ascii());
            let value = value.map(|text| text.to_string());
            (name, value.unwrap_or(format!("{:?}", field.value.data)))
        })
        .collect();
    let expected = [
        ("x-queue-type", "quorum"),
        ("x-single-active-consumer", "[1]"),
        ("x-dead-letter-exchange", "dlx-proxy.parked"),
        ("x-delivery-limit", "[0, 0, 0, 0, 0, 0, 0, 20]"),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
    ];
    assert!(
        arguments
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .eq(expected)
    );
    rig.objects_ok();
    assert_eq!(rig.consuming(), 1000);
    let events = rig.events();
    assert!(matches!(
        events[..],
        [Event::LinkUp { .. }, Event::Consuming(true)]
    ));
}

#[test]
fn objects_with_other_arguments_are_used_as_they_are() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.sent();
    rig.declare_ok();
    rig.queue_ok();
    rig.bind_ok();
    rig.broker(&close(
        1,
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'dlx-proxy.intake'",
        MethodId::QUEUE_DECLARE,
    ));
    let sent = rig.sent();
    assert!(sent[0].is(1, MethodId::CHANNEL_CLOSE_OK));
    assert!(sent[1].is(1, MethodId::CHANNEL_OPEN));
    let parked = QueueDeclare::parse(&sent[3].payload).unwrap();
    assert!(!parked.has(QueueDeclare::PASSIVE));
    let intake = QueueDeclare::parse(&sent[5].payload).unwrap();
    assert!(intake.has(QueueDeclare::PASSIVE));
    rig.objects_ok();
    rig.consuming();
    let events = rig.events();
    assert!(
        matches!(&events[1], Event::ChannelClosed { cause, .. } if cause.contains("x-queue-type"))
    );
}

#[test]
fn without_rights_the_vhost_stays_native() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.ensure(1, "dlx-proxy/a");
    for _ in 0..2 {
        assert_eq!(rig.ensured(), []);
        rig.broker(&close(1, 403, "ACCESS_REFUSED", MethodId::EXCHANGE_DECLARE));
    }
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/a".into(), false)]);
    let native = |event: &Event| matches!(event, Event::VhostNative { .. });
    assert_eq!(rig.events().iter().filter(|event| native(event)).count(), 1);
    rig.ensure(2, "dlx-proxy/a");
    assert_eq!(rig.ensured(), [(2, "dlx-proxy/a".into(), false)]);
    // A minute later it is tried again; heartbeats keep the link.
    rig.sent();
    for _ in 0..60 {
        rig.pass(1_000);
        rig.broker(&crate::amqp::frame::HEARTBEAT);
    }
    rig.objects();
    rig.consuming();
}

#[test]
fn an_exchange_is_declared_and_bound_once_for_all_who_ask() {
    let mut rig = rig();
    rig.ensure(1, "dlx-proxy/a");
    rig.ensure(2, "dlx-proxy/a");
    let sent = rig.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent[0].is(1, MethodId::EXCHANGE_DECLARE));
    let bind = QueueBind::parse(&sent[1].payload).unwrap();
    assert_eq!(
        (bind.queue, bind.exchange),
        (&b"dlx-proxy.intake"[..], &b"dlx-proxy/a"[..])
    );
    rig.declare_ok();
    assert_eq!(rig.ensured(), []);
    rig.bind_ok();
    let both = [1, 2].map(|owner| (owner, "dlx-proxy/a".to_string(), true));
    assert_eq!(rig.ensured(), both);
    assert_eq!(rig.events(), [Event::IntakeExchanges(1)]);
    // Remembered for a minute, then declared again.
    rig.ensure(3, "dlx-proxy/a");
    assert_eq!(rig.ensured(), [(3, "dlx-proxy/a".into(), true)]);
    assert_eq!(rig.methods(), []);
    rig.pass(59_000);
    rig.broker(&crate::amqp::frame::HEARTBEAT);
    rig.pass(1_000);
    rig.ensure(4, "dlx-proxy/a");
    assert_eq!(rig.methods().len(), 2);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(4, "dlx-proxy/a".into(), true)]);
    assert_eq!(rig.events(), []);
}

#[test]
fn a_refused_exchange_does_not_harm_its_neighbours() {
    let mut rig = rig();
    rig.ensure(1, "dlx-proxy/a");
    rig.ensure(2, "dlx-proxy/b");
    rig.declare_ok();
    rig.sent();
    rig.broker(&close(1, 406, "PRECONDITION_FAILED", MethodId::QUEUE_BIND));
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/a".into(), false)]);
    let sent = rig.methods();
    assert_eq!(
        sent[..2],
        [(1, MethodId::CHANNEL_CLOSE_OK), (1, MethodId::CHANNEL_OPEN)]
    );
    rig.objects_ok();
    assert_eq!(rig.methods().len(), 2, "the other one again");
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(2, "dlx-proxy/b".into(), true)]);
}

#[test]
fn there_are_so_many_and_no_more() {
    let mut rig = rig();
    for exchange in ["a", "b", "c", "d"] {
        rig.ensure(1, &format!("dlx-proxy/{exchange}"));
    }
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/d".into(), false)]);
}

#[test]
fn who_asks_while_the_link_is_away_waits_a_little() {
    let mut rig = rig();
    rig.cut();
    rig.ensure(1, "dlx-proxy/a");
    rig.pass(1_000);
    assert_eq!(rig.ensured(), []);
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.methods()[3..].len(), 2);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/a".into(), true)]);

    rig.cut();
    rig.ensure(2, "dlx-proxy/a");
    rig.pass(4_000);
    assert_eq!(rig.ensured(), [(2, "dlx-proxy/a".into(), false)]);
    rig.ensure(3, "dlx-proxy/a");
    assert_eq!(rig.ensured(), [(3, "dlx-proxy/a".into(), false)]);
}

#[test]
fn a_deleted_intake_queue_is_declared_anew() {
    let mut rig = rig();
    rig.ensure(1, "dlx-proxy/a");
    rig.declare_ok();
    rig.bind_ok();
    rig.sent();
    rig.events();
    rig.cancel();
    assert_eq!(rig.events(), [Event::Consuming(false)]);
    rig.pass(1_000);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    assert_eq!(rig.methods(), CONSUME);
    rig.consume_ok();
    assert_eq!(rig.events(), [Event::Consuming(true)]);
    // Its bindings went with it: what was remembered is declared again.
    rig.ensured();
    rig.ensure(2, "dlx-proxy/a");
    assert_eq!(rig.ensured(), []);
    assert_eq!(rig.methods().len(), 2);
}
