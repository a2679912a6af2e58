//! Real sockets on the addresses of the loopback interface; names are what each test says they are.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::net::nodes::{LookingUp, Order};
use crate::net::proxy_protocol::Told;
use crate::telemetry::Metrics;

const HEADER: &[u8] = b"AMQP\0\0\x09\x01";

/// 127.0.0.`last`, which needs no other interface.
fn on(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port))
}

fn node(name: &str) -> Node {
    Node {
        host: name.to_owned(),
        port: 5672,
    }
}

fn dialer(
    names: &[&str],
    order: Order,
    look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
) -> Dialer {
    let resolver = Arc::new(move |node: Node| {
        let found = look_up(&node.host);
        Box::pin(async move { found }) as LookingUp
    });
    let all: Vec<_> = names.iter().copied().map(node).collect();
    Dialer {
        nodes: Nodes::resolved_by(resolver, &all, order, Metrics::new()),
        within: Duration::from_secs(5),
        way: Way {
            tls: None,
            told: Told::Off,
        },
    }
}

async fn listener(last: u8) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(on(last, 0)).await.expect("free");
    let at = listener.local_addr().expect("bound");
    (listener, at)
}

async fn closed(last: u8) -> SocketAddr {
    listener(last).await.1
}

fn failing(dialer: &Dialer) -> Vec<SocketAddr> {
    dialer
        .nodes
        .failing()
        .iter()
        .map(|address| address.at)
        .collect()
}

#[tokio::test]
async fn a_client_waits_for_the_second_node_and_sees_no_refusal() {
    let (_open, at) = listener(1).await;
    let refuses = closed(1).await;
    let dialer = dialer(&["a", "b"], Order::First, move |name| {
        Ok(vec![if name == "a" { refuses } else { at }])
    });
    let dialed = dialer.dial(None).await.expect("b listens");
    assert_eq!((dialed.address.node, dialed.address.at), (node("b"), at));
    assert_eq!(failing(&dialer), [refuses]);
}

#[tokio::test]
async fn a_name_leads_to_all_of_its_addresses() {
    let (_open, at) = listener(2).await;
    let dialer = dialer(&["rabbit"], Order::First, move |_| {
        Ok(vec![on(1, at.port()), at])
    });
    let dialed = dialer.dial(None).await.expect("one listens");
    assert_eq!(dialed.address.to_string(), "rabbit:5672(127.0.0.2)");
}

#[tokio::test]
async fn a_name_is_looked_up_at_each_connect_and_keeps_its_addresses_while_it_cannot_be() {
    let ((_one, first), (_two, second)) = (listener(1).await, listener(1).await);
    let asked = AtomicUsize::new(0);
    let dialer = dialer(&["rabbit"], Order::First, move |_| {
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(vec![first]),
            1 => Ok(vec![second]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    });
    for expected in [first, second, second] {
        let dialed = dialer.dial(None).await.expect("there is one");
        assert_eq!(dialed.address.at, expected);
    }
}

#[tokio::test]
async fn a_resolver_that_hangs_is_asked_once_and_costs_nobody_its_patience() {
    let ((_one, first), (_two, second)) = (listener(1).await, listener(1).await);
    let asked = Arc::new(AtomicUsize::new(0));
    let (answers, waiting) = tokio::sync::watch::channel(false);
    let count = asked.clone();
    let resolver = Arc::new(move |_: Node| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let mut waiting = waiting.clone();
        Box::pin(async move {
            if number > 0 {
                let _ = waiting.wait_for(|answers| *answers).await;
            }
            Ok(vec![if number == 0 { first } else { second }])
        }) as LookingUp
    });
    let dialer = Dialer {
        nodes: Nodes::resolved_by(resolver, &[node("rabbit")], Order::First, Metrics::new()),
        ..dialer(&[], Order::First, |_| Ok(Vec::new()))
    };
    let at = async || dialer.dial(None).await.expect("there is one").address.at;
    assert_eq!(at().await, first);
    let began = Instant::now();
    let all = futures::future::join_all((0..20).map(|_| at())).await;
    assert_eq!(all, [first; 20]);
    assert_eq!(at().await, first);
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    // What it says at last is heard, though nobody waits for it any more.
    answers.send_replace(true);
    while at().await != second {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_no_node_takes_is_refused_at_once_in_the_words_of_the_last() {
    let (a, b) = (closed(1).await, closed(1).await);
    let dialer = dialer(&["a", "b"], Order::First, move |name| {
        Ok(vec![if name == "a" { a } else { b }])
    });
    let began = Instant::now();
    let refused = dialer.dial(None).await.expect_err("nobody listens");
    assert_eq!(refused.node, Some(node("b")));
    assert_eq!(refused.error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(began.elapsed() < HEAD_START);
    // Though both rest now, they are tried.
    let (_again, _) = (TcpListener::bind(a).await.expect("free"), ());
    assert_eq!(dialer.dial(None).await.expect("a is back").address.at, a);
}

#[test]
fn what_this_machine_has_none_of_is_no_fault_of_the_node() {
    for (errno, ours) in [
        (Errno::MFILE, true),
        (Errno::NFILE, true),
        (Errno::ADDRNOTAVAIL, true),
        (Errno::NOBUFS, true),
        (Errno::CONNREFUSED, false),
        (Errno::HOSTUNREACH, false),
        (Errno::TIMEDOUT, false),
    ] {
        let error = io::Error::from(errno);
        assert_eq!(is_of_this_machine(&error), ours, "{error}");
    }
    assert!(!is_of_this_machine(&silent()));
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_told() {
    let dialer = dialer(&["rabbit"], Order::First, |_| {
        Err(io::Error::other("no such name"))
    });
    let refused = dialer.dial(None).await.expect_err("there is no address");
    assert_eq!(refused.node, Some(node("rabbit")));
    assert_eq!(refused.error.to_string(), "no such name");
}

#[tokio::test]
async fn a_node_that_does_not_answer_costs_a_second_once() {
    // Linux does not answer who comes when nobody accepts and the queue is full.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(on(1, 0)).expect("free");
    let full = socket.listen(0).expect("listens");
    let silent = full.local_addr().expect("bound");
    let _queued = tokio::net::TcpStream::connect(silent)
        .await
        .expect("room for one");
    let (_open, at) = listener(1).await;
    let dialer = dialer(&["a", "b"], Order::First, move |name| {
        Ok(vec![if name == "a" { silent } else { at }])
    });
    let took = async || {
        let began = Instant::now();
        let dialed = dialer.dial(None).await.expect("b answers");
        assert_eq!(dialed.address.at, at);
        began.elapsed()
    };
    let first = took().await;
    assert!(HEAD_START <= first && first < HEAD_START * 2, "{first:?}");
    assert_eq!(failing(&dialer), [silent]);
    let second = took().await;
    assert!(second < HEAD_START / 2, "{second:?}");
}

/// Whether the node counts as failed after it does this with a client's protocol header.
async fn failing_after(node_does: impl AsyncFnOnce(TcpStream)) -> bool {
    let (listener, at) = listener(1).await;
    let dialer = dialer(&["a"], Order::First, move |_| Ok(vec![at]));
    let mut line = dialer.dial(None).await.expect("it listens").socket;
    line.write_all(HEADER).await.expect("it is open");
    let (node, _) = listener.accept().await.expect("somebody is there");
    node_does(node).await;
    let _ = line.read(&mut [0; 8]).await;
    drop(line);
    !failing(&dialer).is_empty()
}

#[tokio::test]
async fn a_node_that_hangs_up_before_it_says_anything_has_failed() {
    assert!(failing_after(async |node| drop(node)).await);
}

#[tokio::test]
async fn a_node_that_answers_has_not_failed_whatever_it_says() {
    let refuses = async |mut node: TcpStream| {
        node.write_all(HEADER).await.expect("it is open");
    };
    assert!(!failing_after(refuses).await);
}

#[tokio::test]
async fn who_says_nothing_is_owed_no_answer() {
    let (_listener, at) = listener(1).await;
    let dialer = dialer(&["a"], Order::First, move |_| Ok(vec![at]));
    for _ in 0..3 {
        let mut line = dialer.dial(None).await.expect("it listens").socket;
        line.write_all(&HEADER[..7]).await.expect("it is open");
    }
    assert_eq!(failing(&dialer), []);
}
