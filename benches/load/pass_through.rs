//! Traffic that the proxy has nothing to do with: what does it cost to send it through?
//!
//! Throughput is a closed loop: publishers stay a bounded number of messages ahead of the consumers, so that the queues stay short and
//! every route does the same work. Latency is an open loop at a fixed rate, far below what any route can carry.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{self, Connection, Message, PATIENCE, Settlement};
use crate::confirms::{Unconfirmed, WINDOW};
use crate::process::Route;
use crate::settings::Scale;

/// Pairs of a publisher and a consumer, each with its own queue and its own two connections.
pub(crate) const PAIRS: u64 = 2;
/// Messages of one write.
pub(crate) const BATCH: u64 = 32;
/// How far a publisher may be ahead of its consumer.
const AHEAD: u64 = 2_048;
/// The consumers' prefetch when they settle.
pub(crate) const PREFETCH: u16 = 1_000;
/// Messages per second of the latency scene.
pub(crate) const RATE: u64 = 2_000;
/// The first part of a latency run is not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// How far a consumer is: what its publisher waits for.
#[derive(Default)]
struct Progress {
    consumed: Mutex<u64>,
    moved: Condvar,
}

/// Two connections and the queue between them.
struct Pair {
    publisher: Connection,
    consumer: Connection,
    queue: String,
}

/// Messages per second, and CPU seconds of the proxy per million of them.
///
/// `confirms`: the publishers use confirms and the consumers acknowledge each delivery; else neither.
pub(crate) fn throughput(route: &Route, messages: u64, confirms: bool) -> anyhow::Result<Vec<f64>> {
    let each = (messages / PAIRS).next_multiple_of(BATCH);
    let mut pairs = (0..PAIRS)
        .map(|i| Pair::open(route, &i.to_string(), confirms))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let cpu = route.cpu()?;
    let begun = Instant::now();
    thread::scope(|scope| -> anyhow::Result<()> {
        let running: Vec<_> = pairs
            .iter_mut()
            .map(|pair| scope.spawn(move || pair.run(each, confirms)))
            .collect();
        running.into_iter().try_for_each(join)
    })?;
    let elapsed = begun.elapsed();
    let cpu = route.cpu()? - cpu;
    pairs.into_iter().try_for_each(Pair::close)?;
    let total = (each * PAIRS) as f64;
    Ok(vec![
        total / elapsed.as_secs_f64(),
        per_million(route, cpu, total),
    ])
}

/// Median and 99th percentile of the time from write to delivery in microseconds, and the proxy's CPU per million messages.
pub(crate) fn latency(route: &Route, scale: &Scale) -> anyhow::Result<Vec<f64>> {
    let mut pair = Pair::open(route, "latency", false)?;
    let every = Duration::from_nanos(1_000_000_000 / RATE);
    let warm_up = (WARM_UP.as_nanos() / every.as_nanos()) as u64;
    let count = warm_up + (scale.latency.as_nanos() / every.as_nanos()) as u64;
    let cpu = route.cpu()?;
    let begun = Instant::now();
    let Pair {
        publisher,
        consumer,
        queue,
    } = &mut pair;
    let mut micros = thread::scope(|scope| {
        let arriving = scope.spawn(|| -> anyhow::Result<Vec<f64>> {
            let mut micros = Vec::with_capacity(count as usize);
            for i in 0..count {
                let (_, sent) = consumer.message()?;
                if i >= warm_up {
                    micros.push((begun.elapsed().as_nanos() as u64 - sent) as f64 / 1_000.0);
                }
            }
            Ok(micros)
        });
        let mut frames = Vec::new();
        for i in 0..count {
            // The beat is kept from the start, so that a late message does not slow the load down.
            if let Some(early) = (every * i as u32).checked_sub(begun.elapsed()) {
                thread::sleep(early);
            }
            frames.clear();
            let now = begun.elapsed().as_nanos() as u64;
            client::publish(&mut frames, queue, Message::default(), now);
            publisher.write(&frames)?;
        }
        join(arriving)
    })?;
    let cpu = route.cpu()? - cpu;
    pair.close()?;
    micros.sort_by(f64::total_cmp);
    let percentile = |p: usize| micros.get(micros.len() * p / 100).copied();
    let (p50, p99) = percentile(50)
        .zip(percentile(99))
        .context("no message was measured")?;
    Ok(vec![p50, p99, per_million(route, cpu, count as f64)])
}

pub(crate) fn per_million(route: &Route, cpu: Duration, messages: f64) -> f64 {
    match route.process {
        Some(_) => cpu.as_secs_f64() * 1e6 / messages,
        None => f64::NAN,
    }
}

pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread
        .join()
        .map_err(|_| anyhow!("a client's thread panicked"))?
}

// === impl Pair ===

impl Pair {
    fn open(route: &Route, name: &str, confirms: bool) -> anyhow::Result<Pair> {
        let queue = format!("bench.{}.{}.{name}", route.name, std::process::id());
        let mut publisher = Connection::open(&route.address)?;
        let mut consumer = Connection::open(&route.address)?;
        if confirms {
            publisher.confirms()?;
        }
        // Exclusive: gone with the consumer's connection, whatever happens. Transient and classic: the least that a broker can do.
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"classic");
        consumer.declare(&queue, QueueDeclare::EXCLUSIVE, arguments)?;
        consumer.consume(&queue, confirms.then_some(PREFETCH))?;
        Ok(Pair {
            publisher,
            consumer,
            queue,
        })
    }

    fn run(&mut self, messages: u64, confirms: bool) -> anyhow::Result<()> {
        let progress = Progress::default();
        let Pair {
            publisher,
            consumer,
            queue,
        } = self;
        thread::scope(|scope| {
            let consuming = scope.spawn(|| consume(consumer, messages, confirms, &progress));
            publish(publisher, queue, messages, confirms, &progress)?;
            join(consuming)
        })
    }

    fn close(self) -> anyhow::Result<()> {
        self.publisher.close()?;
        self.consumer.close()
    }
}

fn publish(
    connection: &mut Connection,
    queue: &str,
    messages: u64,
    confirms: bool,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        client::publish(&mut batch, queue, Message::default(), 0);
    }
    let mut unconfirmed = Unconfirmed::default();
    let mut sent = 0;
    while sent < messages || unconfirmed.len() > 0 {
        if sent < messages && unconfirmed.len() + BATCH as usize <= WINDOW {
            progress.wait((sent + BATCH).saturating_sub(AHEAD))?;
            connection.write(&batch)?;
            sent += BATCH;
            if confirms {
                (0..BATCH).for_each(|_| unconfirmed.published());
            }
        } else {
            unconfirmed.wait(connection)?;
        }
    }
    Ok(())
}

fn consume(
    connection: &mut Connection,
    messages: u64,
    acks: bool,
    progress: &Progress,
) -> anyhow::Result<()> {
    for consumed in 1..=messages {
        let (tag, _) = connection.message()?;
        if acks {
            connection.settle(tag, Settlement::Ack);
        }
        if !connection.has_frame() {
            connection.flush()?;
            progress.reached(consumed);
        }
    }
    connection.flush()
}

// === impl Progress ===

impl Progress {
    fn reached(&self, consumed: u64) {
        *self.consumed.lock().unwrap_or_else(PoisonError::into_inner) = consumed;
        self.moved.notify_one();
    }

    fn wait(&self, until: u64) -> anyhow::Result<()> {
        let consumed = self.consumed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .moved
            .wait_timeout_while(consumed, PATIENCE, |consumed| *consumed < until)
            .unwrap_or_else(PoisonError::into_inner)
            .1;
        if waited.timed_out() {
            bail!("the consumer got nothing for {PATIENCE:?}");
        }
        Ok(())
    }
}
