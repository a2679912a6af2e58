//! `make bench`: what does the proxy cost, and how fast are its dead letters?
//!
//! The same load goes to a real broker directly, through haproxy in TCP mode and through `dlx-proxy run`, in turns within one run, and
//! is printed as ratios: to haproxy for traffic that merely passes, to the broker's own dead-lettering for dead letters. Figures of
//! different runs or machines say little; the ratios do.
//!
//! All scenes run on the newest broker. Those that say whether somebody stands still, and what a dead letter costs the broker, run on the
//! oldest one, too: `BENCH_BROKER` chooses the broker by its version, or as `oldest`.
//!
//! `cargo bench --bench load -- WORD…`: only scenes whose name contains a word (`throughput`, `latency`, `flood`, `dead letters`, `nack`, …).
//! Environment: `DLX_TEST_BROKERS`, `BENCH_BROKER`, `BENCH_SMALL`, `BENCH_ROUNDS`, `BENCH_HAPROXY_NBTHREAD`, `DLX_TEST_PROXY`,
//! `DLX_PROXY_MODE`; `BENCH_MESSAGES` of a redrive, `BENCH_CONNECTIONS` that are idle, `BENCH_WAITING` retries; `BENCH_OLD`, see `pairs`.

#[path = "../../tests/support/calls.rs"]
mod calls;
mod client;
mod confirms;
mod dead_letters;
mod encrypted;
mod floods;
mod handshakes;
mod idle;
mod pairs;
mod pass_through;
mod process;
mod redrives;
mod relay;
mod report;
mod retries;
mod settings;
mod unpaced;

use std::process::ExitCode;

use anyhow::{bail, ensure};

use crate::client::{BODY, Connection};
use crate::confirms::WINDOW;
use crate::dead_letters::SCENES;
use crate::floods::Flood;
use crate::pass_through::{BATCH, PAIRS, PREFETCH, RATE};
use crate::process::{Route, Scratch, haproxy_version};
use crate::relay::Way;
use crate::report::{Series, Table, compare, interleave, interleave_ways};
use crate::settings::Settings;
use crate::unpaced::Load;

/// What is needed to run a scene.
struct Bench {
    settings: Settings,
    /// Direct, haproxy if it is installed, dlx-proxy.
    routes: Vec<Route>,
    /// For routes that only one scene needs.
    scratch: Scratch,
    /// Series that failed: the run is no success then, though it goes on.
    failures: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let settings = Settings::read()?;
    let scratch = Scratch::new()?;
    if let Some(old) = &settings.old {
        return pairs::run(old, &settings, &scratch);
    }
    let haproxy = haproxy_version();
    let mut routes = vec![Route::direct(&settings)];
    if haproxy.is_some() {
        routes.push(Route::haproxy(&settings, &scratch)?);
    } else if settings.small {
        println!("haproxy is not installed: only direct and dlx-proxy run");
    } else {
        bail!(
            "haproxy is not installed, and it is what dlx-proxy is compared with: apt-get install haproxy"
        );
    }
    let mut failures = 0;
    match Route::dlx_proxy(&settings, &scratch) {
        Ok(route) => routes.push(route),
        Err(error) => {
            eprintln!("{error:#}");
            failures += 1;
        }
    }
    let mut bench = Bench {
        settings,
        routes,
        scratch,
        failures,
    };
    bench.machine(haproxy.as_deref())?;
    bench.throughput();
    bench.encrypted()?;
    bench.handshakes()?;
    bench.idle();
    bench.unpaced()?;
    bench.latency();
    bench.floods();
    bench.relay();
    bench.redrives();
    bench.retries();
    bench.waiting();
    bench.dead_letters()?;
    ensure!(
        bench.failures == 0,
        "{} series failed, see above",
        bench.failures
    );
    Ok(())
}

// === impl Bench ===

impl Bench {
    fn machine(&self, haproxy: Option<&str>) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism()?;
        let broker = Connection::open(&self.settings.broker)?;
        // Who else is at work? With more than a few tenths here the ratios scatter.
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let load = load.split(' ').next().unwrap_or("?");
        println!(
            "\nmachine    {cores} cores, shared by client, proxy and broker; load average {load} before the first scene"
        );
        println!(
            "broker     RabbitMQ {} at {}",
            broker.version, self.settings.broker
        );
        broker.close()?;
        for route in &self.routes {
            let Some(process) = &route.process else {
                continue;
            };
            let about = match (route.name, haproxy, self.settings.haproxy_threads) {
                ("haproxy", Some(version), None) => {
                    format!("{version}, mode tcp, default nbthread (one per core)")
                }
                ("haproxy", Some(version), Some(n)) => format!("{version}, mode tcp, nbthread {n}"),
                _ => format!("{}, mode {}", env!("CARGO_PKG_VERSION"), self.settings.mode),
            };
            println!("{:<10} {about}; {} threads", route.name, process.threads()?);
        }
        let rounds = self.settings.scale.rounds;
        println!(
            "rounds     {rounds}, in turns; medians; a ratio is the median of the rounds' ratios (lowest–highest)"
        );
        if self.settings.small {
            println!("BENCH_SMALL: everything runs, no figure means anything");
        }
        Ok(())
    }

    fn throughput(&mut self) {
        let scale = self.settings.scale;
        let mut shown = None;
        for (name, confirms) in [("no confirms", false), ("confirms", true)] {
            if !self.settings.wants(&format!("throughput {name}")) {
                continue;
            }
            // The first connections and messages of a route warm up allocators, caches and the broker's code.
            for route in &self.routes {
                if let Err(error) = pass_through::throughput(route, scale.messages / 10, confirms) {
                    eprintln!("{}: warm-up: {error:#}", route.name);
                }
            }
            let all = interleave(scale.rounds, &self.routes, |route| {
                pass_through::throughput(route, scale.messages, confirms)
            });
            let table = shown.get_or_insert_with(|| self.comparison());
            compare(table, name, &["messages/s", "CPU s per million"], &all);
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        if let Some(table) = shown {
            println!(
                "\nThroughput: {BODY}-byte messages, transient, classic queues, {PAIRS} publishers, {PAIRS} consumers, {BATCH} messages a write, \
                 {} a run\n(no confirms: no_ack; confirms: window {WINDOW}, each delivery acked, prefetch {PREFETCH})\n{table}",
                report::number(scale.messages as f64)
            );
        }
    }

    /// The same with TLS on both legs.
    fn encrypted(&mut self) -> anyhow::Result<()> {
        let Some(encrypted) = &self.settings.encrypted else {
            return Ok(());
        };
        // The other proxy is haproxy, which may be missing where nothing is judged.
        if !self.settings.wants("tls") || haproxy_version().is_none() {
            return Ok(());
        }
        let ways = encrypted::Ways::start(encrypted, &self.settings, &self.scratch)?;
        let (table, failed) = ways.measure(&self.settings);
        self.failures += failed;
        println!(
            "\nTLS on both legs: throughput as above, a haproxy of their own puts TLS on the clients' connections\n{table}"
        );
        Ok(())
    }

    /// Floods.
    fn unpaced(&mut self) -> anyhow::Result<()> {
        let wanted = |load: &Load| self.settings.wants(&format!("unpaced {load}"));
        let loads: Vec<_> = Load::ALL.into_iter().filter(wanted).collect();
        if loads.is_empty() {
            return Ok(());
        }
        let routes = &self.routes;
        let scale = self.settings.scale;
        let mut head = vec!["", ""];
        head.extend(routes.iter().map(|route| route.name));
        let mut table = Table::new(head);
        for load in loads {
            let all = interleave(scale.rounds, routes, |route| {
                unpaced::run(route, load, scale.messages)
            });
            let metrics = ["messages/s", "CPU s per million", "longest pause in ms"];
            for (i, metric) in metrics.into_iter().enumerate() {
                let name = if i == 0 {
                    load.to_string()
                } else {
                    String::new()
                };
                let figure = |series: &Series| match i {
                    2 => series.highest(i),
                    _ => series.figure(i),
                };
                let figures = all.iter().map(figure);
                table.row([name, metric.into()].into_iter().chain(figures).collect());
                let haproxy = all.iter().find(|series| series.name == "haproxy");
                if let Some(haproxy) = haproxy.filter(|_| i < 2) {
                    let ratios = all.iter().map(|series| series.ratio(haproxy, i));
                    let label = [String::new(), "  : haproxy".into()];
                    table.row(label.into_iter().chain(ratios).collect());
                }
            }
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        println!(
            "\nNobody waits: {PAIRS} publishers that write as fast as they can, {PAIRS} consumers, {} messages a run\n\
             (longest pause: of all rounds, without a message at a consumer)\n{table}",
            report::number(scale.messages as f64)
        );
        Ok(())
    }

    /// Dead letters that are made while they are read, beside a bare relay.
    fn relay(&mut self) {
        let (Some(direct), true) = (self.routes.first(), self.settings.wants("relay")) else {
            return;
        };
        let proxied = self.routes.iter().find(|route| route.name == "dlx-proxy");
        let ways = [
            ("native", Some(Way::Nack(direct))),
            ("relay", Some(Way::Relay(direct))),
            ("with headers", Some(Way::RelayWithHeaders(direct))),
            ("dlx-proxy", proxied.map(Way::Nack)),
        ];
        let ways = ways
            .into_iter()
            .filter_map(|(name, way)| Some((name, way?)));
        let all = interleave_ways(self.settings.scale.rounds, ways.collect(), |way| {
            relay::run(*way, direct, &self.settings)
        });
        let mut table = Table::new([
            "",
            "native",
            "relay",
            "with headers",
            "dlx-proxy",
            ": relay",
            ": with headers",
        ]);
        let metrics = ["dead letters/s", "CPU s of the broker per million"];
        for (i, metric) in metrics.into_iter().enumerate() {
            let mut cells = vec![metric.to_owned()];
            cells.extend(all.iter().map(|series| series.figure(i)));
            if let [_, relay, with_headers, own] = &all[..] {
                cells.extend([relay, with_headers].map(|bound| own.ratio(bound, i)));
            }
            table.row(cells);
        }
        self.failures += all.iter().filter(|series| series.failed()).count();
        println!(
            "\nDead letters beside a bare relay: a queue that is filled, rejected and read at the same time\n{table}"
        );
    }

    fn latency(&mut self) {
        if !self.settings.wants("latency") {
            return;
        }
        let scale = self.settings.scale;
        let all = interleave(scale.rounds, &self.routes, |route| {
            pass_through::latency(route, &scale)
        });
        let mut table = self.comparison();
        let metrics = ["p50 in µs", "p99 in µs", "CPU s per million"];
        compare(&mut table, "publish to deliver", &metrics, &all);
        self.failures += all.iter().filter(|series| series.failed()).count();
        println!(
            "\nLatency: {} messages a second, one write each\n{table}",
            report::number(RATE as f64)
        );
    }

    fn floods(&mut self) {
        let wanted = |flood: &Flood| self.settings.wants(&format!("flood {flood}"));
        let floods: Vec<_> = Flood::ALL.into_iter().filter(wanted).collect();
        let (Some(direct), false) = (self.routes.first(), floods.is_empty()) else {
            return;
        };
        let scale = self.settings.scale;
        let mut table = self.comparison();
        for flood in floods {
            let all = interleave(scale.rounds, &self.routes, |route| {
                floods::run(route, direct, flood, &scale)
            });
            let metrics = ["p50 in µs", "p99 in µs", "of the flood, a second"];
            compare(&mut table, &flood.to_string(), &metrics, &all);
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        println!(
            "\nLatency of others under a flood: {} messages a second on two connections, while a client floods the same route\n{table}",
            report::number(RATE as f64)
        );
    }

    fn retries(&mut self) {
        let wanted = |load: &retries::Load| self.settings.wants(&format!("retries {load}"));
        let loads: Vec<_> = retries::Load::ALL.into_iter().filter(wanted).collect();
        let (Some(direct), false) = (self.routes.first(), loads.is_empty()) else {
            return;
        };
        let way = |route, queue_type, native| retries::Way {
            route,
            queue_type,
            native,
        };
        let mut ways = Vec::new();
        if Connection::open(&direct.address).is_ok_and(|broker| broker.has_retries()) {
            ways.push(("native, quorum", way(direct, "quorum", true)));
        }
        if let Some(route) = self.routes.iter().find(|route| route.name == "dlx-proxy") {
            ways.push(("quorum", way(route, "quorum", false)));
            ways.push(("classic", way(route, "classic", false)));
        }
        let mut head = vec!["", ""];
        head.extend(ways.iter().map(|(name, _)| *name));
        let mut table = Table::new(head);
        let metrics = [
            "retries/s",
            "p50 in ms beyond the delay",
            "p99",
            "longest",
            "early",
            "CPU s per million",
        ];
        for load in loads {
            let all = interleave_ways(self.settings.scale.rounds, ways.clone(), |way| {
                retries::run(*way, load, direct, &self.settings.scale)
            });
            for (i, metric) in metrics.into_iter().enumerate() {
                let mut cells = vec![
                    if i == 0 {
                        load.to_string()
                    } else {
                        String::new()
                    },
                    metric.to_owned(),
                ];
                cells.extend(all.iter().map(|series| match i {
                    3 | 4 => series.highest(i),
                    _ => series.figure(i),
                }));
                table.row(cells);
            }
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        println!(
            "\nRetries after {:?}: one consumer returns each message once\n{table}",
            self.settings.scale.retry
        );
    }

    fn dead_letters(&mut self) -> anyhow::Result<()> {
        let wanted =
            |scene: &dead_letters::Scene| self.settings.wants(&format!("dead letters {scene}"));
        let scenes: Vec<_> = SCENES.into_iter().filter(wanted).collect();
        // haproxy has no part in this.
        self.routes.retain(|route| route.name != "haproxy");
        let Some((direct, proxied)) = self.routes.split_first() else {
            return Ok(());
        };
        if scenes.is_empty() {
            return Ok(());
        }
        if let Some(process) = proxied.first().and_then(|route| route.process.as_ref())
            && let Err(error) = process.wait_ready()
        {
            eprintln!("dlx-proxy: {error:#}");
            self.failures += 1;
        }
        let mut table = Table::new([
            "",
            "native/s",
            "dlx-proxy/s",
            "dlx-proxy : native",
            "its CPU s per million",
            "its share",
        ]);
        for scene in scenes {
            let all = interleave(self.settings.scale.rounds, &self.routes, |route| {
                dead_letters::run(route, scene, &self.settings.scale, direct)
            });
            let mut cells = vec![scene.to_string()];
            if let Some(native) = all.first() {
                cells.push(native.figure(0));
                if let Some(own) = all.get(1) {
                    cells.extend([
                        own.figure(0),
                        own.ratio(native, 0),
                        own.figure(1),
                        own.figure(2),
                    ]);
                }
            }
            table.row(cells);
            self.failures += all.iter().filter(|series| series.failed()).count();
        }
        if !proxied.is_empty() {
            dead_letters::clean_intake(direct)?;
        }
        println!(
            "\nDead letters: classic queues, one consumer; from consume (TTL: from expiry) until all are in the dead-letter queue\n\
             (its share: of the dead letters, those that dlx-proxy counted as published by itself; 0: it left them to the broker)\n{table}"
        );
        Ok(())
    }

    /// A table with one column per route and one for the ratio of each to haproxy.
    fn comparison(&self) -> Table {
        let mut head = vec!["", ""];
        head.extend(self.routes.iter().map(|route| route.name));
        head.push("dlx-proxy : haproxy");
        Table::new(head)
    }
}
