//! The upper bound for dead letters: a program that consumes, publishes with confirms, and acks. It knows no queue but these, no header, no policy
//! and no fault; what the proxy does beyond it should cost little.
//!
//! The source is filled, rejected and read at the same time: by one producer, one consumer that rejects all, and one reader of the dead letters.
//! RabbitMQ does the same work each way: two messages in, two out, two confirms, two acks. It pays per packet, so its processor seconds show how well
//! whoever speaks to it puts frames together. It pays for headers too, of which a dead letter has many; so a second relay writes them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::{ArrayBuilder, TableBuilder};

use crate::client::{self, Connection, Event, Message, Settlement};
use crate::confirms::Unconfirmed;
use crate::dead_letters::load;
use crate::floods::arguments;
use crate::pass_through::join;
use crate::process::{Route, cpu};
use crate::settings::Settings;

/// What the rejecting consumer, the relay and the reader may have unsettled.
const PREFETCH: u16 = 1_000;
const SOURCE: &str = "bench.relay.source";
const DEAD: &str = "bench.relay.dead";

/// Who brings the dead letters to their queue.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// The relay, in the place of the consumer.
    Relay(&'a Route),
    /// The same, and its dead letters have the headers that dead letters have: the broker reads, keeps and sends them too.
    RelayWithHeaders(&'a Route),
    /// Whoever handles `basic.nack` on this route: the broker itself, or the proxy.
    Nack(&'a Route),
}

/// Dead letters per second, and processor seconds of the broker per million of them.
pub(crate) fn run(way: Way<'_>, direct: &Route, settings: &Settings) -> anyhow::Result<Vec<f64>> {
    let messages = settings.scale.deaths * settings.scale.deaths_faster;
    let mut control = Connection::open(&direct.address)?;
    clean(&mut control)?;
    let outcome = measure(way, direct, settings.broker_pid, messages, &mut control);
    clean(&mut Connection::open(&direct.address)?)?;
    outcome
}

fn clean(control: &mut Connection) -> anyhow::Result<()> {
    control.delete_queue(SOURCE)?;
    control.delete_queue(DEAD)
}

fn measure(
    way: Way<'_>,
    direct: &Route,
    broker: Option<u32>,
    messages: u64,
    control: &mut Connection,
) -> anyhow::Result<Vec<f64>> {
    control.declare(DEAD, QueueDeclare::DURABLE, arguments(None))?;
    let (Way::Relay(route) | Way::RelayWithHeaders(route) | Way::Nack(route)) = way;
    let mut consumer = Connection::open(&route.address)?;
    consumer.declare(SOURCE, QueueDeclare::DURABLE, arguments(Some(DEAD)))?;
    consumer.consume(SOURCE, Some(PREFETCH))?;
    let mut producer = Connection::open(&direct.address)?;
    let mut reader = Connection::open(&direct.address)?;
    reader.consume(DEAD, Some(PREFETCH))?;
    let mut publisher = Connection::open(&direct.address)?;
    publisher.confirms()?;

    let spent = || broker.map_or(Ok(None), |pid| cpu(pid).map(Some));
    let before = spent()?;
    let begun = Instant::now();
    thread::scope(|scope| -> anyhow::Result<()> {
        let producing =
            scope.spawn(|| load(&mut producer, SOURCE, messages, |_| Message::default()));
        let reading = scope.spawn(|| settle_all(&mut reader, messages, Settlement::Ack));
        match way {
            Way::Nack(_) => settle_all(&mut consumer, messages, Settlement::Nack)?,
            Way::Relay(_) => relay(&mut consumer, &mut publisher, DEAD, messages, &[], None)?,
            Way::RelayWithHeaders(_) => relay(
                &mut consumer,
                &mut publisher,
                DEAD,
                messages,
                &headers(),
                None,
            )?,
        }
        join(producing)?;
        join(reading)
    })?;
    let elapsed = begun.elapsed();
    let cpu = match (before, spent()?) {
        (Some(before), Some(after)) => (after - before).as_secs_f64() * 1e6 / messages as f64,
        _ => f64::NAN,
    };
    for connection in [consumer, producer, reader, publisher] {
        connection.close()?;
    }
    Ok(vec![messages as f64 / elapsed.as_secs_f64(), cpu])
}

fn settle_all(connection: &mut Connection, messages: u64, how: Settlement) -> anyhow::Result<()> {
    for _ in 0..messages {
        let (tag, _) = connection.message()?;
        connection.settle(tag, how);
        if !connection.has_frame() {
            connection.flush()?;
        }
    }
    connection.flush()
}

/// The relay: what is delivered with a tag is published as the message of the same number, so that a confirm names the delivery to ack.
/// `rate`: so many a second.
pub(crate) fn relay(
    consumer: &mut Connection,
    publisher: &mut Connection,
    to: &str,
    messages: u64,
    headers: &[u8],
    rate: Option<u64>,
) -> anyhow::Result<()> {
    let (mut publishes, mut acks) = (publisher.writer()?, consumer.writer()?);
    thread::scope(|scope| {
        let acking = scope.spawn(move || -> anyhow::Result<()> {
            let mut frames = Vec::new();
            let mut unconfirmed = Unconfirmed::default();
            (0..messages).for_each(|_| unconfirmed.published());
            while unconfirmed.len() > 0 {
                let Event::Confirmed(settle) = publisher.event()? else {
                    bail!("a publisher got a delivery");
                };
                unconfirmed.confirmed(settle);
                client::ack(&mut frames, settle);
                if !publisher.has_frame() {
                    acks.write(&frames)?;
                    frames.clear();
                }
            }
            Ok(())
        });
        let mut frames = Vec::new();
        let begun = Instant::now();
        for i in 0..messages {
            if let Some(rate) = rate
                && let Some(early) =
                    Duration::from_micros(i * 1_000_000 / rate).checked_sub(begun.elapsed())
            {
                publishes.write(&frames)?;
                frames.clear();
                thread::sleep(early);
            }
            let (_, number) = consumer.message()?;
            let message = Message {
                headers,
                ..Message::default()
            };
            client::publish(&mut frames, to, message, number);
            if !consumer.has_frame() || frames.len() > 64 * 1024 {
                publishes.write(&frames)?;
                frames.clear();
            }
        }
        join(acking)
    })
}

/// What a message that was rejected once says of it.
pub(crate) fn headers() -> Vec<u8> {
    of_death().finish()
}

/// What it says after it was sent back, too: the proxy's proof of its history, and who sent it.
pub(crate) fn headers_sent_back() -> Vec<u8> {
    let mut redriven = TableBuilder::default();
    redriven
        .long(b"count", 1)
        .timestamp(b"time", 1_700_000_000)
        .longstr(b"by", b"guest");
    let mut headers = of_death();
    headers
        .table(b"x-dlx-proxy-history", &of_death())
        .table(b"x-dlx-proxy-redriven", &redriven);
    headers.finish()
}

fn of_death() -> TableBuilder {
    let mut keys = ArrayBuilder::default();
    keys.longstr(SOURCE.as_bytes());
    let mut death = TableBuilder::default();
    death
        .long(b"count", 1)
        .longstr(b"reason", b"rejected")
        .longstr(b"queue", SOURCE.as_bytes())
        .timestamp(b"time", 1_700_000_000)
        .longstr(b"exchange", b"")
        .array(b"routing-keys", &keys);
    let mut deaths = ArrayBuilder::default();
    deaths.table(&death);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    for which in ["first", "last"] {
        headers
            .longstr(format!("x-{which}-death-exchange").as_bytes(), b"")
            .longstr(
                format!("x-{which}-death-queue").as_bytes(),
                SOURCE.as_bytes(),
            )
            .longstr(format!("x-{which}-death-reason").as_bytes(), b"rejected");
    }
    headers
}
