//! What the order of a channel decides: which deliveries a command means, of which queue they are, and what has to stay behind a reject.

use std::time::Duration;

use super::script::*;
use super::verify;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::table::TableBuilder;
use crate::machine::{Leg, Machine, Outcome};
use crate::registry::policy::Mode;

const CONFIRMED: Outcome = Outcome::Confirmed;
const AUTO_DELETE: u8 = 8;

pub(super) fn queue_declare(queue: &str, bits: u8) -> Vec<u8> {
    let mut arguments = TableBuilder::default();
    arguments.longstr(b"x-dead-letter-exchange", b"dlx");
    plain_declare(queue, bits, &arguments.finish())
}

pub(super) fn plain_declare(queue: &str, bits: u8, arguments: &[u8]) -> Vec<u8> {
    method(CH, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue.as_bytes())
            .octet(bits)
            .longstr(arguments)
            .end();
    })
}

pub(super) fn declare_ok(queue: &str) -> Vec<u8> {
    method(CH, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(queue.as_bytes()).long(0).long(0).end()
    })
}

pub(super) fn queue_delete(queue: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::QUEUE_DELETE, |a| {
        a.short(0).shortstr(queue.as_bytes()).octet(bits).end()
    })
}

pub(super) fn delete_ok() -> Vec<u8> {
    method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end())
}

pub(super) fn consume(queue: &str, tag: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::BASIC_CONSUME, |a| {
        a.short(0)
            .shortstr(queue.as_bytes())
            .shortstr(tag.as_bytes())
            .octet(bits)
            .longstr(b"")
            .end();
    })
}

pub(super) fn consume_ok(tag: &str) -> Vec<u8> {
    method(CH, MethodId::BASIC_CONSUME_OK, |a| {
        a.shortstr(tag.as_bytes()).end()
    })
}

pub(super) fn cancel_ok(tag: &str) -> Vec<u8> {
    method(CH, MethodId::BASIC_CANCEL_OK, |a| {
        a.shortstr(tag.as_bytes()).end()
    })
}

pub(super) fn close_ok() -> Vec<u8> {
    method(CH, MethodId::CHANNEL_CLOSE_OK, |_| {})
}

/// `q` is managed; its declare had these bits.
pub(super) fn declared(bits: u8) -> Script {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    declare(&mut s, bits);
    s
}

pub(super) fn declare(s: &mut Script, bits: u8) {
    s.client(&queue_declare("q", bits)).passes();
    s.broker(&declare_ok("q")).passes();
}

pub(super) fn fetch(s: &mut Script, tag: u64) {
    s.client(&get("q")).passes();
    s.broker(&got(tag)).passes();
}

pub(super) fn begin_consuming(s: &mut Script, tag: &str) {
    s.client(&consume("q", tag, 0)).passes();
    s.broker(&consume_ok(tag)).passes();
}

// === which deliveries

#[test]
fn tag_zero_is_told_by_the_last_tag_that_the_client_can_have_seen() {
    let mut s = declared(0);
    s.client(&ack(0, true)).silent();
    begin_consuming(&mut s, "c");
    s.broker(&deliver("c", 1, b"hi")).passes();
    s.broker(&deliver("c", 2, b"hi")).passes();
    s.client(&ack(0, true)).broker_gets(&[&ack(2, true)]);
    // One more was on its way: it is outstanding, at the broker as here.
    s.broker(&deliver("c", 3, b"hi")).passes();
    s.client(&nack(0, true, true))
        .broker_gets(&[&nack(3, true, true)]);
    assert_eq!(s.session.retained(), 0);
}

#[test]
fn a_tag_that_a_get_may_still_bring_is_waited_for() {
    for command in [reject(1, false), nack(0, true, false)] {
        let mut s = declared(0);
        s.client(&get("q")).passes();
        s.client(&command).silent();
        assert!(!s.session.wants_read(Leg::Client, 0));
        s.broker(&got(1)).passes();
        s.resume().silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, CONFIRMED)])
            .broker_gets(&[&ack(1, false)]);
    }
}

#[test]
fn a_tag_that_is_known_needs_no_answer_to_a_later_get() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    s.client(&get("q")).passes();
    s.client(&reject(1, false)).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn a_get_without_an_answer_leaves_the_channel_to_the_broker() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    s.client(&get("q")).passes();
    s.client(&nack(0, true, false)).silent();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&nack(0, true, false)]);
    s.broker(&got(2)).passes();
    s.client(&reject(2, false)).passes();
    assert_eq!(s.session.retained(), 0);
}

#[test]
fn what_was_delivered_before_a_recover_is_answered_is_not_outstanding() {
    let mut s = declared(0);
    begin_consuming(&mut s, "c");
    s.broker(&deliver("c", 1, b"hi")).passes();
    let recover = method(CH, MethodId::BASIC_RECOVER, |a| a.octet(1).end());
    s.client(&recover).passes();
    s.broker(&deliver("c", 2, b"hi")).passes();
    s.broker(&method(CH, MethodId::BASIC_RECOVER_OK, |_| {}))
        .passes();
    s.broker(&deliver("c", 3, b"hi")).passes();
    s.client(&nack(3, true, false)).silent();
    assert_eq!(s.dead.len(), 1);
    s.dead.clear();
    // The broker refuses it, and must hear of the reject before.
    s.client(&reject(2, false)).silent();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&nack(3, false, false), &reject(2, false)]);
}

#[test]
fn a_recover_without_an_answer_is_asked_for_one() {
    let mut s = declared(0);
    begin_consuming(&mut s, "c");
    s.broker(&deliver("c", 1, b"hi")).passes();
    let recover = |id| method(CH, id, |a| a.octet(1).end());
    s.client(&recover(MethodId::BASIC_RECOVER_ASYNC))
        .broker_gets(&[&recover(MethodId::BASIC_RECOVER)]);
    s.broker(&method(CH, MethodId::BASIC_RECOVER_OK, |_| {}))
        .silent();
    assert_eq!(s.session.retained(), 0);
    s.broker(&deliver("c", 2, b"hi")).passes();
    s.client(&reject(2, false)).silent();
    s.ticket();
}

// === of which queue

#[test]
fn what_a_queue_delivered_dies_with_it() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    s.client(&queue_delete("q", 0)).passes();
    s.client(&reject(1, false)).passes();
    s.broker(&delete_ok()).passes();
}

#[test]
fn another_queue_of_the_same_name_is_not_the_one_that_delivered() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    fetch(&mut s, 2);
    s.client(&queue_delete("q", 0)).passes();
    s.broker(&delete_ok()).passes();
    declare(&mut s, 0);
    fetch(&mut s, 3);
    s.client(&reject(1, false)).passes();
    s.client(&nack(3, true, false)).passes();
}

#[test]
fn a_second_declare_of_a_queue_does_not_begin_another_life() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    declare(&mut s, 0);
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn an_auto_delete_queue_may_go_with_its_last_consumer() {
    let mut s = declared(AUTO_DELETE);
    begin_consuming(&mut s, "c1");
    begin_consuming(&mut s, "c2");
    for tag in 1..=4 {
        s.broker(&deliver("c1", tag, b"hi")).passes();
    }
    s.client(&cancel("c1", 0)).passes();
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    s.client(&cancel("c2", 0)).passes();
    s.client(&reject(2, false)).passes();
    s.broker(&cancel_ok("c1")).passes();
    s.broker(&cancel_ok("c2")).passes();
    s.client(&reject(3, false)).passes();
}

#[test]
fn an_auto_delete_queue_may_go_with_its_last_channel() {
    let mut s = declared(AUTO_DELETE);
    begin_consuming(&mut s, "c");
    s.client(&channel_close()).passes();
    s.broker(&close_ok()).passes();
    s.client(&method(CH, MethodId::CHANNEL_OPEN, |a| {
        a.shortstr(b"").end()
    }))
    .passes();
    verify::has_gone(s, AUTO_DELETE);
}

#[test]
fn an_auto_delete_queue_keeps_its_consumer_until_its_rejects_are_settled() {
    let mut s = declared(AUTO_DELETE);
    begin_consuming(&mut s, "c");
    s.broker(&deliver("c", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    s.gone(Leg::Client).silent();
}

#[test]
fn an_empty_name_is_the_last_queue_declared_before_it() {
    let mut s = declared(0);
    s.client(&plain_declare("other", 0, b"")).passes();
    s.client(&get("")).passes();
    s.client(&queue_declare("q", 0)).passes();
    s.client(&get("")).passes();
    s.client(&queue_declare("", 0)).passes();
    s.client(&get("")).passes();
    s.client(&plain_declare("other", 0, b"")).passes();
    for (queue, tag) in [("other", 1), ("q", 2), ("amq.gen-1", 3)] {
        s.broker(&declare_ok(queue)).passes();
        s.broker(&got(tag)).passes();
    }
    s.broker(&declare_ok("other")).passes();
    s.client(&reject(1, false)).passes();
    s.client(&nack(3, true, false)).silent();
    let queues: Vec<_> = s.dead.iter().map(|(_, dead)| dead.queue.clone()).collect();
    assert_eq!(queues, [name("q"), name("amq.gen-1")]);
}

// === what stays behind a reject

#[test]
fn what_could_make_the_broker_close_the_channel_waits() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    s.client(&reject(1, false)).silent();
    let passive = plain_declare("missing", 1, b"");
    s.client(&passive).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false), &passive]);
}

#[test]
fn a_get_of_a_queue_that_is_known_does_not_wait() {
    let mut s = declared(0);
    fetch(&mut s, 1);
    s.client(&reject(1, false)).silent();
    s.client(&get("q")).passes();
}

pub(super) fn publish(exchange: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0)
            .shortstr(exchange.as_bytes())
            .shortstr(b"k")
            .octet(bits)
            .end()
    })
}

#[test]
fn a_publish_to_an_exchange_that_may_be_missing_waits_once() {
    let mut s = declared(0);
    for tag in 1..=3 {
        fetch(&mut s, tag);
    }
    s.client(&reject(1, false)).silent();
    s.client(&publish("x", 0)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false), &publish("x", 0)]);
    // Behind its content the broker is asked whether it has carried it out.
    let flow = method(CH, MethodId::CHANNEL_FLOW, |a| a.octet(1).end());
    s.client(&header(2)).passes();
    s.client(&body(b"hi")).broker_gets(&[&body(b"hi"), &flow]);
    s.client(&publish("x", 0)).passes();
    s.client(&header(0)).passes();
    s.broker(&method(CH, MethodId::CHANNEL_FLOW_OK, |a| a.octet(1).end()))
        .silent();
    s.client(&reject(2, false)).silent();
    s.client(&publish("x", 0)).passes();
    s.client(&header(0)).passes();
    s.client(&publish("", 0)).passes();
    s.client(&header(0)).passes();
    // It is deleted; and `immediate` the broker does not know.
    s.client(&publish("", 2)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(2, false), &publish("", 2)]);
}

#[test]
fn a_publish_to_an_exchange_that_was_declared_does_not_wait_until_it_is_deleted() {
    let exchange = |id, bits| {
        method(CH, id, |a| {
            a.short(0).shortstr(b"x");
            if id == MethodId::EXCHANGE_DECLARE {
                a.shortstr(b"fanout").octet(bits).longstr(b"").end();
            } else {
                a.octet(bits).end();
            }
        })
    };
    let mut s = declared(0);
    for tag in 1..=2 {
        fetch(&mut s, tag);
    }
    s.client(&exchange(MethodId::EXCHANGE_DECLARE, 0)).passes();
    s.broker(&method(CH, MethodId::EXCHANGE_DECLARE_OK, |_| {}))
        .passes();
    s.client(&reject(1, false)).silent();
    s.client(&publish("x", 0)).passes();
    s.client(&header(0)).passes();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    s.client(&exchange(MethodId::EXCHANGE_DELETE, 0)).passes();
    s.client(&reject(2, false)).silent();
    s.client(&publish("x", 0)).silent();
}

// === what a reject stays behind

#[test]
fn a_reject_waits_for_the_answer_to_what_may_fail() {
    let passive = plain_declare("other", 1, b"");
    let behind = || {
        let mut s = declared(0);
        fetch(&mut s, 1);
        s.client(&passive).passes();
        s.client(&reject(1, false)).silent();
        assert!(!s.session.wants_read(Leg::Client, 0) && s.dead.is_empty());
        s
    };
    let mut s = behind();
    s.broker(&declare_ok("other")).passes();
    s.resume().silent();
    assert_eq!(s.dead.len(), 1);
    // The channel is closed: the reject does not count.
    let mut s = behind();
    s.broker(&channel_close()).passes();
    s.resume().broker_gets(&[&reject(1, false)]);
    assert!(s.dead.is_empty());
    // Nobody knows: it is the broker's.
    let mut s = behind();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&reject(1, false)]);
    assert!(s.dead.is_empty());
}

/// What could make the broker close the channel waits for withheld rejects: so does a publish to an exchange of which nothing is known any more.
#[test]
fn so_many_exchanges_are_believed_to_be_there() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    let publish = |exchange: &str| {
        let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
            a.short(0)
                .shortstr(exchange.as_bytes())
                .shortstr(b"k")
                .octet(0)
                .end();
        });
        [publish, header(0)].concat()
    };
    for n in 0..=1000 {
        let declare = method(CH, MethodId::EXCHANGE_DECLARE, |a| {
            a.short(0)
                .shortstr(n.to_string().as_bytes())
                .shortstr(b"fanout")
                .octet(0)
                .longstr(b"")
                .end();
        });
        s.client(&declare).passes();
        s.broker(&method(CH, MethodId::EXCHANGE_DECLARE_OK, |_| {}))
            .passes();
    }
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    s.client(&publish("1000")).passes();
    s.client(&publish("0")).silent();
}
