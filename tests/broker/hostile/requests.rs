//! Clients that ask for much and wait for nothing: what is kept of a request is little, whatever stands in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::table::TableBuilder;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::memory::Bound;
use super::{Front, MIB};
use crate::lab::{each_broker_alone, until};
use crate::node::Broker;
use crate::raw;

const EXCLUSIVE: u8 = 4;
/// Almost as much as a frame takes.
const LARGE: usize = 120_000;

/// What every part of the proxy is allowed beside what a test is about.
fn narrow() -> Bound {
    Bound {
        retained: MIB,
        vhosts: 1,
        publisher: 8 * MIB,
        intake: 4 * MIB,
        ..Bound::default()
    }
}

const NARROW: [(&str, &str); 5] = [
    ("DLX_PROXY_MODE", "rejects-only"),
    ("DLX_PROXY_RETAINED_BYTES", "1MiB"),
    ("DLX_PROXY_RETAINED_BYTES_PER_CONNECTION", "32MiB"),
    ("DLX_PROXY_PUBLISHER_BYTES", "8MiB"),
    ("DLX_PROXY_INTAKE_BYTES", "4MiB"),
];

/// The largest memory of a program while something happens.
async fn most_during<T>(front: &Front<'_>, happens: impl Future<Output = T>) -> (u64, T) {
    let mut most = 0;
    let watch = async {
        loop {
            most = front.program.resident().max(most);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::select! {
        done = happens => done,
        () = watch => unreachable!("it goes on"),
    };
    (front.program.resident().max(most), done)
}

fn assert_within(broker: &Broker, bound: &Bound, most: u64) {
    let (version, formula) = (&broker.version, bound.kib());
    println!("{version}: at most {most} KiB; the formula says {formula}");
    assert!(most <= formula, "{version}: {most} KiB of {formula}");
}

/// A queue.declare whose dead letters have a target of that name, with an argument that is as large as this.
fn declare(out: &mut Vec<u8>, queue: &str, target: &str, large: usize) {
    let mut table = TableBuilder::default();
    table
        .longstr(b"x-dead-letter-exchange", target.as_bytes())
        .longstr(b"x-dead-letter-routing-key", target.as_bytes())
        .longstr(b"junk", &vec![b'j'; large]);
    let table = table.finish();
    raw::method(out, 1, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue.as_bytes())
            .octet(EXCLUSIVE)
            .longstr(&table)
            .end();
    });
}

/// Declares, as fast as the proxy takes them, by a client that reads none of the answers; and others who leave a frame unfinished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_large_declares_by_a_client_that_does_not_read() {
    each_broker_alone(async |broker, vhost| {
        let bound = Bound {
            connections: 21,
            channels: 22,
            queues: 1,
            replies: 8192,
            slow: 21,
            ..narrow()
        };
        let front = Front::start(broker, vhost, &NARROW).await;
        let mut halves = Vec::new();
        for _ in 0..20 {
            let mut half = front.client().await;
            let mut out = Vec::new();
            declare(&mut out, "half", "dead", LARGE);
            out.truncate(LARGE);
            half.send(&out).await;
            halves.push(half);
        }
        // What it does not read at first stands before all answers.
        let mut watcher = front.watcher().await;
        watcher.declare(1, "flood", &[]).await;
        let mut out = Vec::new();
        for _ in 0..12 {
            raw::publish(&mut out, 1, "flood", &vec![7; 1 << 20], 128 * 1024);
        }
        watcher.send(&out).await;
        let mut client = front.client().await;
        client.open_channel(2).await;
        out.clear();
        raw::consume(&mut out, 2, "flood", true);
        client.send(&out).await;
        let passed = async || front.metric("bytes_total", &["broker_to_client"]).await;
        until("it is held back", async || passed().await > 1 << 20).await;
        out.clear();
        declare(&mut out, "declared", "dead", LARGE);
        let flood = async {
            let mut sent = 0;
            while sent < 2_500 {
                match timeout(Duration::from_secs(3), client.try_send(&out)).await {
                    Ok(taken) => taken.expect("the connection is open"),
                    Err(_) => break, // It is held.
                }
                sent += 1;
            }
            sent
        };
        let (most, sent) = most_during(&front, flood).await;
        println!("{}: {sent} declares", broker.version);
        assert_within(broker, &bound, most);
        drop((client, halves));
        front.end().await;
    })
    .await;
}

/// Queues with long names and large arguments, and consumers with long tags, of one connection that goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_and_consumers_take_no_more_than_their_names() {
    each_broker_alone(async |broker, vhost| {
        let bound = Bound {
            connections: 1,
            channels: 1,
            queues: 500,
            consumers: 2_000,
            ..narrow()
        };
        let front = Front::start(broker, vhost, &NARROW).await;
        let mut client = front.client().await;
        let target = "t".repeat(250);
        let before = front.program.resident();
        let queues = async {
            for number in 0..bound.queues {
                let mut out = Vec::new();
                declare(&mut out, &format!("{number:0>250}"), &target, LARGE);
                client.send(&out).await;
                client.reply(1, MethodId::QUEUE_DECLARE_OK).await;
            }
        };
        let (most, ()) = most_during(&front, queues).await;
        let grown = |before: u64, number: u64| {
            let grown = front.program.resident().saturating_sub(before);
            grown as f64 / number as f64
        };
        let a_queue = grown(before, bound.queues);
        let between = front.program.resident();
        for number in 0..bound.consumers {
            let mut out = Vec::new();
            let queue = format!("{:0>250}", number % bound.queues);
            raw::method(&mut out, 1, MethodId::BASIC_CONSUME, |a| {
                a.short(0)
                    .shortstr(queue.as_bytes())
                    .shortstr(format!("{number:c>250}").as_bytes())
                    .octet(0)
                    .longstr(b"")
                    .end();
            });
            client.send(&out).await;
            client.reply(1, MethodId::BASIC_CONSUME_OK).await;
        }
        let a_consumer = grown(between, bound.consumers);
        println!(
            "{}: {a_queue:.2} KiB a queue, {a_consumer:.2} a consumer",
            broker.version
        );
        assert_within(broker, &bound, most.max(front.program.resident()));
        drop(client);
        front.end().await;
    })
    .await;
}

/// An API whose answer for bindings is this, and which knows of nothing else.
async fn management(bindings: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (bindings, asked) = (Arc::new(bindings), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (bindings, counted) = (bindings.clone(), counted.clone());
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let (mut line, mut body) = (String::new(), "[]");
                while stream
                    .read_line(&mut line)
                    .await
                    .is_ok_and(|bytes| bytes > 0)
                {
                    if line.starts_with("GET ") {
                        let of_bindings = line.contains("/amq%2Etopic/bindings/source");
                        counted.fetch_add(usize::from(of_bindings), Ordering::Relaxed);
                        body = match line.contains("/amq%2Etopic ") {
                            true => r#"{"type":"topic"}"#,
                            false if of_bindings => &bindings,
                            false => "[]",
                        };
                    } else if line == "\r\n" {
                        let head =
                            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                        let answer = [head.as_bytes(), body.as_bytes()].concat();
                        let _ = stream.write_all(&answer).await;
                    }
                    line.clear();
                }
            });
        }
    });
    (address, asked)
}

/// As JSON has them, so many of this length each.
fn bindings(number: usize, binding: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..number).map(binding).collect();
    format!("[{}]", all.join(","))
}

/// Bindings that say as much as one answer may, in the two ways in which that takes the most: many, and such with arguments that take many
/// times the memory that it takes to write them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survey_of_all_that_an_answer_may_tell() {
    each_broker_alone(async |broker, vhost| {
        let one = |n: usize, arguments: &str| {
            format!(
                r#"{{"source":"amq.topic","vhost":"/","destination":"queue-{n:0>26}","destination_type":"queue","routing_key":"key-{n:0>26}","arguments":{{{arguments}}},"properties_key":"key-{n:0>26}"}}"#
            )
        };
        let booleans = format!(r#""large":[{}]"#, ["true"; 50_000].join(","));
        for bindings in [
            bindings(100_000, |n| one(n, "")),
            bindings(240, |n| one(n, &booleans)),
        ] {
            let bound = Bound {
                surveyed: true,
                ..narrow()
            };
            let mib = bindings.len() >> 20;
            let (api, asked) = management(bindings).await;
            let url = format!("http://guest:guest@{api}");
            let mut environment = NARROW.to_vec();
            environment.push(("DLX_PROXY_MANAGEMENT_URL", &url));
            let front = Front::start(broker, vhost, &environment).await;
            // Where its dead letters go is looked for.
            let mut client = front.client().await;
            let to = [("x-dead-letter-exchange", "amq.topic")];
            client.declare(1, "work", &to).await;
            let begun = Instant::now();
            let surveyed = until("a survey, and some seconds for it", async || {
                asked.load(Ordering::Relaxed) > 0 && begun.elapsed() > Duration::from_secs(14)
            });
            let (most, ()) = most_during(&front, surveyed).await;
            let failed = front.metric("management_failures_total", &[]).await;
            println!("{}: {mib} MiB of bindings, {failed} failures", broker.version);
            assert_within(broker, &bound, most);
            drop(client);
            front.end().await;
        }
    })
    .await;
}
