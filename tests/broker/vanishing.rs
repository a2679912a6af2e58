//! A client vanishes while all its rejects are withheld, and its session has to do without it. Nothing is lost; what arrives twice is counted
//! and printed.

use std::collections::BTreeMap;

use dlx_proxy::amqp::method::{Deliver, MethodId};
use dlx_proxy::registry::policy::Mode;

use super::calls;
use super::lab::{each_broker, until};
use super::node::Broker;
use super::proxy::Proxy;
use super::raw::{self, Raw};
use super::relay::{Fault, PUBLISHER, Relay};
use super::scene::Kind;

/// Where a test happens: a client of the proxy, and one of the broker itself.
struct Stage {
    proxied: Raw,
    direct: Raw,
    work: Vec<String>,
}

// === impl Stage ===

impl Stage {
    /// Queues of this type with these dead-letter exchanges. The fanout exchanges `<kind>.dlx.*` among them lead to queues of their name.
    async fn open(broker: &Broker, port: u16, vhost: &str, kind: Kind, targets: &[&str]) -> Stage {
        let mut proxied = Raw::open(broker, port, vhost, Default::default()).await;
        let mut direct = Raw::direct(broker, vhost).await;
        direct.open_channel(1).await;
        let mut work = Vec::new();
        for (channel, target) in (1..).zip(targets) {
            let dlx = format!("{kind}.{target}");
            if !target.ends_with("missing") {
                direct.declare(1, &dlx, &[]).await;
                direct.fanout(1, &dlx).await;
            }
            proxied.open_channel(channel).await;
            let name = format!("{kind}.work.{target}");
            let arguments = [
                ("x-queue-type", &*kind.to_string()),
                ("x-dead-letter-exchange", &dlx),
            ];
            proxied.declare(channel, &name, &arguments).await;
            work.push(name);
        }
        direct.ask(1, calls::confirms()).await;
        Stage {
            proxied,
            direct,
            work,
        }
    }

    /// Puts that many numbered messages into each queue.
    async fn fill(&mut self, number: usize) {
        for queue in &self.work {
            let mut out = Vec::new();
            for message in 0..number {
                raw::publish(
                    &mut out,
                    1,
                    queue,
                    message.to_string().as_bytes(),
                    self.direct.tune.frame_max,
                );
            }
            self.direct.send(&out).await;
        }
        self.direct
            .confirmed(1, 1, (number * self.work.len()) as u64)
            .await;
    }

    /// Consumes all queues, each on its channel.
    async fn consume(&mut self, prefetch: u16) {
        for (channel, queue) in (1..).zip(&self.work) {
            self.proxied.ask(channel, calls::qos(prefetch)).await;
            self.proxied.consume(channel, queue, false).await;
        }
    }
}

/// Rejects that many deliveries as they come, on any channel.
async fn reject(client: &mut Raw, number: usize) {
    let mut out = Vec::new();
    for rejected in 1..=number {
        let (channel, arguments) = client.any_content(MethodId::BASIC_DELIVER).await;
        let tag = Deliver::parse(&arguments)
            .expect("basic.deliver")
            .delivery_tag
            .0;
        raw::reject(&mut out, channel, tag);
        if !client.has_unread() || rejected == number {
            client.send(&std::mem::take(&mut out)).await;
        }
    }
}

/// Reads a queue until that many different messages have come. Returns how often each came.
async fn collect(
    client: &mut Raw,
    channel: u16,
    queue: &str,
    number: usize,
) -> BTreeMap<usize, usize> {
    client.open_channel(channel).await;
    client.consume(channel, queue, true).await;
    let mut seen = BTreeMap::new();
    while seen.len() < number {
        let (_, body) = client.content(channel, MethodId::BASIC_DELIVER).await;
        let message = String::from_utf8_lossy(&body).parse().expect("a number");
        *seen.entry(message).or_default() += 1;
    }
    seen
}

fn duplicates(seen: &BTreeMap<usize, usize>) -> usize {
    seen.values().map(|times| times - 1).sum()
}

/// A proxy behind a cable.
async fn behind(
    relay: &mut Relay,
    broker: &Broker,
    mode: Mode,
    vhost: &str,
    settings: &[(&'static str, &str)],
) -> Proxy {
    relay.plug_in().await;
    let upstream = broker.upstream(relay.port(), &broker.credentials());
    let proxy = Proxy::start(&upstream, mode, vhost, settings).await;
    until("the proxy is ready", async || proxy.admin.is_ready().await).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_with_rejects_withheld_loses_nothing() {
    each_broker(async |broker, vhost| {
        for (mode, kind) in [(Mode::Takeover, Kind::Classic), (Mode::Keep, Kind::Quorum)] {
            let mut relay = Relay::new(broker.address()).await;
            let proxy = behind(&mut relay, broker, mode, vhost, &[("close-wait", "5s")]).await;
            // The publisher comes back before the session gives up, or after.
            for in_time in [true, false] {
                let name = format!("dlx.{mode:?}.{in_time}");
                let mut stage =
                    Stage::open(broker, proxy.address.port(), vhost, kind, &[&name]).await;
                stage.fill(1000).await;
                stage.consume(0).await;
                relay.set(Fault::Jam(PUBLISHER));
                reject(&mut stage.proxied, 1000).await;
                until("all are withheld", async || {
                    proxy.admin.metric("dlx_proxy_withheld_rejects", &[]).await == 1000
                })
                .await;
                let Stage {
                    proxied,
                    mut direct,
                    work,
                } = stage;
                drop(proxied);
                if !in_time {
                    until("the session has ended", async || {
                        proxy.admin.metric("dlx_proxy_connections_open", &[]).await == 0
                    })
                    .await;
                }
                relay.set(Fault::None);
                let seen = collect(&mut direct, 2, &format!("{kind}.{name}"), 1000).await;
                until("the session has ended", async || {
                    proxy.admin.metric("dlx_proxy_connections_open", &[]).await == 0
                })
                .await;
                let left = direct.delete(1, &work[0]).await;
                println!(
                    "{} {mode:?}: 1000 dead letters, {} more so far, {left} messages back in their queue",
                    broker.version,
                    duplicates(&seen)
                );
                assert!(!in_time || left == 0 && duplicates(&seen) == 0);
                direct.close().await;
            }
            proxy.stop().await;
        }
    })
    .await;
}
