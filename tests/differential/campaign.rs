//! Many generated programs on one broker: as many seeds, or as long, as the environment says. What differs is made smaller first.
//!
//! ```text
//! DLX_TEST_SEEDS=1000 DLX_TEST_SECONDS=600 DLX_TEST_FIRST_SEED=1 cargo test --test differential -- generated::
//! ```
//! Without DLX_TEST_SEEDS there are none. A seed gives the same program as long as the broker gives the same answers; a program that
//! differed is printed as a script, and belongs into `scenarios` when its cause is mended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::against_model;
use super::generate::Program;
use super::judge::{self, Verdict};
use super::lab::Broker;
use super::run::Draw;
use super::script::{Script, Step};
use super::value::Fallible;

/// Programs at once on one broker: they mostly wait.
const AT_ONCE: usize = 5;

/// Scripts that are tried to make one that differs smaller.
const ATTEMPTS: usize = 60;

/// After so many that differ the rest would tell nothing new.
const ENOUGH: usize = 5;

/// The broker's own races, per hundred programs: more, and the generator is not what it should be.
const MOST_RACES: usize = 5;

/// Programs per thousand whose first run through the proxy came later than it was looked at, and that are equal in each patient run.
const MOST_LATES: usize = 5;

/// One trial per broker, and one for the model of the newest.
pub(crate) fn trials(brokers: &[Arc<Broker>]) -> Vec<Trial> {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let Some(seeds) = number("DLX_TEST_SEEDS").filter(|seeds| *seeds > 0) else {
        return Vec::new();
    };
    let first = number("DLX_TEST_FIRST_SEED").unwrap_or(1);
    let time = Duration::from_secs(number("DLX_TEST_SECONDS").unwrap_or(u64::MAX / 4));
    let trial = |broker: &Arc<Broker>, name: &str, against: Against| {
        let broker = broker.clone();
        Trial::test(format!("generated::{name}"), move || {
            campaign(&broker, against, first, seeds, time).map_err(Failed::from)
        })
    };
    let through_proxies = brokers
        .iter()
        .map(|broker| trial(broker, &broker.version, Against::Proxy));
    let newest = brokers.iter().filter(|of| of.counts_failures());
    let of_the_model = newest.map(|broker| trial(broker, "model", Against::Model));
    through_proxies.chain(of_the_model).collect()
}

/// With what the broker is compared.
#[derive(Clone, Copy)]
enum Against {
    Proxy,
    Model,
}

impl Against {
    fn explore(
        self,
        beginning: Script,
        broker: &Broker,
        draw: Draw<'_>,
    ) -> Fallible<(Script, Verdict)> {
        match self {
            Against::Proxy => judge::explore(beginning, broker, draw),
            Against::Model => against_model::explore(beginning, broker, draw),
        }
    }

    fn can(self, beginning: &Script) -> bool {
        match self {
            Against::Proxy => true,
            Against::Model => against_model::beyond(beginning).is_none(),
        }
    }

    fn judge(self, script: &Script, broker: &Broker) -> Fallible<Verdict> {
        match self {
            Against::Proxy => judge::judge(script, broker, ""),
            Against::Model => against_model::judge(script, broker, ""),
        }
    }
}

/// What came of the programs so far.
#[derive(Default)]
struct Tally {
    run: usize,
    /// More than the model can do.
    beyond: usize,
    steps: usize,
    races: Vec<u64>,
    lates: Vec<u64>,
    /// Compared as far as the stated difference of that name.
    arrivals: Vec<u64>,
    problems: BTreeMap<u64, String>,
}

fn campaign(
    broker: &Broker,
    against: Against,
    first: u64,
    seeds: u64,
    time: Duration,
) -> Fallible<()> {
    let (next, tally) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while Instant::now() < end
                    && tally.lock().expect("no panic").problems.len() < ENOUGH
                {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - first >= seeds {
                        return;
                    }
                    let outcome = one(broker, against, seed);
                    let mut tally = tally.lock().expect("no panic");
                    tally.run += 1;
                    match outcome {
                        Ok(None) => tally.beyond += 1,
                        Ok(Some((steps, Verdict::Equal))) => tally.steps += steps,
                        Ok(Some((_, Verdict::Racing(_)))) => tally.races.push(seed),
                        Ok(Some((_, Verdict::Late(found)))) => {
                            eprintln!("{}: seed {seed} was late\n{found}", broker.version);
                            tally.lates.push(seed);
                        }
                        Ok(Some((_, Verdict::Arrival(_)))) => tally.arrivals.push(seed),
                        Ok(Some((_, Verdict::Different(found)))) | Err(found) => {
                            tally.problems.insert(seed, found);
                        }
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().expect("no panic");
    eprintln!(
        "{}: {} programs from seed {first} on, {} steps, {} beyond; the broker itself raced in {}: {:?}; late in {:?}; compared up to an arrival {}: {:?}",
        broker.version,
        tally.run,
        tally.steps,
        tally.beyond,
        tally.races.len(),
        tally.races,
        tally.lates,
        tally.arrivals.len(),
        tally.arrivals
    );
    let mut problems: Vec<String> = tally
        .problems
        .iter()
        .map(|(seed, found)| format!("seed {seed}: {found}"))
        .collect();
    if tally.races.len() * 100 > tally.run.max(100) * MOST_RACES {
        problems.push("too many programs race".to_owned());
    }
    if tally.lates.len() * 1000 > tally.run.max(1000) * MOST_LATES {
        problems.push("too many programs are late".to_owned());
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n\n")),
    }
}

/// Runs the program of a seed, if that can be done. Returns how many steps it has.
fn one(broker: &Broker, against: Against, seed: u64) -> Fallible<Option<(usize, Verdict)>> {
    let retries = broker.counts_failures();
    let (mut program, beginning) = Program::new(seed, broker.is_4x(), retries)?;
    if !against.can(&beginning) {
        return Ok(None);
    }
    let (script, verdict) = against.explore(beginning, broker, &mut |seen| program.next(seen))?;
    let verdict = match verdict {
        Verdict::Different(found) => {
            eprintln!(
                "{}: seed {seed} differs; making it smaller\n{found}",
                broker.version
            );
            let (smaller, found) = shrink(script.clone(), found, broker, against);
            Verdict::Different(format!(
                "not the same answer as the broker\n{found}\n{smaller}"
            ))
        }
        other => other,
    };
    Ok(Some((script.steps.len(), verdict)))
}

/// Leaves out what is not needed to differ: halves, quarters, … of the steps, then single ones.
fn shrink(
    mut script: Script,
    mut found: String,
    broker: &Broker,
    against: Against,
) -> (Script, String) {
    let mut attempts = 0;
    let mut size = script.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < script.steps.len() && attempts < ATTEMPTS {
            let end = (at + size).min(script.steps.len());
            if size == 1 && matches!(script.steps[at], Step::Rest) {
                at += 1;
                continue;
            }
            let mut smaller = script.clone();
            smaller.steps.drain(at..end);
            attempts += 1;
            match against.judge(&smaller, broker) {
                Ok(Verdict::Different(still)) => (script, found) = (smaller, still),
                _ => at = end,
            }
        }
        size /= 2;
    }
    (script, found)
}
