//! The take-over of a declare: what is asked, in which order, and which form goes on.

use std::time::Duration;

use super::script::*;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback, Leg, Machine};
use crate::registry::policy::Mode;

pub(super) const PROBE: ChannelId = ChannelId(65_535);
pub(super) const NO_WAIT: u8 = 16;

pub(super) fn declare_on(channel: ChannelId, queue: &str, bits: u8, arguments: &[u8]) -> Vec<u8> {
    method(channel, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue.as_bytes())
            .octet(bits)
            .longstr(arguments)
            .end();
    })
}

pub(super) fn declare_ok(channel: ChannelId, queue: &str) -> Vec<u8> {
    method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(queue.as_bytes()).long(0).long(0).end()
    })
}

pub(super) fn original() -> Vec<u8> {
    let mut table = TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"dlx");
    table.finish()
}

pub(super) fn asking(arguments: &[u8]) -> Vec<u8> {
    let mut table = arguments.to_vec();
    let mut expires = TableBuilder::default();
    expires.long(b"x-expires", -1);
    table.extend(expires.finish());
    table
}

pub(super) fn rewritten() -> Vec<u8> {
    let mut table = TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"dlx-proxy/dlx");
    table.finish()
}

pub(super) fn opened() -> Vec<u8> {
    let mut out = Vec::new();
    reply::channel_open(&mut out, PROBE);
    out
}

pub(super) fn open_ok() -> Vec<u8> {
    method(PROBE, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end())
}

pub(super) fn close(channel: ChannelId, code: u16, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(
        &mut out,
        channel,
        code,
        text.as_bytes(),
        MethodId::QUEUE_DECLARE,
    );
    out
}

pub(super) fn close_ok(channel: ChannelId) -> Vec<u8> {
    method(channel, MethodId::CHANNEL_CLOSE_OK, |_| {})
}

pub(super) fn probe_closed() -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(&mut out, PROBE, 200, b"", MethodId(0, 0));
    out
}

pub(super) const GRANTED: &str =
    "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_negative,-1}";

/// Up to the point where permission is known.
pub(super) fn asked(bits: u8) -> Script {
    let mut s = Script::open(settings(Mode::Takeover));
    s.client(&declare_on(CH, "q", bits, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", bits & !NO_WAIT, &asking(&original())),
        ]);
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&open_ok()).silent();
    s
}

/// Up to the point where the rewritten form was tried.
pub(super) fn fitting() -> Script {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &rewritten())]);
    s.broker(&open_ok()).silent();
    s
}

/// A name that the broker shall make: the rewritten form is asked about. `intake`: whether it is there, if that is known by now.
pub(super) fn asked_for_a_name(intake: Option<bool>) -> Script {
    let mut s = Script::open(settings(Mode::Takeover));
    s.client(&declare_on(CH, "", 0, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "", 0, &asking(&original()))]);
    if let Some(there) = intake {
        s.ensured(there).silent();
    }
    s.broker(&close(PROBE, 406, GRANTED)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "", 0, &asking(&rewritten())),
    ]);
    s
}

#[track_caller]
pub(super) fn assert_left(s: &Script, wanted: Fallback) {
    let left =
        |event: &Event| matches!(event, Event::DeclareLeft { cause, .. } if *cause == wanted);
    assert!(s.events.iter().any(left), "{:?}", s.events);
}

#[test]
fn a_declare_that_fits_goes_on_with_the_intake_exchange_in_it() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    assert!(s.session.wants_read(Leg::Client, 0));
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn line_breaks_in_a_name_are_taken_out_as_the_broker_does() {
    let mut s = Script::open(settings(Mode::Takeover));
    s.client(&declare_on(CH, "q\r\n", 0, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &asking(&original()))]);
}

#[test]
fn the_intake_exchange_may_be_there_before_the_permission_is_known() {
    let mut s = asked(0);
    s.ensured(true).silent();
    s.broker(&close(PROBE, 406, GRANTED)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &rewritten()),
    ]);
}

#[test]
fn a_user_who_may_not_write_to_the_exchange_hears_it_from_the_broker() {
    let mut s = asked(0);
    s.broker(&close(
        PROBE,
        403,
        "ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'lim'",
    ))
    .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
}

#[test]
fn without_an_intake_exchange_the_declare_is_left_alone() {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(false)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 1, b"")]);
    let text = "NOT_FOUND - no queue 'q' in vhost '/'";
    s.broker(&close(PROBE, 404, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [
            Event::DeclareLeft {
                cause: Fallback::NoIntake,
                ..
            },
            Event::QueueManaged {
                taken_over: false,
                ..
            }
        ]
    ));
}

#[test]
fn without_an_intake_exchange_a_queue_that_was_taken_over_is_still_found() {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(false)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 1, b"")]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&declare_on(PROBE, "q", 0, &rewritten())]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
}

#[test]
fn a_queue_with_native_arguments_keeps_them() {
    let mut s = fitting();
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx-proxy/dlx' but current is 'dlx'";
    s.broker(&close(PROBE, 406, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    s.broker(&declare_ok(CH, "q")).passes();
}

#[test]
fn another_exchange_than_the_queues_is_refused_in_the_clients_words() {
    let mut s = fitting();
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx-proxy/dlx' but current is 'dlx-proxy/other'";
    s.broker(&close(PROBE, 406, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &rewritten())]);
    let said = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx' but current is 'other'";
    s.broker(&close(CH, 406, text))
        .client_gets(&[&close(CH, 406, said)]);
}

#[test]
fn what_has_nothing_to_do_with_dead_letters_is_refused_in_the_brokers_words() {
    let mut s = fitting();
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'";
    s.broker(&close(PROBE, 406, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &rewritten())]);
    s.broker(&close(CH, 406, text)).passes();
}

#[test]
fn nothing_is_tried_while_something_before_the_declare_may_fail() {
    let mut s = Script::open(settings(Mode::Takeover));
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"x").shortstr(b"k").octet(0).end()
    });
    s.client(&publish).passes();
    s.client(&header(0)).passes();
    let mut flow = Vec::new();
    reply::channel_flow(&mut flow, CH);
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &flow,
            &opened(),
            &declare_on(PROBE, "q", 0, &asking(&original())),
        ]);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true).silent();
    let flow_ok = method(CH, MethodId::CHANNEL_FLOW_OK, |a| a.octet(1).end());
    s.broker(&flow_ok)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &rewritten())]);
}

#[test]
fn when_what_came_before_fails_there_is_no_queue() {
    let mut s = asked(0);
    s.broker(&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'"))
        .broker_and_client(
            &[&probe_closed()],
            &[&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'")],
        );
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn a_probe_that_takes_too_long_is_given_up() {
    let mut s = asked(0);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &original())]);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
}

#[test]
fn an_intake_that_does_not_answer_is_away() {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 1, b"")]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&declare_on(PROBE, "q", 0, &rewritten())]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
}

#[test]
fn a_declare_that_wants_no_reply_gets_none() {
    let mut s = asked(NO_WAIT);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &rewritten())]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    // We want one: it tells that the queue is there.
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).silent();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn a_permission_is_remembered_for_a_minute() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    s.client(&declare_on(CH, "q2", 0, &original())).silent();
    s.ensured(true)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q2", 0, &rewritten())]);
}

#[test]
fn a_queue_that_the_broker_names_is_not_tried_out() {
    let mut s = asked_for_a_name(Some(true));
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "", 0, &rewritten())]);
    s.broker(&declare_ok(CH, "amq.gen-1")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn a_second_declare_waits_for_the_end_of_the_first_probe() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.client(&declare_on(CH, "q2", 0, &original())).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&close_ok(PROBE)).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn passive_declares_and_queues_without_dead_letters_pass() {
    let mut s = Script::open(settings(Mode::Takeover));
    s.client(&declare_on(CH, "q", 1, &original())).passes();
    s.client(&declare_on(CH, "q", 0, b"")).passes();
}

#[test]
fn in_keep_mode_a_declare_passes_and_its_queue_is_managed() {
    let mut s = Script::open(settings(Mode::Keep));
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: false,
            ..
        }]
    ));
}

#[test]
fn what_is_managed_ends_with_its_queue() {
    let mut s = Script::open(settings(Mode::Keep)).managed("q", target("dlx"));
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&method(CH, MethodId::QUEUE_DELETE, |a| {
        a.short(0).shortstr(b"q").octet(0).end()
    }))
    .passes();
    s.broker(&method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end()))
        .passes();
    s.client(&reject(1, false)).passes();
}

/// The broker says so by cancelling the consumer: the queue was deleted, or moved to another node.
#[test]
fn and_with_a_consumer_that_the_broker_cancels() {
    let mut s = Script::open(settings(Mode::Keep)).managed("q", target("dlx"));
    s.broker(&method(CH, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(b"q").octet(1).end()
    }))
    .passes();
    let mut s = s.consume("q");
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&reject(1, false)).passes();
}

#[test]
fn a_client_may_not_name_an_object_of_ours() {
    let requests = [
        (
            "queue",
            "configure ",
            "dlx-proxy.intake",
            declare_on(CH, "dlx-proxy.intake", 0, b""),
        ),
        (
            "queue",
            "read ",
            "dlx-proxy.parked",
            method(CH, MethodId::BASIC_GET, |a| {
                a.short(0).shortstr(b"dlx-proxy.parked").octet(0).end();
            }),
        ),
        (
            "exchange",
            "configure ",
            "dlx-proxy/dlx",
            method(CH, MethodId::EXCHANGE_DELETE, |a| {
                a.short(0).shortstr(b"dlx-proxy/dlx").octet(0).end();
            }),
        ),
        (
            "exchange",
            "read ",
            "dlx-proxy.bridge/int-x",
            method(CH, MethodId::EXCHANGE_UNBIND, |a| {
                a.short(0)
                    .shortstr(b"int-x")
                    .shortstr(b"dlx-proxy.bridge/int-x")
                    .shortstr(b"")
                    .octet(0)
                    .longstr(b"")
                    .end();
            }),
        ),
    ];
    for (kind, access, name, request) in requests {
        let mut s = Script::open(settings(Mode::Takeover));
        s.client(&request).broker_gets(&[&ack(u64::MAX, false)]);
        let mut broker = Vec::new();
        let unknown = format!("PRECONDITION_FAILED - unknown delivery tag {}", u64::MAX);
        reply::close(
            &mut broker,
            CH,
            406,
            unknown.as_bytes(),
            MethodId::BASIC_ACK,
        );
        let culprit = MethodId::peek(&request[7..]).expect("a method");
        let text = format!(
            "ACCESS_REFUSED - {access}access to {kind} '{name}' in vhost '/' refused for user 'guest'"
        );
        let mut said = Vec::new();
        reply::close(&mut said, CH, 403, text.as_bytes(), culprit);
        s.broker(&broker).client_gets(&[&said]);
    }
}

#[test]
fn a_publish_to_an_exchange_of_ours_goes_nowhere() {
    let mut s = Script::open(settings(Mode::Takeover));
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0)
            .shortstr(b"dlx-proxy.parked")
            .shortstr(b"k")
            .octet(0)
            .end();
    });
    s.client(&publish).broker_gets(&[&ack(u64::MAX, false)]);
    s.client(&header(2)).silent();
    s.client(&body(b"hi")).silent();
    s.client(&ack(1, false)).passes();
}

/// While it asks, and when its channel is being closed.
#[test]
fn what_a_probe_hears_stays_unseen_behind_a_close_of_the_connection() {
    let nobody = MethodId(0, 0);
    let mut closed = Vec::new();
    reply::close(&mut closed, ChannelId(0), 504, b"", nobody);
    let mut decided = fitting();
    decided
        .broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    for (mut s, late) in [
        (fitting(), declare_ok(PROBE, "q")),
        (decided, close_ok(PROBE)),
    ] {
        s.broker(&closed).passes();
        s.broker(&late).silent();
        s.client(&method(ChannelId(0), MethodId::CONNECTION_CLOSE_OK, |_| {}))
            .passes();
        s.gone(Leg::Broker).silent();
    }
}
