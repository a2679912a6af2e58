//! What is said on the channel of a probe, and scripts that have come so far.

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

/// The same arguments, of a declare that makes no queue.
pub(super) fn if_there(arguments: &[u8]) -> Vec<u8> {
    let mut table = arguments.to_vec();
    let mut streams = TableBuilder::default();
    streams.longstr(b"x-max-age", b"never");
    table.extend(streams.finish());
    table
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

pub(super) const ABSENT: &str = "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_classic_queue";

/// Up to the point where it is known whether there is such a queue.
pub(super) fn comparing(bits: u8) -> Script {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declare_on(CH, "q", bits, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", bits & !NO_WAIT, &if_there(&rewritten())),
        ]);
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&open_ok()).silent();
    s
}

/// There is none: up to the point where permission is known.
pub(super) fn asked(bits: u8) -> Script {
    let mut s = comparing(bits);
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", bits & !NO_WAIT, &asking(&original())),
    ]);
    s.broker(&open_ok()).silent();
    assert!(s.ensure.is_empty(), "nothing is made before");
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

/// A name that the broker should make: the rewritten form is asked about.
pub(super) fn comparing_a_name() -> Script {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declare_on(CH, "", 0, &original())).broker_gets(&[
        &opened(),
        &declare_on(PROBE, "", 0, &if_there(&rewritten())),
    ]);
    s
}

/// And the original: up to the point where the intake exchange is asked for.
pub(super) fn permitted_a_name() -> Script {
    let mut s = comparing_a_name();
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "", 0, &asking(&original())),
    ]);
    assert!(s.ensure.is_empty(), "nothing is made before");
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s
}

#[track_caller]
pub(super) fn assert_left(s: &Script, wanted: Fallback) {
    let left =
        |event: &Event| matches!(event, Event::DeclareLeft { cause, .. } if *cause == wanted);
    assert!(s.events.iter().any(left), "{:?}", s.events);
}
