//! Clients that never wait: publishers that write as fast as the socket takes it, consumers that read all the time.
//!
//! A paced load hides a proxy that stands still now and then: whoever waits for the last message never fills a socket. So besides the rate this
//! scene looks at the longest pause: the longest time in which a consumer, for which messages were there, got none.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{self, Connection, Message, Settlement, Writer};
use crate::confirms::Unconfirmed;
use crate::pass_through::{BATCH, PAIRS, PREFETCH, join, per_million};
use crate::process::Route;

/// How the publishers flood.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// No confirms; the consumers do not acknowledge.
    NoConfirms,
    /// Confirms, which are read by another thread; the consumers acknowledge each delivery.
    Confirms,
    /// As without confirms, but each pair shares one connection, so that both directions of both legs are full.
    OneConnection,
}

impl Load {
    pub(crate) const ALL: [Load; 3] = [Load::NoConfirms, Load::Confirms, Load::OneConnection];
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Load::NoConfirms => "no confirms",
            Load::Confirms => "confirms",
            Load::OneConnection => "one connection",
        })
    }
}

/// Messages per second, processor seconds of the proxy per million of them, and the longest pause in milliseconds.
pub(crate) fn run(route: &Route, load: Load, messages: u64) -> anyhow::Result<Vec<f64>> {
    let each = (messages / PAIRS).next_multiple_of(BATCH);
    let mut pairs = (0..PAIRS)
        .map(|i| Pair::open(route, load, i))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let cpu = route.cpu()?;
    let begun = Instant::now();
    let pauses = thread::scope(|scope| {
        let running: Vec<_> = pairs
            .iter_mut()
            .map(|pair| scope.spawn(move || pair.run(each)))
            .collect();
        running
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let elapsed = begun.elapsed();
    let cpu = route.cpu()? - cpu;
    pairs.into_iter().try_for_each(Pair::close)?;
    let total = (each * PAIRS) as f64;
    let pause = pauses.into_iter().max().unwrap_or_default();
    Ok(vec![
        total / elapsed.as_secs_f64(),
        per_million(route, cpu, total),
        pause.as_secs_f64() * 1e3,
    ])
}

/// A publisher, a consumer and the queue between them.
struct Pair {
    load: Load,
    /// None where both share the consumer's connection.
    publisher: Option<Connection>,
    consumer: Connection,
    queue: String,
}

// === impl Pair ===

impl Pair {
    fn open(route: &Route, load: Load, number: u64) -> anyhow::Result<Pair> {
        let queue = format!(
            "bench.unpaced.{}.{}.{number}",
            route.name,
            std::process::id()
        );
        let mut publisher = match load {
            Load::NoConfirms | Load::Confirms => Some(Connection::open(&route.address)?),
            Load::OneConnection => None,
        };
        if let (Load::Confirms, Some(publisher)) = (load, &mut publisher) {
            publisher.confirms()?;
        }
        let mut consumer = Connection::open(&route.address)?;
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"classic");
        consumer.declare(&queue, QueueDeclare::EXCLUSIVE, arguments)?;
        consumer.consume(&queue, (load == Load::Confirms).then_some(PREFETCH))?;
        Ok(Pair {
            load,
            publisher,
            consumer,
            queue,
        })
    }

    /// The longest pause of the consumer.
    fn run(&mut self, messages: u64) -> anyhow::Result<Duration> {
        let Pair {
            load,
            publisher,
            consumer,
            queue,
        } = self;
        let writer = publisher.as_ref().unwrap_or(consumer).writer()?;
        let acks = *load == Load::Confirms;
        thread::scope(|scope| {
            let flooding = scope.spawn(|| flood(writer, queue, messages));
            let confirming = publisher
                .as_mut()
                .filter(|_| acks)
                .map(|publisher| scope.spawn(|| all_confirmed(publisher, messages)));
            let pause = consume(consumer, messages, acks);
            join(flooding)?;
            confirming.map(join).transpose()?;
            pause
        })
    }

    fn close(self) -> anyhow::Result<()> {
        self.publisher.map(Connection::close).transpose()?;
        self.consumer.close()
    }
}

fn flood(mut writer: Writer, queue: &str, messages: u64) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        client::publish(&mut batch, queue, Message::default(), 0);
    }
    (0..messages / BATCH).try_for_each(|_| writer.write(&batch))
}

fn all_confirmed(publisher: &mut Connection, messages: u64) -> anyhow::Result<()> {
    let mut unconfirmed = Unconfirmed::default();
    (0..messages).for_each(|_| unconfirmed.published());
    while unconfirmed.len() > 0 {
        unconfirmed.wait(publisher)?;
    }
    Ok(())
}

fn consume(consumer: &mut Connection, messages: u64, acks: bool) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut last = None;
    for _ in 0..messages {
        let reads = !consumer.has_frame();
        if reads {
            consumer.flush()?;
        }
        let (tag, _) = consumer.message()?;
        if reads {
            // The first message may take its time: the publishers have just begun.
            let now = Instant::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now - last));
            last = Some(now);
        }
        if acks {
            consumer.settle(tag, Settlement::Ack);
        }
    }
    consumer.flush()?;
    Ok(longest)
}
