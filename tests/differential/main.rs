//! The same answer as the broker: each scenario runs twice on a real broker, once directly and once through the proxy, and whatever the
//! clients received must be equal, frame by frame. `make differential`, or with brokers that run already
//!
//! ```text
//! cargo test --test differential                      # all scenarios on all brokers
//! cargo test --test differential -- S4.2::4.3.6       # some: names are SCENARIO::VERSION or SCENARIO::VERSION::TYPE
//! DLX_TEST_SHOW=1 cargo test --test differential -- --exact S1.1-multiple::4.3.6::quorum     # what was recorded
//! DLX_TEST_SCENARIO=/tmp/mine.txt cargo test --test differential                              # only those of a file
//! cargo test --test differential -- instrument        # the instrument's own parts; these need no broker
//! ```
//!
//! How a scenario is written stands in `script`; a new one is a few lines in `scenarios/*.txt`. What may differ is the table in `compare`.
//! When records differ, the direct run is repeated: if it does not even equal itself, the scenario races, and that is its failure.
//!
//! - `../codec`: what AMQP's frames say, written and read
//! - `script`, `parse`: scenarios · `names`: names that no two runs share, and their removal from records
//! - `client`, `reader`: one connection · `management`: what an operator does · `run`, `end`: carries out a script
//! - `judge`: both runs · `compare`, `side_by_side`: are the records the same?
//! - `generate`: random programs · `campaign`: many of them, and the smallest that differs
//! - `../model`: a small broker for simulations · `stand_in`: it listens · `against_model`: is it as the real one?
//! - `lab`, `proxy`: brokers, vhosts, proxies · `checks`: is anything different overlooked?
//! - of `tests/support`: `application`, `admin`, `http`, `environment`, `port`

#[allow(dead_code)] // tests/broker uses the rest
#[path = "../support/admin.rs"]
mod admin;
mod against_model;
mod alphabet;
#[path = "../support/application.rs"]
mod application;
mod arrival;
mod campaign;
mod checks;
mod client;
#[path = "../codec/mod.rs"]
mod codec;
mod compare;
mod end;
#[path = "../support/environment.rs"]
mod environment;
mod generate;
#[path = "../support/http.rs"]
mod http;
mod judge;
mod lab;
mod management;
#[path = "../model/mod.rs"]
mod model;
mod names;
mod parse;
#[path = "../support/port.rs"]
mod port;
mod proxy;
mod reader;
mod rest;
mod run;
mod script;
mod side_by_side;
mod stand_in;
mod wide;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use self::codec::{frame, methods, notation, value, wire};
use self::judge::{Verdict, judge};
use self::lab::Broker;
use self::script::Script;
use self::value::Fallible;
use self::wide::ARRIVAL;

/// Scenarios at once: they mostly wait.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(AT_ONCE));
    let mut trials = checks::trials();
    let brokers = match Broker::all() {
        Ok(brokers) => brokers,
        Err(how) => {
            trials.push(Trial::test("brokers", move || Err(Failed::from(how))));
            Vec::new()
        }
    };
    let chosen = std::env::var_os("DLX_TEST_SCENARIO");
    match chosen.map_or_else(scenarios, |file| scripts_of(&[file.into()])) {
        Ok(scripts) => {
            let scripts: Vec<Arc<Script>> = scripts.into_iter().map(Arc::new).collect();
            trials.extend(
                scripts
                    .iter()
                    .flat_map(|script| trials_of(script, &brokers)),
            );
            trials.extend(trials_of_the_model(&scripts, &brokers));
        }
        Err(problem) => trials.push(Trial::test("scenarios", move || Err(Failed::from(problem)))),
    }
    trials.extend(campaign::trials(&brokers));
    let conclusion = libtest_mimic::run(&arguments, trials);
    for broker in &brokers {
        if let Err(problem) = broker.clean_up() {
            eprintln!("{}: {problem}", broker.version);
            return ExitCode::FAILURE;
        }
    }
    conclusion.exit_code()
}

/// All that are written, each name once.
fn scenarios() -> Fallible<Vec<Script>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/scenarios");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    scripts_of(&files)
}

fn scripts_of(files: &[PathBuf]) -> Fallible<Vec<Script>> {
    let mut scripts = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        scripts.extend(parse::scripts(&file.display().to_string(), &text)?);
    }
    let mut names = BTreeSet::new();
    match scripts.iter().find(|script| !names.insert(&script.name)) {
        Some(twice) => Err(format!("two scenarios have the name {}", twice.name)),
        None => Ok(scripts),
    }
}

/// One for each broker, and for each type of queue if that matters.
fn trials_of(script: &Arc<Script>, brokers: &[Arc<Broker>]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for broker in brokers {
        for (queue_type, name) in types_of(script, broker, &broker.version) {
            let (script, broker) = (script.clone(), broker.clone());
            trials.push(Trial::test(name, move || {
                trial(&script, &broker, queue_type)
            }));
        }
    }
    trials
}

/// The types of queue with which it runs on that broker, and the names of the trials.
fn types_of(script: &Script, broker: &Broker, place: &str) -> Vec<(&'static str, String)> {
    let types: &[&str] = match script.depends_on_type() {
        true => &["classic", "quorum"],
        false => &[""],
    };
    let wanted = |queue_type: &&'static str| Some(*queue_type).filter(|of| !of.is_empty());
    let runs = |of: &&'static str| script.runs_on(&broker.version, wanted(of));
    let name = |of: &'static str| match of {
        "" => (of, format!("{}::{place}", script.name)),
        of => (of, format!("{}::{place}::{of}", script.name)),
    };
    types.iter().copied().filter(runs).map(name).collect()
}

/// The model of the newest version is held to it; a twin, which differs only in the proxy's settings, says nothing new.
fn trials_of_the_model(scripts: &[Arc<Script>], brokers: &[Arc<Broker>]) -> Vec<Trial> {
    let Some(broker) = brokers.iter().find(|of| of.counts_failures()) else {
        return Vec::new();
    };
    let plain = |of: &&Arc<Script>| of.proxy.is_empty();
    let is_twin = |script: &Script| {
        let mut plain = scripts.iter().filter(plain);
        !script.proxy.is_empty() && plain.any(|other| other.steps == script.steps)
    };
    let mut trials = Vec::new();
    for script in scripts.iter().filter(|script| !is_twin(script)) {
        let beyond = against_model::beyond(script);
        for (queue_type, name) in types_of(script, broker, "model") {
            let (script, broker) = (script.clone(), broker.clone());
            let held = move || match against_model::judge(&script, &broker, queue_type)? {
                Verdict::Equal => Ok(()),
                Verdict::Different(found)
                | Verdict::Arrival(found)
                | Verdict::Late(found)
                | Verdict::Racing(found) => {
                    let steps = steps_of(&script);
                    let text =
                        format!("the model (`proxied`) is not as the broker\n{found}\n{steps}");
                    Err(Failed::from(text))
                }
            };
            let trial = Trial::test(name, held).with_kind(beyond.unwrap_or_default());
            trials.push(trial.with_ignored_flag(beyond.is_some()));
        }
    }
    trials
}

fn trial(script: &Script, broker: &Broker, queue_type: &str) -> Result<(), Failed> {
    let with_script = |text: String| Failed::from(format!("{text}\n{}", steps_of(script)));
    match judge(script, broker, queue_type).map_err(&with_script)? {
        Verdict::Equal => Ok(()),
        Verdict::Arrival(_) if script.shows.as_deref() == Some(ARRIVAL) => Ok(()),
        Verdict::Different(found) | Verdict::Arrival(found) | Verdict::Late(found) => Err(
            with_script(format!("not the same answer as the broker\n{found}")),
        ),
        Verdict::Racing(found) => Err(with_script(format!(
            "not deterministic: let a step wait for it\n{found}"
        ))),
    }
}

/// With their numbers; of many alike in a row the first and the last.
fn steps_of(script: &Script) -> String {
    let texts: Vec<String> = script.steps.iter().map(|step| step.to_string()).collect();
    let kinds: Vec<Vec<&str>> = texts
        .iter()
        .map(|text| text.split_whitespace().take(2).collect())
        .collect();
    let inner = |at: usize| {
        at > 1
            && kinds[at - 2..=at + 1]
                .windows(2)
                .all(|two| two[0] == two[1])
    };
    let mut out = String::new();
    for (at, text) in texts.iter().enumerate() {
        match at + 1 < texts.len() && inner(at) {
            true if out.ends_with("…\n") => {}
            true => out += "      …\n",
            false => out += &format!("  {:>3} {text}\n", at + 1),
        }
    }
    out
}
