//! What is planned for which queue.

use std::time::Duration;

use serde_json::{Value, from_value, json};

use crate::alteration::plan::*;
use crate::alteration::table;
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, Wanted};
use crate::registry::policy::Mode;
use crate::registry::{Declared, Form};

/// The queue q with these facts, beside others, and what leads to it.
fn seen(facts: Value, others: Value, bindings: Value, exchanges: Value) -> Seen {
    let mut queue = json!({"name": "q", "type": "classic", "durable": true, "arguments": {}});
    let known = queue.as_object_mut().expect("an object");
    known.extend(facts.as_object().cloned().expect("an object"));
    let queues = [vec![queue], others.as_array().cloned().expect("a list")].concat();
    Seen {
        queues: from_value(queues.into()).expect("queues"),
        bindings: from_value(bindings).expect("bindings"),
        exchanges: from_value(exchanges).expect("exchanges"),
        ..Seen::default()
    }
}

fn alone(facts: Value) -> Seen {
    seen(facts, json!([]), json!([]), json!([]))
}

/// `ARGUMENT=VALUE` to set, `ARGUMENT` to remove, or `allow-direct`.
fn wish(words: &[&str]) -> Wish {
    let mut wish = Wish::default();
    for word in words {
        match setting(word) {
            Err(_) if *word == "allow-direct" => wish.allow_direct = true,
            Ok((name, value)) => drop(wish.set.insert(name, value)),
            Err(_) => drop(wish.unset.insert((*word).to_owned())),
        }
    }
    wish
}

fn planned(seen: &Seen, words: &[&str]) -> Result<Plan, Vec<Refusal>> {
    let names = Names::default();
    let intake = |arguments: &DeclareArguments<'_>| match arguments.wanted(None, Mode::Full, &names)
    {
        Wanted::Probe(Aim::Full, _, intake) => Some(intake),
        _ => None,
    };
    plan("q", seen, &wish(words), &names, intake)
}

fn new(seen: &Seen, words: &[&str]) -> Value {
    let plan = planned(seen, words).expect("a plan");
    plan.order
        .new
        .into_iter()
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn against(seen: &Seen, words: &[&str]) -> Vec<Refusal> {
    planned(seen, words).expect_err("refused")
}

#[test]
fn what_changes_is_remembered_at_the_queue() {
    let queue = alone(json!({"arguments": {"x-max-length": 5, "x-message-ttl": 60}}));
    assert_eq!(
        new(&queue, &["x-max-length=7", "x-message-ttl"]),
        json!({"x-max-length": 7, "x-dlx-proxy-altered": "x-max-length,x-message-ttl"})
    );
    let again = json!({"x-max-length": 7, "x-dlx-proxy-altered": "x-message-ttl"});
    let again = alone(json!({"arguments": again}));
    assert_eq!(against(&again, &["x-max-length=7"]), [Refusal::Unchanged]);
    assert_eq!(
        new(&again, &["x-max-length=9"]),
        json!({"x-max-length": 9, "x-dlx-proxy-altered": "x-max-length,x-message-ttl"})
    );
}

#[test]
fn the_dead_letters_of_the_queue_are_taken_over() {
    let own = json!({"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k"});
    assert_eq!(
        new(&alone(json!({"arguments": own})), &[]),
        json!({"x-dead-letter-exchange": "dlx-proxy/dlx/k"})
    );
    let ours = json!({"x-dead-letter-exchange": "dlx-proxy/dlx/k"});
    let ours = alone(json!({"arguments": ours}));
    assert_eq!(
        new(&ours, &["x-dead-letter-exchange=other"]),
        json!({"x-dead-letter-exchange": "dlx-proxy/other/k"})
    );
    assert_eq!(against(&ours, &[]), [Refusal::Unchanged]);
    let [change] = &planned(&ours, &["x-dead-letter-routing-key"])
        .expect("a plan")
        .changes[..]
    else {
        panic!("one change");
    };
    assert_eq!(change.before, Some("k".into()));
}

#[test]
fn some_queues_are_refused() {
    let rows = [
        (json!({"exclusive": true}), Refusal::Exclusive),
        (json!({"auto_delete": true}), Refusal::AutoDelete),
        (json!({"type": "stream"}), Refusal::Stream),
        (
            json!({"type": "quorum", "arguments": {"x-delayed-retry-min": 5}}),
            Refusal::DelaysItself,
        ),
    ];
    for (facts, refusal) in rows {
        assert_eq!(against(&alone(facts), &["x-max-length=7"]), [refusal]);
    }
    assert_eq!(
        against(
            &alone(json!({"arguments": {"x-list": [1]}})),
            &["x-max-length=7"]
        ),
        [Refusal::Value("x-list".to_owned())]
    );
    assert_eq!(against(&Seen::default(), &[]), [Refusal::Missing]);
}

#[test]
fn what_leads_to_the_queue_over_bindings_and_alternate_exchanges_is_found() {
    let bindings = json!([
        {"source": "", "destination": "q", "destination_type": "queue", "routing_key": "q"},
        {"source": "a", "destination": "q", "destination_type": "queue", "routing_key": "k", "arguments": {"x-match": "all"}},
        {"source": "b", "destination": "a", "destination_type": "exchange", "routing_key": ""},
        {"source": "d", "destination": "other", "destination_type": "queue", "routing_key": ""},
    ]);
    let exchanges = json!([
        {"name": "a", "auto_delete": true}, {"name": "b"}, {"name": "d", "auto_delete": true},
        {"name": "c", "arguments": {"alternate-exchange": "b"}},
    ]);
    let queue = seen(json!({}), json!([]), bindings, exchanges);
    let plan = planned(&queue, &["x-max-length=7"]).expect("a plan");
    assert_eq!(
        plan.order.exchanges,
        ["a", "b", "c"].map(str::to_owned).into()
    );
    assert_eq!(plan.order.kept, ["a".to_owned()].into());
    let [binding] = &plan.order.bindings[..] else {
        panic!("one binding");
    };
    assert_eq!((&*binding.source, &*binding.routing_key), ("a", "k"));
}

#[test]
fn bindings_that_would_not_be_the_same_are_refused() {
    let bound = |exchange: Value, arguments: Value| {
        let binding = json!({"source": "a", "destination": "q", "destination_type": "queue", "routing_key": "k", "arguments": arguments});
        let queue = seen(json!({}), json!([]), json!([binding]), json!([exchange]));
        against(&queue, &["x-max-length=7"])
    };
    let a = || "a".to_owned();
    assert_eq!(
        bound(json!({"name": "a"}), json!({"number": 5})),
        [Refusal::BindingArguments(a())]
    );
    assert_eq!(
        bound(json!({"name": "a", "type": "x-recent-history"}), json!({})),
        [Refusal::RecentHistory(a())]
    );
}

#[test]
fn what_the_broker_itself_dead_letters_into_the_queue_is_against_it() {
    let fed_by = |exchange: &str, key: Option<&str>| {
        let mut arguments = json!({"x-dead-letter-exchange": exchange});
        if let Some(key) = key {
            arguments["x-dead-letter-routing-key"] = key.into();
        }
        let other = json!({"name": "o", "arguments": arguments});
        let queue = seen(json!({}), json!([other]), json!([]), json!([]));
        planned(&queue, &["x-max-length=7"])
            .err()
            .unwrap_or_default()
    };
    let refused = [Refusal::FedBy("o".to_owned())];
    assert_eq!(fed_by("", Some("q")), refused);
    assert_eq!(fed_by("", None), refused);
    assert_eq!(fed_by("", Some("other")), []);
    assert_eq!(fed_by("elsewhere", None), []);
    assert_eq!(fed_by("dlx-proxy//q", None), []);
}

#[test]
fn a_node_of_the_queue_that_is_down_is_against_it() {
    let with =
        |online: &[&str]| alone(json!({"type": "quorum", "members": ["a", "b"], "online": online}));
    let refused = [Refusal::MemberDown("b".to_owned())];
    assert_eq!(against(&with(&["a"]), &["x-max-length=7"]), refused);
    assert!(planned(&with(&["b", "a"]), &["x-max-length=7"]).is_ok());
}

#[test]
fn a_setting_is_a_number_a_boolean_or_a_text() {
    let of = |text| setting(text).map(|(_, value)| value);
    assert_eq!(of("x-max-length=7"), Ok(json!(7)));
    assert_eq!(of("x-single-active-consumer=true"), Ok(json!(true)));
    assert_eq!(of("x-overflow=reject-publish"), Ok(json!("reject-publish")));
    assert!(of("x-max-length").is_err());
    assert!(of("max-length=7").is_err());
}

#[test]
fn a_queue_changes_its_type() {
    let queue = alone(json!({}));
    assert_eq!(
        new(&queue, &["x-queue-type=quorum"]),
        json!({"x-queue-type": "quorum", "x-dlx-proxy-altered": "x-queue-type"})
    );
    let says_it = alone(json!({"arguments": {"x-queue-type": "classic"}}));
    for other in ["x-queue-type=stream", "x-queue-type"] {
        assert_eq!(against(&says_it, &[other]), [Refusal::Type]);
    }
    let transient = alone(json!({"durable": false}));
    let global = Seen {
        global_prefetches: 2,
        ..queue
    };
    for (queue, refusal) in [
        (transient, Refusal::Transient),
        (global, Refusal::GlobalPrefetch(2)),
    ] {
        assert_eq!(against(&queue, &["x-queue-type=quorum"]), [refusal]);
        assert!(planned(&queue, &["x-queue-type=classic"]).is_ok());
    }
    assert_eq!(
        against(&alone(json!({"type": "quorum"})), &["x-queue-type=classic"]),
        [Refusal::EndsConnections]
    );
}

#[test]
fn what_was_left_behind_is_finished_first() {
    let order = planned(&alone(json!({})), &["x-max-length=7"])
        .expect("a plan")
        .order;
    let left =
        json!({"name": "dlx-proxy.altering/q", "arguments": {"x-dlx-proxy-order": order.text()}});
    let queue = seen(json!({}), json!([left]), json!([]), json!([]));
    assert_eq!(left_behind("q", &queue, &Names::default()), Some(order));
    assert_eq!(against(&queue, &["x-max-length=9"]), [Refusal::Unfinished]);
}

#[test]
fn other_proxies_take_part_and_other_protocols_are_against_it() {
    let connection = |protocol: &str, name: &str| ListedConnection {
        protocol: protocol.to_owned(),
        user_provided_name: name.to_owned(),
    };
    let mut queue = alone(json!({}));
    let others = |queue: &Seen| planned(queue, &["x-max-length=7"]).map(|plan| plan.others);
    queue.mark = "1".to_owned();
    queue.connections = vec![
        connection("AMQP 0-9-1", ""),
        connection("AMQP 0-9-1", "dlx-proxy publisher / 1"),
        connection("AMQP 0-9-1", "dlx-proxy intake / 1"),
        connection("AMQP 0-9-1", "dlx-proxy walk /"),
        connection("AMQP 0-9-1", "dlx-proxy doctor"),
    ];
    assert_eq!(others(&queue), Ok(0));
    // Another one, whose publisher is away; then a third, of version 0.3.
    for (name, number) in [("intake / 2", 1), ("recorder / 2", 1), ("publisher /", 2)] {
        let another = connection("AMQP 0-9-1", &format!("dlx-proxy {name}"));
        queue.connections.push(another);
        assert_eq!(others(&queue), Ok(number), "{name}");
    }
    // While none of this one's own is listed, too.
    queue.connections.drain(1..3);
    assert_eq!(others(&queue), Ok(2));
    queue.connections.push(connection("MQTT 3.1.1", ""));
    let mqtt = Refusal::OtherProtocol("MQTT 3.1.1".to_owned());
    assert_eq!(others(&queue), Err(vec![mqtt]));
    let plan = planned(&queue, &["x-max-length=7", "allow-direct"]).expect("a plan");
    assert!(plan.order.allow_direct && plan.notes[0].contains("MQTT 3.1.1"));
}

#[test]
fn a_backlog_that_takes_too_long_to_move_is_against_it() {
    let with = |messages: u64, bytes: u64, consumers: u64| Seen {
        backlog: ListedBacklog {
            messages,
            bytes,
            consumers,
        },
        ..alone(json!({}))
    };
    let within = |seconds: u64| Wish {
        max_pause: Duration::from_secs(seconds),
        ..wish(&["x-max-length=7"])
    };
    let planned = |seen: &Seen, seconds| {
        let intake = |_: &DeclareArguments<'_>| None;
        plan("q", seen, &within(seconds), &Names::default(), intake)
    };
    let says = |refusals: Vec<Refusal>| refusals[0].to_string();
    let too_long = planned(&with(50_000, 5_000_000, 0), 5).expect_err("it takes too long");
    assert!(says(too_long).contains("clients would wait for about 22 s"));
    let plan = planned(&with(50_000, 5_000_000, 0), 22).expect("a plan");
    assert!(plan.notes.iter().any(|note| note.contains("about 22 s")));
    assert_eq!((plan.backlog.most, plan.backlog.window), (51_219, 500));
    // Somebody reads them: whether they are too many shows then.
    let read = planned(&with(50_000, 5_000_000, 1), 5).expect("a plan");
    assert_eq!(read.backlog.most, 9_756);
    // Large ones.
    let large = planned(&with(10, 10 << 20, 0), 5).expect("a plan");
    assert_eq!((large.backlog.most, large.backlog.window), (38, 4));
    assert!(planned(&with(50, 50 << 20, 0), 5).is_err());
    let unknown = planned(&with(0, 0, 0), 0).expect("a plan");
    assert_eq!((unknown.backlog.most, unknown.backlog.window), (0, 500));
}

#[test]
fn the_exchange_for_returns_goes_with_the_queue_and_is_made_again_later() {
    let exchange = "dlx-proxy.return/q";
    let binding = json!([{"source": exchange, "destination": "q", "destination_type": "queue", "routing_key": ""}]);
    let exchange = json!([{"name": exchange, "type": "fanout", "auto_delete": true}]);
    let seen = seen(json!({}), json!([]), binding, exchange);
    let order = planned(&seen, &["x-max-length=7"]).expect("a plan").order;
    assert_eq!(order.bindings, []);
    assert!(order.exchanges.is_empty());
}

/// A declare, and what is known of its queue once that is made anew: of returns, and where its dead letters go.
#[test]
fn what_only_a_declare_says_goes_on() {
    let names = Names::default();
    let with = |said: Value, kept: Value| {
        let of = |arguments: Value| {
            let arguments = from_value(arguments).expect("arguments");
            Form::of(0, &table(&arguments).expect("a table"))
        };
        let known = Declared::of_queue(of(kept), QueueType::Classic, &names);
        let said = Declared::of_queue(of(said), QueueType::Classic, &names);
        Declared {
            said: said.said,
            retries: said.retries,
            ..known
        }
    };
    let anew = |arguments: Value, words: &[&str], known: &Declared| {
        let plan = planned(&alone(json!({"arguments": arguments})), words).expect("a plan");
        plan.order.declared(&names).in_place_of(known, &names)
    };
    let target = |declared: &Declared| match &declared.said {
        DeclaredTarget::Target(target) => target.exchange.to_string(),
        DeclaredTarget::Policy { .. } => String::new(),
    };
    let (retries, limit) = (
        json!({"x-delayed-retry-min": 100}),
        json!({"x-delivery-limit": 3}),
    );
    let declared = anew(json!({}), &["x-max-length=7"], &with(retries, json!({})));
    assert_eq!(declared.retries.delayed_retry_min, Some(100));

    // The queue itself had the limit.
    let declared = anew(
        limit.clone(),
        &["x-delivery-limit"],
        &with(limit.clone(), limit),
    );
    assert_eq!(declared.retries.delivery_limit, None);

    let (last, before) = (
        json!({"x-dead-letter-exchange": "last"}),
        json!({"x-dead-letter-exchange": "before"}),
    );
    let known = with(last, before.clone());
    assert_eq!(
        target(&anew(before.clone(), &["x-max-length=7"], &known)),
        "last"
    );
    let changed = anew(before, &["x-dead-letter-exchange=changed"], &known);
    assert_eq!(target(&changed), "changed");
}
