//! The replies that a queue gives, to `basic.consume` and `basic.cancel`: they may come behind those to later requests.

use super::order::*;
use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::machine::{Leg, Machine};
use crate::registry::policy::Mode;

const NO_WAIT: u8 = 8;

fn cancel(tag: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(tag.as_bytes()).octet(bits).end()
    })
}

fn qos() -> Vec<u8> {
    method(CH, MethodId::BASIC_QOS, |a| {
        a.long(0).short(5).octet(0).end()
    })
}

fn qos_ok() -> Vec<u8> {
    method(CH, MethodId::BASIC_QOS_OK, |_| {})
}

#[test]
fn a_consumer_that_wants_no_reply_gets_none_however_late_it_comes() {
    let mut s = declared(0);
    s.client(&consume("q", "c", NO_WAIT))
        .broker_gets(&[&consume("q", "c", 0)]);
    s.client(&qos()).passes();
    s.broker(&qos_ok()).passes();
    s.broker(&consume_ok("c")).silent();
    s.broker(&deliver("c", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

/// The channel of 3.10 would crash, and the client's connection with it.
#[test]
fn nor_is_it_cancelled_before_its_reply() {
    let mut s = declared(0);
    s.client(&consume("q", "c", NO_WAIT))
        .broker_gets(&[&consume("q", "c", 0)]);
    s.client(&cancel("c", 1)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&consume_ok("c")).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
    s.resume().broker_gets(&[&cancel("c", 0)]);
    s.broker(&cancel_ok("c")).silent();
}

#[test]
fn of_a_consumer_that_is_cancelled_at_once_nothing_is_awaited() {
    let mut s = declared(0);
    s.client(&consume("q", "c", 0)).passes();
    s.client(&consume("q", "d", 0)).passes();
    s.client(&cancel("c", 1)).broker_gets(&[&cancel("c", 0)]);
    s.client(&qos()).passes();
    s.broker(&qos_ok()).passes();
    s.broker(&consume_ok("d")).passes();
    s.broker(&cancel_ok("c")).silent();
    s.client(&consume("q", "c", NO_WAIT))
        .broker_gets(&[&consume("q", "c", 0)]);
    s.broker(&consume_ok("c")).silent();
}

#[test]
fn a_cancel_of_nobody_is_answered_at_once() {
    let mut s = declared(0);
    s.client(&consume("q", "c", 0)).passes();
    s.client(&cancel("x", 1)).broker_gets(&[&cancel("x", 0)]);
    s.broker(&cancel_ok("x")).silent();
    s.broker(&consume_ok("c")).passes();
}

#[test]
fn the_queue_that_was_declared_last_is_the_one_before_the_request() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    s.client(&queue_declare("", 0)).passes();
    s.client(&consume("", "c", 0)).passes();
    s.client(&queue_declare("other", 0)).passes();
    s.broker(&declare_ok("amq.gen-1")).passes();
    s.broker(&declare_ok("other")).passes();
    s.broker(&consume_ok("c")).passes();
    s.broker(&deliver("c", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
    assert_eq!(s.dead[0].1.queue, name("amq.gen-1"));
}
