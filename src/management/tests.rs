//! Real answers, and an API that does not answer as it should.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::watchdog::Watch;
use super::*;
use crate::amqp::ids::name;
use crate::dead_letter::Lookup;
use crate::dead_letter::Target;
use crate::http::Place;
use crate::machine::Event;
use crate::net::clock::SystemClock;
use crate::net::outlet::Observer;
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::existing_delays::ExistingDelays;
use crate::registry::policy::Queue;

mod counting;
mod leads;
mod listing;

/// Captured from a node of each version, one member per line.
const POLICIES: [&str; 2] = [
    include_str!("testdata/policies-3.10.8.json"),
    include_str!("testdata/policies-4.3.6.json"),
];

/// Key and strategy for a reject in this queue of the vhost `shop`, whose arguments name a
/// dead-letter exchange.
fn target(policies: &LivePolicies, queue: &str, queue_type: QueueType) -> Option<(String, bool)> {
    let queue = Queue {
        vhost: b"shop",
        name: queue.as_bytes(),
        queue_type,
    };
    let said = DeclaredTarget::Target(Target {
        exchange: name("dlx"),
        routing_key: None,
        at_least_once: false,
    });
    let Lookup::Target(target) = policies.target(queue, &said) else {
        return None;
    };
    let key = target
        .routing_key
        .map_or("its own".to_owned(), |key| key.to_string());
    Some((key, target.at_least_once))
}

#[test]
fn what_real_nodes_answer_is_understood() {
    for answer in POLICIES {
        let policies = serde_json::from_str(answer).expect("JSON");
        let operator_policies = Vec::new();
        let listed = Listed {
            policies,
            operator_policies,
        };
        let (policies, unreadable) = listed.read();
        assert_eq!(unreadable, ["once"]);
        let live = LivePolicies::default();
        live.set_brokers(policies);
        let key = |key: &str| Some((key.to_owned(), false));
        let found = |queue| target(&live, queue, QueueType::Quorum);
        assert_eq!(found("orders.1"), key("late"));
        // `once` may fit or not; it adds something, and what is below it does not.
        assert_eq!(found("jobs"), None);
        // No classic queue knows a key of `once`.
        assert_eq!(target(&live, "jobs", QueueType::Classic), key("its own"));
    }
}

#[test]
fn what_is_no_list_of_policies_is_an_error() {
    for answer in ["", "{}", r#"[{"vhost":"/"}]"#, "<html>"] {
        let read = serde_json::from_str::<Vec<ListedPolicy>>(answer);
        assert!(read.is_err(), "{answer}");
    }
    // A newer broker may tell more.
    let more = r#"[{"vhost":"/","name":"p","pattern":".","apply-to":"new_queues","definition":{"new":{}},"priority":-1,"new":[]}]"#;
    assert!(serde_json::from_str::<Vec<ListedPolicy>>(more).is_ok());
}

struct Scene {
    management: Management,
    reported: Reported,
    pause: Duration,
    answers: Arc<std::sync::Mutex<String>>,
    asked: Arc<std::sync::Mutex<String>>,
    /// By a part of the request, before `answers`.
    answer_each: Arc<std::sync::Mutex<Vec<(&'static str, &'static str)>>>,
    connections: Arc<AtomicUsize>,
}

impl Scene {
    async fn open() -> Scene {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let scene = Scene {
            management: Management::new(
                Api {
                    place: Place {
                        host: "127.0.0.1".to_owned(),
                        port,
                        tls: None,
                    },
                    path: "/prefix".to_owned(),
                    login: ("us:er".into(), "gu%est".into()),
                },
                LivePolicies::default(),
                Metrics::new(),
            ),
            reported: Reported::default(),
            pause: EVERY,
            answers: Arc::default(),
            asked: Arc::default(),
            answer_each: Arc::default(),
            connections: Arc::default(),
        };
        let (answers, asked) = (scene.answers.clone(), scene.asked.clone());
        let each = scene.answer_each.clone();
        let connections = scene.connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (answers, asked, each) = (answers.clone(), asked.clone(), each.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while let Ok(octet) = stream.read_u8().await {
                        request.push(octet);
                        if !request.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        let request =
                            String::from_utf8(std::mem::take(&mut request)).expect("text");
                        let mut answer = answers.lock().expect("no panic").clone();
                        for (of, json) in each.lock().expect("no panic").iter() {
                            if request.contains(of) {
                                answer = on(json);
                            }
                        }
                        *asked.lock().expect("no panic") = request;
                        stream.write_all(answer.as_bytes()).await.expect("read");
                        // Others may say that they go on, and do not.
                        if !answer.contains("keep-alive") && !answer.ends_with(": 0\r\n\r\n") {
                            return;
                        }
                    }
                });
            }
        });
        scene
    }

    async fn read(&mut self, answer: &str) -> Option<String> {
        *self.answers.lock().expect("no panic") = answer.to_owned();
        self.management
            .read(&mut self.reported, &mut self.pause)
            .await;
        self.reported.error.clone()
    }

    fn metric(&self, name: &str) -> String {
        let text = self.management.metrics.encode();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .expect("exported");
        line[name.len()..].trim().to_owned()
    }
}

fn ok(body: &str) -> String {
    let octets = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {octets}\r\n\r\n{body}"
    )
}

fn on(body: &str) -> String {
    ok(body).replacen("\r\n", "\r\nconnection: keep-alive\r\n", 1)
}

#[tokio::test]
async fn policies_are_asked_for_as_the_settings_say() {
    let mut scene = Scene::open().await;
    assert_eq!(scene.read(&on(POLICIES[0])).await, None);
    let live = &scene.management.policies;
    let found = target(live, "orders", QueueType::Quorum);
    assert_eq!(found, Some(("late".to_owned(), false)));
    let port = scene.management.api.place.port;
    let asked = scene.asked.lock().expect("no panic").clone();
    let expected = format!(
        "GET /prefix/api/health/checks/alarms HTTP/1.1\r\naccept: application/json\r\nhost: 127.0.0.1:{port}\r\nauthorization: Basic dXM6ZXI6Z3UlZXN0\r\n\r\n"
    );
    assert_eq!(asked, expected, "the last question");
    assert_eq!(scene.metric("dlx_proxy_management_up"), "1");
}

#[tokio::test]
async fn without_an_answer_the_last_one_stays_and_pauses_grow() {
    let mut scene = Scene::open().await;
    assert_eq!(scene.read(&on(POLICIES[1])).await, None);
    for (answer, error) in [
        (
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "policies is answered with 401 Unauthorized: a wrong password, or a user without the tag `management`",
        ),
        (
            "HTTP/1.1 301 Moved Permanently\r\nlocation: https://x\r\ncontent-length: 0\r\n\r\n"
                .to_owned(),
            "policies is answered with 301 Moved Permanently",
        ),
        (
            ok("<html>"),
            "the answer to policies is not RabbitMQ's: expected value at line 1 column 1",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n[".to_owned(),
            "the answer to policies cannot be read: ",
        ),
        (
            "220 smtp\r\n".to_owned(),
            "the connection failed: invalid HTTP version parsed",
        ),
        (
            String::new(),
            "the connection failed: connection closed before message completed",
        ),
    ] {
        let said = scene.read(&answer).await.expect("an error");
        assert!(said.starts_with(error), "{said}");
        let live = &scene.management.policies;
        let found = target(live, "orders", QueueType::Quorum);
        assert_eq!(found, Some(("late".to_owned(), false)), "{said}");
    }
    assert_eq!(scene.pause, AT_MOST);
    assert_eq!(scene.metric("dlx_proxy_management_up"), "0");
    assert_eq!(
        scene.metric(r#"dlx_proxy_events_total{event="management_failed"}"#),
        "6"
    );

    // Back again, with another opinion.
    assert_eq!(scene.read(&on("[]")).await, None);
    assert_eq!(scene.pause, EVERY);
    let found = target(&scene.management.policies, "orders", QueueType::Quorum);
    assert_eq!(found, Some(("its own".to_owned(), false)));
    assert_eq!(scene.connections.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn until_the_first_answer_no_key_is_taken_for_known() {
    let mut scene = Scene::open().await;
    let key = |scene: &Scene| target(&scene.management.policies, "orders", QueueType::Quorum);
    assert_eq!(key(&scene), None);
    assert!(scene.read("").await.is_some());
    assert_eq!(key(&scene), None);
    assert_eq!(scene.read(&on("[]")).await, None);
    assert_eq!(key(&scene), Some(("its own".to_owned(), false)));
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_an_error_at_once() {
    let mut scene = Scene::open().await;
    // Nobody is given that one by chance.
    scene.management.api.place.port = 1;
    let said = scene.read("").await.expect("an error");
    assert!(said.starts_with("cannot connect: "), "{said}");
}

struct Nobody;

impl Observer for Nobody {
    fn event(&mut self, _: &Event) {}
}

#[tokio::test]
async fn without_an_answer_the_delay_queues_stay_as_they_were() {
    let scene = Scene::open().await;
    let existing = ExistingDelays::default();
    existing.set(BTreeSet::from([1000]));
    let mut watch = Watch::new(
        &scene.management,
        &name("a/b"),
        &Names::default(),
        existing.clone(),
        Box::new(Nobody),
    );
    let status = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    for (answer, seen, left) in [
        (status("401 Unauthorized"), false, 1),
        (ok("<html>"), false, 1),
        // No message was ever sent away here.
        (status("404 Not Found"), true, 0),
    ] {
        *scene.answers.lock().expect("no panic") = answer;
        assert_eq!(watch.look().await, seen);
        assert_eq!(existing.all().len(), left);
        let asked = scene.asked.lock().expect("no panic").clone();
        let expected = match seen {
            false => "exchanges/a%2Fb/dlx%2Dproxy%2Edelay/bindings/source ",
            true => "queues/a%2Fb/dlx%2Dproxy%2Eredeclared?columns=",
        };
        assert!(
            asked.starts_with(&format!("GET /prefix/api/{expected}")),
            "{asked}"
        );
    }
    assert_eq!(
        scene.metric("dlx_proxy_retries_overdue{vhost=\"a/b\"}"),
        "0"
    );
}
