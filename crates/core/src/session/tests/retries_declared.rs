//! What a declare says of retries, and what the broker reads of it.

use super::probes::{
    ABSENT, GRANTED, NO_WAIT, PROBE, asking, close, close_ok, declare_ok, declare_on, if_there,
    open_ok, opened, probe_closed,
};
use super::retries::{LIMIT, MIN, SECOND, policy, said, table};
use super::script::*;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Mono};
use crate::objects::{DeclaredTarget, OwnObject, QueueType};
use crate::registry::catalogue::fact::Source;
use crate::registry::policy::{Mode, Pattern, Policies, Policy};

const TYPE: &[u8] = b"x-queue-type";
const EXCHANGE: &[u8] = b"x-dead-letter-exchange";

/// Arguments of a queue of that type, with what the broker refuses for a classic one if `full`.
fn arguments(kind: Option<&str>, exchange: Option<&str>, full: bool) -> Vec<u8> {
    table(|table: &mut TableBuilder| {
        if full {
            table.long(MIN, 1000);
        }
        if let Some(kind) = kind {
            table.longstr(TYPE, kind.as_bytes());
        }
        if full {
            table
                .longstr(b"x-delayed-retry-type", b"all")
                .long(b"x-delayed-retry-max", 9000)
                .long(b"x-delayed-retry-multiplier", 2)
                .long(LIMIT, 3)
                .longstr(b"x-delivery-limit-counts", b"all");
        }
        if let Some(exchange) = exchange {
            table.longstr(EXCHANGE, exchange.as_bytes());
        }
    })
}

/// The declared queue delivers a message, and its return is withheld.
fn is_retried(mut s: Script, queue: &str) {
    s.client(&get(queue)).passes();
    s.broker(&got(1)).passes();
    s.client(&nack(1, false, true)).silent();
    assert_eq!(s.dead[0].1.purpose, SECOND);
}

#[test]
fn a_classic_queue_is_declared_without_them() {
    for kind in [Some("classic"), None] {
        for exchange in [Some("dlx"), None] {
            let settings = settings(Mode::RejectsOnly);
            let classic = Some(QueueType::Classic);
            settings.catalogue.learn_default_type(
                &name("/"),
                classic,
                Source::Refusal,
                Mono::default(),
            );
            let mut s = Script::open(settings);
            let full = arguments(kind, exchange, true);
            let rest = arguments(kind, exchange, false);
            s.client(&declare_on(CH, "q", QueueDeclare::DURABLE, &full))
                .broker_gets(&[&declare_on(CH, "q", QueueDeclare::DURABLE, &rest)]);
            s.broker(&declare_ok(CH, "q")).passes();
            is_retried(s, "q");
        }
    }
}

#[test]
fn arguments_that_ask_for_none_beat_a_policy() {
    let settings = settings(Mode::RejectsOnly);
    settings.policies.set_ours(policy(said(None, Some(0))));
    let mut s = Script::open(settings);
    let unlimited = table(|table| {
        table.long(LIMIT, -1);
    });
    s.client(&declare_on(CH, "orders", 0, &unlimited))
        .broker_gets(&[&declare_on(CH, "orders", 0, &[])]);
    s.broker(&declare_ok(CH, "orders")).passes();
    s.client(&get("orders")).passes();
    s.broker(&got(1)).passes();
    s.client(&nack(1, false, true)).passes();
}

#[test]
fn a_quorum_queue_is_declared_with_them() {
    for exchange in [Some("dlx"), None] {
        let mut s = Script::open(settings(Mode::RejectsOnly));
        let full = arguments(Some("quorum"), exchange, true);
        s.client(&declare_on(CH, "q", QueueDeclare::DURABLE, &full))
            .passes();
        s.broker(&declare_ok(CH, "q")).passes();
        is_retried(s, "q"); // since it has a multiplier
    }
}

#[test]
fn a_declare_without_an_answer_is_known_all_the_same() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let (full, rest) = (arguments(None, None, true), arguments(None, None, false));
    s.client(&declare_on(CH, "q", NO_WAIT, &full))
        .broker_gets(&[&declare_on(CH, "q", 0, &rest)]);
    s.broker(&declare_ok(CH, "q")).silent();
    is_retried(s, "q");
}

#[test]
fn no_form_of_a_takeover_has_them() {
    for (kind, queue_type, seen) in [
        (None, QueueType::Default, false),
        (Some("classic"), QueueType::Classic, false),
        (Some("quorum"), QueueType::Quorum, true),
    ] {
        let said = DeclaredTarget::Target(target("dlx"));
        let intake = super::names()
            .name(&OwnObject::intake_exchange(&said, queue_type))
            .expect("short");
        let intake = std::str::from_utf8(&intake).expect("text");
        let original = arguments(kind, Some("dlx"), seen);
        let rewritten = arguments(kind, Some(intake), seen);
        let mut s = Script::open(settings(Mode::Full));
        s.client(&declare_on(CH, "q", 0, &arguments(kind, Some("dlx"), true)))
            .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &if_there(&rewritten))]);
        s.broker(&open_ok()).silent();
        s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
            &close_ok(PROBE),
            &opened(),
            &declare_on(PROBE, "q", 0, &asking(&original)),
        ]);
        s.broker(&open_ok()).silent();
        s.broker(&close(PROBE, 406, GRANTED))
            .broker_gets(&[&close_ok(PROBE)]);
        s.ensured(true)
            .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &rewritten)]);
        s.broker(&open_ok()).silent();
        s.broker(&declare_ok(PROBE, "q"))
            .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten)]);
        s.broker(&close_ok(PROBE)).silent();
        s.broker(&declare_ok(CH, "q")).passes();
        is_retried(s, "q");
    }
}

/// The user may not write to the intake exchange: the client's own form goes on.
#[test]
fn nor_has_the_original_that_goes_on() {
    let mut s = Script::open(settings(Mode::Full));
    let full = arguments(None, Some("dlx"), true);
    let rest = arguments(None, Some("dlx"), false);
    let said = DeclaredTarget::Target(target("dlx"));
    let intake = super::names().name(&OwnObject::intake_exchange(&said, QueueType::Default));
    let intake = intake.expect("short");
    let rewritten = arguments(None, std::str::from_utf8(&intake).ok(), false);
    s.client(&declare_on(CH, "q", 0, &full))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &if_there(&rewritten))]);
    s.broker(&open_ok()).silent();
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &asking(&rest)),
    ]);
    s.broker(&open_ok()).silent();
    let text =
        "ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'lim'";
    s.broker(&close(PROBE, 403, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &rest)]);
    s.broker(&declare_ok(CH, "q")).passes();
    is_retried(s, "q");
}

/// Should a consumer of it begin late: what asks whether it is the same queue is what was accepted.
#[test]
fn nor_has_the_question_whether_it_is_still_the_same() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let rest = arguments(None, None, false);
    s.client(&declare_on(CH, "q", 0, &arguments(None, None, true)))
        .broker_gets(&[&declare_on(CH, "q", 0, &rest)]);
    s.broker(&declare_ok(CH, "q")).passes();
    s.doubts = true;
    let mut s = s.consume("q");
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&reject(1, true))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &if_there(&rest))]);
    s.broker(&open_ok()).silent();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed()]);
    let _resumed = s.resume();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn in_mode_native_and_in_passive_declares_they_pass() {
    let passive = Script::open(settings(Mode::RejectsOnly));
    let native = Script::open(settings(Mode::Off));
    let by_policy = settings(Mode::RejectsOnly);
    by_policy.policies.set_ours(Policies::new(vec![Policy {
        mode: Some(Mode::Off),
        pattern: Pattern::new("^q$").expect("a good pattern"),
        ..Policy::default()
    }]));
    let by_policy = Script::open(by_policy);
    for (mut s, bits) in [
        (passive, QueueDeclare::PASSIVE),
        (native, QueueDeclare::DURABLE),
        (by_policy, QueueDeclare::DURABLE),
    ] {
        s.client(&declare_on(CH, "q", bits, &arguments(None, None, true)))
            .passes();
        s.broker(&declare_ok(CH, "q")).passes();
        s.client(&get("q")).passes();
        s.broker(&got(1)).passes();
        s.client(&nack(1, false, true)).passes();
    }
}

#[test]
fn a_server_named_queue_has_retries_too() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let (full, rest) = (arguments(None, None, true), arguments(None, None, false));
    s.client(&declare_on(CH, "", 0, &full))
        .broker_gets(&[&declare_on(CH, "", 0, &rest)]);
    s.broker(&declare_ok(CH, "amq.gen-1")).passes();
    is_retried(s, "");
}

#[test]
fn what_the_proxy_cannot_use_is_taken_out_all_the_same() {
    let disabled = table(|table| {
        table
            .longstr(b"x-delayed-retry-type", b"bogus")
            .long(MIN, 5);
    });
    let mut s = Script::open(settings(Mode::RejectsOnly));
    s.client(&declare_on(CH, "q", 0, &disabled))
        .broker_gets(&[&declare_on(CH, "q", 0, &[])]);
    s.broker(&declare_ok(CH, "q")).passes();
    s.client(&get("q")).passes();
    s.broker(&got(1)).passes();
    s.client(&nack(1, false, true)).passes();
}

/// What it says of arguments that mean nothing, when the broker gets this declare instead of that.
fn told(s: &mut Script, declare: &[u8], passed: &[u8]) -> Vec<(ShortStr, String)> {
    s.client(declare).broker_gets(&[passed]);
    let told = s.events.drain(..).filter_map(|event| match event {
        Event::RetriesInVain { queue, problem } => Some((queue, problem)),
        _ => None,
    });
    told.collect()
}

#[test]
fn what_arguments_ask_for_in_vain_is_said_once_of_each_queue() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let never = table(|table| {
        table.long(MIN, 0);
    });
    let passive = declare_on(CH, "q", QueueDeclare::PASSIVE, &never);
    assert_eq!(told(&mut s, &passive, &passive), []);
    s.broker(&declare_ok(CH, "q")).passes();
    for queue in ["q", "other"] {
        let declare = declare_on(CH, queue, 0, &never);
        let without = declare_on(CH, queue, 0, &[]);
        let problem = "0 is not a valid delayed retry minimum delay. Must be a positive integer";
        let once = [(name(queue), problem.to_owned())];
        assert_eq!(told(&mut s, &declare, &without), once);
        s.broker(&declare_ok(CH, queue)).passes();
        assert_eq!(told(&mut s, &declare, &without), [], "again");
        s.broker(&declare_ok(CH, queue)).passes();
    }
}

#[test]
fn nothing_is_said_of_arguments_that_count_or_that_the_broker_keeps() {
    let declare = |millis| {
        let arguments = table(|table| {
            table.long(MIN, millis);
        });
        declare_on(CH, "q", 0, &arguments)
    };
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let without = declare_on(CH, "q", 0, &[]);
    assert_eq!(told(&mut s, &declare(1000), &without), []);
    let mut s = Script::open(settings(Mode::Off));
    assert_eq!(told(&mut s, &declare(0), &declare(0)), []);
}

/// Nobody consumes where messages wait for the end of a TTL.
#[test]
fn a_quorum_queue_that_goes_with_what_waits_in_it_is_said_once() {
    let mut s = Script::open(settings(Mode::Full));
    let delays = table(|table| {
        table
            .longstr(TYPE, b"quorum")
            .long(b"x-message-ttl", 1000)
            .long(b"x-expires", 60_000);
    });
    for _ in 0..2 {
        s.client(&declare_on(CH, "q", QueueDeclare::DURABLE, &delays))
            .passes();
        s.broker(&declare_ok(CH, "q")).passes();
    }
    let is_told = |event: &Event| matches!(event, Event::GoesWithMessages { queue, .. } if *queue == name("q"));
    assert_eq!(s.events.iter().filter(|event| is_told(event)).count(), 1);
}
