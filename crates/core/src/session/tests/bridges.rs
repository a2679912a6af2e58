//! What came over a bridge to an internal exchange came from that exchange, as far as a client can see.

use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::DeliveryTag;
use crate::amqp::method::{Deliver, GetOk, MethodId};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::reply;
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::machine::Leg;
use crate::registry::policy::Mode;

const BRIDGE: &str = "dlx-proxy.bridge/int-x";

/// A delivery to the consumer `q` that came from that exchange.
fn delivery(exchange: &str, properties: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let deliver = Deliver {
        consumer_tag: b"q",
        delivery_tag: DeliveryTag(1),
        redelivered: true,
        exchange: exchange.as_bytes(),
        routing_key: b"k",
    };
    reply::deliver(&mut out, CH, &deliver);
    content(out, properties)
}

fn content(mut out: Vec<u8>, properties: &[u8]) -> Vec<u8> {
    frame::put(&mut out, 2, CH, |out| {
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&2u64.to_be_bytes());
        out.extend_from_slice(properties);
    });
    out.extend(body(b"hi"));
    out
}

/// Properties with a death in a native queue to which the message had come from that exchange, and with what is private.
fn died(exchange: &str, private: bool) -> Vec<u8> {
    let mut entry = TableBuilder::default();
    entry
        .long(b"count", 1)
        .longstr(b"queue", b"native")
        .longstr(b"reason", b"expired")
        .longstr(b"exchange", exchange.as_bytes());
    let mut deaths = ArrayBuilder::default();
    deaths.table(&entry);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    if private {
        headers.table(b"x-dlx-proxy-history", &TableBuilder::default());
    }
    let headers = Change::Set(headers.finish());
    let edit = Edit {
        headers,
        ..Edit::default()
    };
    Properties::parse(&[0, 0])
        .expect("none")
        .edit(&edit)
        .to_vec()
}

#[test]
fn a_delivery_names_the_internal_exchange() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).consume("q");
    s.broker(&delivery(BRIDGE, &[0, 0]))
        .client_gets(&[&delivery("int-x", &[0, 0])]);
    for other in ["", "int-x", "dlx-proxy.bridge", "dlx-proxy/int-x"] {
        s.broker(&delivery(other, &[0, 0])).passes();
    }
}

#[test]
fn so_does_what_is_fetched() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    let got = |exchange: &str| {
        let mut out = Vec::new();
        let got = GetOk {
            delivery_tag: DeliveryTag(1),
            redelivered: true,
            exchange: exchange.as_bytes(),
            routing_key: b"k",
            message_count: 7,
        };
        reply::get_ok(&mut out, CH, &got);
        content(out, &[0, 0])
    };
    for (from, to) in [(BRIDGE, "int-x"), ("x", "x")] {
        s.client(&method(CH, MethodId::BASIC_GET, |a| {
            a.short(0).shortstr(b"q").octet(0).end();
        }))
        .passes();
        s.broker(&got(from)).client_gets(&[&got(to)]);
    }
}

#[test]
fn and_so_does_the_history_of_its_deaths() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).consume("q");
    s.broker(&delivery("x", &died(BRIDGE, true)))
        .client_gets(&[&delivery("x", &died("int-x", false))]);
    s.broker(&delivery("x", &died("y", false))).passes();
}

#[test]
fn and_so_does_its_dead_letter() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.broker(&delivery(BRIDGE, &died(BRIDGE, true)))
        .client_gets(&[&delivery("int-x", &died("int-x", false))]);
    s.client(&reject(1, false)).silent();
    let properties = &s.dead[0].1.content.properties;
    let told = |text: &[u8]| memchr::memmem::find_iter(properties, text).count();
    // Of both deaths, once more in the private history, and x-last-death-exchange.
    assert_eq!((told(b"S\0\0\0\x05int-x"), told(b"bridge")), (5, 0));
}

#[test]
fn a_client_that_is_gone_is_told_nothing_of_it() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.broker(&delivery("x", &[0, 0])).passes();
    s.client(&reject(1, false)).silent();
    s.gone(Leg::Client)
        .broker_gets(&[&cancel_without_reply("q")]);
    s.broker(&delivery(BRIDGE, &died(BRIDGE, true))).silent();
}
