//! A stream of messages: a publisher, what happens on the way, and a reader, all at the same time and for a fixed time.
//!
//! The publisher keeps a beat (an open loop, which shows latency), or it is as fast as the reader lets it be: it stays a bounded number of messages
//! ahead, so that queues stay short and all ways do the same work. A large bound makes a flood of it: then nobody waits for anybody, and what
//! stands still now and then shows by the longest pause of a reader for which messages were there.

use std::collections::HashSet;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::client::{self, Connection, Message, Settlement};
use crate::confirms::Unconfirmed;
use crate::lab::Lab;
use crate::process::Route;
use crate::relay::Relay;
use crate::report::{Figure, Figures, percentile};

/// Messages of one write, unless there is a beat or a smaller window.
const BATCH: u64 = 32;
/// How far a publisher may be ahead of its reader.
pub(crate) const AHEAD: u64 = 2_048;
/// The same of a flood: until then the broker pushes back.
pub(crate) const FLOOD: u64 = 1 << 24;
/// The first part of a run is not counted where there is a beat.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) struct Stream {
    /// None: it writes to the reader's connection, so that both directions of it are full.
    pub(crate) publisher: Option<Connection>,
    pub(crate) queue: String,
    pub(crate) message: Message<'static>,
    /// How many publications may be unconfirmed; none: without confirms.
    pub(crate) window: Option<usize>,
    /// Messages a second; none: as many as can be.
    pub(crate) pace: Option<u64>,
    pub(crate) ahead: u64,
    /// What takes messages from one queue and sees that they come to the next.
    pub(crate) stages: Vec<Stage>,
    /// It consumes already.
    pub(crate) reader: Connection,
    pub(crate) acks: bool,
    /// The reader returns what comes for the first time.
    pub(crate) returns: bool,
    /// What of a message's time is meant to be.
    pub(crate) delay: Duration,
}

pub(crate) enum Stage {
    /// A consumer that settles all it gets in this way.
    Settle(Connection, Settlement),
    Relay(Relay),
}

/// What has come to the readers.
#[derive(Default)]
pub(crate) struct Passed {
    messages: u64,
    /// From publish to delivery, where there is a beat.
    micros: Vec<f64>,
    longest: Duration,
}

/// Lets all streams run at once. The processor time is that of the route and of the broker.
pub(crate) fn measure(
    lab: &Lab<'_>,
    route: &Route,
    mut streams: Vec<Stream>,
    time: Duration,
) -> anyhow::Result<Figures> {
    let spent = || anyhow::Ok([route.cpu()?, lab.broker.cpu()?]);
    let before = spent()?;
    let begun = Instant::now();
    let each = thread::scope(|scope| {
        let running = streams
            .iter_mut()
            .map(|stream| scope.spawn(move || stream.run(begun, time)));
        let running: Vec<_> = running.collect();
        running
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let elapsed = begun.elapsed();
    let after = spent()?;
    streams.into_iter().try_for_each(Stream::close)?;
    let mut all = Passed::default();
    for passed in each {
        all.messages += passed.messages;
        all.longest = all.longest.max(passed.longest);
        all.micros.extend(passed.micros);
    }
    let messages = all.messages as f64;
    let [proxy, broker] = [0, 1].map(|i| (after[i] - before[i]) * 1e6 / messages);
    all.micros.sort_by(f64::total_cmp);
    Ok(vec![
        (Figure::Rate, messages / elapsed.as_secs_f64()),
        (Figure::Cpu, proxy),
        (Figure::BrokerCpu, broker),
        (Figure::P50, percentile(&all.micros, 50)),
        (Figure::P99, percentile(&all.micros, 99)),
        (Figure::Longest, all.longest.as_secs_f64() * 1e3),
    ])
}

pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread
        .join()
        .map_err(|_| anyhow!("a client's thread panicked"))?
}

// === impl Stream ===

impl Stream {
    fn run(&mut self, begun: Instant, time: Duration) -> anyhow::Result<Passed> {
        let batch = match (self.pace, self.window) {
            (Some(_), _) => 1,
            (None, window) => BATCH.min(window.unwrap_or(usize::MAX) as u64),
        };
        let (ahead, taken) = sync_channel((self.ahead / batch) as usize);
        // 0: not known yet.
        let total = &AtomicU64::new(0);
        let over = &AtomicBool::new(false);
        let stages = std::mem::take(&mut self.stages);
        let stops: Vec<_> = stages
            .iter()
            .map(Stage::socket)
            .collect::<anyhow::Result<_>>()?;
        let publishing = Publishing {
            writer: self.publisher.as_ref().unwrap_or(&self.reader).writer()?,
            confirms: self.window.zip(self.publisher.as_mut()),
            queue: &self.queue,
            message: self.message,
            pace: self.pace,
            numbered: self.pace.is_some() || self.returns,
            batch,
        };
        let reading = Reading {
            reader: &mut self.reader,
            acks: self.acks,
            paced: self.pace.is_some(),
            returns: self.returns,
            delay: self.delay,
            batch,
        };
        thread::scope(|scope| {
            let working = stages
                .into_iter()
                .map(|stage| scope.spawn(|| stage.run(over)));
            let working: Vec<_> = working.collect();
            let publishing = scope.spawn(move || publishing.run(begun, time, ahead, total));
            let passed = reading.run(begun, taken, total);
            over.store(true, SeqCst);
            for stop in stops {
                // What has ended already has said why.
                let _ = stop.shutdown(std::net::Shutdown::Both);
            }
            working.into_iter().try_for_each(join)?;
            join(publishing)?;
            passed
        })
    }

    fn close(self) -> anyhow::Result<()> {
        self.publisher.map(Connection::close).transpose()?;
        self.reader.close()
    }
}

// === impl Stage ===

impl Stage {
    /// To stop it with.
    fn socket(&self) -> anyhow::Result<TcpStream> {
        match self {
            Stage::Settle(consumer, _) => consumer.socket(),
            Stage::Relay(relay) => relay.consumer.socket(),
        }
    }

    fn run(self, over: &AtomicBool) -> anyhow::Result<()> {
        let ended = match self {
            Stage::Settle(consumer, how) => settle(consumer, how),
            Stage::Relay(relay) => relay.run(u64::MAX),
        };
        // It goes on until its socket is shut.
        ended.or_else(|error| {
            if over.load(SeqCst) {
                Ok(())
            } else {
                Err(error)
            }
        })
    }
}

fn settle(mut consumer: Connection, how: Settlement) -> anyhow::Result<()> {
    loop {
        let (tag, _) = consumer.message()?;
        consumer.settle(tag, how);
        if !consumer.has_frame() {
            consumer.flush()?;
        }
    }
}

struct Publishing<'a> {
    writer: client::Writer,
    confirms: Option<(usize, &'a mut Connection)>,
    queue: &'a str,
    message: Message<'static>,
    pace: Option<u64>,
    /// Each message says when it was published; no two say the same.
    numbered: bool,
    batch: u64,
}

impl Publishing<'_> {
    fn run(
        mut self,
        begun: Instant,
        time: Duration,
        ahead: SyncSender<()>,
        total: &AtomicU64,
    ) -> anyhow::Result<()> {
        let (mut frames, mut sent) = (Vec::new(), 0);
        let mut unconfirmed = Unconfirmed::default();
        let mut number = 0;
        loop {
            // The beat is kept from the start, so that a late message does not slow the load down.
            if let Some(pace) = self.pace
                && let Some(early) =
                    Duration::from_nanos(sent * 1_000_000_000 / pace).checked_sub(begun.elapsed())
            {
                thread::sleep(early);
            }
            // The last message comes alone, and when it is published the reader can know that it is the last.
            let last = begun.elapsed() >= time;
            let batch = if last { 1 } else { self.batch };
            if last {
                total.store(sent + batch, SeqCst);
            } else if ahead.send(()).is_err() {
                return Ok(()); // The reader says why.
            }
            if frames.is_empty() || self.numbered || last {
                frames.clear();
                for _ in 0..batch {
                    number = (begun.elapsed().as_nanos() as u64).max(number + 1);
                    client::publish(&mut frames, self.queue, self.message, number);
                }
            }
            self.writer.write(&frames)?;
            sent += batch;
            if let Some((window, publisher)) = &mut self.confirms {
                (0..batch).for_each(|_| unconfirmed.published());
                let room = if last {
                    0
                } else {
                    *window - self.batch as usize
                };
                while unconfirmed.len() > room {
                    unconfirmed.wait(publisher)?;
                }
            }
            if last {
                return Ok(());
            }
        }
    }
}

struct Reading<'a> {
    reader: &'a mut Connection,
    acks: bool,
    paced: bool,
    returns: bool,
    delay: Duration,
    batch: u64,
}

impl Reading<'_> {
    fn run(self, begun: Instant, taken: Receiver<()>, total: &AtomicU64) -> anyhow::Result<Passed> {
        let mut passed = Passed::default();
        let mut last = None;
        let mut returned = HashSet::new();
        while passed.messages == 0 || passed.messages != total.load(SeqCst) {
            let reads = !self.reader.has_frame();
            if reads {
                self.reader.flush()?;
            }
            let (tag, number) = self.reader.message()?;
            let now = begun.elapsed();
            if reads {
                // The first message may take its time: the publisher has just begun.
                passed.longest = passed.longest.max(now - last.unwrap_or(now));
                last = Some(now);
            }
            if self.returns && returned.insert(number) {
                self.reader.settle(tag, Settlement::Return);
                continue;
            }
            if self.paced && number > WARM_UP.as_nanos() as u64 {
                let nanos = now.as_nanos() as f64 - number as f64 - self.delay.as_nanos() as f64;
                passed.micros.push(nanos / 1e3);
            }
            if self.acks {
                self.reader.settle(tag, Settlement::Ack);
            }
            passed.messages += 1;
            if passed.messages.is_multiple_of(self.batch) {
                // The last message is in no batch.
                taken.recv().or_else(|_| match total.load(SeqCst) {
                    0 => Err(anyhow!("the publisher has ended")),
                    _ => Ok(()),
                })?;
            }
        }
        self.reader.flush().context("the last acks")?;
        Ok(passed)
    }
}
