//! Redrives: how fast a queue full of dead letters goes into another one, beside a bare relay that does the same and no more, or away; how soon the
//! first page of it is there, by the API and as a web page; how much memory the proxy takes for it; whether a redrive keeps to a rate.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use serde_json::Value;

use crate::client::{self, Connection, Message, arguments};
use crate::confirms::Unconfirmed;
use crate::floods::Going;
use crate::lab::{Lab, Way};
use crate::process::{Process, authorization};
use crate::relay::{Relay, headers, headers_sent_back};
use crate::report::{Figure, Figures};

const DEAD: &str = "bench.redrive.dead";
const BACK: &str = "bench.redrive.back";
/// What the relay may have under way: as many as a redrive.
const PREFETCH: u16 = 256;
/// From one look at a redrive to the next: each costs the proxy 0.15 ms.
const PAUSE: Duration = Duration::from_millis(25);
const MIB: f64 = 1024.0 * 1024.0;

/// What is done with a full queue.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Redrive,
    Purge,
    /// So many a second, for two seconds.
    AtRate(u64),
}

// === impl Order ===

impl Order {
    pub(crate) fn run(self, lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
        if way == Way::Relay && !matches!(self, Order::Redrive) {
            return Ok(Vec::new());
        }
        let messages = match self {
            Order::AtRate(rate) => 2 * rate,
            _ => lab.settings.scale.redriven,
        };
        on_full_queue(lab, messages, || self.measure(lab, way, messages))
    }

    fn measure(self, lab: &Lab<'_>, way: Way, messages: u64) -> anyhow::Result<Figures> {
        let before = lab.broker.cpu()?;
        let begun = Instant::now();
        let speed = |begun: Instant| -> anyhow::Result<Figures> {
            let seconds = begun.elapsed().as_secs_f64();
            let broker = (lab.broker.cpu()? - before) * 1e6 / messages as f64;
            let rate = messages as f64 / seconds;
            Ok(vec![(Figure::Rate, rate), (Figure::BrokerCpu, broker)])
        };
        if way == Way::Relay {
            let relay = Relay::new(
                &lab.broker.address,
                (DEAD, BACK),
                PREFETCH,
                headers_sent_back(),
            )?;
            relay.run(messages)?;
            return speed(begun);
        }
        let process = process(lab, way)?;
        process.forget_peak()?;
        let order = match self {
            Order::Redrive => format!("redrives?to-queue={BACK}"),
            Order::Purge => "purges".to_owned(),
            Order::AtRate(rate) => format!("redrives?to-queue={BACK}&rate={rate}"),
        };
        carry_out(lab, process, &format!("queues/{DEAD}/{order}"), messages)?;
        let mut figures = speed(begun)?;
        figures.push((Figure::Peak, process.peak_memory()? / MIB));
        Ok(figures)
    }
}

/// How long it takes to see the first hundred dead letters of many.
pub(crate) fn look(lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
    if way == Way::Relay {
        return Ok(Vec::new());
    }
    on_full_queue(lab, lab.settings.scale.redriven, || {
        let vhost = vhost(lab);
        let mut figures = Vec::new();
        for (figure, page) in [
            (
                Figure::First,
                format!("/api/v1/{vhost}/queues/{DEAD}/dead-letters?limit=100"),
            ),
            (Figure::Page, format!("/{vhost}/queues/{DEAD}/messages")),
        ] {
            let begun = Instant::now();
            ask(lab, process(lab, way)?, "GET", &page)?;
            figures.push((figure, begun.elapsed().as_secs_f64() * 1e3));
        }
        Ok(figures)
    })
}

/// Moves all messages to the other queue, and back again, until it is over.
pub(crate) fn back_and_forth(
    lab: &Lab<'_>,
    way: Way,
    rate: Option<u64>,
    going: &Going,
) -> anyhow::Result<()> {
    // With a rate for half a second: the last one has to end before the next measurement begins.
    let messages = rate.map_or(lab.settings.scale.redriven / 4, |rate| rate / 2);
    on_full_queue(lab, messages, || {
        let mut ways = [(DEAD, BACK), (BACK, DEAD)].into_iter().cycle();
        while going.on()
            && let Some((from, to)) = ways.next()
        {
            if matches!(way, Way::Proxy | Way::Old) {
                let rate = rate.map_or(String::new(), |rate| format!("&rate={rate}"));
                let order = format!("queues/{from}/redrives?to-queue={to}{rate}");
                carry_out(lab, process(lab, way)?, &order, messages)?;
            } else {
                let mut relay = Relay::new(
                    &lab.broker.address,
                    (from, to),
                    PREFETCH,
                    headers_sent_back(),
                )?;
                relay.rate = rate;
                relay.run(messages)?;
            }
        }
        Ok(())
    })
}

/// Does something with a queue of so many dead letters.
fn on_full_queue<T>(
    lab: &Lab<'_>,
    messages: u64,
    measure: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let address = &lab.broker.address;
    let clean = || {
        let mut control = Connection::open(address)?;
        control.delete_queue(DEAD)?;
        control.delete_queue(BACK)?;
        anyhow::Ok(control)
    };
    let mut control = clean()?;
    let measured = (|| {
        for queue in [DEAD, BACK] {
            control.declare(queue, QueueDeclare::DURABLE, arguments(None))?;
        }
        let headers = headers();
        load(
            &mut control,
            DEAD,
            messages,
            Message {
                headers: &headers,
                ..Message::default()
            },
        )?;
        measure()
    })();
    clean()?.close()?;
    measured
}

/// Fills a queue; when it returns, all messages are in it.
pub(crate) fn load(
    control: &mut Connection,
    queue: &str,
    count: u64,
    message: Message<'_>,
) -> anyhow::Result<()> {
    control.confirms()?;
    let mut unconfirmed = Unconfirmed::default();
    let mut frames = Vec::new();
    for i in 0..count {
        client::publish(&mut frames, queue, message, i);
        unconfirmed.published();
        let last = i + 1 == count;
        if frames.len() > 8 * 1024 || last {
            control.write(&frames)?;
            frames.clear();
            while unconfirmed.len() > if last { 0 } else { 1_024 } {
                unconfirmed.wait(control)?;
            }
        }
    }
    Ok(())
}

fn carry_out(lab: &Lab<'_>, proxy: &Process, order: &str, messages: u64) -> anyhow::Result<()> {
    let tell = |method: &str, path: &str| -> anyhow::Result<Value> {
        let page = format!("/api/v1/{}/{path}", vhost(lab));
        Ok(serde_json::from_str(&ask(lab, proxy, method, &page)?)?)
    };
    let begun = tell("POST", order)?;
    let id = begun["id"].as_u64().context("a redrive has a number")?;
    loop {
        let shown = tell("GET", &format!("redrives/{id}"))?;
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

fn process<'l>(lab: &'l Lab<'_>, way: Way) -> anyhow::Result<&'l Process> {
    lab.route(way)?.process()
}

fn vhost(lab: &Lab<'_>) -> String {
    format!("vhosts/{}", lab.broker.address.vhost.replace('/', "%2F"))
}

/// The body of an answer of the admin port.
pub(crate) fn ask(
    lab: &Lab<'_>,
    proxy: &Process,
    method: &str,
    page: &str,
) -> anyhow::Result<String> {
    let broker = &lab.broker.address;
    let login = authorization(&format!("{}:{}", broker.user, broker.password));
    let headers = format!("{login}X-Dlx-Proxy-Request: 1\r\n");
    let said = proxy.ask(method, page, &headers)?;
    let (head, body) = said.split_once("\r\n\r\n").context("no HTTP")?;
    // What follows has dates, which have numbers that look like a good status.
    ensure!(head.starts_with("HTTP/1.1 20"), "{page}: {said}");
    Ok(body.to_owned())
}
