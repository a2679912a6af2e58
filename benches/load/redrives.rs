//! Redrives: how fast a queue full of dead letters goes into another one, beside a bare relay that does the same and no more, or away; how soon the
//! first page of it is there, by the API and as a web page; how much memory the proxy takes for it. Then whether a redrive keeps to a rate, and what
//! the clients of other queues notice of it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dlx_proxy::amqp::method::QueueDeclare;
use serde_json::Value;

use crate::Bench;
use crate::client::{Connection, Message};
use crate::dead_letters::load;
use crate::floods::arguments;
use crate::pass_through::{self, RATE, join};
use crate::process::{Process, Route};
use crate::relay::{headers, headers_sent_back, relay};
use crate::report::{self, Series, Table, interleave_ways};
use crate::settings::Settings;

const DEAD: &str = "bench.redrive.dead";
const BACK: &str = "bench.redrive.back";
/// What the relay may have under way: as many as a redrive.
const PREFETCH: u16 = 256;
/// From one look at a redrive to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// A rate that a redrive is told, and for how long it lasts: in full, and small.
const PACED: [(u64, u64); 2] = [(2_000, 30), (200, 2)];
/// In MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// Who empties the queue.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// A program that consumes, publishes with confirms, and acks; perhaps so many messages a second.
    Relay(Option<u64>),
    /// The same, with the headers that a redrive leaves: the broker reads, keeps and sends them too.
    RelayWithHeaders,
    /// The proxy, asked by its API; perhaps for so many messages a second.
    Redrive(&'a Route, Option<u64>),
    /// The same, to nowhere.
    Purge(&'a Route),
}

impl Way<'_> {
    /// How many lie in the queue.
    fn messages(self, settings: &Settings) -> u64 {
        match self {
            // For two seconds: the last redrive has to end before the next measurement begins.
            Way::Relay(Some(rate)) | Way::Redrive(_, Some(rate)) => 2 * rate,
            _ => settings.redriven,
        }
    }
}

impl Bench {
    /// A queue full of dead letters that is emptied into another one: by a redrive, and by a bare relay.
    pub(crate) fn redrives(&mut self) {
        let proxied = self.routes.iter().find(|route| route.name == "dlx-proxy");
        let Some(proxied) = proxied else {
            return;
        };
        let (settings, mut failures) = (&self.settings, 0);
        if settings.wants("redrive") {
            failures += speed(proxied, settings);
        }
        if settings.wants("redrive at a rate") {
            failures += pace(proxied, settings);
        }
        if settings.wants("redrive beside others") {
            failures += beside(proxied, settings);
        }
        self.failures += failures;
    }
}

/// Returns how many series failed, as its neighbours do.
fn speed(proxied: &Route, settings: &Settings) -> usize {
    let ways = [
        ("relay", Way::Relay(None)),
        ("with its headers", Way::RelayWithHeaders),
        ("dlx-proxy", Way::Redrive(proxied, None)),
        ("purge", Way::Purge(proxied)),
    ];
    let all = interleave_ways(settings.scale.rounds, ways.to_vec(), |way| {
        run(*way, settings)
    });
    let mut table = Table::new([
        "",
        "relay",
        "with its headers",
        "dlx-proxy",
        "purge",
        "dlx-proxy : relay",
        "with its headers",
    ]);
    let metrics = [
        "messages/s",
        "first 100 in s",
        "as a web page",
        "memory before, in MiB",
        "at most, in MiB",
    ];
    for (i, metric) in metrics.into_iter().enumerate() {
        let mut cells = vec![metric.to_owned()];
        cells.extend(all.iter().map(|series| series.figure(i)));
        if let ([relay, with_headers, own, _], 0) = (&all[..], i) {
            cells.extend([relay, with_headers].map(|other| own.ratio(other, i)));
        }
        table.row(cells);
    }
    println!(
        "\nRedrive: {} dead letters into another queue, or away (purge)\n{table}",
        report::number(settings.redriven as f64)
    );
    failed(&all)
}

fn pace(proxied: &Route, settings: &Settings) -> usize {
    let (rate, seconds) = PACED[usize::from(settings.small)];
    let ways = vec![("dlx-proxy", proxied)];
    let all = interleave_ways(settings.scale.rounds, ways, |route| {
        on_full_queue(settings, rate * seconds, |_| {
            let begun = Instant::now();
            let order = format!("redrives?to-queue={BACK}&rate={rate}");
            redrive(route, settings, &order, rate * seconds)?;
            let reached = (rate * seconds) as f64 / begun.elapsed().as_secs_f64();
            Ok(vec![reached, (reached / rate as f64 - 1.0) * 100.0])
        })
    });
    let mut table = Table::new(["", "dlx-proxy", "the highest"]);
    for (i, metric) in ["messages/s", "per cent above the rate"]
        .into_iter()
        .enumerate()
    {
        let of = |of: fn(&Series, usize) -> String| all.iter().map(move |series| of(series, i));
        let cells = of(Series::figure).chain(of(Series::highest));
        table.row([metric.to_owned()].into_iter().chain(cells).collect());
    }
    println!(
        "\nRedrive at a rate: {rate} a second for {seconds} s (should be within 2 per cent)\n{table}"
    );
    failed(&all)
}

/// The latency of clients of the proxy: in peace, while a bare relay moves messages, so that it shows what the broker's own work takes, and while a
/// redrive does, at full speed and at a rate.
fn beside(proxied: &Route, settings: &Settings) -> usize {
    let (rate, _) = PACED[usize::from(settings.small)];
    let ways = vec![
        ("in peace", None),
        ("relay", Some(Way::Relay(None))),
        ("redrive", Some(Way::Redrive(proxied, None))),
        ("relay at a rate", Some(Way::Relay(Some(rate)))),
        ("redrive at a rate", Some(Way::Redrive(proxied, Some(rate)))),
    ];
    let all = interleave_ways(settings.scale.rounds, ways, |way| {
        let Some(way) = way else {
            return pass_through::latency(proxied, &settings.scale);
        };
        on_full_queue(settings, way.messages(settings), |headers| {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let moving = scope.spawn(|| back_and_forth(*way, settings, headers, &over));
                let latency = pass_through::latency(proxied, &settings.scale);
                over.store(true, Relaxed);
                join(moving)?;
                latency
            })
        })
    });
    let mut table = Table::new([
        "",
        "in peace",
        "relay",
        "redrive",
        "relay at a rate",
        "redrive at a rate",
        "redrive : in peace",
        "redrive : relay",
        "at a rate : in peace",
        "at a rate : relay",
    ]);
    for (i, metric) in ["p50 in µs", "p99 in µs"].into_iter().enumerate() {
        let mut cells = vec![metric.to_owned()];
        cells.extend(all.iter().map(|series| series.figure(i)));
        if let [peace, relay, redrive, paced_relay, paced] = &all[..] {
            cells.extend([peace, relay].map(|other| redrive.ratio(other, i)));
            cells.extend([peace, paced_relay].map(|other| paced.ratio(other, i)));
        }
        table.row(cells);
    }
    println!(
        "\nLatency of others beside a redrive: {} messages a second, the rate is {rate} (the p99 should be at most 1.2 times as long)\n{table}",
        report::number(RATE as f64)
    );
    failed(&all)
}

/// Moves all messages to the other queue, and back again, until it is over.
fn back_and_forth(
    way: Way<'_>,
    settings: &Settings,
    headers: &[u8],
    over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut ways = [(DEAD, BACK), (BACK, DEAD)].into_iter().cycle();
    while !over.load(Relaxed)
        && let Some((from, to)) = ways.next()
    {
        match way {
            Way::Relay(rate) => {
                let messages = way.messages(settings);
                relayed(settings, (from, to), headers, (messages, rate))?;
            }
            Way::Redrive(route, rate) => {
                let rate = rate.map_or(String::new(), |rate| format!("&rate={rate}"));
                let order = format!("queues/{from}/redrives?to-queue={to}{rate}");
                carry_out(route, settings, &order, way.messages(settings))?;
            }
            Way::RelayWithHeaders | Way::Purge(_) => bail!("it does not go back and forth"),
        }
    }
    Ok(())
}

fn relayed(
    settings: &Settings,
    (from, to): (&str, &str),
    headers: &[u8],
    (messages, rate): (u64, Option<u64>),
) -> anyhow::Result<()> {
    let mut consumer = Connection::open(&settings.broker)?;
    let mut publisher = Connection::open(&settings.broker)?;
    publisher.confirms()?;
    consumer.consume(from, Some(PREFETCH))?;
    relay(&mut consumer, &mut publisher, to, messages, headers, rate)
}

fn failed(all: &[Series]) -> usize {
    all.iter().filter(|series| series.failed()).count()
}

/// Does something with a queue of so many dead letters.
fn on_full_queue(
    settings: &Settings,
    messages: u64,
    measure: impl FnOnce(&[u8]) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<Vec<f64>> {
    let mut control = Connection::open(&settings.broker)?;
    clean(&mut control)?;
    let measured = (|| {
        for queue in [DEAD, BACK] {
            control.declare(queue, QueueDeclare::DURABLE, arguments(None))?;
        }
        let headers = headers();
        let message = Message {
            headers: &headers,
            ..Message::default()
        };
        let mut publisher = Connection::open(&settings.broker)?;
        load(&mut publisher, DEAD, messages, |_| message)?;
        measure(&headers)
    })();
    clean(&mut Connection::open(&settings.broker)?)?;
    measured
}

/// Messages a second; seconds until the first 100 were listed, and shown on a page; the memory before, and the most.
fn run(way: Way<'_>, settings: &Settings) -> anyhow::Result<Vec<f64>> {
    let messages = settings.redriven;
    on_full_queue(settings, messages, |headers| {
        let (route, order) = match way {
            Way::Relay(_) | Way::RelayWithHeaders => {
                let begun = Instant::now();
                let sent_back = headers_sent_back();
                let headers = match way {
                    Way::RelayWithHeaders => &sent_back,
                    _ => headers,
                };
                relayed(settings, (DEAD, BACK), headers, (messages, None))?;
                return Ok(vec![messages as f64 / begun.elapsed().as_secs_f64()]);
            }
            Way::Redrive(route, _) => (route, format!("redrives?to-queue={BACK}")),
            Way::Purge(route) => (route, "purges".to_owned()),
        };
        let mut times = [f64::NAN; 2];
        for (time, page) in times.iter_mut().zip([
            format!(
                "/api/v1/{}/queues/{DEAD}/dead-letters?limit=100",
                vhost(settings)
            ),
            format!("/{}/queues/{DEAD}/messages", vhost(settings)),
        ]) {
            let begun = Instant::now();
            ask(process(route)?, settings, "GET", &page)?;
            *time = begun.elapsed().as_secs_f64();
        }
        let process = process(route)?;
        process.forget_peak()?;
        let before = process.memory()?;
        let begun = Instant::now();
        redrive(route, settings, &order, messages)?;
        let rate = messages as f64 / begun.elapsed().as_secs_f64();
        let peak = process.peak_memory()?;
        Ok(vec![rate, times[0], times[1], before / MIB, peak / MIB])
    })
}

fn clean(control: &mut Connection) -> anyhow::Result<()> {
    control.delete_queue(DEAD)?;
    control.delete_queue(BACK)
}

/// One of the queue of dead letters, to its end.
fn redrive(route: &Route, settings: &Settings, order: &str, messages: u64) -> anyhow::Result<()> {
    carry_out(route, settings, &format!("queues/{DEAD}/{order}"), messages)
}

fn carry_out(route: &Route, settings: &Settings, order: &str, messages: u64) -> anyhow::Result<()> {
    let process = process(route)?;
    let tell = |method: &str, path: &str| -> anyhow::Result<Value> {
        let page = format!("/api/v1/{}/{path}", vhost(settings));
        Ok(serde_json::from_str(&ask(
            process, settings, method, &page,
        )?)?)
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

fn process(route: &Route) -> anyhow::Result<&Process> {
    route.process.as_ref().context("no proxy")
}

fn vhost(settings: &Settings) -> String {
    format!("vhosts/{}", settings.broker.vhost.replace('/', "%2F"))
}

/// The body of an answer of the admin port.
fn ask(proxy: &Process, settings: &Settings, method: &str, page: &str) -> anyhow::Result<String> {
    let broker = &settings.broker;
    let login = BASE64_STANDARD.encode(format!("{}:{}", broker.user, broker.password));
    let headers = format!("Authorization: Basic {login}\r\nX-Dlx-Proxy-Request: 1\r\n");
    let said = proxy.ask(method, page, &headers)?;
    let (head, body) = said.split_once("\r\n\r\n").context("no HTTP")?;
    // What follows has dates, which have numbers that look like a good status.
    ensure!(head.starts_with("HTTP/1.1 20"), "{page}: {said}");
    Ok(body.to_owned())
}
