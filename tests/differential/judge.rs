//! One scenario on one broker: both runs, the verdict, and the repetition that tells a difference from a race.

use std::fmt::Write;

use super::compare::{self, Facts, difference};
use super::lab::{Broker, Place};
use super::names::Names;
use super::proxy::Proxy;
use super::run::{Record, Way, run};
use super::script::Script;
use super::value::Fallible;

/// How often the direct run is repeated to see whether it always gives the same.
const REPETITIONS: usize = 3;

/// What is to be said of a scenario.
pub(crate) enum Verdict {
    Equal,
    /// The records, side by side.
    Different(String),
    /// The broker itself does not do the same each time.
    Racing(String),
}

/// Runs a scenario directly and through a proxy, and compares. An error: it could not be run, or does not do what it says.
pub(crate) fn judge(script: &Script, broker: &Broker, queue_type: &str) -> Fallible<Verdict> {
    let place = broker.place(script)?;
    let names = Names::new(script, queue_type, &place.vhost);
    let proxy = broker.proxy(&place, script, &names)?;
    let verdict = both_runs(script, broker, queue_type, &place, &proxy, names);
    broker.leave(&place, Some(&proxy))?;
    verdict
}

fn both_runs(
    script: &Script,
    broker: &Broker,
    queue_type: &str,
    place: &Place,
    proxy: &Proxy,
    names: Names,
) -> Fallible<Verdict> {
    let facts = Facts {
        is_4x: broker.is_4x(),
        shows: script.shows.clone(),
    };
    let directly = |other: Option<&Record>| {
        let way = Way {
            broker,
            vhost: &place.vhost,
            proxy: None,
        };
        run(
            script,
            &way,
            Names::new(script, queue_type, &place.vhost),
            other,
        )
    };
    let direct = directly(None).map_err(|problem| format!("in the direct run: {problem}"))?;
    show("direct", &direct);
    if let [first, ..] = &direct.unmet[..] {
        return Err(format!(
            "the broker itself does not do this within 20 s: {first}\n{}",
            printed(&direct)
        ));
    }
    let way = Way {
        broker,
        vhost: &place.vhost,
        proxy: Some(proxy),
    };
    let proxied = run(script, &way, names, Some(&direct))
        .map_err(|problem| format!("in the run through the proxy: {problem}"))?;
    show("proxied", &proxied);
    let Some(found) = difference(&facts, &direct, &proxied, None) else {
        let shown = script
            .shows
            .as_deref()
            .map(|name| difference(&facts, &direct, &proxied, Some(name)));
        return match (shown, &script.shows) {
            (Some(None), Some(name)) => Err(format!(
                "it does not show `{name}` ({}): the records are equal without that rule\n{}",
                compare::reason(name),
                printed(&direct)
            )),
            _ => Ok(Verdict::Equal),
        };
    };
    for _ in 0..REPETITIONS {
        let again = directly(Some(&proxied))
            .map_err(|problem| format!("in the direct run, again: {problem}"))?;
        let Some(found) = difference(&facts, &direct, &again, None) else {
            continue;
        };
        // Nothing tells when a queue has taken back what was unacked at the end: we may have looked too early.
        let same_steps = difference(&facts, &direct.of_steps(), &again.of_steps(), None).is_none();
        if same_steps && difference(&facts, &again, &proxied, None).is_none() {
            return Ok(Verdict::Equal);
        }
        return Ok(Verdict::Racing(format!(
            "two direct runs (so `proxied` is direct too):\n{found}"
        )));
    }
    Ok(Verdict::Different(found))
}

/// With DLX_TEST_SHOW everything that was recorded is printed.
fn show(way: &str, record: &Record) {
    if std::env::var_os("DLX_TEST_SHOW").is_some() {
        eprintln!("{way}:\n{}", printed(record));
    }
}

fn printed(record: &Record) -> String {
    let mut out = String::new();
    for (group, frames) in &record.groups {
        let _ = writeln!(out, "  {group}");
        for came in frames {
            let _ = writeln!(out, "    [{}] {}", came.step, came.frame);
        }
    }
    out
}
