//! Sessions at their bounds: a thousand connections at once, the largest bodies, the smallest frames.

use std::collections::BTreeSet;
use std::time::Instant;

use dlx_proxy::amqp::method::{MethodId, Tune};
use dlx_proxy::amqp::reply::Arguments;
use futures::stream::{FuturesUnordered, StreamExt};

use super::lab::{BOTH, each, each_broker_alone, until};
use super::program::Program;
use super::raw::{self, Raw, TO_DEAD};

const CONNECTIONS: usize = 1000;
const CHANNELS: u16 = 10;
/// Handshakes at once; more would wait in the broker's backlog anyway.
const AT_ONCE: usize = 50;
/// RabbitMQ's own limit from 4.0 on.
const LARGEST: usize = 16 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_with_ten_channels_each() {
    // Ten thousand channels that end at once keep a broker from its other work for seconds.
    each_broker_alone(async |broker, vhost| {
        let upstream = broker.upstream(broker.uri.authority.port, &broker.credentials());
        let program = Program::start(&upstream, vhost).await;
        until("ready", async || program.admin.is_ready().await).await;
        let before = program.resident();
        let begun = Instant::now();
        let port = program.address.port();
        let connect = async || {
            let mut client = Raw::open(broker, port, vhost, Default::default()).await;
            let mut out = Vec::new();
            for channel in 1..=CHANNELS {
                raw::method(&mut out, channel, MethodId::CHANNEL_OPEN, |a| a.shortstr(b"").end());
            }
            client.send(&out).await;
            for channel in 1..=CHANNELS {
                client.reply(channel, MethodId::CHANNEL_OPEN_OK).await;
            }
            client
        };
        let mut clients = Vec::new();
        let mut connecting: FuturesUnordered<_> = (0..AT_ONCE).map(|_| connect()).collect();
        while let Some(client) = connecting.next().await {
            clients.push(client);
            if clients.len() + connecting.len() < CONNECTIONS {
                connecting.push(connect());
            }
        }
        let open = async |name: &str| program.admin.metric(name, &[]).await as usize;
        let channels = CONNECTIONS * usize::from(CHANNELS);
        until("all are counted", async || open("dlx_proxy_channels_open").await == channels).await;
        assert_eq!(open("dlx_proxy_connections_open").await, CONNECTIONS);
        println!(
            "{}: {CONNECTIONS} connections with {CHANNELS} channels each in {:.1?}: {} KiB of memory, {:.1} KiB a connection",
            broker.version,
            begun.elapsed(),
            program.resident(),
            program.resident().saturating_sub(before) as f64 / CONNECTIONS as f64,
        );

        // Each of them works, on its last channel: it declares the queue as all do, takes a message, and rejects it.
        let mut direct = Raw::direct(broker, vhost).await;
        direct.open_channel(1).await;
        direct.declare(1, "dead", &[]).await;
        let mut out = Vec::new();
        for number in 0..CONNECTIONS {
            let body = number.to_string();
            raw::publish(&mut out, 1, "work", body.as_bytes(), direct.tune.frame_max);
        }
        clients[0].declare(CHANNELS, "work", &TO_DEAD).await;
        direct.send(&out).await;
        until("all are there", async || {
            direct.ready(1, "work").await as usize == CONNECTIONS
        })
        .await;
        let get = |a: &mut Arguments<'_>| a.short(0).shortstr(b"work").octet(0).end();
        direct.consume(1, "dead", true).await;
        for at_once in clients.chunks_mut(AT_ONCE) {
            for client in &mut *at_once {
                let mut out = Vec::new();
                raw::declare(&mut out, CHANNELS, "work", &TO_DEAD);
                raw::method(&mut out, CHANNELS, MethodId::BASIC_GET, get);
                client.send(&out).await;
            }
            for client in at_once {
                client.reply(CHANNELS, MethodId::QUEUE_DECLARE_OK).await;
                client.content(CHANNELS, MethodId::BASIC_GET_OK).await;
                client.reject(CHANNELS, 1).await;
            }
        }
        let mut dead = BTreeSet::new();
        for _ in 0..CONNECTIONS {
            dead.insert(direct.content(1, MethodId::BASIC_DELIVER).await.1);
        }
        assert_eq!(dead.len(), CONNECTIONS);
        assert_eq!(direct.ready(1, "work").await, 0);
        direct.close().await;
        drop((clients, connecting));
        until("all are gone", async || open("dlx_proxy_connections_open").await == 0).await;
        assert_eq!(open("dlx_proxy_channels_open").await, 0);
        program.stop().await;
    })
    .await;
}

/// Bytes without a pattern that would survive a piece at the wrong place.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut noise = Vec::with_capacity(len + 8);
    while noise.len() < len {
        noise.extend_from_slice(&next());
    }
    noise.truncate(len);
    noise
}

/// Publishes a body, takes it, rejects it, and takes its dead letter: all through the proxy.
async fn round_trip(client: &mut Raw, channel: u16, kind: &str, body: &[u8]) {
    let (work, dead) = (
        format!("{kind}.work.{channel}"),
        format!("{kind}.dead.{channel}"),
    );
    client.open_channel(channel).await;
    client.declare(channel, &dead, &[]).await;
    let arguments = [
        ("x-queue-type", kind),
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", &dead),
    ];
    client.declare(channel, &work, &arguments).await;
    let came = client.deliver(channel, &work, body).await;
    assert!(
        came == body,
        "the delivery differs: {} bytes of {}",
        came.len(),
        body.len()
    );
    client.reject(channel, 1).await;
    client.consume(channel, &dead, true).await;
    let (_, came) = client.content(channel, MethodId::BASIC_DELIVER).await;
    assert!(
        came == body,
        "the dead letter differs: {} bytes of {}",
        came.len(),
        body.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_pass_byte_by_byte_in_frames_as_small_as_was_agreed() {
    each(BOTH, async |way| {
        for frame_max in [8192, 131_072] {
            let wanted = Tune {
                frame_max,
                ..Default::default()
            };
            let mut client =
                Raw::open(&way.broker, way.proxy.address.port(), &way.vhost, wanted).await;
            // Around one frame, which takes 8 bytes more than its payload, and many.
            let max = frame_max as usize;
            let lens = [0, 1, max - 9, max - 8, max - 7, 10 * max].into_iter();
            let lens = lens.chain((max > LARGEST / 256).then_some(LARGEST));
            for (channel, len) in (1..).zip(lens) {
                for kind in ["classic", "quorum"] {
                    round_trip(
                        &mut client,
                        channel * 2 + u16::from(kind == "quorum"),
                        kind,
                        &noise(len),
                    )
                    .await;
                }
            }
            assert_eq!(
                client.connection.largest, max,
                "the largest frame that came"
            );
            client.close().await;
        }
        let admin = way.proxy.admin;
        until("nothing is retained", async || {
            admin.metric("dlx_proxy_retained_bytes", &[]).await == 0
        })
        .await;
    })
    .await;
}
