//! Dead letters per second: the broker's own against the proxy's.
//!
//! A source queue is filled over a direct connection and confirmed; then one consumer rejects all of it, or time does. A run ends
//! when all have arrived in the dead-letter queue, which is asked for its length over a direct connection, alike on both routes.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::amqp::table::TableBuilder;

use crate::client::{self, Connection, Message, PATIENCE, Settlement};
use crate::confirms::{Unconfirmed, WINDOW};
use crate::process::{PREFIX, Route};
use crate::settings::{SCALES, Scale};

const DLX: &str = "bench.dlx";
const DLQ: &str = "bench.dlq";
/// How often the dead-letter queue is asked for its length.
const POLL: Duration = Duration::from_millis(2);

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Scene {
    /// What kills the messages.
    pub(crate) cause: Cause,
    /// Messages and so dead letters are written to disk, also before a confirm.
    pub(crate) persistent: bool,
}

/// What kills the messages.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    /// One consumer nacks each by itself.
    Nack(u16),
    /// One consumer rejects each.
    Reject(u16),
    /// They expire, all in the same moment.
    Ttl,
}

/// The rows, in the order of the table.
pub(crate) const SCENES: [Scene; 10] = {
    const fn scene(cause: Cause, persistent: bool) -> Scene {
        Scene { cause, persistent }
    }
    [
        scene(Cause::Nack(1), false),
        scene(Cause::Nack(10), false),
        scene(Cause::Nack(1000), false),
        scene(Cause::Reject(1), false),
        scene(Cause::Reject(10), false),
        scene(Cause::Reject(1000), false),
        scene(Cause::Ttl, false),
        scene(Cause::Nack(1), true),
        scene(Cause::Nack(1000), true),
        scene(Cause::Ttl, true),
    ]
};

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Nack(prefetch) => write!(f, "nack, prefetch {prefetch}"),
            Cause::Reject(prefetch) => write!(f, "reject, prefetch {prefetch}"),
            Cause::Ttl => write!(f, "TTL"),
        }?;
        f.write_str(if self.persistent { ", persistent" } else { "" })
    }
}

/// Dead letters per second, CPU seconds of the proxy per million, and which share of them the proxy says were its own.
pub(crate) fn run(
    route: &Route,
    scene: Scene,
    scale: &Scale,
    direct: &Route,
) -> anyhow::Result<Vec<f64>> {
    let mut control = Connection::open(&direct.address)?;
    let source = format!("bench.source.{}", route.name);
    clean(&mut control, &source)?;
    let outcome = measure(route, scene, scale, &mut control, &source);
    // After a failure a channel may be closed: a fresh connection cleans up.
    clean(&mut Connection::open(&direct.address)?, &source)?;
    outcome
}

fn measure(
    route: &Route,
    scene: Scene,
    scale: &Scale,
    control: &mut Connection,
    source: &str,
) -> anyhow::Result<Vec<f64>> {
    let faster = match scene.cause {
        Cause::Nack(1) | Cause::Reject(1) => 1,
        _ => scale.deaths_faster,
    };
    let deaths = scale.deaths * faster;
    control.declare(DLQ, QueueDeclare::DURABLE, classic())?;
    control.fanout(DLX, DLQ)?;
    // Through the route: this is where the proxy takes the queue over.
    let mut client = Connection::open(&route.address)?;
    let mut arguments = classic();
    arguments.longstr(b"x-dead-letter-exchange", DLX.as_bytes());
    client.declare(source, QueueDeclare::DURABLE, arguments)?;

    let process = route.process.as_ref();
    let own_before = process.map(|process| process.dead_lettered());
    let cpu = route.cpu()?;
    let elapsed = match scene.cause {
        Cause::Nack(prefetch) => {
            load(control, source, deaths, |_| message(scene, None))?;
            refuse(
                &mut client,
                control,
                source,
                prefetch,
                Settlement::Nack,
                deaths,
            )?
        }
        Cause::Reject(prefetch) => {
            load(control, source, deaths, |_| message(scene, None))?;
            refuse(
                &mut client,
                control,
                source,
                prefetch,
                Settlement::Reject,
                deaths,
            )?
        }
        Cause::Ttl => expire(control, source, scene, deaths, scale.ttl)?,
    };
    let cpu = route.cpu()? - cpu;
    let own = match (own_before, process.map(|process| process.dead_lettered())) {
        (Some(Ok(before)), Some(Ok(after))) => (after - before) / deaths as f64,
        _ => f64::NAN,
    };
    client.close()?;
    let cpu = if process.is_some() {
        cpu.as_secs_f64() * 1e6 / deaths as f64
    } else {
        f64::NAN
    };
    Ok(vec![deaths as f64 / elapsed.as_secs_f64(), cpu, own])
}

/// From `basic.consume` to the last dead letter.
fn refuse(
    client: &mut Connection,
    control: &mut Connection,
    source: &str,
    prefetch: u16,
    how: Settlement,
    deaths: u64,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    client.consume(source, Some(prefetch))?;
    for _ in 0..deaths {
        let (tag, _) = client.message()?;
        client.settle(tag, how);
        if !client.has_frame() {
            client.flush()?;
        }
    }
    client.flush()?;
    arrived(control, deaths)?;
    Ok(begun.elapsed())
}

/// From the moment in which all expire to the last dead letter.
///
/// A classic queue expires at its head only (S1.2): messages that live one millisecond wait behind one that lives for `ttl`. So the
/// moment is known and the rate is the broker's, not that of the loading.
fn expire(
    control: &mut Connection,
    source: &str,
    scene: Scene,
    deaths: u64,
    ttl: Duration,
) -> anyhow::Result<Duration> {
    let millis = ttl.as_millis() as u64;
    let moment = Instant::now() + ttl;
    load(control, source, deaths, |i| {
        message(scene, Some(if i == 0 { millis } else { 1 }))
    })?;
    let Some(rest) = moment.checked_duration_since(Instant::now()) else {
        bail!("loading {deaths} messages took longer than {ttl:?}");
    };
    ensure!(
        control.count(DLQ)? == 0,
        "messages expired before their time"
    );
    thread::sleep(rest);
    arrived(control, deaths)?;
    Ok(moment.elapsed())
}

fn arrived(control: &mut Connection, deaths: u64) -> anyhow::Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let count = control.count(DLQ)?;
        if count >= deaths {
            return Ok(());
        }
        if count > last {
            (last, since) = (count, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            bail!("only {count} of {deaths} dead letters arrived");
        }
        thread::sleep(POLL);
    }
}

/// Fills a queue; when it returns, all messages are in it.
pub(crate) fn load<'m>(
    control: &mut Connection,
    source: &str,
    count: u64,
    message: impl Fn(u64) -> Message<'m>,
) -> anyhow::Result<()> {
    control.confirms()?;
    let mut unconfirmed = Unconfirmed::default();
    let mut frames = Vec::new();
    for i in 0..count {
        client::publish(&mut frames, source, message(i), i);
        unconfirmed.published();
        if frames.len() > 8 * 1024 || i + 1 == count {
            control.write(&frames)?;
            frames.clear();
            while unconfirmed.len() > WINDOW {
                unconfirmed.wait(control)?;
            }
        }
    }
    while unconfirmed.len() > 0 {
        unconfirmed.wait(control)?;
    }
    Ok(())
}

fn message(scene: Scene, expiration: Option<u64>) -> Message<'static> {
    Message {
        persistent: scene.persistent,
        expiration,
        ..Message::default()
    }
}

fn classic() -> TableBuilder {
    let mut arguments = TableBuilder::default();
    arguments.longstr(b"x-queue-type", b"classic");
    arguments
}

fn clean(control: &mut Connection, source: &str) -> anyhow::Result<()> {
    control.delete_queue(source)?;
    control.delete_queue(DLQ)?;
    control.delete_exchange(DLX)
}

/// Deletes what the proxy made for itself. It has its own prefix, so a proxy in use is not meant.
pub(crate) fn clean_intake(direct: &Route) -> anyhow::Result<()> {
    let mut control = Connection::open(&direct.address)?;
    let delays = SCALES.map(|scale| format!("delay.{}", scale.retry.as_millis()));
    for queue in ["intake", "parked"]
        .map(str::to_owned)
        .iter()
        .chain(&delays)
    {
        control.delete_queue(&format!("{PREFIX}.{queue}"))?;
    }
    for exchange in [
        ".parked".to_owned(),
        ".delay".to_owned(),
        ".due".to_owned(),
        String::new(),
        "+".to_owned(),
        format!("/{DLX}"),
    ] {
        control.delete_exchange(&format!("{PREFIX}{exchange}"))?;
    }
    Ok(())
}
