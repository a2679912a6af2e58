//! Many proxies in front of one broker, without clients: what their links and their questions to the management API cost it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::lab::{Lab, Way};
use crate::process::{PREFIX, Route, ask, authorization, free_port, memory, parts};
use crate::report::{Figure, Figures};
use crate::stream::join;

/// Proxies that start side by side.
const STARTERS: u64 = 4;
const MIB: f64 = 1024.0 * 1024.0;

/// With the management API, and with all links that a proxy can have.
pub(crate) fn run(lab: &Lab<'_>, way: Way) -> anyhow::Result<Figures> {
    let Way::Count(count) = way else {
        bail!("how many proxies?");
    };
    let count = count.min(lab.settings.scale.proxies);
    let Some(api) = &lab.broker.management else {
        // `make bench` runs without it: it costs the broker what no other scene should measure.
        return Ok(Vec::new());
    };
    let (login, port) = parts(api)?;
    let requests = Arc::new(AtomicU64::new(0));
    let counter = forwarder(port, &requests)?;
    let proxies = start(lab, count, format!("http://{login}@127.0.0.1:{counter}"))?;
    // What a proxy asks at its start is over, and the broker's statistics are up to date.
    let window = 20 * lab.settings.scale.rest;
    thread::sleep(window / 4);
    let spent = || -> anyhow::Result<[f64; 2]> {
        let mut of_proxies = 0.0;
        for proxy in &proxies {
            of_proxies += proxy.cpu()?;
        }
        Ok([of_proxies, lab.broker.cpu()?])
    };
    let (before, asked) = (spent()?, requests.load(Relaxed));
    thread::sleep(window);
    let (after, asked) = (spent()?, requests.load(Relaxed) - asked);
    let share = |i: usize| (after[i] - before[i]) / window.as_secs_f64() * 100.0;
    let mut of_proxies = 0.0;
    for process in proxies.iter().filter_map(|proxy| proxy.process.as_ref()) {
        of_proxies += process.memory()?;
    }
    let answer = ask(port, "GET", "/api/overview", &authorization(login))?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    let totals = &serde_json::from_str::<Value>(body)?["object_totals"];
    let total = |name: &str| totals[name].as_f64().unwrap_or(f64::NAN);
    let of_broker = lab
        .broker
        .pid
        .map_or(Ok(f64::NAN), |pid| memory(pid, "VmRSS:"))?;
    Ok(vec![
        (Figure::Connections, total("connections")),
        (Figure::Channels, total("channels")),
        (Figure::Queues, total("queues")),
        (Figure::Requests, asked as f64 / window.as_secs_f64()),
        (Figure::BrokerMemory, of_broker / MIB),
        (Figure::BrokerShare, share(1)),
        (Figure::ProxyMemory, of_proxies / MIB / count as f64),
        (Figure::ProxyShare, share(0) / count as f64),
    ])
}

fn start(lab: &Lab<'_>, count: u64, api: String) -> anyhow::Result<Vec<Route>> {
    let start = |number: u64| {
        let site = &lab.site;
        let port = free_port()?;
        let environment = [
            ("DLX_PROXY_UPSTREAM", lab.broker.url.clone()),
            ("DLX_PROXY_LISTEN", format!("127.0.0.1:{port}")),
            ("DLX_PROXY_PREFIX", format!("{PREFIX}-fleet")),
            ("DLX_PROXY_MANAGEMENT_URL", api.clone()),
            ("DLX_PROXY_LENIENT", "x-dead-letter-exchange".to_owned()),
        ];
        let (binary, name) = (&lab.settings.binary, format!("fleet-{number}"));
        let route = site.dlx_proxy_at(binary, &name, port, &environment)?;
        route.process()?.wait_ready()?;
        Ok(route)
    };
    let start = &start;
    thread::scope(|scope| {
        let starters = (0..STARTERS.min(count)).map(|at| {
            let mine = (at..count).step_by(STARTERS as usize);
            scope.spawn(move || mine.map(start).collect::<anyhow::Result<Vec<_>>>())
        });
        let starters: Vec<_> = starters.collect();
        let mut all = Vec::new();
        for starter in starters {
            all.extend(join(starter)?);
        }
        Ok(all)
    })
}

/// A port that leads to the management API, and counts the requests.
fn forwarder(to: u16, requests: &Arc<AtomicU64>) -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let requests = Arc::clone(requests);
    // It ends with the bench.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone())
            else {
                continue;
            };
            let requests = Arc::clone(&requests);
            thread::spawn(move || copy(from_client, server, Some(&requests)));
            thread::spawn(move || copy(from_server, client, None));
        }
    });
    Ok(port)
}

/// Until one of them ends. A client writes a request at once, and the next one when it has the answer.
fn copy(mut from: TcpStream, mut to: TcpStream, requests: Option<&AtomicU64>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer)
        && to.write_all(&buffer[..n]).is_ok()
    {
        if let Some(requests) = requests {
            requests.fetch_add(1, Relaxed);
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
