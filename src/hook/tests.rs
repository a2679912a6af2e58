//! The hook and a server that answers as a test says.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::amqp::ids::ShortStr;
use crate::machine::{Limits, Outcome, Reason};

const TAKEN: &str = "dlx_proxy_hook_dead_letters_total{outcome=\"taken\"}";
const DROPPED: &str = "dlx_proxy_hook_dead_letters_total{outcome=\"dropped\"}";

/// Sends these answers in turn, then 204, and reports the bodies received.
async fn server(mut answers: Vec<&'static str>) -> (Server, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = at(&listener);
    let (sent, bodies) = mpsc::unbounded_channel();
    answers.reverse();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = String::new();
            let whole = |request: &str| {
                let (head, body) = request.split_once("\r\n\r\n")?;
                let length = head.split("content-length: ").nth(1)?;
                let length: usize = length.lines().next()?.parse().ok()?;
                (body.len() == length).then(|| body.to_owned())
            };
            let body = loop {
                let mut read = [0; 4096];
                let bytes = stream.read(&mut read).await.expect("a request");
                request += std::str::from_utf8(&read[..bytes]).expect("text");
                if let Some(body) = whole(&request) {
                    break body;
                }
            };
            assert!(
                request.starts_with("POST /hook?a=b HTTP/1.1\r\n"),
                "{request}"
            );
            assert!(
                request.contains("authorization: Basic bWU6eA==\r\n"),
                "{request}"
            );
            let status = answers.pop().unwrap_or("204 No Content");
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("read");
            let _ = sent.send(body);
        }
    });
    (server, bodies)
}

fn at(listener: &TcpListener) -> Server {
    let address = listener.local_addr().expect("bound");
    Server {
        place: Place::of(address, None),
        target: "/hook?a=b".to_owned(),
        login: Some(("me".into(), "x".into())),
    }
}

fn hook(server: Server) -> (Hook, Metrics) {
    let metrics = Metrics::new();
    let limits = LiveLimits::new(Limits {
        max_hook_letters: 150,
        ..crate::config::Config::default().reloadable.limits
    });
    let waits = Waits {
        pause: Duration::from_millis(5),
        last: Duration::from_millis(500),
    };
    let hook = Hook::with_waits(server, limits, metrics.clone(), waits);
    (hook, metrics)
}

fn add(hook: &Hook, number: usize) {
    for _ in 0..number {
        let dead = DeadLetter {
            queue: ShortStr::EMPTY,
            reason: Reason::Expired,
            exchange: ShortStr::EMPTY,
            routing_key: ShortStr::EMPTY,
            bytes: 0,
            outcome: Outcome::Confirmed,
            by: None,
        };
        hook.add(&Vhost::ROOT, Wall(0), &Arc::new(dead));
    }
}

fn letters(body: &str) -> usize {
    body.matches("\"bytes\"").count()
}

fn count(metrics: &Metrics, sample: &str) -> String {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.starts_with(sample));
    line.map_or(String::new(), |line| line[sample.len()..].trim().to_owned())
}

#[tokio::test]
async fn what_is_refused_is_posted_again_and_then_dropped() {
    let (server, mut bodies) = server(vec!["503 Busy"; 6]).await;
    let (hook, metrics) = hook(server);
    let task = tokio::spawn(hook.clone().run(std::future::pending()));
    add(&hook, 100);
    add(&hook, 1);
    for _ in 0..ATTEMPTS {
        assert_eq!(letters(&bodies.recv().await.expect("a batch")), 100);
    }
    for _ in 0..2 {
        assert_eq!(letters(&bodies.recv().await.expect("a batch")), 1);
    }
    // The answer to the last one is on its way.
    while count(&metrics, TAKEN) != "1" {
        tokio::task::yield_now().await;
    }
    task.abort();
    assert_eq!(count(&metrics, DROPPED), "100");
}

#[tokio::test]
async fn what_does_not_fit_is_dropped_and_counted() {
    let (server, _bodies) = server(vec![]).await;
    let (hook, metrics) = hook(server);
    add(&hook, 160);
    assert_eq!(count(&metrics, DROPPED), "10");
    assert_eq!(count(&metrics, "dlx_proxy_hook_waiting"), "150");
    let met = "dlx_proxy_limits_met_total{limit=\"max-hook-letters\"}";
    assert_eq!(count(&metrics, met), "10");
}

#[tokio::test]
async fn at_the_end_what_waits_is_posted_at_once() {
    let (server, mut bodies) = server(vec![]).await;
    let (hook, _) = hook(server);
    add(&hook, 130);
    hook.run(std::future::ready(())).await;
    let first = bodies.recv().await.expect("a batch");
    let second = bodies.recv().await.expect("a batch");
    assert_eq!((letters(&first), letters(&second)), (100, 30));
}

#[tokio::test]
async fn at_the_end_a_server_that_is_silent_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (hook, metrics) = hook(at(&listener));
    add(&hook, 130);
    hook.run(std::future::ready(())).await;
    assert_eq!(count(&metrics, DROPPED), "130");
}
