//! The last dead letters, in front of a broker that lets everybody in and to the queue `mine`, and fails at the queue `away`.

use std::sync::Arc;

use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;
use crate::known::Known;
use crate::machine::{Cause, ClientConnection, DeadLetter, Outcome, Reason, Rejecter, Wall};

const DEATHS: &str = "/api/v1/vhosts/%2F/deaths";
const RATES: &str = "/api/v1/vhosts/%2F/deaths/rates";

const ONE_CHANNEL: &str = "NOT_ALLOWED - number of channels opened for user 'one-channel' has reached the maximum allowed user limit of (1)";

/// Lets everybody in, and to the queue `mine`; `one-channel` with one channel at a time.
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
    let mut most = u16::MAX;
    loop {
        let mut head = [0; 7];
        stream.read_exact(&mut head).await.ok()?;
        let [_, a, b, c, d, e, f] = head;
        let channel = u16::from_be_bytes([a, b]);
        let mut payload = vec![0; u32::from_be_bytes([c, d, e, f]) as usize + 1];
        stream.read_exact(&mut payload).await.ok()?;
        if payload.windows(11).any(|text| text == b"one-channel") {
            most = 1;
        }
        let said = match channel > most {
            true => peer::close(0, 530, ONE_CHANNEL, MethodId::CHANNEL_OPEN),
            false => answer(channel, &payload),
        };
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
        bytes: 3,
        outcome: Outcome::Parked(Cause::Unroutable),
        by: Some(Box::new(Rejecter {
            connection: Arc::new(connection),
            consumer: None,
            held: Duration::from_millis(1_500),
        })),
    })
}

pub(in crate::console::admin) fn add(known: &Known, queue: &str) {
    known.hear(&Vhost::ROOT, Wall(61_000), &dead(queue));
}

/// What died: `mine`, `theirs`, `mine`; in another vhost, too. And the number before the first one.
async fn died() -> (Api, Router, u64) {
    let (api, _) = api(&super::lenient().await);
    let before = api.known.recent().newest(b"/", 0).next;
    for queue in ["mine", "theirs", "mine"] {
        add(&api.known, queue);
    }
    api.known.hear(&name("other"), Wall(61_000), &dead("mine"));
    (api.clone(), alone(api), before)
}

#[tokio::test]
async fn those_of_queues_that_the_user_may_read_are_listed() {
    let (_, api, before) = died().await;
    for (query, expected, next) in [
        ("", &[1, 3][..], 4),
        ("?limit=1", &[3], 4),
        ("?after=BEFORE0&limit=1", &[1], 1),
        ("?after=BEFORE2", &[3], 4),
        ("?queue=theirs", &[], 4),
        ("?queue=mine&after=BEFORE4", &[], 4),
    ] {
        let (query, number) = match query.split_once("BEFORE") {
            Some((first, rest)) => {
                let (number, rest) = rest.split_at(1);
                let number = before + number.parse::<u64>().expect("a digit");
                (format!("{first}{number}{rest}"), number)
            }
            None => (query.to_owned(), 0),
        };
        let (status, body) = json_of(&api, by("me", &format!("{DEATHS}{query}"))).await;
        assert_eq!(status, 200, "{body}");
        let deaths = body["deaths"].as_array().expect("a list").iter();
        let numbers = deaths.map(|death| death["number"].as_u64().expect("a number") - before);
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{query} {number}");
        let end = (&body["missed"], &body["next"]);
        assert_eq!(end, (&false.into(), &(before + next).into()), "{query}");
    }
}

#[tokio::test]
async fn a_user_with_one_channel_is_asked_for_one_queue_at_a_time() {
    let (_, api, _) = died().await;
    let (status, body) = json_of(&api, by("one-channel", DEATHS)).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["deaths"].as_array().map(Vec::len), Some(2), "{body}");
}

#[tokio::test]
async fn a_dead_letter_is_shown_with_who_rejected_it() {
    let (_, api, _) = died().await;
    let (_, mut body) = json_of(&api, by("me", &format!("{DEATHS}?limit=1"))).await;
    body["deaths"][0]["number"] = 4.into();
    insta::assert_snapshot!(body["deaths"][0], @r#"{"bytes":3,"cause":"unroutable","exchange":"dlx","number":4,"outcome":"parked","queue":"mine","reason":"rejected","rejected-by":{"connection":"<worker>\\n","consumer":null,"held-ms":1500,"host":"192.0.2.7","user":null},"routing-key":"key","time":"1970-01-01T00:01:01.000Z"}"#);
}

#[tokio::test]
async fn rates_are_those_of_queues_that_the_user_may_read() {
    let (api, _) = api(&super::lenient().await);
    let now = api.looks.now();
    for queue in ["mine", "theirs", "mine"] {
        api.known.hear(&Vhost::ROOT, now, &dead(queue));
    }
    let (status, body) = json_of(&alone(api), by("me", RATES)).await;
    assert_eq!(status, 200, "{body}");
    let [rate] = &body["rates"].as_array().expect("a list")[..] else {
        panic!("{body}");
    };
    let of = (&rate["queue"], &rate["reason"]);
    assert_eq!(of, (&"mine".into(), &"rejected".into()));
    let counts = rate["per-minute"].as_array().expect("a list").iter();
    let counts = counts.map(|count| count.as_u64().expect("a number"));
    assert_eq!((counts.len(), counts.sum::<u64>()), (60, 2));
}

/// One live answer.
async fn live(api: &Router, path: &str, last: Option<u64>) -> Response {
    let mut request = by("me", path);
    put(&mut request, "accept", "text/event-stream");
    if let Some(last) = last {
        put(&mut request, "last-event-id", &last.to_string());
    }
    super::answer(api, request).await
}

/// The next event, as it is written; none behind the last.
async fn next(body: &mut Body) -> Option<String> {
    let frame = timeout(LONG, body.frame()).await;
    let frame = frame.expect("in time")?.expect("infallible");
    let data = frame.into_data().expect("data").to_vec();
    Some(String::from_utf8(data).expect("UTF-8"))
}

#[tokio::test]
async fn they_are_told_as_they_come() {
    let (Api { known, rooms, .. }, api, before) = died().await;
    let answer = live(&api, DEATHS, None).await;
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = answer.into_body();
    let sign_of_life = format!("id: {}\n: \n\n", before + 4);
    assert_eq!(next(&mut body).await, Some(sign_of_life));
    add(&known, "theirs");
    add(&known, "mine");
    let event = next(&mut body).await.expect("an event");
    let (head, data) = event.split_once("data: ").expect("data");
    assert_eq!(head, format!("id: {}\nevent: death\n", before + 6));
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["queue"], "mine");
    // One more than there may be.
    let _second = live(&api, DEATHS, None).await;
    assert_eq!(live(&api, DEATHS, None).await.status(), 503);
    rooms.end();
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn who_comes_back_goes_on_where_it_was() {
    let (_, api, before) = died().await;
    let path = format!("{DEATHS}?after={before}");
    let mut body = live(&api, &path, Some(before + 1)).await.into_body();
    let sign_of_life = format!("id: {}\n: \n\n", before + 1);
    assert_eq!(next(&mut body).await, Some(sign_of_life));
    let event = next(&mut body).await.expect("an event");
    let begins = format!("id: {}\nevent: death\n", before + 3);
    assert!(event.starts_with(&begins), "{event}");
    // A number of another process.
    let mut body = live(&api, DEATHS, Some(before + 1_000)).await.into_body();
    next(&mut body).await;
    let missed = next(&mut body).await;
    assert_eq!(missed.as_deref(), Some("event: missed\ndata: {}\n\n"));
    let event = next(&mut body).await.expect("an event");
    assert!(
        event.starts_with(&format!("id: {}\n", before + 1)),
        "{event}"
    );
}

/// Whoever listens comes back later, and has missed nothing.
#[tokio::test]
async fn a_live_answer_ends_when_the_broker_cannot_be_asked() {
    let (Api { known, .. }, api, before) = died().await;
    add(&known, "away");
    let mut body = live(&api, DEATHS, Some(before + 3)).await.into_body();
    next(&mut body).await;
    let problem = next(&mut body).await.expect("an event");
    let begins = "event: problem\ndata: \"541 INTERNAL_ERROR";
    assert!(problem.starts_with(begins), "{problem}");
    assert_eq!(next(&mut body).await, None);
}
