//! Real faults on real brokers: each round publishes numbered, confirmed messages through the program itself, lets them die under load, breaks
//! something at a random moment, heals it, and counts at the broker. Every message whose publish was confirmed must be in its target, in the
//! parking queue, or still where it was published. `make faults`, or with nodes of your own, which are killed:
//!
//! ```text
//! DLX_FAULTS_NODES="3.10.8=DIR;4.3.6=DIR" cargo test --test faults       # started by tests/lab/rabbit.sh
//! make faults ROUNDS=300 SECONDS=3600                                    # over all faults and both brokers
//! make faults FAULT=broker-killed BROKER=4.3.6 ROUNDS=1 SEED=17          # a line of a log once more, as far as a real broker can
//! make faults FAULT=publisher-away FLOODS=100                            # of the rounds that may have a flood, so many per cent do
//! ```
//!
//! - `plan`: the faults by name, and what a round draws · `strike`: how each is done and undone
//! - `stage`: vhost, proxies, targets and clients of a round · `load`: the clients, which come back · `client`: one connection
//! - `retries`: what was delayed, returned or taken back, and when it came · `held`: deliveries that are settled late
//! - `operator`: redrives in half of the rounds, out of the targets into a queue that counts as one
//! - `flood`: clients that never wait, beside faults that do not concern them
//! - `seen`: what is judged beside losses · `round`: load, fault, count · `lab`: nodes that may be killed · `proxy`: the program
//! - of `tests/support`: `relay` (a cable), `connection` and `calls` (AMQP), `running` (a process), `admin`, `http`, `environment`, `port`, `ctl`
//!
//! Where RabbitMQ itself may lose (`Fault::may_lose` has the names), what is lost is counted apart, beside the same without the proxy.

#[path = "../support/admin.rs"]
mod admin;
#[path = "../support/calls.rs"]
mod calls;
mod client;
#[path = "../support/connection.rs"]
mod connection;
#[path = "../support/ctl.rs"]
mod ctl;
#[path = "../support/door.rs"]
mod door;
#[path = "../support/environment.rs"]
mod environment;
mod flood;
mod held;
#[path = "../support/http.rs"]
mod http;
mod lab;
mod load;
mod operator;
mod plan;
#[path = "../support/port.rs"]
mod port;
mod proxy;
#[allow(dead_code)] // tests/broker uses the rest
#[path = "../support/relay.rs"]
mod relay;
mod retries;
mod round;
#[path = "../support/running.rs"]
mod running;
mod seen;
mod stage;
mod strike;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use self::flood::Flooded;
use self::lab::{Fallible, Node};
use self::load::Source;
use self::plan::{Fault, Plan};
use self::retries::spread;
use self::round::Tally;

/// See `Task::floods`: of 300 rounds over all faults at least 40 have one.
const FLOODS: u64 = 60;

/// What the environment asks for.
struct Task {
    faults: Vec<Fault>,
    rounds: usize,
    seed: u64,
    /// The part of the rounds that have a flood, of those that may have one, in per cent.
    floods: u64,
    end: Instant,
    /// The form that is a part of `make test`.
    short: bool,
    logs: PathBuf,
}

/// A round that was run.
struct Done {
    fault: Fault,
    flood: bool,
    /// An alarm or an outage that is longer than anybody's patience.
    long: bool,
    elapsed: Duration,
    tally: Fallible<Tally>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let (task, nodes) = match Task::from_env().and_then(|task| Ok((task, Node::all()?))) {
        Ok(ready) => ready,
        Err(problem) => {
            println!("{problem}\ntest result: FAILED. 0 passed; 1 failed");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "logs of proxies, kept when a round fails: {}",
        task.logs.display()
    );
    let count = nodes.len();
    let workers = nodes.into_iter().enumerate();
    let workers = workers.map(|(at, node)| task.work(Arc::new(node), at, count));
    let done = join_all(workers).await;
    summary(&done.into_iter().flatten().collect::<Vec<_>>())
}

// === impl Task ===

impl Task {
    fn from_env() -> Fallible<Task> {
        let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str| match value(name) {
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| format!("{name}={text} is no number")),
            None => Ok(None),
        };
        let faults = match value("DLX_FAULTS_FAULT") {
            None => Fault::ALL.to_vec(),
            Some(names) => {
                let named =
                    |name: &str| Fault::of_name(name).ok_or(format!("there is no fault {name}"));
                names.split(',').map(named).collect::<Fallible<_>>()?
            }
        };
        let short = value("DLX_FAULTS_SHORT").is_some();
        let laps = if short { 1 } else { 2 };
        let seconds = number("DLX_FAULTS_SECONDS")?.unwrap_or(24 * 3600);
        let logs = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
        std::fs::create_dir_all(&logs).map_err(|error| format!("{logs:?}: {error}"))?;
        Ok(Task {
            rounds: number("DLX_FAULTS_ROUNDS")?
                .map_or(laps * faults.len(), |rounds| rounds as usize),
            faults,
            seed: number("DLX_FAULTS_SEED")?.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            floods: number("DLX_FAULTS_FLOODS")?.unwrap_or(FLOODS),
            end: Instant::now() + Duration::from_secs(seconds),
            short,
            logs,
        })
    }

    /// The rounds of one node: each fault meets the nodes in turn.
    async fn work(&self, node: Arc<Node>, at: usize, nodes: usize) -> Vec<Done> {
        let mut done = Vec::new();
        for round in 0..self.rounds {
            let lap = round / self.faults.len();
            let fault = self.faults[round % self.faults.len()];
            let is_mine = match fault {
                // From 4.3 on there are no such queues; the oldest node is the first.
                Fault::NonDurable => at == 0 && node.has_transient_queues(),
                _ => (round + lap * (self.faults.len() + 1) % nodes) % nodes == at,
            };
            if !is_mine || Instant::now() > self.end {
                continue;
            }
            let seed = self.seed + lap as u64;
            done.push(self.round(&node, fault, seed).await);
        }
        done
    }

    async fn round(&self, node: &Arc<Node>, fault: Fault, seed: u64) -> Done {
        let began = Instant::now();
        let (plan, sources) = Plan::draw(fault, seed, self.short, self.floods);
        let (flood, long) = (plan.flood, plan.is_long());
        let kinds = sources.iter().filter(|source| !source.is_native);
        let kinds: Vec<String> = kinds.map(Source::to_string).collect();
        let tally = round::run(node, (plan, sources), &self.logs).await;
        let elapsed = began.elapsed();
        let text = match &tally {
            Ok(tally) => tally.to_string(),
            Err(_) => "not judged".to_owned(),
        };
        println!(
            "fault={} broker={} sources={} seed={seed} {text} elapsed={:.1}s",
            fault.name(),
            node.version,
            kinds.join(",").to_lowercase(),
            elapsed.as_secs_f64()
        );
        // `make test` shows the lines that begin so when all is over.
        let fails = |problem: &dyn fmt::Display| {
            println!(
                "FAILED {} {} seed={seed}: {problem}",
                fault.name(),
                node.version
            );
        };
        match &tally {
            Ok(tally) => tally.problems.iter().for_each(|problem| fails(problem)),
            Err(problem) => {
                fails(problem);
                // Nobody knows in which state the round left it.
                let anew = async {
                    node.kill().await?;
                    node.start().await
                };
                if let Err(problem) = anew.await {
                    fails(&problem);
                }
            }
        }
        Done {
            fault,
            flood,
            long,
            elapsed,
            tally,
        }
    }
}

/// A line for each fault, and a last one that counts.
fn summary(done: &[Done]) -> ExitCode {
    println!(
        "\n{:<24} {:>6} {:>9} {:>5} {:>6} {:>11} {:>10} {:>8} {:>7} {:>7}  apart",
        "fault",
        "rounds",
        "messages",
        "lost",
        "failed",
        "native lost",
        "duplicated",
        "inverted",
        "parked",
        "slowest"
    );
    let mut by_fault: BTreeMap<Fault, Vec<&Done>> = BTreeMap::new();
    for round in done {
        by_fault.entry(round.fault).or_default().push(round);
    }
    let row = |name: &str, rounds: &[&Done]| {
        let tallies: Vec<&Tally> = rounds
            .iter()
            .filter_map(|round| round.tally.as_ref().ok())
            .collect();
        let sum = |of: fn(&Tally) -> usize| tallies.iter().map(|tally| of(tally)).sum::<usize>();
        let mut apart: BTreeMap<&str, usize> = BTreeMap::new();
        for (class, number) in tallies.iter().flat_map(|tally| &tally.apart) {
            *apart.entry(class).or_default() += number;
        }
        let apart: Vec<String> = apart
            .iter()
            .map(|(class, number)| format!("{class}={number}"))
            .collect();
        let slowest = rounds
            .iter()
            .map(|round| round.elapsed)
            .max()
            .unwrap_or_default();
        println!(
            "{name:<24} {:>6} {:>9} {:>5} {:>6} {:>11} {:>10} {:>8} {:>7} {:>6.1}s  {}",
            rounds.len(),
            sum(|tally| tally.messages),
            sum(|tally| tally.lost),
            rounds.iter().filter(|round| !round.is_good()).count(),
            format!(
                "{}/{}",
                sum(|tally| tally.native_lost),
                sum(|tally| tally.native)
            ),
            sum(|tally| tally.duplicated),
            sum(|tally| tally.inverted),
            sum(|tally| tally.parked),
            slowest.as_secs_f64(),
            apart.join(" ")
        );
    };
    for (fault, rounds) in &by_fault {
        row(fault.name(), rounds);
    }
    row("all", &done.iter().collect::<Vec<_>>());
    totals(done);
    let failed = done.iter().filter(|round| !round.is_good()).count();
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {failed} failed",
        done.len() - failed
    );
    if failed == 0 && !done.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// All that counts, in one line.
fn totals(done: &[Done]) {
    let tallies = || done.iter().filter_map(|round| round.tally.as_ref().ok());
    let sum = |of: fn(&Tally) -> usize| tallies().map(of).sum::<usize>();
    let rounds = |which: fn(&Done) -> bool| done.iter().filter(|round| which(round)).count();
    let floods = || tallies().filter_map(|tally| tally.flooded);
    let longest = |of: fn(Flooded) -> Duration| floods().map(of).max().unwrap_or_default();
    let well = done.iter().filter(|round| round.fault == Fault::Nothing);
    let well = well.filter_map(|round| round.tally.as_ref().ok());
    let late = well.flat_map(|tally| tally.late.clone()).collect();
    println!(
        "\n{} rounds, {} of them with floods, {} with long alarms or outages: {} messages, {} lost, {} parked without cause, {} redriven, \
         {} came back ({} not judged, {} taken back), {} delayed (without a fault late by {}), {} early, {} over the limit, longest gap {:.3} s ({:.3} s with those of the broker itself)",
        done.len(),
        rounds(|round| round.flood),
        rounds(|round| round.long),
        sum(|tally| tally.messages),
        sum(|tally| tally.lost),
        sum(|tally| tally.parked_without_cause),
        tallies()
            .filter_map(|tally| tally.redriven)
            .map(|moved| moved.redriven)
            .sum::<u64>(),
        sum(|tally| tally.back),
        sum(|tally| tally.unjudged),
        sum(|tally| tally.taken_back),
        sum(|tally| tally.late.len()),
        spread(late),
        sum(|tally| tally.early),
        sum(|tally| tally.over),
        longest(|flooded| flooded.own).as_secs_f64(),
        longest(|flooded| flooded.gap).as_secs_f64(),
    );
}

// === impl Done ===

impl Done {
    fn is_good(&self) -> bool {
        self.tally.as_ref().is_ok_and(Tally::is_good)
    }
}
