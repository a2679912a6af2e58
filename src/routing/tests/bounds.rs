//! Nothing grows.

use crate::amqp::ids::name;
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::TargetQueues;
use crate::machine::{Change, Mono};
use crate::routing::{LOOK, MOST_OCTETS, MOST_WORK, OVERHEAD, Routing, SOURCE};

use super::model::{Model, binding, exchange, queue};

fn targets(routing: &Routing, exchange: &str) -> Option<usize> {
    match routing.targets(exchange.as_bytes(), &[b"k"], Table(b"")) {
        TargetQueues::Known(queues) => Some(queues.len()),
        TargetQueues::Unknown => None,
    }
}

#[test]
fn what_is_there_no_more_weighs_nothing() {
    let mut routing = Routing::default();
    for _ in 0..3 {
        routing.apply(Change::Declared(exchange("x", "fanout", Some("y"))));
        for n in 0..100 {
            let to = queue(&format!("q{n}"));
            let bound = binding("x", to, "k", &[("x-match", "any"), ("h", "1")]);
            routing.apply(Change::Bound(bound.clone()));
            routing.apply(Change::Bound(bound));
        }
        assert!(routing.octets > 100 * OVERHEAD);
        assert_eq!(targets(&routing, "x"), Some(100));
        routing.apply(Change::ExchangeDeleted(name("x")));
        assert_eq!((routing.octets, routing.bindings.len()), (0, 0));
    }
}

#[test]
fn what_once_led_somewhere_weighs_something() {
    let mut routing = Routing::default();
    for n in 0..3_000 {
        let bound = binding("x", queue(&format!("q{n}")), "k", &[]);
        routing.apply(Change::Bound(bound.clone()));
        routing.apply(Change::Unbound(bound));
    }
    assert_eq!(
        (routing.octets, routing.bindings.len()),
        (3_000 * SOURCE, 0)
    );
}

#[test]
fn too_much_is_forgotten_as_a_whole() {
    let mut model = Model {
        exchanges: vec![exchange("x", "direct", None), exchange("y", "direct", None)],
        ..Model::default()
    };
    model.bindings.push(binding("y", queue("q"), "k", &[]));
    assert_eq!(targets(&Routing::of(model.survey(Mono(0))), "y"), Some(1));
    let large = "v".repeat(100_000);
    let mut routing = Routing::of(model.survey(Mono(0)));
    let mut fits = 0;
    let many = (0..).map(|n| binding("x", queue("q"), &n.to_string(), &[("h", &large)]));
    for bound in many.take(MOST_OCTETS / large.len() + 1) {
        model.bindings.insert(0, bound.clone());
        fits += usize::from(routing.apply(Change::Bound(bound)));
    }
    assert!(fits > MOST_OCTETS / large.len() * 9 / 10, "{fits}");
    assert_eq!(targets(&routing, "y"), None);
    // Not what came before the bound, nor what comes after it.
    let routing = Routing::of(model.survey(Mono(0)));
    assert_eq!(
        (targets(&routing, "x"), targets(&routing, "y")),
        (None, None)
    );
}

#[test]
fn no_message_is_compared_with_more_bindings_than_this() {
    let mut routing = Routing::default();
    routing.apply(Change::Declared(exchange("x", "topic", None)));
    routing.apply(Change::Declared(exchange("d", "direct", None)));
    for n in 0..MOST_WORK / LOOK {
        let key = format!("{n}");
        routing.apply(Change::Bound(binding("x", queue("q"), &key, &[])));
        routing.apply(Change::Bound(binding("d", queue("q"), &key, &[])));
    }
    assert_eq!(targets(&routing, "x"), Some(0));
    for exchange in ["x", "d"] {
        routing.apply(Change::Bound(binding(exchange, queue("q"), "k", &[])));
    }
    assert_eq!(targets(&routing, "x"), None);
    assert_eq!(targets(&routing, "d"), Some(1), "found by its key");
}

#[test]
fn nor_with_so_many_if_there_is_much_to_compare() {
    let mut routing = Routing::default();
    for (exchange_, kind) in [("t", "topic"), ("h", "headers")] {
        routing.apply(Change::Declared(exchange(exchange_, kind, None)));
        for n in 0..100 {
            let wanted = [("x-match", "all"), ("wanted", "1")];
            let to = queue(&format!("q{n}"));
            routing.apply(Change::Bound(binding(exchange_, to, "k", &wanted)));
        }
    }
    let known = |exchange: &[u8], keys: &[&[u8]], headers: &[u8]| {
        routing.targets(exchange, keys, Table(headers)) != TargetQueues::Unknown
    };
    let filler = |octets: usize| {
        let mut headers = TableBuilder::default();
        headers.longstr(b"filler", &vec![b'f'; octets]);
        headers.finish()
    };
    let key: &[u8] = b"k";
    assert!(known(b"t", &[key; 600], b""));
    assert!(!known(b"t", &[key; 700], b""), "many keys");
    assert!(known(b"h", &[b"k"], &filler(40_000)));
    assert!(!known(b"h", &[b"k"], &filler(44_000)), "a large header");
}
