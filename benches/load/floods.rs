//! One client misbehaves; what do the others notice? Their latency, on connections of their own, under the same flood through each way.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::QueueDeclare;

use crate::calls;
use crate::client::{self, Connection, Message, Settlement, arguments};
use crate::encrypted;
use crate::lab::{Lab, Way};
use crate::redrives;
use crate::report::{Figure, Figures};
use crate::settings::Address;
use crate::stream::join;
use crate::traffic::paced;

/// Messages per second of the others.
pub(crate) const RATE: u64 = 2_000;
/// Connections a minute that are opened and dropped.
const A_MINUTE: u32 = 10_000;
/// Consumers that never read.
const DEAF: usize = 8;
/// What the flooding client has unsettled.
const UNSETTLED: u16 = 100;

/// What one client does as fast as it is let.
#[derive(Clone, Copy)]
pub(crate) enum Flood {
    /// Nothing: what the others have in peace.
    None,
    /// Connections, at a fixed rate: a third says nothing, a third a protocol header, a third logs in.
    Connections,
    /// Declares of queues with a dead-letter exchange, each when the last one was answered.
    Declares,
    /// Rejects of messages whose target is their own queue.
    Rejects,
    /// Consumers that do not read, of a queue that is filled all the time.
    Deaf,
    /// TLS handshakes that end before AMQP begins.
    Handshakes,
    /// Dead letters that are sent back; by a relay where there is no proxy. Perhaps so many a second.
    Redrive(Option<u64>),
}

/// Whether the flood goes on, and how much of it there was.
#[derive(Default)]
pub(crate) struct Going {
    over: AtomicBool,
    times: AtomicU64,
}

impl Going {
    pub(crate) fn on(&self) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed)
    }
}

// === impl Flood ===

impl Flood {
    pub(crate) fn run(self, lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
        let route = lab.route(way)?;
        let going = Going::default();
        thread::scope(|scope| {
            let begun = Instant::now();
            let flooding = scope.spawn(|| self.flood(lab, way, &going));
            let latency = paced(RATE).run(lab, route);
            let times = going.times.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
            going.over.store(true, Ordering::Relaxed);
            join(flooding)?;
            let mut figures = latency?;
            figures.push((Figure::Floods, times));
            Ok(figures)
        })
    }

    fn flood(self, lab: &Lab<'_>, way: Way, going: &Going) -> anyhow::Result<()> {
        let route = lab.route(way)?;
        // Another one each time: the broker may not know yet that a connection before has ended.
        let begun = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let queue = format!("bench.flood.{begun}");
        match self {
            Flood::None => Ok(()),
            Flood::Connections => connections(&route.address, going),
            Flood::Declares => declares(&route.address, &queue, going),
            Flood::Rejects => rejects(&route.address, &queue, going),
            Flood::Deaf => deaf(&route.address, &lab.broker.address, &queue, going),
            Flood::Handshakes => encrypted::handshakes(lab, route, going),
            Flood::Redrive(rate) => redrives::back_and_forth(lab, way, rate, going),
        }
    }
}

fn connections(address: &Address, going: &Going) -> anyhow::Result<()> {
    let every = Duration::from_secs(60) / A_MINUTE;
    let begun = Instant::now();
    let mut number = 0;
    while going.on() {
        number += 1;
        match number % 3 {
            0 => drop(Connection::open(address)?),
            kind => {
                let mut stream = TcpStream::connect((address.host.as_str(), address.port))?;
                if kind == 1 {
                    stream.write_all(&frame::PROTOCOL)?;
                }
            }
        }
        if let Some(early) = (every * number).checked_sub(begun.elapsed()) {
            thread::sleep(early);
        }
    }
    Ok(())
}

fn declares(address: &Address, queue: &str, going: &Going) -> anyhow::Result<()> {
    let mut client = Connection::open(address)?;
    let mut number = 0;
    while going.on() {
        number += 1;
        let queue = format!("{queue}.{}", number % 16);
        client.declare(&queue, QueueDeclare::EXCLUSIVE, arguments(Some("nowhere")))?;
    }
    client.close()
}

fn rejects(address: &Address, queue: &str, going: &Going) -> anyhow::Result<()> {
    let mut client = Connection::open(address)?;
    client.declare(queue, QueueDeclare::EXCLUSIVE, arguments(Some(queue)))?;
    let mut frames = Vec::new();
    for _ in 0..UNSETTLED {
        client::publish(&mut frames, queue, Message::default(), 0);
    }
    client.write(&frames)?;
    client.consume(queue, Some(UNSETTLED))?;
    while going.on() {
        let (tag, _) = client.message()?;
        client.settle(tag, Settlement::Reject);
        if !client.has_frame() {
            client.flush()?;
        }
    }
    Ok(()) // dropped: what is under way need not come back
}

fn deaf(address: &Address, direct: &Address, queue: &str, going: &Going) -> anyhow::Result<()> {
    let mut owner = Connection::open(direct)?;
    let mut bounded = arguments(None);
    bounded.long(b"x-max-length", 100);
    owner.declare(queue, QueueDeclare::DURABLE, bounded)?;
    let consumers = (0..DEAF)
        .map(|_| {
            let mut client = Connection::open(address)?;
            client.consume(queue, None)?;
            Ok(client)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    // Large ones, so that all sockets are full at once.
    let mut frames = Vec::new();
    let content = Content {
        properties: vec![0, 0].into(),
        body: vec![0; 1 << 20].into(),
    };
    let channel = ChannelId(1);
    calls::publish(&mut frames, channel, ("", queue), &content, 128 * 1024);
    while going.on() {
        owner.write(&frames)?;
        thread::sleep(Duration::from_millis(10));
    }
    drop(consumers);
    owner.delete_queue(queue)?;
    owner.close()
}
