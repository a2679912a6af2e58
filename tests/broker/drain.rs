//! SIGTERM: whatever clients and broker do, the program ends with 0 in time, and each message is at its target or in its queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::method::MethodId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{each_broker, until, within};
use super::node::Broker;
use super::program::Program;
use super::raw::{self, Raw, TO_DEAD};
use super::relay::{Fault, PUBLISHER, Relay};

/// Rejects of a test.
const REJECTS: u32 = 20;
/// Less than the drain timeout, or what else would end the program in a test.
const IN_TIME: Duration = Duration::from_secs(20);

/// A program with a cable to its broker, and a client whose rejects wait as the publisher's connection is jammed.
struct Scene {
    program: Program,
    relay: Relay,
    client: Raw,
    /// Connected to the broker itself.
    watcher: Raw,
}

// === impl Scene ===

impl Scene {
    async fn open(broker: &Arc<Broker>, vhost: &str, environment: &[(&str, &str)]) -> Scene {
        let mut relay = Relay::new(broker.address()).await;
        relay.plug_in().await;
        let upstream = broker.upstream(relay.port(), &broker.credentials());
        let program = Program::start_with(&upstream, vhost, environment).await;
        until("it is ready", async || program.admin.is_ready().await).await;
        let mut watcher = Raw::direct(broker, vhost).await;
        watcher.open_channel(1).await;
        watcher.declare(1, "dead", &[]).await;
        let mut client = Raw::open(broker, program.address.port(), vhost, Default::default()).await;
        client.open_channel(1).await;
        client.declare(1, "orders", &TO_DEAD).await;
        Scene {
            program,
            relay,
            client,
            watcher,
        }
    }

    /// The client has so many messages.
    async fn deliver(&mut self) {
        let mut out = Vec::new();
        for number in 0..REJECTS {
            raw::publish(&mut out, 1, "orders", &number.to_be_bytes(), 4096);
        }
        self.client.send(&out).await;
        self.client.consume(1, "orders", false).await;
        for _ in 0..REJECTS {
            self.client.content(1, MethodId::BASIC_DELIVER).await;
        }
    }

    /// It rejects them.
    async fn reject(&mut self) {
        let mut out = Vec::new();
        for tag in 1..=u64::from(REJECTS) {
            raw::reject(&mut out, 1, tag);
        }
        self.client.send(&out).await;
    }

    /// From now on all of its rejects are withheld.
    async fn withhold(&mut self) {
        self.deliver().await;
        self.relay.set(Fault::Jam(PUBLISHER));
        self.reject().await;
        until("the rejects are withheld", async || {
            self.value("dlx_proxy_withheld_rejects").await == u64::from(REJECTS)
        })
        .await;
    }

    async fn value(&self, metric: &str) -> u64 {
        self.program.admin.metric(metric, &[]).await
    }

    /// SIGTERM, and what the world sees of it at once.
    async fn terminate(&mut self) -> Instant {
        let begun = Instant::now();
        self.program.signal("TERM");
        until("it is not ready, as it drains", async || {
            let (status, reasons) = self.program.admin.get("/readyz").await;
            status == 503 && reasons.lines().any(|reason| reason == "draining")
        })
        .await;
        until("its port is closed", async || {
            TcpStream::connect(self.program.address).await.is_err()
        })
        .await;
        assert_eq!(self.program.admin.get("/healthz").await.0, 200);
        begun
    }

    /// It ends with 0, before the next bound would have ended it.
    async fn ends(&mut self, begun: Instant) {
        let status = self.program.ended().await;
        let took = begun.elapsed();
        assert!(status.success(), "{status}: {:#?}", self.program.lines(&[]));
        assert!(took < IN_TIME, "{took:?}: {:#?}", self.program.lines(&[]));
        assert_eq!(self.program.lines(&["panicked"]), [""; 0]);
    }

    /// Messages at the end in (source, target), when this many are ready in both.
    async fn count(&mut self, least: u32) -> (u32, u32) {
        let mut counted = (0, 0);
        until(format_args!("{least} messages"), async || {
            let source = self.watcher.ready(1, "orders").await;
            counted = (source, self.watcher.ready(1, "dead").await);
            counted.0 + counted.1 >= least
        })
        .await;
        counted
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withheld_rejects_are_settled_and_the_client_is_told() {
    each_broker(async |broker, vhost| {
        let mut scene = Scene::open(broker, vhost, &[]).await;
        scene.withhold().await;
        let begun = scene.terminate().await;
        scene.client.hears_of_the_end().await;
        scene.relay.set(Fault::None);
        scene.ends(begun).await;
        assert_eq!(scene.count(REJECTS).await, (0, REJECTS));
        assert_eq!(scene.program.lines(&["INFO ended"]).len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_settled_in_time_is_cut_and_stays_in_its_queue() {
    each_broker(async |broker, vhost| {
        let environment = [
            ("DLX_PROXY_DRAIN_TIMEOUT", "4s"),
            ("DLX_PROXY_CLOSE_WAIT", "1m"),
        ];
        let mut scene = Scene::open(broker, vhost, &environment).await;
        scene.withhold().await;
        let begun = scene.terminate().await;
        scene.ends(begun).await;
        assert!(begun.elapsed() >= Duration::from_secs(4));
        assert_eq!(scene.count(REJECTS).await, (REJECTS, 0));
        let cut = scene
            .program
            .lines(&["WARN", "ended before all was settled"]);
        assert_eq!(cut.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_at_once_and_loses_nothing() {
    each_broker(async |broker, vhost| {
        let environment = [
            ("DLX_PROXY_DRAIN_TIMEOUT", "1m"),
            ("DLX_PROXY_CLOSE_WAIT", "1m"),
        ];
        let mut scene = Scene::open(broker, vhost, &environment).await;
        scene.withhold().await;
        scene.terminate().await;
        let begun = Instant::now();
        scene.program.signal("TERM");
        scene.ends(begun).await;
        assert_eq!(scene.count(REJECTS).await, (REJECTS, 0));
        assert_eq!(scene.program.lines(&["WARN", "second signal"]).len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_answer_are_let_go() {
    each_broker(async |broker, vhost| {
        let mut scene = Scene::open(broker, vhost, &[]).await;
        // One hears of it and says nothing, one never reads, two are in the handshake.
        let address = scene.program.address;
        let mut deaf = Raw::open(broker, address.port(), vhost, Default::default()).await;
        deaf.open_channel(1).await;
        deaf.declare(1, "flood", &[]).await;
        deaf.consume(1, "flood", true).await;
        let mut out = Vec::new();
        for _ in 0..64 {
            raw::publish(&mut out, 1, "flood", &[7; 256 * 1024], 128 * 1024);
        }
        scene.watcher.send(&out).await;
        let mut silent = TcpStream::connect(address).await.expect("accepted");
        let mut begins = TcpStream::connect(address).await.expect("accepted");
        begins.write_all(&frame::PROTOCOL).await.expect("sent");
        until("all are there", async || {
            scene.value("dlx_proxy_connections_open").await == 4
        })
        .await;

        let begun = scene.terminate().await;
        scene.ends(begun).await;
        let mut heard = Vec::new();
        let ended = within("the end of a handshake", silent.read_to_end(&mut heard)).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{heard:?}");
        // The broker's connection.start, and not a word more.
        heard.clear();
        let _ = within("the end of a handshake", begins.read_to_end(&mut heard)).await;
        if let frame::Front::Whole(.., whole) = frame::front(&heard) {
            assert_eq!(heard.len(), whole);
        }
        let said = scene.client.last_words().await;
        assert_eq!(said.map(|(code, ..)| code), Some(320));
    })
    .await;
}
