//! What the API answers of exchanges, what matches what, and where that leads.

use super::*;
use crate::known::{Leads, Target};
use crate::management::leads::{Asked, Binding, Exchange, resolve};
use crate::management::topic;

/// Captured from a node of each version, one member per line.
const EXCHANGES: [&str; 2] = [
    include_str!("../testdata/exchanges-3.10.8.json"),
    include_str!("../testdata/exchanges-4.3.6.json"),
];
const BINDINGS: [&str; 2] = [
    include_str!("../testdata/bindings-3.10.8.json"),
    include_str!("../testdata/bindings-4.3.6.json"),
];

#[test]
fn what_real_nodes_answer_of_exchanges_is_understood() {
    for answer in EXCHANGES {
        let found: Vec<Exchange> = serde_json::from_str(answer).expect("JSON");
        let kinds: Vec<_> = found.iter().map(|exchange| &*exchange.kind).collect();
        assert_eq!(kinds, ["direct", "headers", "fanout", "topic"]);
    }
    for answer in BINDINGS {
        let found: Vec<Binding> = serde_json::from_str(answer).expect("JSON");
        let queues: Vec<_> = found.iter().filter_map(Binding::queue).collect();
        let expected = ["jobs", "orders", "jobs", "jobs", "orders"].map(name);
        assert_eq!(queues, expected.iter().collect::<Vec<_>>());
    }
    // One binding that cannot be taken in makes the whole survey one that failed.
    let long = format!(
        r#"[{{"source":"","destination":"{}","destination_type":"queue","routing_key":""}}]"#,
        "x".repeat(256)
    );
    assert!(serde_json::from_str::<Vec<Binding>>(&long).is_err());
}

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

fn exchange(kind: &str, alternate: Option<&str>, bindings: &[(&str, &str)]) -> Option<Exchange> {
    let mut exchange: Exchange =
        serde_json::from_value(serde_json::json!({ "type": kind })).expect("an exchange");
    exchange.alternate = alternate.map(name);
    exchange.bindings = bindings.iter().map(|(key, to)| binding(key, to)).collect();
    Some(exchange)
}

/// `to`: a queue, or an exchange behind a `>`.
fn binding(key: &str, to: &str) -> Binding {
    let (kind, to) = match to.strip_prefix('>') {
        Some(exchange) => ("exchange", exchange),
        None => ("queue", to),
    };
    let binding =
        serde_json::json!({ "destination": to, "destination_type": kind, "routing_key": key });
    serde_json::from_value(binding).expect("a binding")
}

#[test]
fn where_a_target_may_lead() {
    let mut many = exchange("fanout", None, &[]).expect("one");
    many.bindings = (0..5000)
        .map(|number| binding("", &format!("q{number}")))
        .collect();
    let asked = Asked::from(
        [
            (
                "direct",
                exchange("direct", Some("rest"), &[("k", "a"), ("other", "b")]),
            ),
            (
                "fanout",
                exchange("fanout", None, &[("k", "a"), ("k", ">hash")]),
            ),
            (
                "topic",
                exchange("topic", None, &[("k.*", "a"), ("#", ">round")]),
            ),
            ("headers", exchange("headers", Some("rest"), &[("", "a")])),
            ("rest", exchange("fanout", Some("round"), &[("", "z")])),
            (
                "round",
                exchange("direct", None, &[("k.1", ">topic"), ("k.1", "r")]),
            ),
            ("hash", exchange("x-consistent-hash", None, &[])),
            ("many", Some(many)),
            ("away", exchange("fanout", None, &[("", ">gone")])),
            ("gone", None),
        ]
        .map(|(of, exchange)| (name(of), exchange)),
    );
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
        ("many", Some("k"), "?"),
        ("away", Some("k"), "?"),
        ("gone", Some("k"), "no exchange"),
        ("never asked for", Some("k"), "?"),
    ] {
        let target = Target {
            exchange: name(exchange),
            routing_key: key.map(name),
        };
        let (_, leads_to) = resolve(&asked, vec![target]).remove(0);
        let shown = match leads_to {
            Leads::To(queues) => {
                let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
                queues.join(" ")
            }
            Leads::Nowhere => "no exchange".to_owned(),
            Leads::New | Leads::Unknown => "?".to_owned(),
        };
        assert_eq!(shown, expected, "{exchange} {key:?}");
    }
}

/// Also those behind an exchange, and behind the alternate one that a policy sets.
#[tokio::test]
async fn the_exchanges_of_targets_are_asked_for() {
    let scene = Scene::open().await;
    scene.says(GONE);
    for (part, answer) in [
        (
            "/exchanges/a%2Fb/x%2D1 ",
            r#"{"type":"fanout","policy":"p","arguments":{}}"#,
        ),
        (
            "/policies/a%2Fb/p ",
            r#"{"definition":{"alternate-exchange":"other"}}"#,
        ),
        ("/exchanges/a%2Fb/x%2D1/bindings/source ", "[]"),
        (
            "/exchanges/a%2Fb/other ",
            r#"{"type":"direct","policy":null}"#,
        ),
        (
            "/exchanges/a%2Fb/other/bindings/source ",
            r#"[{"destination":"dead","destination_type":"queue","routing_key":"k"}]"#,
        ),
    ] {
        scene.says_of(part, answer);
    }
    let found = surveyed(&scene, &["x-1", "missing"], None).await;
    let dead = Leads::To([name("dead")].into());
    assert_eq!(found.expect("answers"), [dead, Leads::Nowhere]);
}

/// Where the targets lead, in their order.
async fn surveyed(
    scene: &Scene,
    exchanges: &[&str],
    key: Option<&str>,
) -> Result<Vec<Leads>, NoAnswer> {
    let target = |exchange: &&str| Target {
        exchange: name(exchange),
        routing_key: key.map(name),
    };
    let targets: Vec<_> = exchanges.iter().map(target).collect();
    let asked = scene.management.survey(&name("a/b"), &targets).await?;
    let found = resolve(&asked, targets).into_iter();
    Ok(found.map(|(_, leads_to)| leads_to).collect())
}

/// Of those that are asked for last it is unknown.
#[tokio::test]
async fn exchanges_and_bindings_are_asked_for_up_to_a_bound() {
    let nowhere = Leads::To(BTreeSet::new());
    let scene = Scene::open().await;
    scene.says(on(r#"{"type":"direct"}"#));
    scene.says_of("/bindings/source ", "[]");
    let many: Vec<_> = (0..201).map(|number| format!("x{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let found = surveyed(&scene, &many, Some("k")).await.expect("answers");
    assert_eq!(found[0], Leads::Unknown);
    assert!(found[1..].iter().all(|leads_to| *leads_to == nowhere));

    let one = r#"{"destination":"dead","destination_type":"queue","routing_key":"other"}"#;
    scene.says_of(
        "/bindings/source ",
        format!("[{}]", vec![one; 50_001].join(",")),
    );
    let found = surveyed(&scene, &["a", "b"], Some("k")).await;
    assert_eq!(found.expect("answers"), [Leads::Unknown, nowhere]);
}

/// A wrong path in `management-url`, or another server.
#[tokio::test]
async fn what_no_management_api_knows_is_not_missing() {
    let scene = Scene::open().await;
    scene.said().answer_each.clear();
    scene.says(GONE);
    assert!(surveyed(&scene, &["x"], None).await.is_err());
}
