//! How queues are handled, in front of a broker that lets everybody in and to the queue `mine`.

use std::sync::Arc;

use super::*;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::Target;
use crate::machine::Mono;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::redeclared::Existing;
use crate::registry::{Declared, Form};

const QUEUES: &str = "/api/v1/vhosts/%2F/queues";

/// With the queues `mine`, of which nothing is known, `other`, which is taken over and was redeclared, `own`, which has its own arguments, and
/// `elsewhere`, which was redeclared through another proxy.
async fn handled() -> Router {
    let (api, _) = api(&lenient().await);
    let handlings = &api.known.handlings;
    let learn = |queue: &str, told| {
        let (queue, source) = (name(queue), Source::Declare);
        let catalogue = &handlings.catalogue;
        catalogue.learn(&Vhost::ROOT, &queue, &told, source, Mono(0));
    };
    learn("mine", Report::InVain(None));
    learn("plain", Report::Type(QueueType::Classic));
    for (queue, exchange) in [("other", "dlx-proxy//mine"), ("own", "dlx")] {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-dead-letter-exchange", exchange.as_bytes());
        let form = Form::of(0, &arguments.finish());
        let declared = Declared::of_queue(form, QueueType::Classic, &handlings.names);
        learn(queue, Report::Declared(Arc::new(declared)));
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
    alone(api)
}

async fn asked(api: &Router, user: &str, query: &str) -> (Vec<String>, Value) {
    let (status, body) = json_of(api, by(user, &format!("{QUEUES}{query}"))).await;
    assert_eq!(status, 200, "{body}");
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |row: &Value| {
        let target = text(&row["target"]["exchange"]);
        let words = "queue state cause leads-to reported-by own-arguments".split(' ');
        let words: Vec<_> = words.map(|key| text(&row[key])).collect();
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
        assert_eq!(found, rows, "{query}");
        assert_eq!(body["left-out"], left_out, "{query}");
    }
}

#[tokio::test]
async fn others_see_what_they_may_read() {
    let (rows, body) = asked(&handled().await, "me", "").await;
    assert_eq!(rows, ["mine unknown undeclared - - - to \"-\""]);
    assert_eq!(body["left-out"], 0, "what may not be read is not told");
}
