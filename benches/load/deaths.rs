//! Dead letters and retries, which are made while they are read: by the broker itself, by a relay, and by the proxy.
//!
//! A publisher fills the source, directly; a reader reads what comes of it, directly, too. What is in between differs.

use std::time::Duration;

use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{Connection, Message, Settlement, arguments};
use crate::lab::{Lab, Way};
use crate::process::PREFIX;
use crate::relay::{Relay, headers, headers_away};
use crate::report::Figures;
use crate::stream::{AHEAD, FLOOD, Stage, Stream, measure};

pub(crate) const SOURCE: &str = "bench.source";
const DEAD: &str = "bench.dead";
/// Where the relay waits, as the proxy does at its intake queue.
const HOP: &str = "bench.hop";
const DELAY: &str = "bench.delay";
const BACK: &str = "bench.back";
/// What a reader or a relay may have unsettled.
const PREFETCH: u16 = 1_000;
const WINDOW: usize = 500;
/// How long a returned message stays away. More messages are under way then.
const AWAY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
pub(crate) struct Deaths {
    pub(crate) cause: Cause,
    /// The session that rejects has declared the source; else another one has.
    pub(crate) declared: bool,
    pub(crate) prefetch: u16,
    pub(crate) persistent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Nack,
    Reject,
    /// At once, in a queue with a TTL of 0 that nobody reads.
    Expiry,
    /// In a queue for no message.
    Overflow,
}

pub(crate) const DEATHS: Deaths = Deaths {
    cause: Cause::Nack,
    declared: true,
    prefetch: PREFETCH,
    persistent: false,
};

/// Messages that come back once, after a delay.
#[derive(Clone, Copy)]
pub(crate) struct Retries {
    pub(crate) queue_type: &'static str,
    pub(crate) pace: Option<u64>,
}

/// Runs on a broker that has none of these queues, and leaves none behind.
fn with_queues(
    lab: &Lab<'_>,
    measured: impl FnOnce(&mut Connection) -> anyhow::Result<Figures>,
) -> anyhow::Result<Figures> {
    let address = &lab.broker.address;
    clean(lab)?;
    let mut control = Connection::open(address)?;
    let figures = measured(&mut control);
    clean(lab)?;
    figures
}

fn clean(lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut control = Connection::open(&lab.broker.address)?;
    let queues = [SOURCE, DEAD, HOP, DELAY, BACK];
    queues
        .into_iter()
        .try_for_each(|queue| control.delete_queue(queue))?;
    control.close()
}

/// Deletes what the proxy made for itself. It has its own prefix, so a proxy in use is not meant.
pub(crate) fn clean_intake(lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut control = Connection::open(&lab.broker.address)?;
    for prefix in [PREFIX.to_owned(), format!("{PREFIX}-old")] {
        for queue in ["intake", "parked", "delay.100", "delay.3600000"] {
            control.delete_queue(&format!("{prefix}.{queue}"))?;
        }
        for exchange in [".parked", ".delay", ".due", "", "+", &format!("//{DEAD}")] {
            control.delete_exchange(&format!("{prefix}{exchange}"))?;
        }
    }
    control.close()
}

fn quorum() -> TableBuilder {
    let mut arguments = TableBuilder::default();
    arguments.longstr(b"x-queue-type", b"quorum");
    arguments
}

fn stream(lab: &Lab<'_>, persistent: bool, reader: Connection) -> anyhow::Result<Stream> {
    let mut publisher = Connection::open(&lab.broker.address)?;
    publisher.confirms()?;
    Ok(Stream {
        publisher: Some(publisher),
        queue: SOURCE.to_owned(),
        message: Message {
            persistent,
            ..Message::default()
        },
        window: Some(WINDOW),
        pace: None,
        ahead: 2 * AHEAD,
        stages: Vec::new(),
        reader,
        acks: true,
        returns: false,
        delay: Duration::ZERO,
    })
}

// === impl Deaths ===

impl Deaths {
    pub(crate) const fn of(self, cause: Cause) -> Deaths {
        Deaths { cause, ..self }
    }

    pub(crate) const fn elsewhere(self) -> Deaths {
        Deaths {
            declared: false,
            ..self
        }
    }

    pub(crate) const fn prefetch(self, prefetch: u16) -> Deaths {
        Deaths { prefetch, ..self }
    }

    pub(crate) const fn persistent(self) -> Deaths {
        Deaths {
            persistent: true,
            ..self
        }
    }

    pub(crate) fn run(self, lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
        with_queues(lab, |control| self.measure(lab, way, control))
    }

    fn measure(self, lab: &Lab<'_>, way: Way, control: &mut Connection) -> anyhow::Result<Figures> {
        let (route, address) = (lab.route(way)?, &lab.broker.address);
        control.declare(DEAD, QueueDeclare::DURABLE, arguments(None))?;
        // Its own deaths reach the relay by a queue like the proxy's.
        let of_broker = matches!(self.cause, Cause::Expiry | Cause::Overflow);
        let hop = of_broker && way == Way::Relay;
        if hop {
            control.declare(HOP, QueueDeclare::DURABLE, quorum())?;
        }
        let mut source = arguments(Some(if hop { HOP } else { DEAD }));
        match self.cause {
            Cause::Expiry => drop(source.long(b"x-message-ttl", 0)),
            Cause::Overflow => drop(source.long(b"x-max-length", 0)),
            Cause::Nack | Cause::Reject => {}
        }
        let mut consumer = Connection::open(&route.address)?;
        consumer.declare(SOURCE, QueueDeclare::DURABLE, source)?;
        if !self.declared {
            consumer.close()?;
            consumer = Connection::open(&route.address)?;
        }
        let mut reader = Connection::open(address)?;
        reader.consume(DEAD, Some(PREFETCH))?;
        let mut stream = stream(lab, self.persistent, reader)?;
        if way == Way::Relay {
            let from = if hop { HOP } else { SOURCE };
            let prefetch = if hop { PREFETCH } else { self.prefetch };
            let mut relay = Relay::new(address, (from, DEAD), prefetch, headers())?;
            relay.persistent = self.persistent;
            stream.stages.push(Stage::Relay(relay));
        } else if !of_broker {
            let how = match self.cause {
                Cause::Nack => Settlement::Nack,
                _ => Settlement::Reject,
            };
            consumer.consume(SOURCE, Some(self.prefetch))?;
            stream.stages.push(Stage::Settle(consumer, how));
        }
        measure(lab, route, vec![stream], lab.settings.scale.time)
    }
}

// === impl Retries ===

impl Retries {
    pub(crate) fn run(self, lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
        if way == Way::Direct && !(self.queue_type == "quorum" && lab.broker.has_retries()) {
            return Ok(Vec::new());
        }
        with_queues(lab, |control| self.measure(lab, way, control))
    }

    fn measure(self, lab: &Lab<'_>, way: Way, control: &mut Connection) -> anyhow::Result<Figures> {
        let (route, address) = (lab.route(way)?, &lab.broker.address);
        let away = AWAY.as_millis() as i64;
        let mut reader = Connection::open(&route.address)?;
        let mut source = TableBuilder::default();
        source.longstr(b"x-queue-type", self.queue_type.as_bytes());
        if way == Way::Relay {
            // The same ways: into a quorum queue that delays, from there into one that a relay reads, and into a queue like the first.
            control.declare(BACK, QueueDeclare::DURABLE, source)?;
            source = TableBuilder::default();
            source.longstr(b"x-queue-type", self.queue_type.as_bytes());
            let mut delay = quorum();
            delay
                .long(b"x-message-ttl", away)
                .longstr(b"x-dead-letter-exchange", b"")
                .longstr(b"x-dead-letter-routing-key", HOP.as_bytes())
                .longstr(b"x-dead-letter-strategy", b"at-least-once")
                .longstr(b"x-overflow", b"reject-publish");
            control.declare(DELAY, QueueDeclare::DURABLE, delay)?;
            control.declare(HOP, QueueDeclare::DURABLE, quorum())?;
        } else {
            source
                .longstr(b"x-delayed-retry-type", b"all")
                .long(b"x-delayed-retry-min", away)
                .long(b"x-delayed-retry-max", away);
            if way != Way::Direct {
                // What the broker cannot do is the proxy's.
                source.long(b"x-delayed-retry-multiplier", 1);
            }
        }
        reader.declare(SOURCE, QueueDeclare::DURABLE, source)?;
        let read = if way == Way::Relay { BACK } else { SOURCE };
        reader.consume(read, Some(PREFETCH))?;
        let mut stream = stream(lab, true, reader)?;
        stream.pace = self.pace;
        stream.ahead = if self.pace.is_some() {
            FLOOD
        } else {
            4 * AHEAD
        };
        if way == Way::Relay {
            for ways in [(SOURCE, DELAY), (HOP, BACK)] {
                let mut relay = Relay::new(address, ways, PREFETCH, headers_away())?;
                relay.persistent = true;
                stream.stages.push(Stage::Relay(relay));
            }
        }
        stream.delay = AWAY;
        stream.returns = way != Way::Relay;
        let scale = lab.settings.scale;
        let time = if self.pace.is_some() {
            scale.paced
        } else {
            scale.time
        };
        measure(lab, route, vec![stream], time)
    }
}
