//! What the proxy keeps in memory: for a connection that does nothing, plain and with TLS on both legs, and for a message that waits for its retry,
//! which should be nothing.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::Bench;
use crate::client::{Connection, Message, Settlement};
use crate::dead_letters::load;
use crate::encrypted::Ways;
use crate::pass_through::{PREFETCH, join};
use crate::process::{PREFIX, Process, Route, haproxy_version};
use crate::report::{self, Table};
use crate::settings::Address;

/// Connections that are opened side by side.
const OPENERS: usize = 8;
/// Descriptors of the bench beside those connections.
const OTHERS: u64 = 200;
/// Until what a handshake needed is given back.
const REST: Duration = Duration::from_secs(2);
/// Longer than anything here takes, in milliseconds.
const DELAY: i64 = 3_600_000;
/// Until all that was returned is away.
const PATIENCE: Duration = Duration::from_secs(600);
/// Before the first look at memory.
const WARM_UP: u64 = 200;
const QUEUE: &str = "bench.waiting";

impl Bench {
    pub(crate) fn idle(&mut self) {
        if !self.settings.wants("idle") {
            return;
        }
        let count = self.settings.connections;
        let mut table = Table::new(["", "connections", "KiB each", "should be at most"]);
        let proxied = self.routes.iter().find(|route| route.name == "dlx-proxy");
        let plain = proxied.map(|route| of_connections(route, count));
        let encrypted = self.settings.encrypted.as_ref();
        let encrypted = encrypted.filter(|_| haproxy_version().is_some());
        let encrypted = encrypted.map(|encrypted| {
            let ways = Ways::start(encrypted, &self.settings, &self.scratch)?;
            of_connections(ways.dlx_proxy()?, count)
        });
        for (name, bound, each) in [("plain", "16", plain), ("TLS", "48", encrypted)] {
            match each {
                None => continue,
                Some(Ok(bytes)) => table.row(vec![
                    name.to_owned(),
                    report::number(count as f64),
                    report::number(bytes / 1024.0),
                    bound.to_owned(),
                ]),
                Some(Err(error)) => {
                    eprintln!("idle, {name}: {error:#}");
                    self.failures += 1;
                }
            }
        }
        println!(
            "\nIdle connections: memory of the proxy (VmRSS) for each, with one channel\n{table}"
        );
    }

    pub(crate) fn waiting(&mut self) {
        let proxied = self.routes.iter().find(|route| route.name == "dlx-proxy");
        let (Some(route), true) = (proxied, self.settings.wants("waiting")) else {
            return;
        };
        let count = self.settings.waiting;
        match of_retries(route, &self.settings.broker, count) {
            Ok([before, after]) => {
                let mut table = Table::new(["", "memory in MiB"]);
                let figures = [("none waits".to_owned(), before)];
                let waiting = format!("{} wait", report::number(count as f64));
                for (name, bytes) in figures.into_iter().chain([(waiting, after)]) {
                    table.row(vec![name, report::number(bytes / 1024.0 / 1024.0)]);
                }
                println!("\nRetries that wait: memory of the proxy (VmRSS)\n{table}");
            }
            Err(error) => {
                eprintln!("waiting: {error:#}");
                self.failures += 1;
            }
        }
    }
}

/// Bytes of the proxy's memory for each.
fn of_connections(route: &Route, count: u64) -> anyhow::Result<f64> {
    let limit = descriptors()?;
    ensure!(
        count + OTHERS <= limit,
        "{count} connections need more descriptors than {limit}: `ulimit -n`, or BENCH_CONNECTIONS"
    );
    let process = process(route)?;
    // The first ones make what is made once.
    drop(open(&route.address, WARM_UP.min(count))?);
    thread::sleep(REST);
    let before = process.memory()?;
    let open = open(&route.address, count)?;
    thread::sleep(REST);
    let after = process.memory()?;
    drop(open);
    Ok((after - before) / count as f64)
}

fn open(address: &Address, count: u64) -> anyhow::Result<Vec<Connection>> {
    thread::scope(|scope| {
        let openers: Vec<_> = (0..OPENERS as u64)
            .map(|at| {
                let mine = (at..count).step_by(OPENERS);
                scope.spawn(|| mine.map(|_| Connection::open(address)).collect())
            })
            .collect();
        let mut all = Vec::new();
        for opener in openers {
            all.extend(join::<Vec<_>>(opener)?);
        }
        Ok(all)
    })
}

/// How many files this process may have open.
fn descriptors() -> anyhow::Result<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    match soft.context("no limit on open files")? {
        "unlimited" => Ok(u64::MAX),
        number => Ok(number.parse()?),
    }
}

/// Bytes of its memory before and after so many messages were sent away to wait.
fn of_retries(route: &Route, broker: &Address, count: u64) -> anyhow::Result<[f64; 2]> {
    let delay_queue = format!("{PREFIX}.delay.{DELAY}");
    let clean = || -> anyhow::Result<()> {
        let mut control = Connection::open(broker)?;
        control.delete_queue(QUEUE)?;
        control.delete_queue(&delay_queue)
    };
    clean()?;
    let measured = (|| {
        let process = process(route)?;
        send_away(route, broker, WARM_UP)?;
        thread::sleep(REST);
        let before = process.memory()?;
        send_away(route, broker, count)?;
        thread::sleep(REST);
        Ok([before, process.memory()?])
    })();
    clean()?;
    measured
}

/// Publishes so many, and returns each.
fn send_away(route: &Route, broker: &Address, count: u64) -> anyhow::Result<()> {
    let process = process(route)?;
    let before = process.sent_away()?;
    let persistent = Message {
        persistent: true,
        ..Message::default()
    };
    let mut arguments = TableBuilder::default();
    arguments
        .longstr(b"x-queue-type", b"classic")
        .long(b"x-delayed-retry-min", DELAY)
        .long(b"x-delayed-retry-multiplier", 1);
    let mut client = Connection::open(&route.address)?;
    client.declare(QUEUE, QueueDeclare::DURABLE, arguments)?;
    load(&mut Connection::open(broker)?, QUEUE, count, |_| persistent)?;
    client.consume(QUEUE, Some(PREFETCH))?;
    for _ in 0..count {
        let (tag, _) = client.message()?;
        client.settle(tag, Settlement::Return);
        if !client.has_frame() {
            client.flush()?;
        }
    }
    client.flush()?;
    let begun = Instant::now();
    while process.sent_away()? < before + count as f64 {
        if begun.elapsed() > PATIENCE {
            bail!("not all are away after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    client.close()
}

fn process(route: &Route) -> anyhow::Result<&Process> {
    route.process.as_ref().context("no proxy")
}
