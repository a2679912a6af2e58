//! A bare relay: what can be had. It consumes, publishes with confirms, and acks. It knows no queue but these, no header, no policy and no fault; what
//! the proxy does beyond it should cost little.
//!
//! RabbitMQ does the same work for both. It pays per packet, so its processor time shows how well whoever speaks to it puts frames together. It
//! pays for headers too, of which a dead letter has many; so the relay writes them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use dlx_proxy::amqp::table::{ArrayBuilder, TableBuilder};

use crate::client::{self, Connection, Event, Message};
use crate::confirms::Unconfirmed;
use crate::settings::Address;
use crate::stream::join;

pub(crate) struct Relay {
    pub(crate) consumer: Connection,
    publisher: Connection,
    to: &'static str,
    headers: Vec<u8>,
    pub(crate) persistent: bool,
    /// So many messages a second, at most.
    pub(crate) rate: Option<u64>,
}

// === impl Relay ===

impl Relay {
    pub(crate) fn new(
        address: &Address,
        (from, to): (&str, &'static str),
        prefetch: u16,
        headers: Vec<u8>,
    ) -> anyhow::Result<Relay> {
        let mut consumer = Connection::open(address)?;
        let mut publisher = Connection::open(address)?;
        publisher.confirms()?;
        consumer.consume(from, Some(prefetch))?;
        Ok(Relay {
            consumer,
            publisher,
            to,
            headers,
            persistent: false,
            rate: None,
        })
    }

    /// What is delivered with a tag is published as the message of the same number, so that a confirm names the delivery to ack.
    pub(crate) fn run(mut self, messages: u64) -> anyhow::Result<()> {
        let (mut publishes, mut acks) = (self.publisher.writer()?, self.consumer.writer()?);
        let stop = self.publisher.socket()?;
        thread::scope(|scope| {
            let publisher = &mut self.publisher;
            let acking = scope.spawn(move || -> anyhow::Result<()> {
                let mut frames = Vec::new();
                let mut unconfirmed = Unconfirmed::default();
                while unconfirmed.confirmed_in_order() < messages {
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
            let mut copy = |i: u64| {
                if let Some(rate) = self.rate
                    && let Some(early) =
                        Duration::from_micros(i * 1_000_000 / rate).checked_sub(begun.elapsed())
                {
                    publishes.write(&frames)?;
                    frames.clear();
                    thread::sleep(early);
                }
                let (_, number) = self.consumer.message()?;
                let headers = &self.headers;
                let message = Message {
                    headers,
                    persistent: self.persistent,
                    expiration: None,
                };
                client::publish(&mut frames, self.to, message, number);
                if !self.consumer.has_frame() || frames.len() > 64 * 1024 {
                    publishes.write(&frames)?;
                    frames.clear();
                }
                anyhow::Ok(())
            };
            let copied = (0..messages).try_for_each(&mut copy);
            let copied = copied.and_then(|()| publishes.write(&frames));
            if copied.is_err() {
                let _ = stop.shutdown(std::net::Shutdown::Both);
            }
            copied.and(join(acking))
        })?;
        // The broker has the acks when it answers.
        self.publisher.close()?;
        self.consumer.close()
    }
}

/// What a message that was rejected once says of it.
pub(crate) fn headers() -> Vec<u8> {
    of_death().finish()
}

/// What a relay needs to know of a message that is away: where it belongs, how often it was returned, and when it is due.
pub(crate) fn headers_away() -> Vec<u8> {
    let queue = crate::deaths::SOURCE;
    let mut headers = TableBuilder::default();
    let facts = format!("{queue}||{queue}|1|0|1700000000000");
    headers.longstr(b"x-retry", facts.as_bytes());
    headers.finish()
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
    let queue = crate::deaths::SOURCE.as_bytes();
    let mut keys = ArrayBuilder::default();
    keys.longstr(queue);
    let mut death = TableBuilder::default();
    death
        .long(b"count", 1)
        .longstr(b"reason", b"rejected")
        .longstr(b"queue", queue)
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
            .longstr(format!("x-{which}-death-queue").as_bytes(), queue)
            .longstr(format!("x-{which}-death-reason").as_bytes(), b"rejected");
    }
    headers
}
