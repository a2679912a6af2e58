//! Many connections: the memory of one that does nothing, and the processor time of a message where many share a fixed load. And the memory of
//! messages that wait for their retry, which should take none.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{self, Connection, Message, Settlement, arguments};
use crate::lab::{Lab, Way};
use crate::process::{PREFIX, Process};
use crate::redrives::load;
use crate::report::{Figure, Figures, percentile};
use crate::settings::Address;
use crate::stream::join;

/// Threads of the bench that share the connections.
const THREADS: u64 = 8;
/// Messages a second of all busy connections together.
pub(crate) const RATE: u64 = 4_000;
/// Descriptors beside those connections.
const OTHERS: u64 = 200;
/// Longer than anything here takes, in milliseconds.
const DELAY: i64 = 3_600_000;
/// Until all that was returned is away.
const PATIENCE: Duration = Duration::from_secs(600);
/// Before the first look at memory.
const WARM_UP: u64 = 200;
const QUEUE: &str = "bench.waiting";

/// The memory of each.
pub(crate) fn idle(lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
    let route = lab.route(way)?;
    let process = route.process()?;
    let count = lab.settings.scale.connections;
    // The first ones make what is made once.
    drop(open(&route.address, WARM_UP.min(count))?);
    thread::sleep(lab.settings.scale.rest);
    let before = process.memory()?;
    let open = open(&route.address, count)?;
    thread::sleep(lab.settings.scale.rest);
    let each = (process.memory()? - before) / count as f64;
    end(lab, open)?;
    Ok(vec![(Figure::Each, each / 1024.0)])
}

/// Until the broker has ended them too: it could not take as many once more.
fn end(lab: &Lab<'_>, connections: Vec<Connection>) -> anyhow::Result<()> {
    let Some(pid) = lab.broker.pid else {
        return Ok(());
    };
    let files = || anyhow::Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    let before = files()?;
    let ended = connections.len() * 9 / 10;
    drop(connections);
    let begun = Instant::now();
    while files()? + ended > before {
        ensure!(
            begun.elapsed() < PATIENCE,
            "the broker does not end its connections"
        );
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Each has a queue of its own, publishes to it in its turn, and reads the message back.
pub(crate) fn busy(lab: &Lab<'_>, by: Way, way: Way) -> anyhow::Result<Figures> {
    let Way::Count(count) = way else {
        bail!("how many connections?");
    };
    let route = lab.route(by)?;
    let count = count.min(lab.settings.scale.connections);
    let mut all = open(&route.address, count)?;
    let threads = THREADS.min(count);
    // At each beat one thread works, so that at most so many messages are under way.
    let every = Duration::from_nanos(1_000_000_000 * threads / RATE);
    // Each has more than one turn.
    let time = if lab.settings.small {
        lab.settings.scale.paced
    } else {
        3 * lab.settings.scale.paced
    };
    let share = all.len().div_ceil(threads as usize);
    let port = route.address.port;
    let queue = |thread: usize, i: usize| format!("bench.busy.{port}.{way}.{thread}.{i}");
    thread::scope(|scope| {
        let declaring = all.chunks_mut(share).enumerate().map(|(thread, mine)| {
            scope.spawn(move || {
                mine.iter_mut().enumerate().try_for_each(|(i, connection)| {
                    let queue = queue(thread, i);
                    connection.declare(&queue, QueueDeclare::EXCLUSIVE, arguments(None))?;
                    connection.consume(&queue, None)
                })
            })
        });
        declaring.collect::<Vec<_>>().into_iter().try_for_each(join)
    })?;
    thread::sleep(lab.settings.scale.rest);
    let before = route.cpu()?;
    let micros = thread::scope(|scope| {
        let working = all.chunks_mut(share).enumerate().map(|(thread, mine)| {
            scope.spawn(move || turns(mine, |i| queue(thread, i), every, time))
        });
        let working: Vec<_> = working.collect();
        working
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let spent = route.cpu()? - before;
    end(lab, all)?;
    let mut micros = micros.concat();
    micros.sort_by(f64::total_cmp);
    Ok(vec![
        (Figure::Cpu, spent * 1e6 / micros.len() as f64),
        (Figure::P50, percentile(&micros, 50)),
        (Figure::P99, percentile(&micros, 99)),
    ])
}

/// The time of each message in microseconds.
fn turns(
    mine: &mut [Connection],
    queue: impl Fn(usize) -> String,
    every: Duration,
    time: Duration,
) -> anyhow::Result<Vec<f64>> {
    let begun = Instant::now();
    let (mut micros, mut frames) = (Vec::new(), Vec::new());
    for i in (0..mine.len()).cycle() {
        let due = every * micros.len() as u32;
        if due >= time {
            break;
        }
        if let Some(early) = due.checked_sub(begun.elapsed()) {
            thread::sleep(early);
        }
        frames.clear();
        client::publish(&mut frames, &queue(i), Message::default(), 0);
        let sent = Instant::now();
        mine[i].write(&frames)?;
        mine[i].message()?;
        micros.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}

fn open(address: &Address, count: u64) -> anyhow::Result<Vec<Connection>> {
    let limit = descriptors()?;
    ensure!(
        2 * count + OTHERS <= limit,
        "{count} connections need more descriptors than {limit}: `ulimit -n`, or BENCH_CONNECTIONS"
    );
    thread::scope(|scope| {
        let openers = (0..THREADS).map(|at| {
            let mine = (at..count).step_by(THREADS as usize);
            scope.spawn(|| mine.map(|_| Connection::open(address)).collect())
        });
        let openers: Vec<_> = openers.collect();
        let mut all = Vec::new();
        for opener in openers {
            all.extend(join::<Vec<_>>(opener)?);
        }
        Ok(all)
    })
}

/// How many files this process may have open; a proxy of it, which takes two for each connection, has the same limit.
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

/// How much more memory the proxy has when so many messages are away.
pub(crate) fn waiting(lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
    if way == Way::Haproxy {
        return Ok(Vec::new());
    }
    let broker = &lab.broker.address;
    let clean = || -> anyhow::Result<()> {
        let mut control = Connection::open(broker)?;
        control.delete_queue(QUEUE)?;
        control.delete_queue(&format!("{PREFIX}.delay.{DELAY}"))
    };
    clean()?;
    let measured = (|| {
        let route = lab.route(way)?;
        let process = route.process()?;
        send_away(&route.address, process, broker, WARM_UP)?;
        thread::sleep(lab.settings.scale.rest);
        let before = process.memory()?;
        send_away(&route.address, process, broker, lab.settings.scale.waiting)?;
        thread::sleep(lab.settings.scale.rest);
        let more = process.memory()? - before;
        Ok(vec![(Figure::Memory, more / 1024.0 / 1024.0)])
    })();
    clean()?;
    measured
}

/// Publishes so many, and returns each.
fn send_away(
    address: &Address,
    process: &Process,
    broker: &Address,
    count: u64,
) -> anyhow::Result<()> {
    let before = process.sent_away()?;
    let mut delayed = TableBuilder::default();
    delayed
        .longstr(b"x-queue-type", b"classic")
        .long(b"x-delayed-retry-min", DELAY)
        .long(b"x-delayed-retry-multiplier", 1);
    let mut client = Connection::open(address)?;
    client.declare(QUEUE, QueueDeclare::DURABLE, delayed)?;
    let persistent = Message {
        persistent: true,
        ..Message::default()
    };
    load(&mut Connection::open(broker)?, QUEUE, count, persistent)?;
    client.consume(QUEUE, Some(1_000))?;
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
