//! Clients that are slow or mean: whatever they do, the proxy stays within its bounds and gives everything back.
//!
//! `handshake`: connections that do not get as far as a session · `holding`: clients that take and do not give back ·
//! `memory`: all at once, and the formula of docs/reference/limits.md · `requests`: much is asked, and the formula again

mod handshake;
mod holding;
mod memory;
mod requests;

use std::time::Instant;

use super::lab::until;
use super::node::Broker;
use super::program::Program;
use super::raw::{Raw, TO_DEAD};

/// In KiB.
const MIB: u64 = 1024;

/// A program that is ready, in front of a broker.
struct Front<'a> {
    broker: &'a Broker,
    vhost: &'a str,
    program: Program,
    started: Instant,
}

// === impl Front ===

impl<'a> Front<'a> {
    async fn start(broker: &'a Broker, vhost: &'a str, environment: &[(&str, &str)]) -> Front<'a> {
        Front::start_by(broker, broker.uri.authority.port, vhost, environment).await
    }

    /// The same with another way to the broker.
    async fn start_by(
        broker: &'a Broker,
        port: u16,
        vhost: &'a str,
        environment: &[(&str, &str)],
    ) -> Front<'a> {
        let upstream = broker.upstream(port, &broker.credentials());
        let started = Instant::now();
        let program = Program::start_with(&upstream, vhost, environment).await;
        until("it is ready", async || program.admin.is_ready().await).await;
        Front {
            broker,
            vhost,
            program,
            started,
        }
    }

    /// A connection through the proxy.
    async fn connect(&self) -> Raw {
        let port = self.program.address.port();
        Raw::open(self.broker, port, self.vhost, Default::default()).await
    }

    /// The same with channel 1.
    async fn client(&self) -> Raw {
        let mut client = self.connect().await;
        client.open_channel(1).await;
        client
    }

    /// A connection to the broker itself, with channel 1.
    async fn watcher(&self) -> Raw {
        let mut watcher = Raw::direct(self.broker, self.vhost).await;
        watcher.open_channel(1).await;
        watcher
    }

    async fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let name = format!("dlx_proxy_{name}");
        self.program.admin.metric(&name, labels).await
    }

    /// Waits until this is the sum of a metric: what a client sees may be ahead of what is counted.
    async fn counts(&self, number: u64, name: &str) {
        until(format_args!("{name} is {number}"), async || {
            self.metric(name, &[]).await == number
        })
        .await;
    }

    /// How often that limit was met; it is in the log once a minute.
    async fn met(&self, limit: &str) -> u64 {
        let label = format!("limit=\"{limit}\"");
        let times = async || self.metric("limits_met_total", &[&label]).await;
        let met = times().await;
        let lines = || {
            self.program
                .lines(&["WARN", "a limit was met", &label])
                .len() as u64
        };
        until("a limit that was met is in the log", async || {
            met == 0 || lines() > 0
        })
        .await;
        let (lines, minutes) = (lines(), self.started.elapsed().as_secs() / 60);
        assert!(lines <= minutes + 1, "{lines} lines in {minutes} minutes");
        let met_by_now = times().await;
        assert!(lines <= met_by_now, "{lines} lines, met {met_by_now} times");
        met
    }

    /// Nothing is held for anybody.
    async fn is_empty(&self) {
        for level in [
            "connections_open",
            "channels_open",
            "retained_bytes",
            "withheld_rejects",
        ] {
            self.counts(0, level).await;
        }
    }

    /// Nothing is left, and the program ends in order.
    async fn end(self) {
        self.is_empty().await;
        self.program.stop().await;
    }
}
