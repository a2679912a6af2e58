//! The last dead letters, in front of a broker that lets everybody in and to the queue `mine`, and fails at the queue `away`.

use std::sync::Arc;

use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::net::clock::Clock;

use crate::amqp::ids::{Vhost, name};
use crate::machine::{Cause, ClientConnection, DeadLetter, Outcome, Reason, Rejecter};

const DEATHS: &str = "/api/v1/vhosts/%2F/deaths";
const RATES: &str = "/api/v1/vhosts/%2F/deaths/rates";
/// The number before the first one.
const BEFORE: u64 = 1;

fn api_of(broker: SocketAddr, watches: Watches) -> Router {
    let (api, _) = parts(broker, 1, Duration::from_secs(20), watches);
    alone(api)
}

/// Lets everybody in, and to the queue `mine`.
pub(in crate::console::admin) async fn lenient() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Until the other side has gone.
async fn serve(mut stream: TcpStream) -> Option<()> {
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting).await.ok()?;
    stream.write_all(&peer::start("4.3.6")).await.ok()?;
    loop {
        let mut head = [0; 7];
        stream.read_exact(&mut head).await.ok()?;
        let [_, a, b, c, d, e, f] = head;
        let channel = u16::from_be_bytes([a, b]);
        let mut payload = vec![0; u32::from_be_bytes([c, d, e, f]) as usize + 1];
        stream.read_exact(&mut payload).await.ok()?;
        let said = answer(channel, &payload);
        stream.write_all(&said).await.ok()?;
    }
}

fn answer(channel: u16, payload: &[u8]) -> Vec<u8> {
    let id = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
    let method = MethodId(id(0), id(2));
    let queue = || &payload[7..7 + usize::from(payload[6])];
    let say = |id, arguments: &dyn Fn(&mut crate::amqp::reply::Arguments<'_>)| {
        peer::method(channel, id, arguments)
    };
    match method {
        MethodId::CONNECTION_START_OK => peer::tune(100, 131_072, 0),
        MethodId::CONNECTION_OPEN => peer::open_ok(),
        MethodId::CHANNEL_OPEN => say(MethodId::CHANNEL_OPEN_OK, &|a| a.longstr(b"").end()),
        MethodId::QUEUE_DECLARE => say(MethodId::QUEUE_DECLARE_OK, &|a| {
            a.shortstr(queue()).long(0).long(0).end();
        }),
        MethodId::BASIC_QOS => say(MethodId(60, 11), &|a| a.end()),
        MethodId::BASIC_CONSUME if queue().is_empty() => {
            peer::close(channel, 404, "NOT_FOUND - no queue", method)
        }
        MethodId::BASIC_CONSUME if queue() == b"away" => {
            peer::close(0, 541, "INTERNAL_ERROR - not now", method)
        }
        MethodId::BASIC_CONSUME if queue() == b"mine" => {
            peer::close(channel, 406, "PRECONDITION_FAILED - no stream", method)
        }
        MethodId::BASIC_CONSUME => peer::close(channel, 403, "ACCESS_REFUSED - no", method),
        MethodId::CONNECTION_CLOSE => say(MethodId::CONNECTION_CLOSE_OK, &|a| a.end()),
        _ => Vec::new(),
    }
}

fn dead(queue: &str) -> Arc<DeadLetter> {
    let connection = ClientConnection {
        name: Some(name("<worker>\n")),
        user: None,
        host: name("192.0.2.7"),
    };
    Arc::new(DeadLetter {
        queue: name(queue),
        reason: Reason::Rejected,
        exchange: name("dlx"),
        routing_key: name("key"),
        octets: 3,
        outcome: Outcome::Parked(Cause::Unroutable),
        by: Some(Box::new(Rejecter {
            connection: Arc::new(connection),
            consumer: None,
            held: Duration::from_millis(1_500),
        })),
    })
}

pub(in crate::console::admin) fn add(recent: &RecentDeaths, queue: &str) {
    recent.add(&Vhost::ROOT, Wall(61_000), &dead(queue));
}

/// What died: `mine`, `theirs`, `mine`; in another vhost, too.
fn died() -> (RecentDeaths, Watches) {
    let recent = RecentDeaths::new(Wall(0));
    for queue in ["mine", "theirs", "mine"] {
        add(&recent, queue);
    }
    recent.add(&name("other"), Wall(61_000), &dead("mine"));
    (recent.clone(), Watches::new(recent, 2))
}

fn numbers(body: &Value) -> Vec<u64> {
    let deaths = body["deaths"].as_array().expect("a list");
    let numbers = deaths.iter().map(|death| death["number"].as_u64());
    numbers
        .map(|number| number.expect("a number") - BEFORE)
        .collect()
}

#[tokio::test]
async fn those_of_queues_that_the_user_may_read_are_listed() {
    let (_, watches) = died();
    let api = api_of(lenient().await, watches);
    for (query, expected, next) in [
        ("", &[1, 3][..], 4),
        ("?limit=1", &[3], 4),
        ("?after=0&limit=1", &[1], 1),
        ("?after=2", &[3], 4),
        ("?queue=theirs", &[], 4),
        ("?queue=mine&after=4", &[], 4),
    ] {
        let (status, body, _) = ask(&api, by("me", &format!("{DEATHS}{query}"), FAR)).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            (numbers(&body), &body["missed"]),
            (expected.to_vec(), &Value::from(false))
        );
        assert_eq!(body["next"], BEFORE + next, "{query}");
    }
}

#[tokio::test]
async fn a_dead_letter_is_shown_with_who_rejected_it() {
    let (_, watches) = died();
    let api = api_of(lenient().await, watches);
    let (_, body, _) = ask(&api, by("me", &format!("{DEATHS}?limit=1"), FAR)).await;
    insta::assert_snapshot!(body["deaths"][0], @r#"{"cause":"unroutable","exchange":"dlx","number":4,"octets":3,"outcome":"parked","queue":"mine","reason":"rejected","rejected-by":{"connection":"<worker>\\n","consumer":null,"held-ms":1500,"host":"192.0.2.7","user":null},"routing-key":"key","time":"1970-01-01T00:01:01.000Z"}"#);
}

#[tokio::test]
async fn who_is_not_let_in_does_not_learn_that_there_is_nothing() {
    let (api, _) = api(broker(refusal(403, REFUSED)).await, 1);
    for path in [DEATHS, RATES] {
        let (status, body, _) = ask(&api, by("me", path, FAR)).await;
        assert_eq!(status, 401, "{body}");
    }
}

#[tokio::test]
async fn a_bad_parameter_of_them_is_named() {
    let (api, _) = api(nowhere(), 1);
    for (path, words) in [
        (format!("{DEATHS}?limit=1001"), "limit=1001: write a number"),
        (format!("{DEATHS}?after=x"), "after=x: write a number"),
        (format!("{RATES}?limit=1"), "limit: there is no such"),
    ] {
        let (status, body, _) = ask(&api, by("me", &path, FAR)).await;
        let detail = body["detail"].as_str().expect("a detail");
        assert!(status == 400 && detail.starts_with(words), "{body}");
    }
}

#[tokio::test]
async fn rates_are_those_of_queues_that_the_user_may_read() {
    let recent = RecentDeaths::new(Wall(0));
    let now = SystemClock::start().now().wall;
    for queue in ["mine", "theirs", "mine"] {
        recent.add(&Vhost::ROOT, now, &dead(queue));
    }
    let api = api_of(lenient().await, Watches::new(recent, 2));
    let (status, body, _) = ask(&api, by("me", RATES, FAR)).await;
    assert_eq!(status, 200, "{body}");
    let rates = body["rates"].as_array().expect("a list");
    assert_eq!(rates.len(), 1, "{body}");
    assert_eq!(
        (&rates[0]["queue"], &rates[0]["reason"]),
        (&"mine".into(), &"rejected".into())
    );
    let counts = rates[0]["per-minute"].as_array().expect("a list");
    let counts = counts.iter().map(|count| count.as_u64().expect("a number"));
    assert_eq!((counts.len(), counts.sum::<u64>()), (60, 2));
}

/// One live answer.
async fn live(api: &Router, path: &str, last: Option<u64>) -> Response {
    let mut request = by("me", path, FAR);
    let headers = request.headers_mut();
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    if let Some(last) = last {
        headers.insert("last-event-id", last.into());
    }
    let router = hyper_util::service::TowerToHyperService::new(api.clone());
    let answer = hyper::service::Service::call(&router, request).await;
    answer.expect("infallible")
}

/// The next event, as it is written; none behind the last.
async fn next(body: &mut Body) -> Option<String> {
    let frame = timeout(Duration::from_secs(20), body.frame()).await;
    let frame = frame.expect("in time")?.expect("infallible");
    let data = frame.into_data().expect("data").to_vec();
    Some(String::from_utf8(data).expect("UTF-8"))
}

#[tokio::test]
async fn they_are_told_as_they_come() {
    let (recent, watches) = died();
    let api = api_of(lenient().await, watches.clone());
    let answer = live(&api, DEATHS, None).await;
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = answer.into_body();
    assert_eq!(next(&mut body).await.as_deref(), Some("id: 5\n: \n\n"));
    add(&recent, "theirs");
    add(&recent, "mine");
    let event = next(&mut body).await.expect("an event");
    let (head, data) = event.split_once("data: ").expect("data");
    assert_eq!(head, "id: 7\nevent: death\n");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["queue"], "mine");
    // One more than there may be.
    assert_eq!(live(&api, DEATHS, None).await.status(), 503);
    watches.end();
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn who_comes_back_goes_on_where_it_was() {
    let (_, watches) = died();
    let api = api_of(lenient().await, watches);
    let mut body = live(&api, &format!("{DEATHS}?after=0"), Some(BEFORE + 1))
        .await
        .into_body();
    assert_eq!(next(&mut body).await.as_deref(), Some("id: 2\n: \n\n"));
    let event = next(&mut body).await.expect("an event");
    assert!(event.starts_with("id: 4\nevent: death\n"), "{event}");
    drop(body);
    // A number of another process.
    let mut body = live(&api, DEATHS, Some(1_000)).await.into_body();
    next(&mut body).await;
    let missed = next(&mut body).await;
    assert_eq!(missed.as_deref(), Some("event: missed\ndata: {}\n\n"));
    let event = next(&mut body).await.expect("an event");
    assert!(event.starts_with("id: 2\n"), "{event}");
}

#[tokio::test]
async fn a_live_answer_needs_the_broker() {
    let (_, watches) = died();
    let api = api_of(nowhere(), watches);
    assert_eq!(live(&api, DEATHS, None).await.status(), 502);
}

/// Whoever listens comes back later, and has missed nothing.
#[tokio::test]
async fn a_live_answer_ends_when_the_broker_cannot_be_asked() {
    let (recent, watches) = died();
    add(&recent, "away");
    let api = api_of(lenient().await, watches);
    let last = BEFORE + 3;
    let mut body = live(&api, DEATHS, Some(last)).await.into_body();
    next(&mut body).await;
    let problem = next(&mut body).await.expect("an event");
    assert!(
        problem.starts_with("event: problem\ndata: \"541 INTERNAL_ERROR"),
        "{problem}"
    );
    assert_eq!(next(&mut body).await, None);
}
