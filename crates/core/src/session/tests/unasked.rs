//! Replies that nobody asked for but the proxy: a client that wanted none sees none.

use super::order::*;
use super::script::*;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::machine::Leg;

#[test]
fn a_consumer_without_a_name_and_without_a_reply_is_known_all_the_same() {
    const NO_WAIT: u8 = 8;
    const NO_ACK: u8 = 2;
    let mut s = declared(0);
    s.client(&consume("q", "", NO_WAIT))
        .broker_gets(&[&consume("q", "", 0)]);
    s.client(&consume("q", "", NO_WAIT | NO_ACK))
        .broker_gets(&[&consume("q", "", NO_ACK)]);
    s.broker(&consume_ok("amq.ctag-1")).silent();
    s.broker(&consume_ok("amq.ctag-2")).silent();
    s.broker(&deliver("amq.ctag-2", 1, b"hi")).passes();
    s.broker(&deliver("amq.ctag-1", 2, b"hi")).passes();
    s.broker(&deliver("amq.ctag-2", 3, b"hi")).passes();
    s.broker(&deliver("amq.ctag-1", 4, b"hi")).passes();
    s.client(&nack(2, true, false)).silent();
    assert_eq!(s.dead.len(), 1);
    s.client(&ack(4, true)).broker_gets(&[&ack(4, false)]);
}

#[test]
fn deliveries_behind_a_cancel_without_a_reply_are_still_its_consumers() {
    const NO_ACK: u8 = 2;
    let mut s = declared(0);
    s.client(&consume("q", "c", NO_ACK)).passes();
    s.broker(&consume_ok("c")).passes();
    s.client(&cancel("c", 1)).broker_gets(&[&cancel("c", 0)]);
    s.broker(&deliver("c", 1, b"hi")).passes();
    s.broker(&cancel_ok("c")).silent();
    s.client(&ack(0, true)).silent();
}

#[test]
fn a_reply_that_the_client_did_not_want_is_not_seen_behind_its_close_either() {
    let mut s = declared(0);
    s.client(&queue_delete("q", 4))
        .broker_gets(&[&queue_delete("q", 0)]);
    s.client(&channel_close()).passes();
    s.broker(&delete_ok()).silent();
    s.broker(&close_ok()).passes();
}

#[test]
fn nor_behind_the_close_of_its_connection() {
    let zero = crate::amqp::ids::ChannelId::CONNECTION;
    let mut s = declared(0);
    s.client(&queue_delete("q", 4))
        .broker_gets(&[&queue_delete("q", 0)]);
    s.client(&method(zero, MethodId::CONNECTION_CLOSE, |a| {
        a.short(200).shortstr(b"").short(0).short(0).end()
    }))
    .passes();
    s.broker(&delete_ok()).silent();
    s.broker(&method(zero, MethodId::CONNECTION_CLOSE_OK, |_| {}))
        .passes();
    s.gone(Leg::Client).silent();
}

#[test]
fn nor_behind_the_close_by_the_broker() {
    let zero = crate::amqp::ids::ChannelId::CONNECTION;
    let closed = method(zero, MethodId::CONNECTION_CLOSE, |a| {
        a.short(504).shortstr(b"").short(0).short(0).end()
    });
    let mut s = declared(0);
    s.client(&queue_delete("q", 4))
        .broker_gets(&[&queue_delete("q", 0)]);
    s.broker(&closed).passes();
    s.broker(&delete_ok()).silent();
    let close_ok = method(zero, MethodId::CONNECTION_CLOSE_OK, |_| {});
    s.client(&close_ok).passes();
    s.gone(Leg::Broker).silent();
    // Nobody has asked for this one: the broker will close the connection.
    let mut s = declared(0);
    s.client(&queue_delete("q", 4))
        .broker_gets(&[&queue_delete("q", 0)]);
    s.client(&close_ok).passes();
    s.broker(&delete_ok()).silent();
    s.broker(&closed).passes();
}

#[test]
fn a_reply_that_nobody_wants_stays_unseen_behind_a_close_of_the_connection() {
    const NO_WAIT: u8 = 4;
    let mut s = declared(0);
    s.client(&queue_delete("q", NO_WAIT))
        .broker_gets(&[&queue_delete("q", 0)]);
    let close = |id| {
        method(ChannelId::CONNECTION, id, |a| {
            if id == MethodId::CONNECTION_CLOSE {
                a.short(200).shortstr(b"").short(0).short(0);
            }
            a.end();
        })
    };
    s.client(&close(MethodId::CONNECTION_CLOSE)).passes();
    s.broker(&delete_ok()).silent();
    s.broker(&close(MethodId::CONNECTION_CLOSE_OK)).passes();
}
