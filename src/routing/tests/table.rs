//! What matches what. `tests/broker/routing.rs` asks real brokers the same.

use crate::amqp::ids::name;
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::TargetQueues;
use crate::machine::{Change, Destination};
use crate::routing::headers::Criteria;
use crate::routing::{Routing, topic};

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

/// `name:type value`, separated by blanks: `a:S text`, `b:l 5`, `c:t 1`, `d:V`, `e:T 5`, `f:F`.
fn table(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for field in text.split(", ").filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(':').unwrap();
        let (tag, value) = value.split_once(' ').unwrap_or((value, ""));
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(tag.as_bytes());
        let number = || value.parse::<i64>().unwrap();
        match tag {
            "S" | "x" | "F" => {
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
            "b" | "t" => out.push(number() as u8),
            "I" => out.extend_from_slice(&(number() as i32).to_be_bytes()),
            "l" | "T" => out.extend_from_slice(&number().to_be_bytes()),
            "d" => out.extend_from_slice(&(number() as f64).to_be_bytes()),
            "V" => {}
            other => panic!("no type {other}"),
        }
    }
    out
}

#[test]
fn headers() {
    let (yes, no, unknown) = (Some(true), Some(false), None);
    for (arguments, headers, expected) in [
        // All of none is all, any of none is not any.
        ("", "", yes),
        ("x-match:S all", "a:S 1", yes),
        ("x-match:S any", "a:S 1", no),
        ("a:S 1", "a:S 1", yes),
        ("a:S 1", "a:S 2", no),
        ("a:S 1", "b:S 1", no),
        ("a:S 1", "", no),
        ("x-match:S all, a:S 1, b:S 2", "b:S 2, c:S 3, a:S 1", yes),
        ("x-match:S all, a:S 1, b:S 2", "a:S 1", no),
        ("x-match:S any, a:S 1, b:S 2", "a:S 1", yes),
        ("x-match:S any, a:S 1, b:S 2", "a:S 2, b:S 1", no),
        // What is not a word of x-match's counts as all.
        ("x-match:S some, a:S 1, b:S 2", "a:S 1", no),
        ("x-match:l 1, a:S 1", "a:S 1", yes),
        // Other names in x- count only if they are meant to.
        ("x-a:S 1", "", yes),
        ("x-match:S any, x-a:S 1", "x-a:S 1", no),
        ("x-match:S all-with-x, x-a:S 1", "", no),
        ("x-match:S all-with-x, x-a:S 1", "x-a:S 1", yes),
        ("x-match:S any-with-x, x-a:S 1", "x-a:S 1", yes),
        ("x-match:S any-with-x", "x-match:S any-with-x", no),
        // Void asks for presence.
        ("a:V", "a:F", yes),
        ("a:V", "b:l 1", no),
        ("x-match:S any, a:V, b:V", "b:V", yes),
        // Values count, not their types.
        ("a:l 5", "a:b 5", yes),
        ("a:I -5", "a:l -5", yes),
        ("a:l 5", "a:S 5", no),
        ("a:S x", "a:x x", yes),
        ("a:t 1", "a:t 1", yes),
        ("a:t 1", "a:t 0", no),
        ("a:t 1", "a:l 1", no),
        // Versions differ: 1.0 and 1, timestamps; nobody compares tables.
        ("a:d 1", "a:l 1", unknown),
        ("a:d 1", "a:d 1", unknown),
        ("a:T 5", "a:T 5", unknown),
        ("a:F", "a:F", unknown),
        ("a:l 5", "a:V", unknown),
        ("a:d 1", "b:l 1", no),
        // ... which matters only when all else leaves it open.
        ("a:d 1, b:l 1", "a:d 1, b:l 2", no),
        ("a:d 1, b:l 1", "a:d 1, b:l 1", unknown),
        ("x-match:S any, a:d 1, b:l 1", "a:d 1, b:l 1", yes),
        ("x-match:S any, a:d 1, b:l 1", "a:d 1, b:l 2", unknown),
        // Which of two counts?
        ("a:l 1", "a:l 1, a:l 1", unknown),
        ("a:l 1, a:l 1", "a:l 1", unknown),
        ("a:l 1", "b:l 1, b:l 1, a:l 1", yes),
        // The broker may set them on the way.
        ("timestamp_in_ms:V", "", unknown),
        ("x-match:S any-with-x, x-routed-by:V", "", unknown),
    ] {
        let (arguments_, headers_) = (table(arguments), table(headers));
        let matches = Criteria::of(&arguments_).matches(Table(&headers_));
        assert_eq!(matches, expected, "[{arguments}] asked of [{headers}]");
    }
    let cut = Criteria::of(b"\x01aS\0\0\0\x05x");
    assert_eq!(cut.matches(Table(b"")), None);
    let any = Criteria::of(&table("a:l 1"));
    assert_eq!(
        any.matches(Table(b"\x01b?")),
        None,
        "headers with an unknown type"
    );
}

fn routing(changes: &[Change]) -> Routing {
    let mut routing = Routing::default();
    for change in changes {
        assert!(routing.apply(change.clone()));
    }
    routing
}

fn declared(name_: &str, kind: &str, alternate: Option<&str>) -> Change {
    Change::Declared(exchange(name_, kind, alternate))
}

fn bound(source: &str, destination: Destination, key: &str) -> Change {
    Change::Bound(binding(source, destination, key, &[]))
}

fn to_exchange(name_: &str) -> Destination {
    Destination::Exchange(name(name_))
}

/// `a b` for known queues, `?` for unknown ones.
fn targets(routing: &Routing, exchange: &str, keys: &[&str]) -> String {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    match routing.targets(exchange.as_bytes(), &keys, Table(b"")) {
        TargetQueues::Unknown => "?".to_owned(),
        TargetQueues::Known(queues) => {
            let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
            queues.join(" ")
        }
    }
}

#[test]
fn each_type_by_its_rule() {
    let routing = routing(&[
        declared("direct", "direct", None),
        declared("fanout", "fanout", None),
        declared("topic", "topic", None),
        declared("hash", "x-consistent-hash", None),
        bound("direct", queue("a"), "k"),
        bound("direct", queue("b"), "k"),
        bound("direct", queue("b"), "other"),
        bound("direct", queue("c"), "kk"),
        bound("fanout", queue("a"), "k"),
        bound("fanout", queue("b"), ""),
        bound("topic", queue("a"), "k.*"),
        bound("topic", queue("b"), "#"),
        bound("hash", queue("a"), "1"),
        bound("amq.topic", queue("a"), "k"),
        bound("never declared", queue("a"), "k"),
    ]);
    for (exchange, keys, expected) in [
        ("direct", &["k"][..], "a b"),
        ("direct", &["other", "kk"], "b c"),
        ("direct", &["k.*"], ""),
        ("fanout", &["any"], "a b"),
        ("topic", &["k.x"], "a b"),
        ("topic", &["x", "k"], "b"),
        ("amq.topic", &["k"], "a"),
        ("amq.fanout", &["k"], ""),
        ("hash", &["k"], "?"),
        ("never declared", &["k"], "?"),
        ("nowhere", &["k"], "?"),
        ("", &["a"], "?"),
    ] {
        assert_eq!(
            targets(&routing, exchange, keys),
            expected,
            "{exchange} {keys:?}"
        );
    }
}

#[test]
fn through_other_exchanges() {
    let routing = routing(&[
        declared("first", "direct", None),
        declared("second", "topic", None),
        declared("back", "fanout", None),
        declared("plugin", "x-random", None),
        bound("first", to_exchange("second"), "k.1"),
        bound("first", to_exchange("plugin"), "p"),
        bound("first", to_exchange("gone"), "g"),
        bound("second", queue("a"), "k.*"),
        bound("second", to_exchange("back"), "#"),
        bound("back", to_exchange("first"), ""),
        bound("back", queue("b"), ""),
    ]);
    assert_eq!(targets(&routing, "first", &["k.1"]), "a b");
    assert_eq!(targets(&routing, "back", &["x"]), "b");
    assert_eq!(targets(&routing, "first", &["p"]), "?");
    assert_eq!(targets(&routing, "first", &["g"]), "?");
}

#[test]
fn alternates_take_what_has_no_destination() {
    let routing = routing(&[
        declared("x", "direct", Some("spare")),
        declared("spare", "direct", Some("last")),
        declared("last", "fanout", Some("x")),
        declared("lost", "direct", Some("nowhere")),
        bound("x", queue("a"), "a"),
        bound("x", to_exchange("spare"), "e"),
        bound("spare", queue("b"), "b"),
        bound("last", queue("c"), ""),
    ]);
    for (exchange, keys, expected) in [
        ("x", &["a"][..], "a"),
        ("x", &["b"], "b"),
        ("x", &["k"], "c"),
        ("x", &["a", "b"], "a"),
        // An exchange is a destination, even if it leads nowhere itself.
        ("x", &["e"], "c"),
        ("x", &["e", "a"], "a c"),
        ("lost", &["k"], "?"),
    ] {
        assert_eq!(
            targets(&routing, exchange, keys),
            expected,
            "{exchange} {keys:?}"
        );
    }
}

#[test]
fn what_a_policy_or_an_argument_may_change_is_unknown() {
    let mut under_policy = exchange("p", "fanout", None);
    under_policy.policy = true;
    let mut odd = exchange("o", "fanout", None);
    let mut arguments = TableBuilder::default();
    arguments.long(b"alternate-exchange", 1);
    odd.arguments = arguments.finish();
    let mut cut = exchange("c", "fanout", None);
    cut.arguments = vec![5];
    let routing = routing(&[under_policy, odd, cut].map(Change::Declared));
    for exchange in ["p", "o", "c"] {
        assert_eq!(targets(&routing, exchange, &["k"]), "?");
    }
}

#[test]
fn what_is_deleted_takes_its_bindings_along() {
    let all = [
        declared("x", "fanout", None),
        declared("y", "fanout", None),
        bound("x", queue("a"), ""),
        bound("x", queue("a"), "again"),
        bound("x", queue("b"), ""),
        bound("x", to_exchange("y"), ""),
        bound("y", queue("a"), ""),
        bound("y", queue("c"), ""),
    ];
    let after = |change: Change| {
        let mut routing = routing(&all);
        routing.apply(change);
        let seen = ["x", "y"].map(|exchange| targets(&routing, exchange, &[""]));
        // Whatever comes again finds nothing of its first life.
        routing.apply(all[0].clone());
        routing.apply(all[1].clone());
        let [x, y] = seen;
        (
            x,
            y,
            targets(&routing, "x", &[""]),
            targets(&routing, "y", &[""]),
        )
    };
    let owned = |x: &str, y: &str, x2: &str, y2: &str| {
        (x.to_owned(), y.to_owned(), x2.to_owned(), y2.to_owned())
    };
    assert_eq!(
        after(Change::QueueDeleted(name("a"))),
        owned("b c", "c", "b c", "c")
    );
    assert_eq!(
        after(Change::QueueDeleted(name("nobody"))),
        owned("a b c", "a c", "a b c", "a c")
    );
    assert_eq!(
        after(Change::ExchangeDeleted(name("x"))),
        owned("?", "a c", "", "a c")
    );
    assert_eq!(
        after(Change::ExchangeDeleted(name("y"))),
        owned("a b", "?", "a b", "")
    );
    assert_eq!(
        after(Change::Unbound(binding("x", queue("b"), "", &[]))),
        owned("a c", "a c", "a c", "a c")
    );
    assert_eq!(
        after(Change::Unbound(binding(
            "x",
            queue("b"),
            "another key",
            &[]
        ))),
        owned("a b c", "a c", "a b c", "a c")
    );
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
    let mut changes = vec![
        declared("direct", "direct", Some("rest")),
        declared("fanout", "fanout", None),
        declared("topic", "topic", None),
        declared("headers", "headers", Some("rest")),
        declared("rest", "fanout", Some("round")),
        declared("round", "direct", None),
        declared("hash", "x-consistent-hash", None),
        declared("many", "fanout", None),
        bound("direct", queue("a"), "k"),
        bound("direct", queue("b"), "other"),
        bound("fanout", queue("a"), "k"),
        bound("fanout", to_exchange("hash"), "k"),
        bound("topic", queue("a"), "k.*"),
        bound("topic", to_exchange("round"), "#"),
        bound("round", to_exchange("topic"), "k.1"),
        bound("round", queue("r"), "k.1"),
        Change::Bound(binding("headers", queue("a"), "", &[("tenant", "7")])),
        bound("rest", queue("z"), ""),
    ];
    changes.extend((0..5000).map(|number| bound("many", queue(&format!("q{number}")), "")));
    let routing = routing(&changes);
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
