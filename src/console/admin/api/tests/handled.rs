//! How queues are handled, in front of a broker that lets everybody in and to the queue `mine`.

use std::sync::Arc;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Target;
use crate::known::Handlings;
use crate::machine::Mono;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Told};
use crate::registry::redeclared::Existing;
use crate::registry::{Declared, Form};

const QUEUES: &str = "/api/v1/vhosts/%2F/queues";

/// With the queues `mine`, of which nothing is known, `other`, which is taken over and was redeclared, `own`, which has its own arguments, and
/// `elsewhere`, which was redeclared through another proxy.
async fn handled() -> Router {
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let broker = deaths::lenient().await;
    let (api, _) = parts(broker, 1, Duration::from_secs(20), watches);
    let handlings = Handlings {
        user: name("proxy"),
        ..api.known.handlings.clone()
    };
    let learn = |catalogue: &Catalogue, queue: &str, told| {
        let source = Source::Declare;
        catalogue.learn(&Vhost::ROOT, &name(queue), &told, source, Mono(0));
    };
    learn(&handlings.catalogue, "mine", Told::InVain);
    learn(
        &handlings.catalogue,
        "plain",
        Told::Type(QueueType::Classic),
    );
    for (queue, exchange) in [("other", "dlx-proxy//mine"), ("own", "dlx")] {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-dead-letter-exchange", exchange.as_bytes());
        let form = Form::of(0, &arguments.finish());
        let declared = Declared::of_queue(form, QueueType::Classic, &handlings.names);
        learn(
            &handlings.catalogue,
            queue,
            Told::Declared(Arc::new(declared)),
        );
    }
    let target = |key| {
        DeclaredTarget::Target(Target {
            exchange: ShortStr::EMPTY,
            routing_key: Some(name(key)),
            at_least_once: false,
        })
    };
    let existing = Existing::taken_over(&name("dlx-proxy//mine"));
    let (own, said) = (target("mine"), target("new"));
    for queue in ["other", "elsewhere"] {
        let policies = &handlings.policies;
        policies.redeclare(&Vhost::ROOT, &name(queue), &existing, &own, &said);
    }
    let known = KnownQueues::new(handlings);
    alone(Api { known, ..api })
}

async fn asked(api: &Router, user: &str, query: &str) -> (Vec<String>, Value) {
    let (status, body, _) = ask(api, by(user, &format!("{QUEUES}{query}"), FAR)).await;
    assert_eq!(status, 200, "{body}");
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |row: &Value| {
        let target = text(&row["target"]["exchange"]);
        let words = [
            "queue",
            "state",
            "cause",
            "leads-to",
            "told-by",
            "own-arguments",
        ]
        .map(|key| text(&row[key]));
        format!("{} to {target:?}", words.join(" "))
    };
    let rows = body["queues"].as_array().expect("rows");
    (rows.iter().map(line).collect(), body)
}

#[tokio::test]
async fn the_proxys_own_user_sees_all_and_those_first_that_need_attention() {
    let api = handled().await;
    let (rows, body) = asked(&api, "proxy", "").await;
    let all = [
        "mine unknown undeclared - - - to \"-\"",
        "own rejects-only own-arguments unknown declare - to \"dlx\"",
        "elsewhere full taken-over - - exchange \"\", key \"mine\" to \"-\"",
        "other full taken-over unknown declare exchange \"\", key \"mine\" to \"\"",
    ];
    assert_eq!(rows, all);
    assert_eq!(body["left-out"], 0);
    let advice = &body["causes"]["undeclared"]["advice"];
    assert!(advice.as_str().expect("text").contains("`management-url`"));
    for (query, rows, left_out) in [
        ("?limit=1", &all[..1], 3),
        ("?state=full", &all[2..], 0),
        ("?state=unknown&state=rejects-only", &all[..2], 0),
        ("?state=off", &[], 0),
    ] {
        let (found, body) = asked(&api, "proxy", query).await;
        assert_eq!(
            (
                found.iter().map(String::as_str).collect::<Vec<_>>(),
                &body["left-out"]
            ),
            (rows.to_vec(), &Value::from(left_out)),
            "{query}"
        );
    }
}

#[tokio::test]
async fn others_see_what_they_may_read() {
    let (rows, body) = asked(&handled().await, "me", "").await;
    assert_eq!(rows, ["mine unknown undeclared - - - to \"-\""]);
    assert_eq!(body["left-out"], 0, "what may not be read is not told");
}

#[tokio::test]
async fn a_state_that_is_none_is_named() {
    let api = handled().await;
    let (status, body, _) = ask(&api, by("me", &format!("{QUEUES}?state=half"), FAR)).await;
    let words = "state=half: write unknown, rejects-only, off, full";
    assert_eq!((status, &body["detail"]), (400, &Value::from(words)));
}
