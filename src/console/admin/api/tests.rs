//! The API as a whole, in front of a broker that refuses, is silent or is away. (What it shows of real queues: tests/clients.)

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::room::Room;
use super::*;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::dead_letter::RuleSettings;
use crate::drain::Drain;
use crate::http::basic;
use crate::known::{Handlings, KnownQueues};
use crate::machine::{Fixed, Limits, LiveLimits, Wall};
use crate::net::background::Background;
use crate::net::clock::SystemClock;
use crate::net::dial::{Dialer, Way};
use crate::net::nodes::{Node, Nodes, Order};
use crate::net::permits::Permits;
use crate::net::proxy_protocol::Told;
use crate::net::vhosts::Hub;
use crate::net::walks::{Walker, Walks};
use crate::recent::RecentDeaths;
use crate::telemetry::Metrics;

const LIST: &str = "/api/v1/vhosts/%2F/queues/dead/dead-letters";
const REDRIVES: &str = "/api/v1/vhosts/%2F/queues/dead/redrives";
/// [`deaths::lenient`] lets every user read it.
const MINE: &str = "/api/v1/vhosts/%2F/queues/mine";
const REFUSED: &str = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.";
pub(in crate::console::admin) const NEAR: Peer = Peer(IpAddr::V4(Ipv4Addr::LOCALHOST));
const FAR: Peer = Peer(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

pub(in crate::console::admin) mod deaths;
mod files;
mod handled;
#[path = "../../../../crates/core/src/link/tests/broker_says.rs"]
mod peer;

/// The API in front of this broker, with short timeouts. `permits`: looks and redrives at once.
fn api(broker: SocketAddr, permits: usize) -> (Router, Metrics) {
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let (api, metrics) = parts(broker, permits, Duration::from_millis(200), watches);
    (alone(api), metrics)
}

pub(in crate::console::admin) fn parts(
    broker: SocketAddr,
    permits: usize,
    look_timeout: Duration,
    watches: Watches,
) -> (Api, Metrics) {
    parts_with(broker, (permits, permits), look_timeout, watches)
}

fn parts_with(
    broker: SocketAddr,
    (permits, max_redrives): (usize, usize),
    look_timeout: Duration,
    watches: Watches,
) -> (Api, Metrics) {
    let metrics = Metrics::new();
    let walker = Walker {
        dialer: Dialer {
            nodes: Nodes::new(
                &[Node {
                    host: broker.ip().to_string(),
                    port: broker.port(),
                }],
                Order::First,
                metrics.clone(),
            ),
            way: Way {
                tls: None,
                told: Told::Off,
            },
            within: Duration::from_secs(5),
        },
        clock: SystemClock::start(),
    };
    let walks = Walks {
        walker,
        hub: Hub::new(Box::new(|_, _, _| panic!("no link is wanted"))),
        thread: Background::start("redrives", 0).expect("a thread"),
    };
    let drain = Drain::new(Duration::ZERO);
    let limits = LiveLimits::new(Limits {
        look_timeout,
        fixed: Fixed {
            redrives: max_redrives,
            ..Fixed::default()
        },
        ..crate::config::Config::limits_of_tests()
    });
    let own = (ShortStr::EMPTY, Default::default());
    let redrives = Redrives::new(walks.clone(), drain, own, (limits.clone(), metrics.clone()));
    let permits = Permits::new(permits);
    let looks = Looks::new(
        walks,
        limits.clone(),
        permits,
        Default::default(),
        metrics.clone(),
    );
    let files = Files {
        looks: looks.clone(),
        own_user: ShortStr::EMPTY,
        names: Default::default(),
        rules: RuleSettings {
            continue_history: true,
        },
        room: Room::new(limits.clone(), metrics.clone()),
        metrics: metrics.clone(),
        unread: Default::default(),
        limits,
    };
    let known = KnownQueues::new(Handlings::of_tests());
    let api = Api {
        looks,
        redrives,
        files,
        watches,
        known,
        readiness: Readiness::new([Vhost::ROOT]),
        vhosts: [Vhost::ROOT].into(),
    };
    (api, metrics)
}

pub(in crate::console::admin) async fn broker(says: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = [0; 4096];
            stream.read_exact(&mut read[..8]).await.expect("a greeting");
            stream.write_all(&peer::start("4.3.6")).await.expect("sent");
            let _ = stream.read(&mut read).await;
            let _ = stream.write_all(&says).await;
            // Until it is closed from the other side.
            while stream.read(&mut read).await.is_ok_and(|read| read > 0) {}
        }
    });
    address
}

pub(in crate::console::admin) fn nowhere() -> SocketAddr {
    "127.0.0.1:1".parse().expect("an address") // a port that nobody is given by chance
}

pub(in crate::console::admin) fn refusal(code: u16, text: &str) -> Vec<u8> {
    peer::close(0, code, text, MethodId(0, 0))
}

async fn ask(api: &Router, request: Request) -> (u16, Value, Response<()>) {
    let router = hyper_util::service::TowerToHyperService::new(api.clone());
    let answer = hyper::service::Service::call(&router, request).await;
    let (head, body) = answer.expect("infallible").into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("short");
    let body = serde_json::from_slice(&body).expect("JSON");
    let head = Response::from_parts(head, ());
    (head.status().as_u16(), body, head)
}

fn get(path: &str, peer: Peer) -> Request {
    let mut request = Request::get(path).body(Body::empty()).expect("a request");
    request.extensions_mut().insert(peer);
    request
}

fn by(user: &str, path: &str, peer: Peer) -> Request {
    let mut request = get(path, peer);
    let login = basic(user.as_bytes(), b"s3cret").parse().expect("a header");
    request.headers_mut().insert(header::AUTHORIZATION, login);
    request
}

#[tokio::test]
async fn without_a_login_nobody_is_asked() {
    let (api, _) = api(nowhere(), 1);
    for request in [
        get(LIST, NEAR),
        get(&format!("{LIST}/groups"), NEAR),
        get(&format!("{LIST}/1"), NEAR),
        by("guest", LIST, FAR),
    ] {
        let (status, body, head) = ask(&api, request).await;
        assert_eq!(status, 401, "{body}");
        assert_eq!(body["status"], 401);
        assert!(head.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}

#[tokio::test]
async fn a_bad_parameter_is_named() {
    let (api, _) = api(nowhere(), 1);
    for (query, words) in [
        ("limit=0", "limit=0: write a number from 1 to 1000"),
        ("lmit=1", "lmit: there is no such parameter"),
    ] {
        let (status, body, _) = ask(&api, by("me", &format!("{LIST}?{query}"), FAR)).await;
        assert_eq!((status, &body["detail"]), (400, &Value::from(words)));
    }
}

#[tokio::test]
async fn what_the_broker_says_is_handed_on() {
    for (broker, status, words) in [
        (broker(refusal(403, REFUSED)).await, 401, REFUSED),
        (
            broker(refusal(530, "NOT_ALLOWED - vhost x not found")).await,
            404,
            "NOT_ALLOWED - vhost x not found",
        ),
        (broker(Vec::new()).await, 504, "the broker does not answer"),
        (nowhere(), 502, "the broker cannot be reached"),
    ] {
        let (api, metrics) = api(broker, 1);
        let (said, body, head) = ask(&api, by("guest", LIST, NEAR)).await;
        let detail = body["detail"].as_str().unwrap_or_default();
        assert_eq!(
            (said, detail.starts_with(words)),
            (status, true),
            "{detail}"
        );
        // Which node, since when and why.
        let is_away = detail.contains(": node ") && detail.contains(" has been away for 0 s (");
        assert_eq!(
            (is_away, !is_away && detail == words),
            (status == 502, status != 502)
        );
        for (name, value) in HEADERS {
            assert_eq!(head.headers()[name], value);
        }
        let slow = metrics.encode().contains("{limit=\"look-timeout\"} 1\n");
        assert_eq!(slow, status == 504);
    }
}

#[tokio::test]
async fn failed_logins_of_an_address_are_slowed_down() {
    let (api, _) = api(broker(refusal(403, REFUSED)).await, 1);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let (status, ..) = ask(&api, by("me", LIST, FAR)).await;
        assert_eq!(status, 401);
        waits.push(begun.elapsed());
    }
    assert!(waits[1] >= Duration::from_millis(200), "{waits:?}");
    assert!(waits[2] >= Duration::from_millis(400), "{waits:?}");
}

#[tokio::test]
async fn one_look_too_many_is_refused_after_a_short_wait() {
    let (api, metrics) = api(deaths::lenient().await, 0);
    let (status, body, head) = ask(&api, by("me", &format!("{MINE}/dead-letters"), FAR)).await;
    assert_eq!(status, 503, "{body}");
    assert!(head.headers().contains_key(header::RETRY_AFTER));
    let met = "{limit=\"max-looks\"} 1\n";
    assert!(metrics.encode().contains(met), "{}", metrics.encode());
}

#[tokio::test]
async fn one_redrive_too_many_is_refused() {
    let broker = deaths::lenient().await;
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let (parts, metrics) = parts_with(broker, (1, 0), Duration::from_secs(20), watches);
    let (status, body, head) = ask(&alone(parts), change(&format!("{MINE}/redrives"))).await;
    assert_eq!(status, 503, "{body}");
    assert!(head.headers().contains_key(header::RETRY_AFTER));
    let met = "{limit=\"max-redrives\"} 1\n";
    assert!(metrics.encode().contains(met), "{}", metrics.encode());
}

/// A refused user learns nothing else: neither running redrives nor names of the proxy's objects.
/// No redrive is kept, and the login counts as failed.
#[tokio::test]
async fn the_broker_says_first_who_may_move_messages() {
    let broker = broker(refusal(403, REFUSED)).await;
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let (parts, _) = parts_with(broker, (1, 0), Duration::from_millis(200), watches);
    let redrives = parts.redrives.clone();
    let api = alone(parts);
    let begun = Instant::now();
    for path in [
        format!("{MINE}/purges"),
        format!("{MINE}/redrives?to-queue=dlx-proxy.parked"),
    ] {
        let (status, body, _) = ask(&api, change(&path)).await;
        assert_eq!((status, &body["detail"]), (401, &Value::from(REFUSED)));
    }
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(redrives.list(), []);
}

#[tokio::test]
async fn a_page_from_elsewhere_is_refused() {
    let (api, _) = api(nowhere(), 1);
    for (site, status) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 502),
        ("none", 502),
    ] {
        let mut request = by("me", LIST, FAR);
        let site = HeaderValue::from_static(site);
        request
            .headers_mut()
            .insert(elsewhere::SEC_FETCH_SITE, site);
        let (said, body, _) = ask(&api, request).await;
        assert_eq!(said, status, "{body}");
    }
}

#[tokio::test]
async fn a_name_that_somebody_may_have_made_up_is_refused_on_this_machine() {
    let (api, _) = api(nowhere(), 1);
    for (host, peer, over_tls, status) in [
        ("evil.example:15673", NEAR, false, 403),
        ("evil.example:15673", NEAR, true, 502),
        ("proxy.example:15673", FAR, false, 502),
        ("localhost:15673", NEAR, false, 502),
    ] {
        let mut request = by("me", LIST, peer);
        if over_tls {
            request.extensions_mut().insert(OverTls);
        }
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        let (said, body, _) = ask(&api, request).await;
        assert_eq!(said, status, "{body}");
    }
}

fn change(path: &str) -> Request {
    let mut request = by("me", path, FAR);
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(OWN_HEADER, HeaderValue::from_static("1"));
    request
}

#[tokio::test]
async fn what_changes_something_has_a_header_of_its_own() {
    let (api, _) = api(nowhere(), 1);
    let mut request = change(REDRIVES);
    let (said, ..) = ask(&api, change(REDRIVES)).await;
    assert_eq!(said, 502, "asked, but there is no broker");
    request.headers_mut().remove(OWN_HEADER);
    let (said, body, _) = ask(&api, request).await;
    assert_eq!(said, 403, "{body}");
}

#[tokio::test]
async fn a_redrive_that_is_none_is_told_at_once() {
    let (api, _) = api(deaths::lenient().await, 1);
    for (query, status, words) in [
        ("to-queue=a&to-exchange=b", 400, "write to-queue, or"),
        ("to-routing-key=a", 400, "write to-queue, or"),
        ("history=all", 400, "history=all: write keep or new"),
        ("rate=0", 400, "rate=0: write a number from"),
        ("rate=", 400, "rate=: write a number from"),
        ("limit=", 400, "limit=: write a number from"),
        ("id=", 400, "id=: "),
        ("older-than=", 400, "older-than=: write a time"),
        ("header=", 400, "header=: write NAME=VALUE"),
        ("dry-run=", 400, "dry-run=: write true or false"),
        ("source=", 400, "source: it is empty"),
        ("reason=", 400, "reason=: write one of rejected, "),
        ("reason=foo", 400, "reason=foo: write one of rejected, "),
        ("error=%20", 400, "error: it is empty"),
        ("body=", 400, "body: it is empty"),
        ("to-queue=", 400, "to-queue: it is empty"),
        ("to-routing-key=", 400, "write to-queue, or"),
        ("to-queue=dlx-proxy.parked", 403, "dlx-proxy.parked is one"),
        ("to-exchange=dlx-proxy.due", 403, "dlx-proxy.due is one of"),
        (
            "to-exchange=",
            400,
            "to-exchange: the default exchange takes",
        ),
        (
            "to-exchange=&to-routing-key=",
            400,
            "to-exchange: the default exchange takes",
        ),
        (
            "to-exchange=&to-routing-key=dlx-proxy.parked",
            403,
            "dlx-proxy.parked is one of",
        ),
    ] {
        let path = format!("{MINE}/redrives?{query}");
        let (said, body, _) = ask(&api, change(&path)).await;
        let detail = body["detail"].as_str().expect("a detail");
        assert!(
            said == status && detail.starts_with(words),
            "{query}: {body}"
        );
    }
}

#[tokio::test]
async fn what_there_is_not_is_a_problem_too() {
    let (api, _) = api(nowhere(), 1);
    for (method, path, status) in [("GET", "/api/v1/nothing", 404), ("DELETE", LIST, 405)] {
        let mut request = get(path, FAR);
        *request.method_mut() = method.parse().expect("a method");
        let headers = request.headers_mut();
        headers.insert(OWN_HEADER, HeaderValue::from_static("1"));
        let (said, body, _) = ask(&api, request).await;
        assert_eq!((said, &body["status"]), (status, &Value::from(status)));
    }
}

async fn description() -> Value {
    let refused = "NOT_ALLOWED - access to vhost '/' refused for user 'me'";
    let (api, _) = api(broker(refusal(530, refused)).await, 1);
    let (status, body, _) = ask(&api, by("me", "/api/v1/openapi.json", FAR)).await;
    assert_eq!(status, 200, "{body}");
    body
}

#[tokio::test]
async fn all_that_is_described_is_there_and_reads_its_parameters() {
    let description = description().await;
    let (api, _) = api(nowhere(), 1);
    let paths = description["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 16, "{:?}", paths.keys());
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().expect("operations") {
            let parameters = operation["parameters"].as_array().expect("parameters");
            let of = |place: &'static str| {
                let names = parameters.iter().filter(move |one| one["in"] == place);
                names.map(|one| one["name"].as_str().expect("a name"))
            };
            let path = of("path").fold(path.clone(), |path, name| {
                path.replace(&format!("{{{name}}}"), "1")
            });
            assert!(!path.contains('{'), "{path}");
            for name in of("query").chain(["no-such"]) {
                let mut request = by("me", &format!("{path}?{name}=%00"), FAR);
                *request.method_mut() = method.to_uppercase().parse().expect("a method");
                let sent = HeaderValue::from_static("1");
                request.headers_mut().insert(OWN_HEADER, sent);
                let (status, body, _) = ask(&api, request).await;
                assert!(status != 404 && status != 405, "{method} {path}: {body}");
                let unknown = body["detail"] == format!("{name}: there is no such parameter");
                assert_eq!(unknown, name == "no-such", "{method} {path}: {body}");
            }
        }
    }
}

#[tokio::test]
async fn the_description_has_the_login_and_what_answers_are_made_of() {
    let description = description().await;
    let components = &description["components"];
    assert_eq!(components["securitySchemes"]["broker"]["scheme"], "basic");
    for name in [
        "Answer_Letters",
        "Summary",
        "DeadLetter",
        "Redrive",
        "Problem",
        "Imported",
    ] {
        assert!(
            components["schemas"][name].is_object(),
            "{name}: {components:#}"
        );
    }
    let list = &description["paths"]["/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters"]["get"];
    let problem = &list["responses"]["default"]["content"]["application/problem+json"]["schema"];
    assert_eq!(problem["$ref"], "#/components/schemas/Problem");
    let (api, _) = api(broker(refusal(403, REFUSED)).await, 1);
    let (status, ..) = ask(&api, by("stranger", "/api/v1/openapi.json", FAR)).await;
    assert_eq!(status, 401);
}

fn alone(api: Api) -> Router {
    router(api)
}
