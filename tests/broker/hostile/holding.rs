//! Clients that take and do not give back: unread bytes, channels, deliveries, requests without end.

use std::time::{Duration, Instant};

use dlx_proxy::amqp::method::MethodId;

use super::memory::Bound;
use super::{Front, MIB, TO_DEAD};
use crate::lab::{each_broker, each_broker_alone, until};
use crate::raw::{self, Raw};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_has_the_broker_held_back() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[]).await;
        let mut watcher = front.watcher().await;
        watcher.declare(1, "flood", &[]).await;
        // 96 MiB, of which the sockets take a few.
        let mut out = Vec::new();
        for _ in 0..16 {
            raw::publish(&mut out, 1, "flood", &vec![7; 1 << 20], 128 * 1024);
        }
        for _ in 0..6 {
            watcher.send(&out).await;
        }
        let before = front.program.resident();
        let mut deaf = front.client().await;
        let mut consume = Vec::new();
        raw::consume(&mut consume, 1, "flood", true);
        deaf.send(&consume).await;
        let passed = async || front.metric("bytes_total", &["broker_to_client"]).await;
        let mut last = 0;
        until("nothing passes any more", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = passed().await;
            now > 1_000_000 && std::mem::replace(&mut last, now) == now
        })
        .await;
        assert!(passed().await < 64 << 20, "{} bytes came", passed().await);
        assert!(front.program.resident() < before + 8 * MIB);
        // Another client does not notice.
        let mut other = front.client().await;
        other.declare(1, "other", &[]).await;
        other.close().await;
        drop(deaf);
        front.end().await;
    })
    .await;
}

/// Opens channels up to this number, all at once, and shows what each takes.
async fn open_channels(front: &Front<'_>, client: &mut Raw, most: u16) {
    let (before, begun) = (front.program.resident(), Instant::now());
    let mut out = Vec::new();
    (1..=most).for_each(|channel| put_open(&mut out, channel));
    client.send(&out).await;
    for channel in 1..=most {
        client.reply(channel, MethodId::CHANNEL_OPEN_OK).await;
    }
    let a_channel = front.program.resident().saturating_sub(before) as f64 / f64::from(most);
    let version = &front.broker.version;
    let elapsed = begun.elapsed();
    println!("{version}: {most} channels, {a_channel:.2} KiB each, {elapsed:.1?}");
    assert!(a_channel < 4.0, "{a_channel:.1} KiB");
    front.counts(u64::from(most), "channels_open").await;
}

fn put_open(out: &mut Vec<u8>, channel: u16) {
    raw::method(out, channel, MethodId::CHANNEL_OPEN, |a| {
        a.shortstr(b"").end()
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_channels_that_the_broker_allows_and_more() {
    each_broker_alone(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[]).await;
        let mut client = front.connect().await;
        let most = match client.tune.channel_max {
            0 => u16::MAX,
            most => most,
        };
        open_channels(&front, &mut client, most).await;
        let mut out = Vec::new();
        (most + 1..=u16::MAX).for_each(|channel| put_open(&mut out, channel));
        let _ = client.try_send(&out).await;
        let said = client.last_words().await;
        assert_eq!(said.map(|(code, ..)| code), Some(530));
        drop(client);
        front.end().await;
    })
    .await;
}

/// Many outstanding deliveries of one byte: what is kept of each counts with all that it costs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outstanding_deliveries_stay_within_the_budget() {
    each_broker(async |broker, vhost| {
        // What the proxy does with them does not depend on the broker: the other one has fewer, to save the time.
        let messages: u64 = if broker.is_4x() { 500_000 } else { 250_000 };
        let bound = Bound {
            retained: 24 * MIB,
            vhosts: 1,
            connections: 1,
            channels: 1,
            queues: 1,
            ..Default::default()
        };
        let environment = [
            ("DLX_PROXY_RETAINED_BYTES", "24MiB"),
            ("DLX_PROXY_RETAINED_BYTES_PER_CONNECTION", "32MiB"),
            ("DLX_PROXY_MODE", "rejects-only"),
        ];
        let front = Front::start(broker, vhost, &environment).await;
        let mut client = front.client().await;
        client.declare(1, "dead", &[]).await;
        client.declare(1, "work", &TO_DEAD).await;
        let mut watcher = front.watcher().await;
        let mut out = Vec::new();
        for _ in 0..1000 {
            raw::publish(&mut out, 1, "work", b"x", 4096);
        }
        for _ in 0..messages / 1000 {
            watcher.send(&out).await;
        }
        let (before, begun) = (front.program.resident(), Instant::now());
        client.consume(1, "work", false).await;
        for _ in 0..messages {
            client.content(1, MethodId::BASIC_DELIVER).await;
        }
        let retained = front.metric("retained_bytes", &[]).await;
        let all = front.program.resident();
        let grown = all.saturating_sub(before);
        println!(
            "{}: {messages} deliveries in {:.1?}, {retained} bytes retained, {grown} KiB of memory",
            broker.version,
            begun.elapsed()
        );
        assert!(retained <= 24 << 20);
        assert!(retained > 23 << 20, "{retained}");
        assert!(grown < 24 * MIB * 3 / 2 + 8 * MIB, "{grown} KiB");
        assert!(all <= bound.kib(), "{all} KiB of {}", bound.kib());
        assert!(front.met("retained-bytes").await > 0);
        drop(client);
        front.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declares_and_rejects_without_end() {
    each_broker(async |broker, vhost| {
        let environment = [("DLX_PROXY_MAX_TICKETS_PER_CONNECTION", "8")];
        let front = Front::start(broker, vhost, &environment).await;
        let mut client = front.client().await;
        client.declare(1, "dead", &[]).await;
        client.declare(1, "work", &TO_DEAD).await;
        let before = front.program.resident();
        // The same declare, sent and never awaited; each is examined or known.
        let mut out = Vec::new();
        for _ in 0..300 {
            raw::declare(&mut out, 1, "work", &TO_DEAD);
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
            client.reject(1, tag).await;
        }
        let grown = front.program.resident().saturating_sub(before);
        println!("{}: {grown} KiB of memory", broker.version);
        assert!(grown < 24 * MIB, "{grown} KiB");
        client.close().await;
        front.end().await;
    })
    .await;
}
