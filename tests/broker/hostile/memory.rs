//! All of it at once, against the formula that docs/reference/limits.md gives.

use std::time::{Duration, Instant};

use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply::Arguments;

use super::{Front, MIB, TO_DEAD};
use crate::lab::{each_broker_alone, until};
use crate::raw;
use crate::relay::{Fault, PUBLISHER, Relay};

/// The formula of docs/reference/limits.md, in KiB. The test below is what makes it true.
#[derive(Default)]
pub(super) struct Bound {
    pub(super) retained: u64,
    pub(super) vhosts: u64,
    pub(super) publisher: u64,
    pub(super) intake: u64,
    pub(super) connections: u64,
    pub(super) channels: u64,
    pub(super) queues: u64,
    pub(super) consumers: u64,
    pub(super) tickets: u64,
    pub(super) replies: u64,
    /// Peers that stand still.
    pub(super) slow: u64,
    pub(super) surveyed: bool,
    /// If there is an API: `browse-bytes`, `max-browses`, and the largest dead letter in a file.
    pub(super) files: Option<(u64, u64, u64)>,
}

impl Bound {
    const FORMULA: &str = "32 MiB + 2 × retained-bytes + vhosts × (publisher-bytes + 2 × intake-bytes + 4 MiB)\n\
        + connections × 32 KiB + channels × 4 KiB + (queues + consumers) × 2 KiB + withheld rejects × 2 KiB\n\
        + replies × 512 B + peers that stand still × 512 KiB\n\
        + 128 MiB, if a management-url is set\n\
        + 3 × browse-bytes + 4 × the largest dead letter + max-browses × 8 MiB, if the admin port has its API";

    pub(super) fn kib(&self) -> u64 {
        32 * MIB
            + 2 * self.retained
            + self.vhosts * (self.publisher + 2 * self.intake + 4 * MIB)
            + self.connections * 32
            + self.channels * 4
            + (self.queues + self.consumers) * 2
            + self.tickets * 2
            + self.replies / 2
            + self.slow * 512
            + u64::from(self.surveyed) * 128 * MIB
            + self.files.map_or(0, |(bytes, looks, largest)| {
                3 * bytes + 4 * largest + 8 * looks * MIB
            })
    }
}

/// All at once: connections with channels and queues, peers that do not read, deliveries without an answer, rejects and expiries without a
/// confirm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_the_formula_of_the_documents() {
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/reference/limits.md"
    ));
    let document = document.expect("docs/reference/limits.md");
    assert!(document.contains(Bound::FORMULA));
    each_broker_alone(async |broker, vhost| {
        // The shares of `memory`.
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
            ..Default::default()
        };
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let environment = [
            ("DLX_PROXY_MEMORY", "64MiB"),
            ("DLX_PROXY_MAX_TICKETS_PER_CONNECTION", "100"),
            ("DLX_PROXY_CONFIRM_TIMEOUT", "1m"),
        ];
        let front = Front::start_by(broker, relay.port(), vhost, &environment).await;
        let mut watcher = front.watcher().await;
        watcher.declare(1, "dead", &[]).await;
        watcher.declare(1, "flood", &[]).await;
        let mut clients = Vec::new();
        for number in 0..bound.connections {
            let mut client = front.connect().await;
            for channel in 1..=10 {
                client.open_channel(channel).await;
            }
            // The broker has forty queues, each connection knows four of them.
            for queue in 0..4 {
                client
                    .declare(1, &format!("work-{}", number % 10 * 10 + queue), &TO_DEAD)
                    .await;
            }
            clients.push(client);
        }
        let idle = front.program.resident();
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
        // Two share a queue; both are there before its messages.
        for client in &mut clients[..20] {
            client.reply(1, MethodId::BASIC_CONSUME_OK).await;
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
            raw::reject(&mut rejects, 1, tag);
        }
        for client in &mut clients[..20] {
            for _ in 0..200 {
                client.content(1, MethodId::BASIC_DELIVER).await;
            }
            client.send(&rejects).await;
        }
        // The load is there, and stays for a while.
        let (mut most, mut held) = (0, [0; 2]);
        let mut since: Option<Instant> = None;
        until("four seconds of load", async || {
            most = most.max(front.program.resident());
            for (held, level) in held.iter_mut().zip(["retained_bytes", "withheld_rejects"]) {
                *held = front.metric(level, &[]).await;
            }
            if held[0] > 4 << 20 && held[1] > 100 {
                since.get_or_insert_with(Instant::now);
            }
            since.is_some_and(|since| since.elapsed() > Duration::from_secs(4))
        })
        .await;
        println!(
            "{}: {idle} KiB idle, at most {most} KiB under load; the formula says {}; {held:?}",
            broker.version,
            bound.kib()
        );
        assert!(most <= bound.kib(), "{most} KiB of {}", bound.kib());
        relay.set(Fault::None);
        drop(clients);
        front.end().await;
    })
    .await;
}
