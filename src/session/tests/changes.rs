//! What the intake is told about exchanges and bindings: what the broker accepted, when it did.

use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::reply::{self, Arguments};
use crate::machine::{Binding, Change, Destination, Exchange, Leg};
use crate::registry::policy::Mode;

use super::script::{CH, Script, body, header, method, settings};

const PASSIVE: u8 = 1;
const EXCHANGE_NO_WAIT: u8 = 16;
const DELETE_NO_WAIT: u8 = 4;
/// A table with one member.
const ARGUMENTS: &[u8] = b"\x01aV";

const EXCHANGE_DELETE_OK: MethodId = MethodId(40, 21);
const EXCHANGE_BIND_OK: MethodId = MethodId(40, 31);
const EXCHANGE_UNBIND_OK: MethodId = MethodId(40, 51);
const QUEUE_UNBIND_OK: MethodId = MethodId(50, 51);

fn open() -> Script {
    Script::open(settings(Mode::Takeover))
}

fn ok(id: MethodId) -> Vec<u8> {
    method(CH, id, |_| {})
}

fn declare_exchange(exchange: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::EXCHANGE_DECLARE, |a| {
        a.short(0)
            .shortstr(exchange.as_bytes())
            .shortstr(b"topic")
            .octet(bits)
            .longstr(ARGUMENTS)
            .end();
    })
}

fn declared(exchange: &str) -> Change {
    Change::Declared(Exchange {
        name: name(exchange),
        kind: name("topic"),
        arguments: ARGUMENTS.to_vec(),
        policy: false,
    })
}

/// A bind or an unbind: `first` goes before the other name; queue.unbind has no `no_wait`.
fn bind(id: MethodId, first: &str, second: &str, key: &str, no_wait: Option<bool>) -> Vec<u8> {
    method(CH, id, |a: &mut Arguments<'_>| {
        a.short(0)
            .shortstr(first.as_bytes())
            .shortstr(second.as_bytes())
            .shortstr(key.as_bytes());
        if let Some(no_wait) = no_wait {
            a.octet(u8::from(no_wait));
        }
        a.longstr(ARGUMENTS).end();
    })
}

fn binding(source: &str, destination: Destination, key: &str) -> Binding {
    Binding {
        source: name(source),
        destination,
        routing_key: name(key),
        arguments: ARGUMENTS.to_vec(),
    }
}

fn to_queue(queue: &str, key: &str) -> Binding {
    binding("x", Destination::Queue(name(queue)), key)
}

fn to_exchange() -> Binding {
    binding("x", Destination::Exchange(name("y")), "k")
}

fn delete_queue(queue: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::QUEUE_DELETE, |a| {
        a.short(0).shortstr(queue.as_bytes()).octet(bits).end();
    })
}

fn delete_exchange(exchange: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::EXCHANGE_DELETE, |a| {
        a.short(0).shortstr(exchange.as_bytes()).octet(bits).end();
    })
}

/// The last queue of the channel is `last`, however it came to be.
fn with_last_queue() -> Script {
    let mut script = open();
    let declare = method(CH, MethodId::QUEUE_DECLARE, |a| {
        a.short(0).shortstr(b"").octet(0).longstr(b"").end();
    });
    script.client(&declare).passes();
    script
        .broker(&method(CH, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"last").long(0).long(0).end();
        }))
        .passes();
    script
}

#[test]
fn what_the_broker_accepted() {
    let deleted = method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end());
    let wait = Some(false);
    for (request, answer, change) in [
        (
            declare_exchange("x", 2),
            ok(MethodId::EXCHANGE_DECLARE_OK),
            declared("x"),
        ),
        (
            bind(MethodId::QUEUE_BIND, "q", "x", "k", wait),
            ok(MethodId::QUEUE_BIND_OK),
            Change::Bound(to_queue("q", "k")),
        ),
        (
            bind(MethodId::QUEUE_UNBIND, "q", "x", "k", None),
            ok(QUEUE_UNBIND_OK),
            Change::Unbound(to_queue("q", "k")),
        ),
        (
            bind(MethodId::EXCHANGE_BIND, "y", "x", "k", wait),
            ok(EXCHANGE_BIND_OK),
            Change::Bound(to_exchange()),
        ),
        (
            bind(MethodId::EXCHANGE_UNBIND, "y", "x", "k", wait),
            ok(EXCHANGE_UNBIND_OK),
            Change::Unbound(to_exchange()),
        ),
        (
            delete_exchange("x", 0),
            ok(EXCHANGE_DELETE_OK),
            Change::ExchangeDeleted(name("x")),
        ),
        (
            delete_queue("q", 0),
            deleted.clone(),
            Change::QueueDeleted(name("q")),
        ),
        (
            delete_queue("", 0),
            deleted,
            Change::QueueDeleted(name("last")),
        ),
    ] {
        let mut script = with_last_queue();
        script.client(&request).passes();
        assert_eq!(script.changes, [], "not before the broker says so");
        script.broker(&answer).passes();
        assert_eq!(script.changes, [change]);
    }
}

#[test]
fn what_the_client_wants_no_answer_to() {
    let (yes, no) = (Some(true), Some(false));
    let binding = |id, no_wait| match id {
        MethodId::QUEUE_BIND => bind(id, "q", "x", "k", no_wait),
        _ => bind(id, "y", "x", "k", no_wait),
    };
    let (queue, exchange, unbind) = (
        MethodId::QUEUE_BIND,
        MethodId::EXCHANGE_BIND,
        MethodId::EXCHANGE_UNBIND,
    );
    for (request, asking, answer, change) in [
        (
            declare_exchange("x", EXCHANGE_NO_WAIT),
            declare_exchange("x", 0),
            ok(MethodId::EXCHANGE_DECLARE_OK),
            declared("x"),
        ),
        (
            binding(queue, yes),
            binding(queue, no),
            ok(MethodId::QUEUE_BIND_OK),
            Change::Bound(to_queue("q", "k")),
        ),
        (
            binding(exchange, yes),
            binding(exchange, no),
            ok(EXCHANGE_BIND_OK),
            Change::Bound(to_exchange()),
        ),
        (
            binding(unbind, yes),
            binding(unbind, no),
            ok(EXCHANGE_UNBIND_OK),
            Change::Unbound(to_exchange()),
        ),
        (
            delete_exchange("x", 2),
            delete_exchange("x", 0),
            ok(EXCHANGE_DELETE_OK),
            Change::ExchangeDeleted(name("x")),
        ),
        (
            delete_queue("q", DELETE_NO_WAIT),
            delete_queue("q", 0),
            method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end()),
            Change::QueueDeleted(name("q")),
        ),
    ] {
        let mut script = open();
        script.client(&request).broker_gets(&[&asking]);
        assert_eq!(script.changes, [], "not before the broker says so");
        script.broker(&answer).silent();
        assert_eq!(script.changes, [change]);
    }
}

/// S7.7, and `expand_routing_key_shortcut`: the key is the queue's name only when neither is given.
#[test]
fn an_empty_name_is_the_last_queue() {
    for (id, no_wait, answer) in [
        (MethodId::QUEUE_BIND, Some(false), MethodId::QUEUE_BIND_OK),
        (MethodId::QUEUE_UNBIND, None, QUEUE_UNBIND_OK),
    ] {
        for (queue, key, expected) in [
            ("", "", to_queue("last", "last")),
            ("", "k", to_queue("last", "k")),
            ("q", "", to_queue("q", "")),
        ] {
            let mut script = with_last_queue();
            script.client(&bind(id, queue, "x", key, no_wait)).passes();
            script.broker(&ok(answer)).passes();
            let changed = match id {
                MethodId::QUEUE_BIND => Change::Bound(expected),
                _ => Change::Unbound(expected),
            };
            assert_eq!(script.changes, [changed]);
        }
    }
}

#[test]
fn nothing_of_what_was_refused_or_only_asked() {
    let mut script = open();
    script.client(&declare_exchange("x", PASSIVE)).passes();
    script.broker(&ok(MethodId::EXCHANGE_DECLARE_OK)).passes();
    script.client(&declare_exchange("x", 2)).passes();
    let wait = Some(false);
    script
        .client(&bind(MethodId::QUEUE_BIND, "q", "x", "k", wait))
        .passes();
    let mut refused = Vec::new();
    let text = b"PRECONDITION_FAILED - inequivalent arg";
    reply::close(&mut refused, CH, 406, text, MethodId::EXCHANGE_DECLARE);
    script.broker(&refused).passes();
    script.client(&ok(MethodId::CHANNEL_CLOSE_OK)).passes();
    assert_eq!(script.changes, []);
}

#[test]
fn pipelined_requests_in_their_order() {
    let mut script = open();
    let wait = Some(false);
    script.client(&declare_exchange("x", 2)).passes();
    script
        .client(&bind(MethodId::QUEUE_BIND, "q", "x", "k", wait))
        .passes();
    script.client(&delete_exchange("y", 0)).passes();
    script.broker(&ok(MethodId::EXCHANGE_DECLARE_OK)).passes();
    assert_eq!(script.changes, [declared("x")]);
    script.broker(&ok(MethodId::QUEUE_BIND_OK)).passes();
    script.broker(&ok(EXCHANGE_DELETE_OK)).passes();
    let rest = [
        Change::Bound(to_queue("q", "k")),
        Change::ExchangeDeleted(name("y")),
    ];
    assert_eq!(script.changes[1..], rest);
}

#[test]
fn messages_and_what_cannot_be_read_say_nothing() {
    let mut script = open();
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"x").shortstr(b"k").octet(0).end();
    });
    script
        .client(&[publish, header(2), body(b"hi")].concat())
        .passes();
    let cut = method(CH, MethodId::QUEUE_BIND, |a| {
        a.short(0).shortstr(b"q").end()
    });
    script.client(&cut).passes();
    script.broker(&ok(MethodId::QUEUE_BIND_OK)).passes();
    script.gone(Leg::Client).silent();
    assert_eq!(script.changes, []);
}
