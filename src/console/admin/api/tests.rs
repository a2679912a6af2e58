//! The API and the pages, in front of a broker that refuses, is silent, is away, or lets everybody in. (What they show of real queues, and what a
//! browser makes of it: tests/clients.)

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::web;
use super::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::app::tests::api;
use crate::config::Config;
use crate::http::basic;
use crate::net::nodes::Node;
use crate::telemetry::Metrics;
use crate::tests::lines_hold;

const VHOST: &str = "/api/v1/vhosts/%2F";
const LIST: &str = "/api/v1/vhosts/%2F/queues/dead/dead-letters";
/// [`deaths::lenient`] lets every user read it.
const MINE: &str = "/api/v1/vhosts/%2F/queues/mine";
const EDIT: &str = "MINE/dead-letters/0123456789abcdef/edit";
const REFUSED: &str = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.";
const FAR: &str = "192.0.2.1";
const LONG: Duration = Duration::from_secs(20);

pub(in crate::console::admin) mod deaths;
mod files;
mod handled;
#[path = "../../../../crates/core/src/link/tests/broker_says.rs"]
mod peer;
mod status;

/// One look and one redrive at once, two live answers. The broker has 200 ms.
pub(in crate::console::admin) fn config(broker: SocketAddr) -> Config {
    let mut config = Config::default();
    config.upstream.nodes = vec![Node {
        host: broker.ip().to_string(),
        port: broker.port(),
    }];
    config.upstream.user = name("proxy");
    let settings = &mut config.reloadable;
    (settings.max_browses, settings.max_admin_connections) = (1, 4);
    settings.limits.browse_timeout = Duration::from_millis(200);
    settings.limits.max_redrives = 1;
    config
}

/// In front of [`deaths::lenient`], with time.
pub(in crate::console::admin) async fn lenient() -> Config {
    let mut config = config(deaths::lenient().await);
    config.reloadable.limits.browse_timeout = LONG;
    config
}

/// Room for nothing.
fn full(mut config: Config) -> Config {
    let settings = &mut config.reloadable;
    (settings.max_browses, settings.max_admin_connections) = (0, 0);
    settings.limits.max_redrives = 0;
    config
}

fn served(config: &Config) -> (Router, Metrics) {
    let (api, metrics) = api(config);
    (alone(api), metrics)
}

/// The API and the pages, without the server before them.
fn alone(api: Api) -> Router {
    web::router(api.clone()).merge(router(api))
}

/// Says this to whoever has logged in.
pub(in crate::console) async fn broker(says: Vec<u8>) -> SocketAddr {
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

async fn refusing(code: u16, text: &str) -> Config {
    config(broker(peer::close(0, code, text, MethodId(0, 0))).await)
}

fn nowhere() -> Config {
    config("127.0.0.1:1".parse().expect("an address")) // a port that nobody is given by chance
}

fn get(path: &str) -> Request {
    let mut request = Request::get(path).body(Body::empty()).expect("a request");
    let peer = FAR.parse().expect("an address");
    request.extensions_mut().insert(Peer(peer));
    request
}

fn by(user: &str, path: &str) -> Request {
    let mut request = get(path);
    put(
        &mut request,
        "authorization",
        &basic(user.as_bytes(), b"s3cret"),
    );
    request
}

fn change(path: &str) -> Request {
    let mut request = by("me", path);
    *request.method_mut() = Method::POST;
    put(&mut request, OWN_HEADER, "1");
    request
}

fn put(request: &mut Request, name: &'static str, value: &str) {
    let value = value.parse().expect("a value");
    request.headers_mut().insert(name, value);
}

async fn answer(api: &Router, request: Request) -> Response {
    let router = TowerToHyperService::new(api.clone());
    router.call(request).await.expect("infallible")
}

async fn ask(api: &Router, request: Request) -> (u16, String, Response<()>) {
    let (head, body) = answer(api, request).await.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("short");
    let body = String::from_utf8(body.to_vec()).expect("UTF-8");
    let head = Response::from_parts(head, ());
    (head.status().as_u16(), body, head)
}

/// The status and the JSON of an answer.
async fn json_of(api: &Router, request: Request) -> (u16, Value) {
    let (status, body, _) = ask(api, request).await;
    (status, serde_json::from_str(&body).expect("JSON"))
}

/// `BROKER [OPTION…] METHOD PATH`: see the table.
fn request(line: &str) -> (&str, Request) {
    let mut words: Vec<&str> = line.split(' ').collect();
    let (path, method) = (words.pop().expect("a path"), words.pop().expect("a method"));
    let path = path
        .replacen("VHOST", VHOST, 1)
        .replacen("EDIT", EDIT, 1)
        .replacen("MINE", MINE, 1)
        .replacen("LIST", LIST, 1);
    let mut request = change(&path);
    *request.method_mut() = method.parse().expect("a method");
    for option in &words[1..] {
        match option.split_once('=').unwrap_or((option, "")) {
            ("by", "-") => drop(request.headers_mut().remove("authorization")),
            ("by", user) => put(&mut request, "authorization", &basic(user.as_bytes(), b"x")),
            ("from", peer) => {
                let peer = Peer(peer.parse().expect("an address"));
                request.extensions_mut().insert(peer);
            }
            ("tls", _) => drop(request.extensions_mut().insert(OverTls)),
            ("host", host) => put(&mut request, "host", host),
            ("site", site) => put(&mut request, "sec-fetch-site", site),
            ("origin", url) => put(&mut request, "origin", url),
            ("referer", url) => put(&mut request, "referer", url),
            ("live", _) => put(&mut request, "accept", "text/event-stream"),
            ("plain", _) => drop(request.headers_mut().remove(OWN_HEADER)),
            ("json", json) => *request.body_mut() = Body::from(json.to_owned()),
            ("large", _) => *request.body_mut() = Body::from(vec![b' '; (2 << 20) + 1]),
            _ => panic!("{option}"),
        }
    }
    (words[0], request)
}

/// What somebody sees of it: the detail of a problem; the heading, the problem and the links of a page.
fn seen(body: &str, head: &Response<()>) -> String {
    let headers = head.headers();
    let between = |begin: &str, end: &str| {
        let found = body.split(begin).skip(1);
        found
            .filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()))
            .collect::<Vec<_>>()
    };
    let mut seen = match serde_json::from_str::<Value>(body) {
        Ok(json) => vec![json["detail"].as_str().unwrap_or("JSON").to_owned()],
        Err(_) => [
            between("<h1>", "</h1>"),
            between("role=\"alert\">", "<"),
            between("class=\"button\" href=\"", "\""),
        ]
        .concat(),
    };
    let given = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
    };
    seen.extend(given(header::LOCATION));
    seen.extend(
        headers
            .get(header::WWW_AUTHENTICATE)
            .map(|_| "(log in)".to_owned()),
    );
    seen.extend(
        headers
            .get(header::RETRY_AFTER)
            .map(|_| "(later)".to_owned()),
    );
    // Which node, since when and why: that depends on the clock.
    let seen = seen.join(" · ");
    seen.split(": node ").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn requests_are_answered_as_the_table_says() {
    let (away, _) = served(&nowhere());
    let (lenient_api, _) = served(&lenient().await);
    let mut edits = lenient().await;
    edits.admin_edit = true;
    let (editing, _) = served(&edits);
    let (full_api, met) = served(&full(lenient().await));
    let (strict, _) = served(&full(refusing(403, REFUSED).await));
    let (no_vhost, _) = served(&refusing(530, "NOT_ALLOWED - vhost <x> not found").await);
    let (silent, slow) = served(&config(broker(Vec::new()).await));
    lines_hold("console/admin/testdata/requests.txt", async |line| {
        if line.is_empty() {
            return String::new();
        }
        let (broker, request) = request(line);
        let api = match broker {
            "away" => &away,
            "lenient" => &lenient_api,
            "editing" => &editing,
            "full" => &full_api,
            "strict" => &strict,
            "no-vhost" => &no_vhost,
            "silent" => &silent,
            other => panic!("{other}"),
        };
        let (status, body, head) = ask(api, request).await;
        let headers = head.headers();
        let policy = &headers[header::CONTENT_SECURITY_POLICY];
        let policy = policy.to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"));
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        // That of each page.
        assert!(body.matches("<script").count() <= 1, "{body}");
        format!("{status} {}", seen(&body, &head))
    })
    .await;
    let met = met.encode();
    for limit in ["max-browses", "max-redrives"] {
        assert!(met.contains(&format!("{{limit=\"{limit}\"}} 1\n")), "{met}");
    }
    assert!(slow.encode().contains("{limit=\"browse-timeout\"} 1\n"));
}

#[tokio::test]
async fn which_node_is_away_since_when_and_why_is_said() {
    let (_, body) = json_of(&served(&nowhere()).0, by("me", LIST)).await;
    let detail = body["detail"].as_str().expect("a detail");
    assert!(
        detail.contains(": node 127.0.0.1:1 has been away for 0 s ("),
        "{detail}"
    );
}

/// A look, or a file that is no use: each failure makes the next one wait longer.
#[tokio::test]
async fn failures_of_an_address_are_slowed_down() {
    let strict = served(&refusing(403, REFUSED).await).0;
    let lenient = served(&lenient().await).0;
    let mut import = || {
        let mut import = change(&format!("{MINE}/dead-letters/import"));
        *import.body_mut() = Body::from("no line of an export");
        import
    };
    let mut purge = || change(&format!("{MINE}/purges"));
    let next: [(_, u16, &mut dyn FnMut() -> Request); 2] =
        [(strict, 401, &mut purge), (lenient, 400, &mut import)];
    for (api, expected, request) in next {
        let mut waits = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            let (status, body, _) = ask(&api, request()).await;
            assert_eq!(status, expected, "{body}");
            waits.push(begun.elapsed().as_millis());
        }
        assert!(waits[1] >= 200 && waits[2] >= 400, "{waits:?}");
    }
}

async fn description() -> Value {
    let refused = "NOT_ALLOWED - access to vhost '/' refused for user 'me'";
    let (api, _) = served(&refusing(530, refused).await);
    let (status, body) = json_of(&api, by("me", "/api/v1/openapi.json")).await;
    assert_eq!(status, 200, "{body}");
    body
}

#[tokio::test]
async fn all_that_is_described_is_there_and_reads_its_parameters() {
    let description = description().await;
    let (api, _) = served(&nowhere());
    let paths = description["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 21, "{:?}", paths.keys());
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
                let mut request = change(&format!("{path}?{name}=%00"));
                *request.method_mut() = method.to_uppercase().parse().expect("a method");
                let (status, body) = json_of(&api, request).await;
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
    let schemas = components["schemas"].as_object().expect("schemas");
    for name in "Answer_Letters Summary DeadLetter Redrive Problem Imported".split(' ') {
        assert!(schemas.contains_key(name), "{name}: {:?}", schemas.keys());
    }
    let list = &description["paths"]["/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters"]["get"];
    let problem = &list["responses"]["default"]["content"]["application/problem+json"]["schema"];
    assert_eq!(problem["$ref"], "#/components/schemas/Problem");
}
