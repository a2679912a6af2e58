//! The topology.

use super::*;

/// Arguments of a declare, texts as they are.
fn arguments<'a>(declare: &QueueDeclare<'a>) -> Vec<(&'a str, String)> {
    let fields = Table(declare.arguments).fields();
    fields
        .map(|field| {
            let field = field.unwrap();
            let name = std::str::from_utf8(field.name).unwrap();
            let value = field.value.as_longstr().map(|text| text.escape_ascii());
            let value = value.map(|text| text.to_string());
            (name, value.unwrap_or(format!("{:?}", field.value.data)))
        })
        .collect()
}

/// The broker closes the channel over the parking queue.
fn refuse_parking(rig: &mut IntakeRig) {
    rig.declare_ok();
    let text =
        "PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'dlx-proxy.parked'";
    rig.broker(&close(1, 406, text, MethodId::QUEUE_DECLARE));
}

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
    let intake = QueueDeclare::parse(&sent[6].payload).unwrap();
    assert_eq!(intake.queue, b"dlx-proxy.intake");
    let expected = [
        ("x-queue-type", "quorum"),
        ("x-single-active-consumer", "[1]"),
        ("x-dead-letter-exchange", "dlx-proxy.parked"),
        ("x-delivery-limit", "[0, 0, 0, 0, 0, 0, 0, 20]"),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
    ];
    let expected = expected.map(|(name, value)| (name, value.to_string()));
    assert_eq!(arguments(&intake), expected);
    rig.objects_ok();
    assert_eq!(rig.consuming(), 1000);
    let events = rig.events();
    assert!(matches!(
        events[..],
        [
            Event::LinkUp { .. },
            Event::Consuming(true),
            Event::IntakeWorks
        ]
    ));
}

#[test]
fn what_is_parked_may_be_returned_without_end() {
    // 4.x would drop it after 20 returns; 3.x drops at the first one if it is told -1.
    for (version, queue_type, limited) in [
        ("4.3.6", QueueType::Quorum, true),
        ("4.0.1", QueueType::Quorum, true),
        ("4.3.6", QueueType::Classic, false),
        ("3.13.7", QueueType::Quorum, false),
        ("3.10.8", QueueType::Quorum, false),
    ] {
        let settings = Settings {
            queue_type,
            ..settings()
        };
        let mut rig = Rig::new(Intake::new(settings, Now::default()));
        rig.up(version);
        let sent = rig.sent();
        let queue = QueueDeclare::parse(&sent[2].payload).unwrap();
        let arguments = arguments(&queue);
        let limit = ("x-delivery-limit", format!("{:?}", (-1i64).to_be_bytes()));
        assert_eq!(arguments.get(1), limited.then_some(&limit), "{version}");
        assert_eq!(arguments.len(), 1 + usize::from(limited), "{version}");
    }
}

#[test]
fn a_parking_queue_with_other_arguments_is_used_and_told_of_once() {
    let mut rig = fresh();
    let mut told = 0;
    for _ in 0..3 {
        rig.up("4.3.6");
        rig.sent();
        refuse_parking(&mut rig);
        let sent = rig.sent();
        let parked = QueueDeclare::parse(&sent[3].payload).unwrap();
        assert!(parked.has(QueueDeclare::PASSIVE));
        rig.objects_ok();
        rig.consuming();
        let is = |event: &Event| matches!(event, Event::ChannelClosed { cause, .. } if cause.contains("x-delivery-limit"));
        told += rig.events().iter().filter(|event| is(event)).count();
        rig.cut();
    }
    assert_eq!(told, 1);
}

#[test]
fn objects_with_other_arguments_are_used_as_they_are() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.sent();
    rig.declare_ok();
    rig.queue_ok();
    rig.bind_ok();
    rig.declare_ok();
    rig.declare_ok();
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
    let intake = QueueDeclare::parse(&sent[7].payload).unwrap();
    assert!(intake.has(QueueDeclare::PASSIVE));
    rig.objects_ok();
    rig.consuming();
    let events = rig.events();
    assert!(
        matches!(&events[1], Event::ChannelClosed { cause, .. } if cause.contains("x-queue-type"))
    );
}

#[test]
fn without_the_objects_of_retries_all_else_goes_on() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.sent();
    for code in [403, 404] {
        rig.declare_ok();
        rig.queue_ok();
        rig.bind_ok();
        let text = "no delay exchange for you";
        rig.broker(&close(1, code, text, MethodId::EXCHANGE_DECLARE));
    }
    let methods = rig.methods();
    let last = &methods[methods.len() - 6..];
    let without: Vec<_> = [&OBJECTS[..3], &OBJECTS[4..]].concat();
    assert_eq!(last, without);
    rig.declare_ok();
    rig.queue_ok();
    rig.bind_ok();
    rig.declare_ok();
    rig.queue_ok();
    rig.bind_ok();
    rig.consuming();
}

/// What was said of whether it works, since the last call.
fn said(rig: &mut IntakeRig) -> Vec<Result<(), String>> {
    let events = rig.events().into_iter();
    let said = events.filter_map(|event| match event {
        Event::IntakeWorks => Some(Ok(())),
        Event::IntakeRefused { cause, .. } => Some(Err(cause)),
        _ => None,
    });
    said.collect()
}

/// So many seconds; heartbeats keep the link.
fn seconds(rig: &mut IntakeRig, seconds: u64) {
    for _ in 0..seconds {
        rig.pass(1_000);
        rig.broker(&crate::amqp::frame::HEARTBEAT);
    }
}

#[test]
fn without_rights_it_says_so_and_tries_again_less_and_less_often() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.ensure(1, "dlx-proxy/a");
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        // Whether it is there may be asked without a right: it is not, and what is missing is the right.
        for (code, text) in [(403, "ACCESS_REFUSED"), (404, "NOT_FOUND")] {
            rig.sent();
            rig.broker(&close(1, code, text, MethodId::EXCHANGE_DECLARE));
        }
        let answered = if wait == 1 {
            vec![(1, "dlx-proxy/a".into(), false)]
        } else {
            vec![]
        };
        assert_eq!(rig.ensured(), answered);
        let news = if wait == 1 {
            vec![Err("403 ACCESS_REFUSED".to_owned())]
        } else {
            vec![]
        };
        assert_eq!(said(&mut rig), news);
        rig.sent();
        seconds(&mut rig, wait - 1);
        assert!(rig.methods().is_empty(), "{wait} s");
        rig.pass(1_000);
    }
    rig.objects();
    rig.consuming();
    assert_eq!(said(&mut rig), [Ok(())]);
}

#[test]
fn who_may_not_publish_consumes_but_does_not_work() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.sent();
    rig.declare_ok();
    rig.queue_ok();
    rig.broker(&close(1, 403, "ACCESS_REFUSED", MethodId::QUEUE_BIND));
    rig.sent();
    rig.declare_ok();
    rig.queue_ok();
    rig.declare_ok();
    rig.declare_ok();
    rig.queue_ok();
    rig.bind_ok();
    rig.consuming();
    assert_eq!(said(&mut rig), [Err("403 ACCESS_REFUSED".to_owned())]);
    // It is tried again, while all else goes on.
    rig.pass(1_000);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    assert_eq!(said(&mut rig), [Ok(())]);
}

#[test]
fn who_may_not_consume_is_told_and_tries_again() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.objects();
    for wait in [1, 2] {
        let sent = rig.sent();
        assert!(sent[2].is(2, MethodId::BASIC_CONSUME));
        let text = "ACCESS_REFUSED - access to queue";
        rig.broker(&close(2, 403, text, MethodId::BASIC_CONSUME));
        let news = [Err(format!("403 {text}"))];
        assert_eq!(said(&mut rig), news[..if wait == 1 { 1 } else { 0 }]);
        rig.sent();
        seconds(&mut rig, wait - 1);
        assert!(rig.methods().is_empty(), "{wait} s");
        rig.pass(1_000);
        assert_eq!(rig.methods(), OBJECTS);
        rig.objects_ok();
    }
    rig.consuming();
    assert_eq!(said(&mut rig), [Ok(())]);
    // A leader that changes is no news.
    rig.cancel();
    rig.pass(1_000);
    rig.objects_ok();
    rig.consume_ok();
    assert_eq!(said(&mut rig), []);
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
    for (owner, exchange) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        rig.ensure(owner, &format!("dlx-proxy/{exchange}"));
    }
    assert_eq!(rig.ensured(), [(4, "dlx-proxy/d".into(), false)]);
}

#[test]
fn one_user_may_have_half_of_them() {
    let mut rig = rig();
    for exchange in ["a", "b", "c"] {
        rig.ensure(1, &format!("dlx-proxy/{exchange}"));
    }
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/c".into(), false)]);
    assert_eq!(rig.events(), [Event::LimitMet(Limit::IntakeExchanges)]);
    // What is there already is for everybody.
    rig.ensure(2, "dlx-proxy/c");
    rig.ensure(1, "dlx-proxy/c");
    for _ in 0..3 {
        rig.declare_ok();
        rig.bind_ok();
    }
    let told = rig.ensured();
    assert!(told.contains(&(1, "dlx-proxy/c".into(), true)), "{told:?}");
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

/// Known from now on.
fn declared(rig: &mut IntakeRig, exchange: &str) {
    rig.ensure(9, exchange);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(9, exchange.into(), true)]);
    rig.sent();
    rig.events();
}

/// Which exchanges are declared and bound by what was sent since the last call, in order.
fn bound(rig: &mut IntakeRig) -> Vec<String> {
    let sent = rig.sent();
    let topology: Vec<_> = sent.iter().filter(|sent| sent.channel == 1).collect();
    let pairs = topology.chunks(2).map(|pair| {
        assert!(pair[0].is(1, MethodId::EXCHANGE_DECLARE));
        let bind = QueueBind::parse(&pair[1].payload).unwrap();
        assert_eq!(bind.queue, b"dlx-proxy.intake");
        String::from_utf8(bind.exchange.to_vec()).unwrap()
    });
    pairs.collect()
}

#[test]
fn a_deleted_intake_queue_is_declared_anew_with_its_bindings() {
    let mut rig = rig();
    declared(&mut rig, "dlx-proxy/a");
    declared(&mut rig, "dlx-proxy/b");
    rig.pass(1_000);
    rig.cancel();
    assert_eq!(rig.events(), [Event::Consuming(false)]);
    // Somebody asks meanwhile: what is remembered counts no more.
    rig.pass(0);
    rig.ensure(1, "dlx-proxy/b");
    assert_eq!(rig.ensured(), []);
    assert_eq!(rig.methods(), OBJECTS);
    rig.objects_ok();
    assert_eq!(bound(&mut rig), ["dlx-proxy/b", "dlx-proxy/a"]);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/b".into(), true)]);
    rig.declare_ok();
    rig.bind_ok();
    rig.consume_ok();
    assert_eq!(rig.events(), [Event::Consuming(true)]);
    rig.ensure(2, "dlx-proxy/a");
    assert_eq!(rig.ensured(), [(2, "dlx-proxy/a".into(), true)]);
    assert_eq!(rig.methods(), []);
}

#[test]
fn a_queue_that_is_deleted_again_and_again_is_declared_once_a_second() {
    let mut rig = rig();
    for _ in 0..3 {
        rig.pass(0);
        rig.cancel();
        rig.pass(999);
        assert_eq!(rig.methods(), []);
        rig.pass(1);
        assert_eq!(rig.methods(), OBJECTS);
        rig.objects_ok();
        assert_eq!(rig.methods(), CONSUME);
        rig.consume_ok();
    }
}

#[test]
fn what_was_known_is_declared_again_on_the_next_link() {
    let mut rig = rig();
    declared(&mut rig, "dlx-proxy/a");
    declared(&mut rig, "dlx-proxy/b");
    rig.ensure(1, "dlx-proxy/c");
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    let expected = ["dlx-proxy/c", "dlx-proxy/a", "dlx-proxy/b"];
    assert_eq!(bound(&mut rig), expected);
    // One of them is refused: those behind it are not forgotten, those before it not declared again.
    rig.declare_ok();
    rig.bind_ok();
    rig.broker(&close(
        1,
        406,
        "PRECONDITION_FAILED",
        MethodId::EXCHANGE_DECLARE,
    ));
    rig.sent();
    rig.objects_ok();
    assert_eq!(bound(&mut rig), ["dlx-proxy/b"]);
}

#[test]
fn a_bind_to_the_queue_that_was_deleted_does_not_count() {
    let mut rig = rig();
    rig.ensure(1, "dlx-proxy/a");
    rig.pass(1_000);
    rig.sent();
    // Bound, then deleted; but the other channel is heard first.
    rig.cancel();
    rig.pass(0);
    assert_eq!(rig.methods(), OBJECTS);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), []);
    rig.objects_ok();
    assert_eq!(bound(&mut rig), ["dlx-proxy/a"]);
    rig.declare_ok();
    rig.bind_ok();
    assert_eq!(rig.ensured(), [(1, "dlx-proxy/a".into(), true)]);
}

#[test]
fn a_queue_that_vanishes_before_the_bind_is_not_the_exchanges_fault() {
    let mut rig = rig();
    rig.ensure(1, "dlx-proxy/a");
    for last in [false, true] {
        rig.sent();
        rig.declare_ok();
        rig.broker(&close(1, 404, "NOT_FOUND", MethodId::QUEUE_BIND));
        rig.objects_ok();
        let answer = last.then(|| (1, "dlx-proxy/a".to_string(), false));
        assert_eq!(rig.ensured(), Vec::from_iter(answer));
    }
}
