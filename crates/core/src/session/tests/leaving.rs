//! The process ends: what a client hears of it, what is still heard of the client, and what is settled first.

use std::time::Duration;

use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::machine::{Flow, Leg, Machine, Outcome};
use crate::registry::policy::Mode;

const ZERO: ChannelId = ChannelId::CONNECTION;

/// Channel 1 consumes from the managed queue `orders`, which delivered the first `n` tags.
fn with(n: u64) -> Script {
    let mut script = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    for tag in 1..=n {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script
}

fn close(code: u16, text: &str) -> Vec<u8> {
    method(ZERO, MethodId::CONNECTION_CLOSE, |a| {
        a.short(code)
            .shortstr(text.as_bytes())
            .short(0)
            .short(0)
            .end();
    })
}

fn close_ok() -> Vec<u8> {
    method(ZERO, MethodId::CONNECTION_CLOSE_OK, |_| {})
}

/// What the client is told.
fn forced() -> Vec<u8> {
    close(
        320,
        "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
    )
}

/// What the broker is told.
fn done() -> Vec<u8> {
    close(200, "")
}

fn publish() -> Vec<u8> {
    method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"").shortstr(b"q").octet(0).end();
    })
}

#[test]
fn both_connections_are_closed_in_order() {
    let mut s = with(1);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.broker(&close_ok()).silent();
    assert_eq!(s.session.flow(), Flow::Open, "the client has not answered");
    assert!(s.session.wants_read(Leg::Client, 0));
    s.client(&close_ok()).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn an_answer_may_come_in_pieces() {
    let mut s = with(1);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.broker(&close_ok()).silent();
    for octet in close_ok() {
        assert_eq!(s.session.flow(), Flow::Open);
        s.client(&[octet]).silent();
    }
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn what_is_no_frame_goes_nowhere_either() {
    let mut s = with(1);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.client(&[8, 0, 0, 0, 0, 0, 0]).silent();
    s.client(&[1]).silent();
    s.client(&[3, 0, 1, 0, 0, 0, 2]).silent();
    s.client(b"hi").silent();
}

#[test]
fn a_frame_without_its_end_goes_nowhere() {
    let mut s = with(1);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    let mut unterminated = close_ok();
    *unterminated.last_mut().expect("an end") = 0;
    s.client(&unterminated).silent();
    assert_eq!(s.session.flow(), Flow::Open);
}

#[test]
fn a_client_that_does_not_answer_is_left_after_two_seconds() {
    let mut s = with(1);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.gone(Leg::Broker).silent();
    s.wait(Duration::from_millis(1900)).silent();
    assert_eq!(s.session.flow(), Flow::Open);
    s.wait(Duration::from_millis(100)).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn two_who_do_not_answer_are_left_after_four_seconds() {
    let mut s = with(0);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    for _ in 0..2 {
        assert_eq!(s.session.flow(), Flow::Open);
        s.wait(Duration::from_secs(2)).silent();
    }
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn a_client_whose_stream_ends_has_answered() {
    let mut s = with(0);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.gone(Leg::Client).silent();
    assert_eq!(
        s.session.flow(),
        Flow::Open,
        "the broker has not answered yet"
    );
    s.broker(&close_ok()).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn both_close_at_once() {
    let mut s = with(0);
    s.drain().broker_and_client(&[&done()], &[&forced()]);
    s.client(&close(200, "bye")).client_gets(&[&close_ok()]);
    s.broker(&close_ok()).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn in_the_handshake_nobody_is_told() {
    let mut s = Script::fresh(settings(Mode::RejectsOnly));
    s.client(&frame::PROTOCOL).passes();
    s.drain().silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn withheld_rejects_are_settled_before_the_connection_is_closed() {
    let mut s = with(2);
    s.client(&reject(2, false)).silent();
    let ticket = s.ticket();
    let cancel = cancel("orders", 1);
    s.drain().broker_and_client(&[&cancel], &[&forced()]);
    s.broker(&deliver("orders", 3, b"late")).silent();
    s.settled(&[(ticket, Outcome::Confirmed)])
        .broker_gets(&[&ack(2, false), &done()]);
}

#[test]
fn what_is_not_settled_in_time_is_the_broker_s() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.drain()
        .broker_and_client(&[&cancel("orders", 1)], &[&forced()]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&reject(1, false), &done()]);
}

#[test]
fn the_client_is_told_behind_the_frame_that_is_passing() {
    let mut s = with(0);
    let whole = deliver("orders", 1, b"a body");
    let (first, last) = whole.split_at(whole.len() - 3);
    s.broker(first).passes();
    s.drain().broker_gets(&[&done()]);
    s.broker(last).client_gets(&[last, &forced()]);
    s.broker(&deliver("orders", 2, b"late")).silent();
}

#[test]
fn a_content_that_was_begun_is_finished_and_the_ack_goes_behind_it() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    let content = [publish(), header(4)].concat();
    s.client(&content).passes();
    let whole = body(b"four");
    let (first, last) = whole.split_at(9);
    s.client(first).passes();
    s.drain().client_gets(&[&forced()]);
    s.settled(&[(ticket, Outcome::Confirmed)]).silent();
    // The cancel of the consumer waited for the end of the content, too.
    s.client(last)
        .broker_gets(&[last, &cancel("orders", 1), &ack(1, false), &done()]);
}

#[test]
fn a_content_is_finished_from_its_header_on() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.client(&publish()).passes();
    s.drain().client_gets(&[&forced()]);
    s.settled(&[(ticket, Outcome::Confirmed)]).silent();
    let whole = header(4);
    let (first, last) = whole.split_at(9);
    s.client(first).silent();
    s.client(last).broker_gets(&[&whole]);
    let last = body(b"four");
    s.client(&last)
        .broker_gets(&[&last, &cancel("orders", 1), &ack(1, false), &done()]);
}

#[test]
fn what_a_client_begins_afterwards_goes_nowhere() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let ticket = s.ticket();
    s.drain()
        .broker_and_client(&[&cancel("orders", 1)], &[&forced()]);
    let late = [publish(), header(40), body(&[7; 40]), ack(1, false)].concat();
    let (first, last) = late.split_at(late.len() - 45);
    s.client(first).silent();
    s.settled(&[(ticket, Outcome::Confirmed)])
        .broker_gets(&[&ack(1, false), &done()]);
    s.client(last).silent();
    s.client(b"no frame at all, and this is not its end")
        .silent();
}

#[test]
fn a_client_that_leaves_within_a_frame_leaves_all_to_the_broker() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.client(&[publish(), header(40)].concat()).passes();
    let part = &body(&[7; 40])[..20];
    s.client(part).passes();
    s.drain().client_gets(&[&forced()]);
    s.gone(Leg::Client).silent();
    assert_eq!(s.session.flow(), Flow::HalfClosed);
}

/// Frames of a content would reach it without their beginning.
#[test]
fn a_client_that_was_told_hears_nothing_more_even_if_it_is_let_go_within_a_frame() {
    let mut s = with(1);
    let content = [publish(), header(6), body(b"abcdef")].concat();
    let (begun, _) = content.split_at(content.len() - 4);
    s.client(&reject(1, false)).silent();
    s.client(begun).passes();
    s.drain().client_gets(&[&forced()]);
    s.wait(Duration::from_secs(5)).silent();
    s.broker(&deliver("orders", 2, b"hi")).silent();
}
