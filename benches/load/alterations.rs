//! A queue is altered again and again, while two proxies carry its messages: does anything get lost, doubled or out of order, and how long do
//! clients wait?

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dlx_proxy::amqp::method::QueueDeclare;
use serde_json::Value;

use crate::client::{self, Connection, Message, PATIENCE, Settlement, arguments};
use crate::confirms::Unconfirmed;
use crate::lab::Lab;
use crate::process::{PREFIX, Route, ask as ask_port, authorization, free_port, parts};
use crate::redrives::{ask, load};
use crate::report::{Figure, Figures};
use crate::stream::join;

/// Another proxy of the bench is in the usual vhost, and would have to take part.
const VHOST: &str = "bench-altered";
const QUEUE: &str = "orders";
/// Messages a second, of all publishers.
const RATE: u64 = 5_000;
const CONSUMERS: usize = 10;
const PREFETCH: u16 = 20;
/// How long one is tried, from when the other proxy takes part; it looks for one every 20 seconds.
const WAIT: Duration = Duration::from_secs(10);
const BEYOND: Duration = Duration::from_secs(45);
/// Numbers of a publisher's messages begin with its own.
const OF_PUBLISHER: u64 = 1 << 40;
const PAUSE: Duration = Duration::from_millis(50);

/// What came of all tries.
#[derive(Default)]
struct Tried {
    times: u64,
    done: u64,
    /// The longest, as the proxy says, in milliseconds.
    pause: f64,
}

/// Deleted at the end.
struct OwnVhost {
    port: u16,
    login: String,
}

/// What a consumer got, and when.
type Got = Vec<(u64, Instant)>;

pub(crate) fn run(lab: &Lab<'_>) -> anyhow::Result<Figures> {
    let Some(api) = &lab.broker.management else {
        return Ok(Vec::new()); // as of a fleet
    };
    let _vhost = OwnVhost::open(api)?;
    let proxies = [proxy(lab, "alter-0", api)?, proxy(lab, "alter-1", api)?];
    let mut control = Connection::open(&proxies[0].address)?;
    control.declare(QUEUE, QueueDeclare::DURABLE, arguments(None))?;
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let consumers = (0..CONSUMERS).map(|at| {
        let mut consumer = Connection::open(&proxies[at % proxies.len()].address)?;
        consumer.consume(QUEUE, Some(PREFETCH))?;
        Ok(consumer)
    });
    let consumers = consumers.collect::<anyhow::Result<Vec<_>>>()?;
    let stops = consumers.iter().map(Connection::socket);
    let stops = stops.collect::<anyhow::Result<Vec<_>>>()?;
    let taken = AtomicU64::new(0);
    let (tried, got) = thread::scope(|scope| {
        let (over, sent, taken) = (&over, &sent, &taken);
        let publishing = proxies.iter().zip(0..).map(|(proxy, number)| {
            let rate = RATE / proxies.len() as u64;
            scope.spawn(move || publish(proxy, number * OF_PUBLISHER, rate, over, sent))
        });
        let publishing: Vec<_> = publishing.collect();
        let consuming = consumers.into_iter();
        let consuming = consuming.map(|it| scope.spawn(move || consume(it, taken, over)));
        let consuming: Vec<_> = consuming.collect();
        let tried = alter(lab, &proxies[0], lab.settings.scale.alterations);
        over.store(true, SeqCst);
        let published = publishing.into_iter().try_for_each(join);
        let all = Instant::now();
        while published.is_ok() && taken.load(SeqCst) < sent.load(SeqCst) {
            ensure!(
                all.elapsed() < PATIENCE,
                "{} of {}",
                taken.load(SeqCst),
                sent.load(SeqCst)
            );
            thread::sleep(PAUSE);
        }
        for stop in stops {
            let _ = stop.shutdown(Shutdown::Both);
        }
        let got = consuming
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<_>>>();
        published.and(Ok((tried?, got?)))
    })?;
    let all: BTreeSet<u64> = got.iter().flatten().map(|(number, _)| *number).collect();
    let (sent, taken) = (sent.into_inner(), taken.into_inner());
    ensure!(
        all.len() as u64 == sent,
        "{} of {sent} messages came",
        all.len()
    );
    ensure!(taken == sent, "{} messages came twice", taken - sent);
    got.iter().try_for_each(in_order)?;
    let Tried { times, done, pause } = tried;
    Ok(vec![
        (Figure::Rate, sent as f64 / begun.elapsed().as_secs_f64()),
        (Figure::Tries, times as f64),
        (Figure::Done, done as f64),
        (Figure::Pause, pause),
        (Figure::Longest, longest(got).as_secs_f64() * 1e3),
    ])
}

/// Messages that nobody reads.
pub(crate) fn with_backlog(lab: &Lab<'_>) -> anyhow::Result<Figures> {
    let Some(api) = &lab.broker.management else {
        return Ok(Vec::new());
    };
    let _vhost = OwnVhost::open(api)?;
    let proxy = proxy(lab, "alter-backlog", api)?;
    let mut control = Connection::open(&proxy.address)?;
    control.declare(QUEUE, QueueDeclare::DURABLE, arguments(None))?;
    let all = lab.settings.scale.waiting;
    load(&mut control, QUEUE, all, Message::default())?;
    let order = format!(
        "/api/v1/vhosts/{VHOST}/queues/alter?queue={QUEUE}&set=x-max-length%3D1000000&max-pause=60s"
    );
    let answer: Value = serde_json::from_str(&ask(lab, proxy.process()?, "POST", &order)?)?;
    ensure!(answer["moved"] == all, "{answer}");
    let pause = answer["pause"].as_f64().context("no pause")?;
    let mut consumer = Connection::open(&proxy.address)?;
    consumer.consume(QUEUE, Some(PREFETCH))?;
    for expected in 0..all {
        let (tag, number) = consumer.message()?;
        ensure!(number == expected, "{number} instead of {expected}");
        consumer.settle(tag, Settlement::Ack);
        consumer.flush()?;
    }
    let rate = all as f64 / pause * 1e3;
    Ok(vec![(Figure::Pause, pause), (Figure::Rate, rate)])
}

fn proxy(lab: &Lab<'_>, name: &str, api: &str) -> anyhow::Result<Route> {
    let port = free_port()?;
    let environment = [
        ("DLX_PROXY_UPSTREAM", lab.broker.url.clone()),
        ("DLX_PROXY_LISTEN", format!("127.0.0.1:{port}")),
        ("DLX_PROXY_PREFIX", PREFIX.to_owned()),
        ("DLX_PROXY_MANAGEMENT_URL", api.to_owned()),
    ];
    let site = &lab.site;
    let mut route = site.dlx_proxy_at(&lab.settings.binary, name, port, &environment)?;
    route.address.vhost = VHOST.to_owned();
    route.process()?.wait_ready()?;
    Ok(route)
}

// === impl OwnVhost ===

impl OwnVhost {
    /// Whoever makes it has all rights there.
    fn open(api: &str) -> anyhow::Result<OwnVhost> {
        let (login, port) = parts(api)?;
        let login = authorization(login);
        let vhost = OwnVhost { port, login };
        let answer = vhost.ask("PUT")?;
        ensure!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        Ok(vhost)
    }

    fn ask(&self, method: &str) -> anyhow::Result<String> {
        let path = format!("/api/vhosts/{VHOST}");
        ask_port(self.port, method, &path, &self.login)
    }
}

impl Drop for OwnVhost {
    fn drop(&mut self) {
        let _ = self.ask("DELETE");
    }
}

/// Keeps a beat until it is over; then all is confirmed.
fn publish(
    proxy: &Route,
    first: u64,
    rate: u64,
    over: &AtomicBool,
    sent: &AtomicU64,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(&proxy.address)?;
    connection.confirms()?;
    let mut unconfirmed = Unconfirmed::default();
    let mut frames = Vec::new();
    let begun = Instant::now();
    let mut published = 0;
    while !over.load(SeqCst) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        while published < due {
            client::publish(&mut frames, QUEUE, Message::default(), first + published);
            unconfirmed.published();
            published += 1;
        }
        connection.write(&frames)?;
        frames.clear();
        while unconfirmed.len() > rate as usize / 10 {
            unconfirmed.wait(&mut connection)?;
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent.fetch_add(published, SeqCst);
    while unconfirmed.len() > 0 {
        unconfirmed.wait(&mut connection)?;
    }
    connection.close()
}

/// Until its socket is shut.
fn consume(mut consumer: Connection, taken: &AtomicU64, over: &AtomicBool) -> anyhow::Result<Got> {
    let mut got = Got::new();
    loop {
        match consumer.message() {
            Ok((tag, number)) => {
                got.push((number, Instant::now()));
                consumer.settle(tag, Settlement::Ack);
                if !consumer.has_frame() {
                    consumer.flush()?;
                }
                taken.fetch_add(1, SeqCst);
            }
            Err(_) if over.load(SeqCst) => return Ok(got),
            Err(error) => return Err(error),
        }
    }
}

/// So many tries, one after another.
fn alter(lab: &Lab<'_>, proxy: &Route, tries: u64) -> anyhow::Result<Tried> {
    let mut tried = Tried::default();
    for number in 0..tries {
        let length = 1_000_000 + number;
        let order = format!(
            "/api/v1/vhosts/{VHOST}/queues/alter?queue={QUEUE}&set=x-max-length%3D{length}&wait={}s",
            WAIT.as_secs()
        );
        let begun = Instant::now();
        let answer = ask(lab, proxy.process()?, "POST", &order);
        ensure!(
            begun.elapsed() < WAIT + BEYOND,
            "it took {:?}",
            begun.elapsed()
        );
        tried.times += 1;
        match answer {
            Ok(answer) => {
                let answer: Value = serde_json::from_str(&answer)?;
                ensure!(answer["lost"] == 0, "{answer}");
                tried.done += 1;
                let pause = answer["pause"].as_f64().context("no pause")?;
                tried.pause = tried.pause.max(pause);
            }
            Err(error) if error.to_string().contains("It is as it was") => {
                eprintln!("alter: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(tried)
}

/// Messages of one publisher come to one consumer as they were published.
fn in_order(got: &Got) -> anyhow::Result<()> {
    let mut last = [None; 2];
    for (number, _) in got {
        let of = last.get_mut((number / OF_PUBLISHER) as usize);
        let last = of.context("a message of nobody")?;
        if *last > Some(number) {
            bail!("{number} came behind {last:?}");
        }
        *last = Some(number);
    }
    Ok(())
}

/// For how long nothing came to anybody.
fn longest(got: Vec<Got>) -> Duration {
    let mut all: Vec<Instant> = got.into_iter().flatten().map(|(_, at)| at).collect();
    all.sort();
    let gaps = all.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}
