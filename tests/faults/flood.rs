//! Clients of another queue, which never wait: one publishes without confirms as fast as it is read, one reads all that comes. The fault does not
//! concern them, so no second may pass without a message. A client of the broker itself does little beside them: in a time in which it stands
//! still, too, it is the broker that does, or the machine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dlx_proxy::amqp::table::TableBuilder;
use tokio::task::JoinHandle;

use super::client::{Came, Client};
use super::lab::{Fallible, until, within};

const QUEUE: &str = "flood";
/// Of the client of the broker itself; and how long it rests between two messages.
const BESIDE: &str = "beside-the-flood";
const REST: Duration = Duration::from_millis(10);
/// Where the queue ends: the flood is no test of the broker's memory.
const LENGTH: i64 = 10_000;
/// Publishes of one write.
const BATCH: usize = 64;
/// Longer than any fault: it is the pause that is judged.
const PATIENCE: Duration = Duration::from_secs(120);
/// How soon a reader to whom nothing comes sees that it may stop.
const LOOK: Duration = Duration::from_millis(50);
/// The longest time without a message.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The clients.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    publisher: JoinHandle<Fallible<()>>,
    reader: JoinHandle<Fallible<Pauses>>,
    beside: JoinHandle<Fallible<Pauses>>,
    read: Arc<AtomicU64>,
}

/// What became of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flooded {
    pub messages: u64,
    /// The longest time between two of them.
    pub gap: Duration,
    /// The same without the times in which the client of the broker itself stood still.
    pub own: Duration,
}

/// Times without a message: when each began and ended. Only those that matter.
#[derive(Debug, Default)]
struct Pauses {
    all: Vec<(Instant, Instant)>,
    last: Option<Instant>,
}

// === impl Flood ===

impl Flood {
    /// Begins through the proxy at this address, and returns when messages come.
    pub(crate) async fn begin(
        proxy: SocketAddr,
        broker: SocketAddr,
        vhost: &str,
    ) -> Fallible<Flood> {
        let mut reader = Client::open(proxy, vhost, "flooded", PATIENCE).await?;
        declare(&mut reader, QUEUE).await?;
        let publisher = Client::open(proxy, vhost, "flooding", PATIENCE).await?;
        let mut direct = Client::open(broker, vhost, "beside", PATIENCE).await?;
        declare(&mut direct, BESIDE).await?;
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let flood = Flood {
            publisher: tokio::spawn(publish(publisher, stop.clone())),
            reader: tokio::spawn(consume(reader, stop.clone(), Arc::clone(&read))),
            beside: tokio::spawn(go_round(direct, stop.clone())),
            stop,
            read,
        };
        until("the flood", async || flood.read.load(Relaxed) > 0).await?;
        Ok(flood)
    }

    /// It goes on for a while, and no longer: the dead letters of the round have less of the machine beside it.
    pub(crate) fn goes_on_for(&self, time: Duration) {
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            stop.store(true, Relaxed);
        });
    }

    /// Ends it. A client that lost its connection is a failure.
    pub(crate) async fn end(self) -> Fallible<Flooded> {
        self.stop.store(true, Relaxed);
        let ended = async {
            let pauses = self.reader.await.map_err(|error| error.to_string())?;
            let publisher = self.publisher.await.map_err(|error| error.to_string())?;
            let beside = self.beside.await.map_err(|error| error.to_string())?;
            publisher.map_err(|problem| format!("its publisher: {problem}"))?;
            let pauses = pauses.map_err(|problem| format!("its reader: {problem}"))?;
            let beside = beside.map_err(|problem| format!("the client beside it: {problem}"))?;
            Ok((pauses, beside))
        };
        let (pauses, beside) = within("the end of a flood", ended).await?;
        Ok(Flooded {
            gap: pauses.longest_but_for(&Pauses::default()),
            own: pauses.longest_but_for(&beside),
            messages: self.read.load(Relaxed),
        })
    }
}

impl fmt::Display for Flooded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flooded { messages, gap, own } = self;
        let (gap, own) = (gap.as_secs_f64(), own.as_secs_f64());
        write!(f, "flood={messages} gap={own:.3}s/{gap:.3}s")
    }
}

async fn declare(client: &mut Client, queue: &str) -> Fallible<()> {
    let mut arguments = TableBuilder::default();
    arguments.longstr(b"x-queue-type", b"classic");
    arguments.long(b"x-max-length", LENGTH);
    client
        .declare_queue(queue, true, &arguments.finish())
        .await?;
    client.consume(queue, true).await
}

async fn publish(mut client: Client, stop: Arc<AtomicBool>) -> Fallible<()> {
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        client.publish(&mut batch, QUEUE, &[b'.'; 100], false);
    }
    while !stop.load(Relaxed) {
        client.send(&batch).await?;
    }
    client.close().await;
    Ok(())
}

async fn consume(
    mut client: Client,
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
) -> Fallible<Pauses> {
    let mut pauses = Pauses::default();
    while !stop.load(Relaxed) {
        let came = tokio::time::timeout(LOOK, client.coming()).await;
        if let Some(Came::Delivery { .. }) = came.ok().transpose()? {
            pauses.end();
            read.fetch_add(1, Relaxed);
        }
    }
    // One that has not ended counts too.
    pauses.end();
    client.close().await;
    Ok(pauses)
}

/// One message after the other, each when the one before has come.
async fn go_round(mut client: Client, stop: Arc<AtomicBool>) -> Fallible<Pauses> {
    let mut pauses = Pauses::default();
    while !stop.load(Relaxed) {
        let mut out = Vec::new();
        client.publish(&mut out, BESIDE, b".", false);
        client.send(&out).await?;
        while !matches!(client.next().await?, Came::Delivery { .. }) {}
        pauses.end();
        tokio::time::sleep(REST).await;
    }
    client.close().await;
    Ok(pauses)
}

// === impl Pauses ===

impl Pauses {
    /// A message has come.
    fn end(&mut self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now).filter(|last| now - *last > LOOK) {
            self.all.push((last, now));
        }
    }

    /// The longest of them, without what it has in common with others.
    fn longest_but_for(&self, others: &Pauses) -> Duration {
        let rest = |(begin, end): &(Instant, Instant)| {
            let common = |(b, e): &(Instant, Instant)| {
                (*e.min(end)).saturating_duration_since(*b.max(begin))
            };
            (*end - *begin).saturating_sub(others.all.iter().map(common).sum())
        };
        self.all.iter().map(rest).max().unwrap_or_default()
    }
}
