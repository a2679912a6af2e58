//! Clients that are slow or mean: whatever they do, the proxy stays within its bounds and gives everything back.

use std::time::{Duration, Instant};

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply::Arguments;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{Broker, each_broker, each_broker_alone, until, within};
use super::program::Program;
use super::raw::{self, Raw};
use super::relay::{Fault, PUBLISHER, Relay};

const MIB: u64 = 1024;

async fn start(broker: &Broker, vhost: &str, environment: &[(&str, &str)]) -> Program {
    let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
    let program = Program::start_with(&upstream, vhost, environment).await;
    until("it is ready", async || program.admin.is_ready().await).await;
    program
}

async fn connect(broker: &Broker, program: &Program, vhost: &str) -> Raw {
    let mut client = Raw::open(broker, program.address.port(), vhost, Default::default()).await;
    client.open_channel(1).await;
    client
}

/// Nothing is held for anybody.
async fn is_empty(program: &Program) {
    for level in [
        "connections_open",
        "channels_open",
        "retained_bytes",
        "withheld_rejects",
    ] {
        let name = format!("dlx_proxy_{level}");
        until(format_args!("{name} is 0"), async || {
            program.admin.metric(&name, &[]).await == 0
        })
        .await;
    }
}

async fn met(program: &Program, limit: &str) -> u64 {
    let label = format!("limit=\"{limit}\"");
    let met = program
        .admin
        .metric("dlx_proxy_limits_met_total", &[&label])
        .await;
    let lines = program.lines(&["WARN", "a limit was met", &label]);
    assert_eq!(lines.len(), usize::from(met > 0), "{lines:?}");
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_let_go() {
    each_broker(async |broker, vhost| {
        let program = start(broker, vhost, &[("DLX_PROXY_HANDSHAKE_TIMEOUT", "2s")]).await;
        let begun = Instant::now();
        // Nothing at all; the first octets, one a time; a start-ok that never ends.
        let mut endless = frame::PROTOCOL.to_vec();
        endless.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0]);
        endless.resize(4096, b'x');
        let slow = async |bytes: &[u8], pause: Duration| {
            let mut stream = TcpStream::connect(program.address).await.expect("accepted");
            let (mut from, mut to) = stream.split();
            let talk = async {
                for byte in bytes {
                    if to.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                }
                std::future::pending::<()>().await;
            };
            let listen = async {
                let mut heard = Vec::new();
                let _ = from.read_to_end(&mut heard).await;
            };
            tokio::select! {
                () = talk => {}
                () = within("the proxy lets it go", listen) => {}
            }
        };
        tokio::join!(
            slow(b"", Duration::ZERO),
            slow(&endless, Duration::from_millis(100)),
            slow(&endless, Duration::from_millis(1)),
        );
        assert!(begun.elapsed() >= Duration::from_secs(2));
        assert!(
            begun.elapsed() < Duration::from_secs(12),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(met(&program, "handshake-timeout").await, 3);
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_answered_by_the_broker_and_leaves_nothing() {
    each_broker(async |broker, vhost| {
        let program = start(broker, vhost, &[]).await;
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        let mut noise = |len: usize| -> Vec<u8> {
            let next = |_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            };
            (0..len).map(next).collect()
        };
        for round in 0..20 {
            let mut stream = TcpStream::connect(program.address).await.expect("accepted");
            let mut bytes = noise(1 << (round % 14));
            if round % 2 == 0 {
                bytes.splice(0..0, frame::PROTOCOL);
            }
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut heard = Vec::new();
            let _ = within("the end of a bad beginning", stream.read_to_end(&mut heard)).await;
        }
        for round in 0..20 {
            let mut client = connect(broker, &program, vhost).await;
            let garbage = noise(16 << (round % 10));
            client.send(&garbage).await;
            // A frame whose announced size never comes would be awaited: the end of the stream ends that.
            drop(client);
        }
        is_empty(&program).await;
        let mut client = connect(broker, &program, vhost).await;
        client.declare(1, "still-there", &[]).await;
        client.close().await;
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_has_the_broker_held_back() {
    each_broker(async |broker, vhost| {
        let program = start(broker, vhost, &[]).await;
        let mut watcher =
            Raw::open(broker, broker.uri.authority.port, vhost, Default::default()).await;
        watcher.open_channel(1).await;
        watcher.declare(1, "flood", &[]).await;
        // 96 MiB, of which the sockets take a few.
        let mut out = Vec::new();
        for _ in 0..16 {
            raw::publish(&mut out, 1, "flood", &vec![7; 1 << 20], 128 * 1024);
        }
        for _ in 0..6 {
            watcher.send(&out).await;
        }
        let before = program.resident();
        let mut deaf = connect(broker, &program, vhost).await;
        let mut consume = Vec::new();
        raw::consume(&mut consume, 1, "flood", true);
        deaf.send(&consume).await;
        let passed = async || {
            program
                .admin
                .metric("dlx_proxy_bytes_total", &["broker_to_client"])
                .await
        };
        let mut last = 0;
        until("nothing passes any more", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = passed().await;
            now > 1_000_000 && std::mem::replace(&mut last, now) == now
        })
        .await;
        assert!(passed().await < 64 << 20, "{} bytes came", passed().await);
        assert!(program.resident() < before + 8 * MIB);
        // Another client does not notice.
        let mut other = connect(broker, &program, vhost).await;
        other.declare(1, "other", &[]).await;
        other.close().await;
        drop(deaf);
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_channels_that_the_broker_allows_and_more() {
    each_broker_alone(async |broker, vhost| {
        let program = start(broker, vhost, &[]).await;
        let mut client = Raw::open(broker, program.address.port(), vhost, Default::default()).await;
        let most = match client.tune.channel_max {
            0 => u16::MAX,
            most => most,
        };
        let before = program.resident();
        let open = |out: &mut Vec<u8>, channel: u16| {
            raw::method(out, channel, MethodId::CHANNEL_OPEN, |a| {
                a.shortstr(b"").end()
            });
        };
        let mut out = Vec::new();
        (1..=most).for_each(|channel| open(&mut out, channel));
        client.send(&out).await;
        for channel in 1..=most {
            client.reply(channel, MethodId::CHANNEL_OPEN_OK).await;
        }
        let a_channel = (program.resident() - before) as f64 / f64::from(most);
        println!(
            "{}: {most} channels, {a_channel:.2} KiB each",
            broker.version
        );
        assert!(a_channel < 4.0, "{a_channel:.1} KiB");
        out.clear();
        (most + 1..=u16::MAX).for_each(|channel| open(&mut out, channel));
        let _ = client.try_send(&out).await;
        let said = client.last_words().await;
        assert_eq!(said.map(|(code, ..)| code), Some(530));
        drop(client);
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}

/// Many outstanding deliveries of one octet: what is kept of each counts with all that it costs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outstanding_deliveries_stay_within_the_budget() {
    each_broker(async |broker, vhost| {
        const MESSAGES: u64 = 250_000;
        let environment = [
            ("DLX_PROXY_RETAINED_BYTES", "24MiB"),
            ("DLX_PROXY_MODE", "keep"),
        ];
        let program = start(broker, vhost, &environment).await;
        let mut client = connect(broker, &program, vhost).await;
        client.declare(1, "dead", &[]).await;
        let arguments = [
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", "dead"),
        ];
        client.declare(1, "work", &arguments).await;
        let mut watcher =
            Raw::open(broker, broker.uri.authority.port, vhost, Default::default()).await;
        watcher.open_channel(1).await;
        let mut out = Vec::new();
        for _ in 0..1000 {
            raw::publish(&mut out, 1, "work", b"x", 4096);
        }
        for _ in 0..MESSAGES / 1000 {
            watcher.send(&out).await;
        }
        let before = program.resident();
        client.consume(1, "work", false).await;
        for _ in 0..MESSAGES {
            client.content(1, MethodId::BASIC_DELIVER).await;
        }
        let retained = program.admin.metric("dlx_proxy_retained_bytes", &[]).await;
        let grown = program.resident() - before;
        println!(
            "{}: {retained} octets retained, {grown} KiB of memory",
            broker.version
        );
        assert!(retained <= 24 << 20);
        assert!(retained > 23 << 20, "{retained}");
        assert!(grown < 24 * MIB * 3 / 2 + 8 * MIB, "{grown} KiB");
        assert!(met(&program, "retained-bytes").await > 0);
        drop(client);
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declares_and_rejects_without_end() {
    each_broker(async |broker, vhost| {
        let environment = [("DLX_PROXY_MAX_TICKETS_PER_CONNECTION", "8")];
        let program = start(broker, vhost, &environment).await;
        let mut client = connect(broker, &program, vhost).await;
        client.declare(1, "dead", &[]).await;
        let arguments = [
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", "dead"),
        ];
        client.declare(1, "work", &arguments).await;
        let before = program.resident();
        // The same declare, sent and never awaited; each is examined or known.
        let mut out = Vec::new();
        for _ in 0..300 {
            raw::declare(&mut out, 1, "work", &arguments);
        }
        client.send(&out).await;
        for _ in 0..300 {
            client.reply(1, MethodId::QUEUE_DECLARE_OK).await;
        }
        // Passive ones, 30,000 of them in the pipe.
        out.clear();
        for _ in 0..30_000 {
            raw::method(&mut out, 1, MethodId::QUEUE_DECLARE, |a| {
                a.short(0).shortstr(b"dead").octet(1).longstr(b"").end()
            });
        }
        client.send(&out).await;
        for _ in 0..30_000 {
            client.reply(1, MethodId::QUEUE_DECLARE_OK).await;
        }
        // Rejects come back, as the target is the queue itself: 2,000 deaths of ten messages.
        let again = [
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", "round"),
        ];
        client.declare(1, "round", &again).await;
        out.clear();
        for _ in 0..10 {
            raw::publish(&mut out, 1, "round", b"x", 4096);
        }
        client.send(&out).await;
        client.consume(1, "round", false).await;
        for tag in 1..=2_000_u64 {
            client.content(1, MethodId::BASIC_DELIVER).await;
            client
                .call(1, MethodId::BASIC_REJECT, |a| {
                    a.longlong(tag).octet(0).end()
                })
                .await;
        }
        let grown = program.resident() - before;
        println!("{}: {grown} KiB of memory", broker.version);
        assert!(grown < 24 * MIB, "{grown} KiB");
        client.close().await;
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_opened_and_dropped_leave_nothing() {
    each_broker_alone(async |broker, vhost| {
        let program = start(broker, vhost, &[]).await;
        let once = async |round: usize| match round % 3 {
            // Not a word; a protocol header; a whole handshake.
            0 => drop(TcpStream::connect(program.address).await),
            1 => {
                if let Ok(mut stream) = TcpStream::connect(program.address).await {
                    let _ = stream.write_all(&frame::PROTOCOL).await;
                }
            }
            _ => drop(connect(broker, &program, vhost).await),
        };
        let flood = async |rounds: usize| {
            let mut running = FuturesUnordered::new();
            for round in 0..rounds {
                running.push(once(round));
                if running.len() == 20 {
                    running.next().await;
                }
            }
            while running.next().await.is_some() {}
        };
        flood(300).await;
        is_empty(&program).await;
        until("all sockets are closed", async || program.files() < 40).await;
        let (files, memory) = (program.files(), program.resident());
        let begun = Instant::now();
        flood(3_000).await;
        let a_minute = 3_000.0 * 60.0 / begun.elapsed().as_secs_f64();
        is_empty(&program).await;
        until("all sockets are closed", async || program.files() <= files).await;
        let grown = program.resident().saturating_sub(memory);
        println!(
            "{}: {a_minute:.0} a minute, {grown} KiB more",
            broker.version
        );
        assert!(grown < 8 * MIB, "{grown} KiB");
        program.stop().await;
    })
    .await;
}

/// The formula of README, "Memory", in KiB. The test below is what makes it true.
struct Bound {
    retained: u64,
    vhosts: u64,
    publisher: u64,
    intake: u64,
    connections: u64,
    channels: u64,
    queues: u64,
    tickets: u64,
    slow: u64,
}

impl Bound {
    const FORMULA: &str = "24 MiB + 2 × retained-bytes + vhosts × (publisher-bytes + 2 × intake-bytes + 4 MiB)\n\
        + connections × 32 KiB + channels × 4 KiB + queues × 2 KiB + withheld rejects × 2 KiB + peers that do not read × 512 KiB";

    fn kib(&self) -> u64 {
        24 * MIB
            + 2 * self.retained
            + self.vhosts * (self.publisher + 2 * self.intake + 4 * MIB)
            + self.connections * 32
            + self.channels * 4
            + self.queues * 2
            + self.tickets * 2
            + self.slow * 512
    }
}

/// All at once: connections with channels and queues, peers that do not read, deliveries without an answer, rejects and expiries without a
/// confirm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_the_formula_of_the_readme() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    assert!(readme.expect("README.md").contains(Bound::FORMULA));
    each_broker_alone(async |broker, vhost| {
        let bound = Bound {
            retained: 16 * MIB,
            vhosts: 1,
            publisher: 8 * MIB,
            intake: 4 * MIB,
            connections: 50,
            channels: 50 * 10,
            queues: 50 * 4,
            tickets: 20 * 100,
            slow: 20,
        };
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let environment = [
            ("DLX_PROXY_RETAINED_BYTES", "16MiB"),
            ("DLX_PROXY_PUBLISHER_BYTES", "8MiB"),
            ("DLX_PROXY_INTAKE_BYTES", "4MiB"),
            ("DLX_PROXY_MAX_TICKETS_PER_CONNECTION", "100"),
            ("DLX_PROXY_CONFIRM_TIMEOUT", "1m"),
        ];
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let program = Program::start_with(&upstream, vhost, &environment).await;
        until("it is ready", async || program.admin.is_ready().await).await;
        let mut watcher =
            Raw::open(broker, broker.uri.authority.port, vhost, Default::default()).await;
        watcher.open_channel(1).await;
        watcher.declare(1, "dead", &[]).await;
        watcher.declare(1, "flood", &[]).await;
        let dead = [
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", "dead"),
        ];
        let mut clients = Vec::new();
        for number in 0..bound.connections {
            let mut client =
                Raw::open(broker, program.address.port(), vhost, Default::default()).await;
            for channel in 1..=10 {
                client.open_channel(channel).await;
            }
            // The broker has forty queues, each connection knows four of them.
            for queue in 0..4 {
                client
                    .declare(1, &format!("work-{}", number % 10 * 10 + queue), &dead)
                    .await;
            }
            clients.push(client);
        }
        let idle = program.resident();
        relay.set(Fault::Jam(PUBLISHER));
        let mut out = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            let queue = format!("work-{}", number % 10 * 10);
            out.clear();
            if number < 20 {
                raw::consume(&mut out, 1, &queue, false);
            } else if number < 40 {
                raw::consume(&mut out, 1, "flood", true);
            }
            client.send(&out).await;
        }
        // For those who reject: 20 MB; for those who do not read: 50 MB; by way of intake, as somebody beside the proxy rejects them: 20 MB.
        for round in 0..50 {
            out.clear();
            for queue in 0..10 {
                for _ in 0..10 {
                    raw::publish(
                        &mut out,
                        1,
                        &format!("work-{}", queue * 10),
                        &[7; 4096],
                        128 * 1024,
                    );
                }
            }
            if round % 2 == 0 {
                raw::publish(&mut out, 1, "flood", &vec![7; 2 << 20], 128 * 1024);
            }
            for _ in 0..100 {
                raw::publish(&mut out, 1, "work-1", &[7; 4096], 128 * 1024);
            }
            watcher.send(&out).await;
        }
        watcher.consume(1, "work-1", false).await;
        for _ in 0..5_000 {
            watcher.content(1, MethodId::BASIC_DELIVER).await;
        }
        let all = |a: &mut Arguments<'_>| a.longlong(0).octet(1).end();
        watcher.call(1, MethodId::BASIC_NACK, all).await;
        // Those who consume reject all that comes, and stop reading; each has more tickets than it may.
        let mut rejects = Vec::new();
        for tag in 1..=200_u64 {
            raw::method(&mut rejects, 1, MethodId::BASIC_REJECT, |a| {
                a.longlong(tag).octet(0).end()
            });
        }
        for client in &mut clients[..20] {
            client.reply(1, MethodId::BASIC_CONSUME_OK).await;
            for _ in 0..200 {
                client.content(1, MethodId::BASIC_DELIVER).await;
            }
            client.send(&rejects).await;
        }
        let mut most = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            most = most.max(program.resident());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let levels = ["dlx_proxy_retained_bytes", "dlx_proxy_withheld_rejects"];
        let mut held = Vec::new();
        for level in levels {
            held.push(program.admin.metric(level, &[]).await);
        }
        println!(
            "{}: {idle} KiB idle, at most {most} KiB under load; the formula says {}; {held:?}",
            broker.version,
            bound.kib()
        );
        assert!(
            held[0] > 4 << 20 && held[1] > 100,
            "the load is none: {held:?}"
        );
        assert!(most <= bound.kib(), "{most} KiB of {}", bound.kib());
        relay.set(Fault::None);
        drop(clients);
        is_empty(&program).await;
        program.stop().await;
    })
    .await;
}
