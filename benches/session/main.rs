//! What the pure core of a session costs by itself, in nanoseconds a message, and what that of a dead letter costs with its publisher: no socket, no
//! broker, so that a few per cent show.
//!
//! `cargo bench --bench session`, or with names of scenes behind `--`. Each figure is the least of many rounds, as whatever else the machine does only adds.

mod dead_letters;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlx_core::amqp::frame;
use dlx_core::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use dlx_core::amqp::method::{Deliver, MethodId};
use dlx_core::amqp::reply::{self, Arguments};
use dlx_core::amqp::table::TableBuilder;
use dlx_core::dead_letter::{HistoryForm, RuleSettings};
use dlx_core::machine::{Budget, Leg, Limits, LiveLimits, Machine, Mono, Now, Wall};
use dlx_core::registry::lenient::Lenient;
use dlx_core::registry::policy::Mode;
use dlx_core::session::{Effects, Session, Settings};

const CHANNEL: ChannelId = ChannelId(1);
const QUEUE: &[u8] = b"bench.unpaced.dlx-proxy.1";
const TAG: &[u8] = b"consumer";
/// As many as a read brings under load.
const A_READ: u64 = 12;
const READS: u64 = 500;
const ROUNDS: usize = 100;

struct Bench {
    session: Session,
    now: Now,
    fx: Effects,
    delivered: u64,
}

type Round = fn(&mut Bench) -> Vec<(Leg, Vec<u8>)>;

fn main() {
    let small = std::env::var_os("BENCH_SMALL").is_some();
    let rounds = if small { 1 } else { ROUNDS };
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted
        .iter()
        .all(|word| word.starts_with('-') || "dead letter".contains(word.as_str()))
    {
        let best = (0..rounds).map(|_| dead_letters::time(20)).min();
        println!(
            "{:<16} {:>6.1} ns a message",
            "dead letter",
            best.unwrap_or_default().as_nanos() as f64
        );
    }
    let scenes: [(&str, Round); 5] = [
        ("publish", |bench| bench.publishes(100)),
        ("publish 64 KiB", |bench| bench.publishes(1 << 16)),
        ("confirm", |_| confirms()),
        ("deliver", |bench| bench.deliveries(false)),
        ("deliver and ack", |bench| bench.deliveries(true)),
    ];
    for (name, round) in scenes {
        if !wanted
            .iter()
            .all(|word| word.starts_with('-') || name.contains(word.as_str()))
        {
            continue;
        }
        let mut bench = Bench::open(name.ends_with("ack"), b"3.10.8", b"");
        let best = (0..rounds).map(|_| {
            let reads = round(&mut bench);
            bench.time(&reads)
        });
        let best = best.min().unwrap_or_default();
        println!(
            "{name:<16} {:>6.1} ns a message",
            best.as_nanos() as f64 / (READS * A_READ) as f64
        );
    }
}

fn method(channel: ChannelId, id: MethodId, arguments: impl FnOnce(&mut Arguments<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, channel, id, arguments);
    out
}

/// A header with a delivery mode, and a body.
fn content(out: &mut Vec<u8>, bytes: usize) {
    frame::put(out, 2, CHANNEL, |out| {
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&(bytes as u64).to_be_bytes());
        out.extend_from_slice(&[0x10, 0, 1]);
    });
    frame::put(out, 3, CHANNEL, |out| out.resize(out.len() + bytes, 0));
}

fn confirms() -> Vec<(Leg, Vec<u8>)> {
    let mut read = Vec::new();
    for tag in 1..=A_READ {
        reply::ack(&mut read, CHANNEL, DeliveryTag(tag), false);
    }
    vec![(Leg::Broker, read)]
}

// === impl Bench ===

impl Bench {
    /// `acks`: the consumer settles what it is given.
    /// `declared`: the arguments of the queue.
    pub(crate) fn open(acks: bool, version: &[u8], declared: &[u8]) -> Bench {
        let now = Now {
            mono: Mono(0),
            wall: Wall::of_seconds(1000),
        };
        let settings = Settings {
            user: ShortStr::copy(b"dlx-proxy").unwrap_or_default(),
            // Declares pass as they are.
            mode: Mode::RejectsOnly,
            lenient: Lenient::default(),
            names: Default::default(),
            policies: Default::default(),
            rules: RuleSettings {
                continue_history: true,
                history_form: HistoryForm::WRITTEN,
            },
            retained: Budget::new(1 << 20),
            catalogue: Default::default(),
            channel_limits: Default::default(),
            delays: Default::default(),
            limits: LiveLimits::new(limits()),
        };
        let mut bench = Bench {
            session: Session::new(Arc::new(settings), now),
            now,
            fx: Effects::default(),
            delivered: 0,
        };
        let mut properties = TableBuilder::default();
        properties.longstr(b"version", version);
        let properties = properties.finish();
        let tune = |a: &mut Arguments<'_>| a.short(7).long(131_072).short(60).end();
        let connection = |id, arguments: &mut dyn FnMut(&mut Arguments<'_>)| {
            method(ChannelId::CONNECTION, id, arguments)
        };
        let no_ack = if acks { 0 } else { 2 };
        let open = [
            (Leg::Client, frame::PROTOCOL.to_vec()),
            (
                Leg::Broker,
                connection(MethodId::CONNECTION_START, &mut |a| {
                    a.short(9)
                        .longstr(&properties)
                        .longstr(b"PLAIN")
                        .longstr(b"en_US")
                        .end();
                }),
            ),
            (
                Leg::Client,
                connection(MethodId::CONNECTION_START_OK, &mut |a| {
                    a.longstr(b"")
                        .shortstr(b"PLAIN")
                        .longstr(b"\0guest\0guest")
                        .shortstr(b"")
                        .end();
                }),
            ),
            (
                Leg::Broker,
                connection(MethodId::CONNECTION_TUNE, &mut { tune }),
            ),
            (
                Leg::Client,
                connection(MethodId::CONNECTION_TUNE_OK, &mut { tune }),
            ),
            (
                Leg::Client,
                connection(MethodId::CONNECTION_OPEN, &mut |a| {
                    a.shortstr(b"/").shortstr(b"").octet(0).end();
                }),
            ),
            (
                Leg::Broker,
                connection(MethodId::CONNECTION_OPEN_OK, &mut |a| a.shortstr(b"").end()),
            ),
            (
                Leg::Client,
                method(CHANNEL, MethodId::CHANNEL_OPEN, |a| a.shortstr(b"").end()),
            ),
            (
                Leg::Broker,
                method(CHANNEL, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end()),
            ),
            (
                Leg::Client,
                method(CHANNEL, MethodId::QUEUE_DECLARE, |a| {
                    a.short(0).shortstr(QUEUE).octet(0).longstr(declared).end();
                }),
            ),
            (
                Leg::Broker,
                method(CHANNEL, MethodId::QUEUE_DECLARE_OK, |a| {
                    a.shortstr(QUEUE).long(0).long(0).end();
                }),
            ),
            (
                Leg::Client,
                method(CHANNEL, MethodId::BASIC_CONSUME, |a| {
                    a.short(0)
                        .shortstr(QUEUE)
                        .shortstr(TAG)
                        .octet(no_ack)
                        .longstr(b"")
                        .end();
                }),
            ),
            (
                Leg::Broker,
                method(CHANNEL, MethodId::BASIC_CONSUME_OK, |a| {
                    a.shortstr(TAG).end()
                }),
            ),
        ];
        for (leg, bytes) in open {
            // Not all of it passes as it is: the proxy says that it is there.
            bench.passes(leg, &bytes);
        }
        bench
    }

    fn time(&mut self, reads: &[(Leg, Vec<u8>)]) -> Duration {
        // Reads without delivery tags are all alike.
        let times = if reads.len() == 1 { READS } else { 1 };
        let begun = Instant::now();
        for (leg, bytes) in (0..times).flat_map(|_| reads) {
            self.read(*leg, bytes);
        }
        begun.elapsed()
    }

    /// All must pass as it is, or the figure is one of something else.
    fn read(&mut self, leg: Leg, bytes: &[u8]) {
        assert!(self.passes(leg, bytes));
    }

    fn passes(&mut self, leg: Leg, bytes: &[u8]) -> bool {
        let read = self.session.read(leg, bytes, self.now, &mut self.fx);
        let (out, run) = self.fx.wire(leg.other()).finish();
        let passes = read == bytes.len() && out.is_empty() && run == (0..bytes.len());
        out.clear();
        self.fx.events.clear();
        passes
    }

    fn publishes(&self, bytes: usize) -> Vec<(Leg, Vec<u8>)> {
        let mut read = Vec::new();
        for _ in 0..A_READ {
            reply::publish(&mut read, CHANNEL, b"", QUEUE, false);
            content(&mut read, bytes);
        }
        vec![(Leg::Client, read)]
    }

    /// Acks go one by one, when a read is served.
    fn deliveries(&mut self, acks: bool) -> Vec<(Leg, Vec<u8>)> {
        let mut reads = Vec::new();
        for _ in 0..READS {
            let (mut given, mut taken) = (Vec::new(), Vec::new());
            for _ in 0..A_READ {
                self.delivered += 1;
                let said = Deliver {
                    consumer_tag: TAG,
                    delivery_tag: DeliveryTag(self.delivered),
                    redelivered: false,
                    exchange: b"",
                    routing_key: QUEUE,
                };
                reply::deliver(&mut given, CHANNEL, &said);
                content(&mut given, 100);
                reply::ack(&mut taken, CHANNEL, said.delivery_tag, false);
            }
            reads.push((Leg::Broker, given));
            reads.extend(acks.then_some((Leg::Client, taken)));
        }
        reads
    }
}

fn limits() -> Limits {
    let some = Duration::from_secs(60);
    Limits {
        max_history: 256,
        stamp: false,
        nack_retries: 3,
        confirm_timeout: some,
        retry_for: some,
        parked_retry: some,
        intake_quiet: some,
        publisher_bytes: 1 << 26,
        intake_bytes: 1 << 26,
        max_intake_exchanges: 100,
        retained_bytes_per_connection: 1 << 26,
        max_tickets_per_connection: 1000,
        close_wait: some,
        probe_timeout: some,
        handshake_timeout: some,
        admin_timeout: some,
        browse_bytes: 1 << 26,
        browse_limit: 1000,
        browse_timeout: some,
        max_queues_per_connection: 1000,
        max_replies_per_connection: 1000,
        max_redeclared_queues: 1000,
        max_redrives: 10,
        max_hook_letters: 1000,
    }
}
