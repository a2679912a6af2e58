//! Nothing is lost, nothing hangs: the proxy's machines, all of them, against a model of the broker, in one thread and under a clock of its
//! own. Everything that could happen next is drawn from a seed: the order of all moves, where the network cuts the bytes, what goes wrong.
//! `make simulate SEEDS=N`, or
//!
//! ```text
//! cargo test --test simulation                       # some seeds
//! DLX_TEST_SEEDS=2000 DLX_TEST_FIRST_SEED=1 DLX_TEST_SECONDS=600 cargo test --test simulation
//! DLX_TEST_SEED=42 cargo test --test simulation      # that one again; with DLX_TEST_SHOW=1 each step is printed
//! ```
//! - `net` connections · `task` the proxy's own driver as a task, and the clock · `proxy` a process: machines, tasks, the proxy's own hub
//! - `client` an application: what it publishes (and publishes again), what it takes · `plan` what it declares · `decoder` frames
//! - `operator` redrives and purges · `alterations` queues that are made anew
//! - `sighups` other policies in the middle of it · `rulings` what a policy says of a queue
//! - `redeclares` what several releases of an application declare one queue with
//! - `delays` what clients publish to arrive later
//! - `unknown` what nobody tells the proxies · `management` what an API tells them, late
//! - `retries` what queues say of retries, and what is promised for it
//! - `world` the clock and the choice · `faults` what goes wrong · `accounts` what must hold, copy by copy
//!
//! The broker is `tests/model`, which the differential tests hold to the real one. Nothing here uses the proxy's own codec.

mod accounts;
mod alterations;
mod client;
#[path = "../codec/mod.rs"]
mod codec;
mod decoder;
mod delays;
mod faults;
mod management;
#[path = "../model/mod.rs"]
mod model;
mod net;
mod operator;
mod plan;
mod proxy;
mod redeclares;
mod retries;
mod rulings;
mod sighups;
mod task;
mod unknown;
mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use self::accounts::Count;
use self::world::World;

/// Steps of a world before it is wound up.
const STEPS: u64 = 8_000;

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let steps = number("DLX_TEST_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("DLX_TEST_SEED") {
        let (world, ran) = simulate(seed, steps, std::env::var_os("DLX_TEST_SHOW").is_some());
        world.trace().for_each(|line| println!("{line}"));
        return match ran {
            Ok(()) => verdict(&Sum::of(&world)),
            Err(what) => {
                println!("seed {seed}: {what}");
                ExitCode::FAILURE
            }
        };
    }
    let campaign = Campaign {
        steps,
        next: AtomicU64::new(number("DLX_TEST_FIRST_SEED").unwrap_or(1)),
        seeds: number("DLX_TEST_SEEDS").unwrap_or(100),
        until: number("DLX_TEST_SECONDS").map(|limit| Instant::now() + Duration::from_secs(limit)),
        sum: Mutex::default(),
    };
    verdict(&campaign.run())
}

/// Many seeds, on all cores.
struct Campaign {
    steps: u64,
    next: AtomicU64,
    seeds: u64,
    until: Option<Instant>,
    sum: Mutex<Sum>,
}

/// What the worlds of a campaign had in them.
#[derive(Default)]
struct Sum {
    worlds: u64,
    failed: u64,
    steps: u64,
    count: Count,
    faults: BTreeMap<String, u64>,
    /// Seconds of the virtual clock; the longest that one needed until all was settled.
    seconds: u64,
    settled_after: u64,
}

impl Campaign {
    fn run(self) -> Sum {
        let end = self.next.load(Ordering::Relaxed) + self.seeds;
        let cores = available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| self.work(end));
            }
        });
        self.sum.into_inner().expect("no panic")
    }

    fn work(&self, end: u64) {
        while self.until.is_none_or(|until| Instant::now() < until) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let (world, ran) = simulate(seed, self.steps, false);
            let mut sum = self.sum.lock().expect("no panic");
            sum.add(&Sum::of(&world));
            if let Err(what) = ran {
                sum.failed += 1;
                println!(
                    "seed {seed}: {what}\n    again: DLX_TEST_SEED={seed} cargo test --test simulation"
                );
            }
        }
    }
}

impl Sum {
    fn of(world: &World) -> Sum {
        Sum {
            worlds: 1,
            failed: 0,
            steps: world.steps,
            count: world.accounts.count,
            faults: world.troubles.counts(),
            seconds: world.at / 1_000_000,
            settled_after: world.settled_after / 1_000_000,
        }
    }

    fn add(&mut self, other: &Sum) {
        self.worlds += other.worlds;
        self.steps += other.steps;
        self.seconds += other.seconds;
        self.settled_after = self.settled_after.max(other.settled_after);
        self.count.add(&other.count);
        for (fault, count) in &other.faults {
            *self.faults.entry(fault.clone()).or_default() += count;
        }
    }
}

/// For people, and as cargo's own tests say it.
fn verdict(sum: &Sum) -> ExitCode {
    let Sum {
        worlds,
        failed,
        steps,
        count,
        seconds,
        settled_after,
        ..
    } = sum;
    println!(
        "{worlds} worlds, {steps} steps, {seconds} virtual seconds; settled at most {settled_after} s after the last fault"
    );
    println!(
        "messages {}, given another life {}, copies for CC and BCC {}; dead letters {}, of another life {}, parked {}, twice {}; faults {:?}",
        count.messages,
        count.again,
        count.carbon,
        count.dead_letters,
        count.died_again,
        count.parked,
        count.duplicates,
        sum.faults
    );
    println!(
        "retries: sent away {}, come back {}, dead at the limit {}, refused {}; by proxies that do not know the TTL {}",
        count.away, count.back, count.over, count.refused, count.without_ttl
    );
    println!(
        "delayed publishes: arrived {}; deliveries taken back {}",
        count.arrived, count.overdue
    );
    println!(
        "policies: changed by SIGHUP {}; dead letters that went elsewhere for it {}, that raced with it {}; returns with other retries {}",
        count.reloads, count.redirected, count.raced, count.otherwise
    );
    println!(
        "declares that differ: answered {}, while their record said otherwise {}, refused {}; entries recorded {}, and read by others {}; dead letters that went elsewhere for them {}, that raced with them {}",
        count.redeclares,
        count.unwritten,
        count.spoiled,
        count.entries,
        count.learned,
        count.moved,
        count.overtaken
    );
    println!(
        "unknown: clients that declare nothing {}, policies of the broker changed {}; rejects left to it, as it was said {}",
        count.strangers, count.policies, count.left
    );
    println!(
        "redrives and purges: begun {}, completed {}, failed {}; sent back {}, removed {}; in order {}",
        count.walks, count.completed, count.failed, count.redriven, count.purged, count.in_order
    );
    println!(
        "alterations: begun {}, done {}, not done {}, killed {}; orders attended to {}; messages moved {}; the longest pause {} ms, clients waited at most {} ms",
        count.alterations,
        count.altered,
        count.unaltered,
        count.killed,
        count.attended,
        count.set_aside,
        count.pause,
        count.held
    );
    let (word, code) = match failed {
        0 => ("ok", ExitCode::SUCCESS),
        _ => ("FAILED", ExitCode::FAILURE),
    };
    println!(
        "test result: {word}. {} passed; {failed} failed; 0 ignored",
        worlds - failed
    );
    code
}

/// One world, to its end.
fn simulate(seed: u64, steps: u64, traced: bool) -> (World, Result<(), String>) {
    let mut world = World::new(seed, traced);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run(steps)));
    let panicked = |panic: Box<dyn Any + Send>| {
        Err(format!("it panicked: {:?}", panic.downcast_ref::<String>()))
    };
    let ran = ran.unwrap_or_else(panicked);
    (world, ran)
}
