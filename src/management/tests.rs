//! Real answers, and an API that does not answer as it should.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

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
        let (policies, unreadable) = listed.read(&Names::default());
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
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    answer: String,
    /// By a part of the request, before `answer`.
    answer_each: Vec<(&'static str, String)>,
    /// The last request but for who asks.
    asked: String,
    connections: usize,
}

const GONE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
const WHO: (&str, &str) = ("/prefix/api/whoami ", r#"{"name":"us:er"}"#);

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
                Names::default(),
                Metrics::new(),
            ),
            reported: Reported::default(),
            said: Arc::default(),
        };
        scene.says_of(WHO.0, WHO.1);
        let said = scene.said.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let said = said.clone();
                said.lock().expect("no panic").connections += 1;
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        request.push(byte);
                        if !request.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        let request = String::from_utf8(std::mem::take(&mut request));
                        let answer = said
                            .lock()
                            .expect("no panic")
                            .answer_to(request.expect("text"));
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

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("no panic")
    }

    fn says(&self, answer: impl Into<String>) {
        self.said().answer = answer.into();
    }

    /// To requests with this part.
    fn says_of(&self, part: &'static str, json: impl Into<String>) {
        self.said().answer_each.push((part, json.into()));
    }

    fn was_asked(&self, expected: &str) {
        let asked = self.said().asked.clone();
        assert!(
            asked.starts_with(&format!("GET /prefix/api/{expected}")),
            "{asked}"
        );
    }

    async fn read(&mut self, answer: &str) -> Option<String> {
        self.says(answer);
        let answered = self.management.read(&mut self.reported).await;
        assert_eq!(answered, self.reported.error.is_none());
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

impl Said {
    fn answer_to(&mut self, request: String) -> String {
        let mut each = self.answer_each.iter();
        let answer = each.rfind(|(of, _)| request.contains(of));
        let answer = answer.map_or(self.answer.clone(), |(_, json)| on(json));
        if !request.contains(WHO.0) {
            self.asked = request;
        }
        answer
    }
}

fn ok(body: &str) -> String {
    let bytes = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n{body}"
    )
}

fn on(body: &str) -> String {
    ok(body).replacen("\r\n", "\r\nconnection: keep-alive\r\n", 1)
}

fn refused() -> String {
    GONE.replace("404 Not Found", "401 Unauthorized")
}

#[tokio::test]
async fn policies_are_asked_for_as_the_settings_say() {
    let mut scene = Scene::open().await;
    assert_eq!(scene.read(&on(POLICIES[0])).await, None);
    let live = &scene.management.policies;
    let found = target(live, "orders", QueueType::Quorum);
    assert_eq!(found, Some(("late".to_owned(), false)));
    let port = scene.management.api.place.port;
    scene.was_asked(&format!(
        "health/checks/alarms HTTP/1.1\r\naccept: application/json\r\nhost: 127.0.0.1:{port}\r\nauthorization: Basic dXM6ZXI6Z3UlZXN0\r\n\r\n"
    ));
    assert_eq!(scene.metric("dlx_proxy_management_up"), "1");
}

#[tokio::test]
async fn without_an_answer_the_last_one_stays() {
    let mut scene = Scene::open().await;
    assert_eq!(scene.read(&on(POLICIES[1])).await, None);
    for (answer, error) in [
        (
            refused(),
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
    assert_eq!(scene.metric("dlx_proxy_management_up"), "0");
    assert_eq!(
        scene.metric(r#"dlx_proxy_events_total{event="management_failed"}"#),
        "6"
    );

    // Back again, with another opinion.
    assert_eq!(scene.read(&on("[]")).await, None);
    let found = target(&scene.management.policies, "orders", QueueType::Quorum);
    assert_eq!(found, Some(("its own".to_owned(), false)));
    assert_eq!(scene.said().connections, 8);
}

#[test]
fn pauses_grow_while_there_is_no_answer() {
    for (usual, most, grown) in [
        (5, 60, [10, 20, 40, 60, 60]),
        (3600, 3600, [10, 20, 40, 80, 160]),
    ] {
        let mut pause = Pause::new(Duration::from_secs(usual), Duration::from_secs(most));
        let mut after = |answered| pause.after(answered).as_secs();
        for _ in 0..2 {
            assert_eq!(after(true), usual);
            assert_eq!(grown.map(|_| after(false)), grown);
        }
    }
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
    scene.said().answer_each.clear();
    for (answer, seen, left) in [
        (refused(), false, 1),
        (ok("<html>"), false, 1),
        // Another server, or a wrong path.
        (GONE.to_owned(), false, 1),
        // No message was ever sent away here.
        (GONE.to_owned(), true, 0),
    ] {
        scene.says(answer);
        if seen {
            scene.says_of(WHO.0, WHO.1);
        }
        assert_eq!(watch.look().await, seen);
        assert_eq!(existing.all().len(), left);
        scene.was_asked(match seen {
            false => "exchanges/a%2Fb/dlx%2Dproxy%2Edelay/bindings/source ",
            true => "queues/a%2Fb/dlx%2Dproxy%2Eredeclared?columns=",
        });
    }
    assert_eq!(
        scene.metric("dlx_proxy_retries_overdue{vhost=\"a/b\"}"),
        "0"
    );
}
