//! What matches what, and where that leads.

use crate::amqp::ids::name;
use crate::machine::{Destination, Survey};
use crate::routing::{MOST_OCTETS, Routing, topic};

use super::model::{binding, exchange, queue};

#[test]
fn topics() {
    for (pattern, keys, others) in [
        ("", &[""][..], &["a", ".", "a.b"][..]),
        ("a", &["a"], &["", "b", "a.a", "a.", ".a", "A"]),
        ("*", &["a", "*", "#", "some"], &["", "a.b", "."]),
        ("#", &["", "a", "a.b", ".", "..", "a.b.c.d"], &[]),
        ("a.*", &["a.b", "a."], &["a", "a.b.c", "b.a", ""]),
        ("a.#", &["a", "a.b", "a.b.c", "a."], &["", "b", "b.a"]),
        ("#.a", &["a", "b.a", ".a", "a.a"], &["", "a.b", "ba"]),
        (
            "#.a.#",
            &["a", "b.a", "a.b", "b.a.c", "a.a"],
            &["", "b", "b.c"],
        ),
        ("*.#", &["a", "a.b", "."], &[""]),
        ("#.*", &["a", "a.b", "."], &[""]),
        ("*.*", &["a.b", "."], &["", "a", "a.b.c"]),
        ("#.#", &["", "a", "a.b"], &[]),
        (
            "#.a.*.#.b",
            &["a.x.b", "y.a.x.z.b", "a.a.x.b", "a.b.b"],
            &["a.b", "a.x", "b.a"],
        ),
        ("a*", &["a*"], &["ab", "a"]),
        ("a#.b", &["a#.b"], &["a.b", "ax.b"]),
        ("..", &[".."], &["", ".", "a..", "..."]),
        ("a..b", &["a..b"], &["a.b", "a.x.b"]),
    ] {
        let matches = |key: &str| topic::matches(pattern.as_bytes(), key.as_bytes());
        for key in keys {
            assert!(matches(key), "{pattern:?} takes {key:?}");
        }
        for key in others {
            assert!(!matches(key), "{pattern:?} does not take {key:?}");
        }
    }
}

fn to_exchange(text: &str) -> Destination {
    Destination::Exchange(name(text))
}

#[test]
fn too_much_is_forgotten_as_a_whole() {
    let key = "k".repeat(255);
    let many = (0..MOST_OCTETS / 255).map(|n| binding("x", queue(&n.to_string()), &key));
    let routing = Routing::of(Survey {
        exchanges: vec![exchange("x", "fanout", None)],
        bindings: many.collect(),
    });
    assert!(!routing.has(b"x"));
}

/// Where a target may lead: `a b`, or `?`.
fn leads_to(routing: &Routing, exchange: &str, key: Option<&str>) -> String {
    let queues = routing.leads_to(exchange.as_bytes(), key.map(str::as_bytes));
    queues.map_or("?".to_owned(), |queues| {
        let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
        queues.join(" ")
    })
}

#[test]
fn where_a_target_may_lead() {
    let exchanges = vec![
        exchange("direct", "direct", Some("rest")),
        exchange("fanout", "fanout", None),
        exchange("topic", "topic", None),
        exchange("headers", "headers", Some("rest")),
        exchange("rest", "fanout", Some("round")),
        exchange("round", "direct", None),
        exchange("hash", "x-consistent-hash", None),
        exchange("many", "fanout", None),
    ];
    let mut bindings = vec![
        binding("direct", queue("a"), "k"),
        binding("direct", queue("b"), "other"),
        binding("fanout", queue("a"), "k"),
        binding("fanout", to_exchange("hash"), "k"),
        binding("topic", queue("a"), "k.*"),
        binding("topic", to_exchange("round"), "#"),
        binding("round", to_exchange("topic"), "k.1"),
        binding("round", queue("r"), "k.1"),
        binding("headers", queue("a"), ""),
        binding("rest", queue("z"), ""),
    ];
    bindings.extend((0..5000).map(|number| binding("many", queue(&format!("q{number}")), "")));
    let routing = Routing::of(Survey {
        exchanges,
        bindings,
    });
    for (exchange, key, expected) in [
        ("direct", Some("k"), "a"),
        ("direct", Some("none"), "z"),
        ("direct", None, "a b z"),
        ("topic", Some("k.1"), "a r"),
        ("topic", Some("x"), ""),
        ("topic", None, "a r"),
        ("headers", Some("k"), "a z"),
        ("rest", Some("k"), "z"),
        ("fanout", Some("k"), "?"),
        ("nowhere", Some("k"), "?"),
        ("many", Some("k"), "?"),
    ] {
        assert_eq!(
            leads_to(&routing, exchange, key),
            expected,
            "{exchange} {key:?}"
        );
    }
}
