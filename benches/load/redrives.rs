//! Redrives: how fast a queue full of dead letters goes into another one, beside a bare relay that does the same and no more, how soon the first
//! page of it is there, and how much memory the proxy has taken by then.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dlx_proxy::amqp::method::QueueDeclare;
use serde_json::Value;

use crate::client::{Connection, Message};
use crate::dead_letters::load;
use crate::floods::arguments;
use crate::process::{Process, Route};
use crate::relay::{headers, relay};
use crate::settings::Settings;

const DEAD: &str = "bench.redrive.dead";
const BACK: &str = "bench.redrive.back";
/// What the relay may have under way: as many as a redrive.
const PREFETCH: u16 = 256;
/// From one look at a redrive to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Who empties the queue.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// A program that consumes, publishes with confirms, and acks.
    Relay,
    /// The proxy, asked by its API.
    Redrive(&'a Route),
}

/// Messages a second, seconds until the first 100 were listed, and the most memory.
pub(crate) fn run(way: Way<'_>, settings: &Settings) -> anyhow::Result<Vec<f64>> {
    let mut control = Connection::open(&settings.broker)?;
    clean(&mut control)?;
    let outcome = measure(way, settings, &mut control);
    clean(&mut Connection::open(&settings.broker)?)?;
    outcome
}

fn clean(control: &mut Connection) -> anyhow::Result<()> {
    control.delete_queue(DEAD)?;
    control.delete_queue(BACK)
}

fn measure(
    way: Way<'_>,
    settings: &Settings,
    control: &mut Connection,
) -> anyhow::Result<Vec<f64>> {
    let messages = settings.redriven();
    for queue in [DEAD, BACK] {
        control.declare(queue, QueueDeclare::DURABLE, arguments(None))?;
    }
    let headers = headers();
    let message = Message {
        headers: &headers,
        ..Message::default()
    };
    load(
        &mut Connection::open(&settings.broker)?,
        DEAD,
        messages,
        |_| message,
    )?;
    let mut first = f64::NAN;
    if let Way::Redrive(route) = way {
        let begun = Instant::now();
        ask(route, settings, "GET", "dead-letters?limit=100")?;
        first = begun.elapsed().as_secs_f64();
    }
    let begun = Instant::now();
    let peak = match way {
        Way::Relay => {
            let mut consumer = Connection::open(&settings.broker)?;
            let mut publisher = Connection::open(&settings.broker)?;
            publisher.confirms()?;
            consumer.consume(DEAD, Some(PREFETCH))?;
            relay(&mut consumer, &mut publisher, BACK, messages, &headers)?;
            f64::NAN
        }
        Way::Redrive(route) => {
            redrive(route, settings, messages)?;
            process(route)?.peak_memory()?
        }
    };
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    Ok(vec![rate, first, peak])
}

fn redrive(route: &Route, settings: &Settings, messages: u64) -> anyhow::Result<()> {
    let begun = ask(
        route,
        settings,
        "POST",
        &format!("redrives?to-queue={BACK}"),
    )?;
    let id = begun["id"].as_u64().context("a redrive has a number")?;
    loop {
        let shown = answer(process(route)?, settings, "GET", &format!("redrives/{id}"))?;
        match shown["state"].as_str() {
            Some("running" | "waiting") => thread::sleep(PAUSE),
            Some("completed") => {
                ensure!(shown["gone"] == messages, "not all have gone: {shown}");
                return Ok(());
            }
            _ => bail!("the redrive has ended otherwise: {shown}"),
        }
    }
}

fn process(route: &Route) -> anyhow::Result<&Process> {
    route.process.as_ref().context("no proxy")
}

/// What the API says of the queue.
fn ask(route: &Route, settings: &Settings, method: &str, page: &str) -> anyhow::Result<Value> {
    let page = format!("queues/{DEAD}/{page}");
    answer(process(route)?, settings, method, &page)
}

fn answer(proxy: &Process, settings: &Settings, method: &str, page: &str) -> anyhow::Result<Value> {
    let broker = &settings.broker;
    let login = BASE64_STANDARD.encode(format!("{}:{}", broker.user, broker.password));
    let headers = format!("Authorization: Basic {login}\r\nX-Dlx-Proxy-Request: 1\r\n");
    let vhost = broker.vhost.replace('/', "%2F");
    let said = proxy.ask(method, &format!("/api/v1/vhosts/{vhost}/{page}"), &headers)?;
    let (head, body) = said.split_once("\r\n\r\n").context("no HTTP")?;
    ensure!(head.contains(" 20"), "{said}");
    Ok(serde_json::from_str(body)?)
}
