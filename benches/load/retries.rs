//! Retries: how many messages a second come back, and how late.
//!
//! One consumer returns each message when it comes first, and acks it when it comes again. Beside the proxy stands RabbitMQ's own delayed retry,
//! which quorum queues have from 4.3 on.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{self, Connection, Message, Settlement};
use crate::dead_letters;
use crate::pass_through::{PREFETCH, join, per_million};
use crate::process::Route;
use crate::settings::Scale;

/// Messages a second of a paced load.
const RATE: u64 = 1_000;
/// How many are written at once.
const BATCH: u64 = 10;

const PERSISTENT: Message<'static> = Message {
    persistent: true,
    expiration: None,
    headers: &[],
};

/// How messages come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// At an even pace.
    Paced,
    /// All are there when the consumer begins.
    AtOnce,
}

/// Who delays, and in which kind of queue.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) route: &'a Route,
    pub(crate) queue_type: &'static str,
    /// The broker does it.
    pub(crate) native: bool,
}

impl Load {
    pub(crate) const ALL: [Load; 2] = [Load::Paced, Load::AtOnce];
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Paced => write!(f, "{RATE} a second"),
            Load::AtOnce => f.write_str("all at once"),
        }
    }
}

/// Retries per second; of the time beyond the delay median, 99th percentile and longest in milliseconds; how many came early; CPU seconds of the
/// proxy per million.
pub(crate) fn run(
    way: Way<'_>,
    load: Load,
    direct: &Route,
    scale: &Scale,
) -> anyhow::Result<Vec<f64>> {
    let queue = "bench.retries";
    let mut control = Connection::open(&direct.address)?;
    control.delete_queue(queue)?;
    let outcome = measure(way, load, queue, &mut control, scale);
    Connection::open(&direct.address)?.delete_queue(queue)?;
    outcome
}

fn measure(
    way: Way<'_>,
    load: Load,
    queue: &str,
    control: &mut Connection,
    scale: &Scale,
) -> anyhow::Result<Vec<f64>> {
    let mut client = Connection::open(&way.route.address)?;
    client.declare(queue, QueueDeclare::DURABLE, arguments(way, scale.retry))?;
    let count = match load {
        Load::Paced => RATE * scale.latency.as_secs().max(1),
        Load::AtOnce => scale.deaths * scale.deaths_faster,
    };
    if load == Load::AtOnce {
        dead_letters::load(control, queue, count, |_| PERSISTENT)?;
    }
    let cpu = way.route.cpu()?;
    let begun = Instant::now();
    let mut late = thread::scope(|scope| {
        let mut publisher = Connection::open(&way.route.address)?;
        let paced = (load == Load::Paced)
            .then(|| scope.spawn(move || publish(&mut publisher, queue, count)));
        let late = give_back(&mut client, queue, count, scale.retry)?;
        paced.map_or(Ok(()), join)?;
        anyhow::Ok(late)
    })?;
    let elapsed = begun.elapsed();
    let cpu = way.route.cpu()? - cpu;
    late.sort_by(f64::total_cmp);
    let early = late.iter().filter(|late| **late < 0.0).count();
    let percentile = |p: usize| late.get(late.len() * p / 100).copied();
    let longest = late.last().copied().context("nothing came back")?;
    let (p50, p99) = percentile(50)
        .zip(percentile(99))
        .context("nothing came back")?;
    Ok(vec![
        count as f64 / elapsed.as_secs_f64(),
        p50,
        p99,
        longest,
        early as f64,
        per_million(way.route, cpu, count as f64),
    ])
}

fn arguments(way: Way<'_>, delay: Duration) -> TableBuilder {
    let delay = delay.as_millis() as i64;
    let mut arguments = TableBuilder::default();
    arguments
        .longstr(b"x-queue-type", way.queue_type.as_bytes())
        .longstr(b"x-delayed-retry-type", b"all")
        .long(b"x-delayed-retry-min", delay)
        .long(b"x-delayed-retry-max", delay);
    if !way.native {
        // What the broker cannot do is the proxy's.
        arguments.long(b"x-delayed-retry-multiplier", 1);
    }
    arguments
}

fn publish(publisher: &mut Connection, queue: &str, count: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut frames = Vec::new();
    for number in 0..count {
        client::publish(&mut frames, queue, PERSISTENT, number);
        if number % BATCH == BATCH - 1 {
            let due = Duration::from_secs_f64(number as f64 / RATE as f64);
            if let Some(early) = due.checked_sub(begun.elapsed()) {
                thread::sleep(early);
            }
            publisher.write(&frames)?;
            frames.clear();
        }
    }
    publisher.write(&frames)
}

/// Returns each message once: by how many milliseconds each came later than its delay.
fn give_back(
    client: &mut Connection,
    queue: &str,
    count: u64,
    delay: Duration,
) -> anyhow::Result<Vec<f64>> {
    let mut returned: Vec<Option<Instant>> = vec![None; count as usize];
    let mut late = Vec::with_capacity(count as usize);
    client.consume(queue, Some(PREFETCH))?;
    while late.len() < count as usize {
        let (tag, number) = client.message()?;
        let now = Instant::now();
        let before = returned
            .get_mut(number as usize)
            .context("a message that nobody published")?;
        match before.replace(now) {
            None => client.settle(tag, Settlement::Return),
            Some(before) => {
                let away = (now - before).as_secs_f64();
                late.push((away - delay.as_secs_f64()) * 1_000.0);
                client.settle(tag, Settlement::Ack);
            }
        }
        if !client.has_frame() {
            client.flush()?;
        }
    }
    client.flush()?;
    ensure!(returned.iter().all(Option::is_some), "not all came");
    Ok(late)
}
