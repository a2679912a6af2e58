//! One scenario on one broker: both runs, the verdict, and the repetition that tells a difference from a race.

use std::fmt::Write;

use super::arrival;
use super::compare::{self, Facts, difference};
use super::lab::{Broker, Place};
use super::names::Names;
use super::proxy::Proxy;
use super::run::{self, Draw, Node, Record, Way};
use super::script::Script;
use super::value::Fallible;

/// How often the direct run is repeated to see whether it always gives the same.
pub(crate) const REPETITIONS: usize = 3;

/// What is to be said of a scenario.
pub(crate) enum Verdict {
    Equal,
    /// But for the stated difference of that name; what comes after it is not compared.
    Arrival(String),
    /// The records, side by side.
    Different(String),
    /// Each run through the proxy that rests long enough is equal.
    Late(String),
    /// The broker itself does not do the same each time.
    Racing(String),
}

/// Runs a scenario directly and through a proxy, and compares. An error: it could not be run, or does not do what it says.
pub(crate) fn judge(script: &Script, broker: &Broker, queue_type: &str) -> Fallible<Verdict> {
    in_place(script, broker, queue_type, |place, proxy, names| {
        let both = Both {
            script,
            broker,
            queue_type,
            place,
        };
        let direct = both.directly(None);
        let direct = direct.map_err(|problem| format!("in the direct run: {problem}"))?;
        let verdict = both.judge(&direct, proxy, &names);
        broker.keep(script, queue_type, place, direct);
        verdict
    })
}

/// The same for a script whose further steps are drawn in the direct run. Returns the whole of it.
pub(crate) fn explore(
    beginning: Script,
    broker: &Broker,
    draw: Draw<'_>,
) -> Fallible<(Script, Verdict)> {
    in_place(&beginning, broker, "", |place, proxy, names| {
        let way = Way {
            node: Node::Real(broker),
            vhost: &place.vhost,
            proxy: None,
            patient: false,
        };
        let (direct, drawn) = run::explore(
            &beginning,
            &way,
            Names::new(&beginning, "", &place.vhost),
            draw,
        )?;
        let mut script = beginning.clone();
        script.steps.extend(drawn);
        let both = Both {
            script: &script,
            broker,
            queue_type: "",
            place,
        };
        let verdict = both.judge(&direct, proxy, &names)?;
        Ok((script, verdict))
    })
}

/// With a vhost, the proxy in front of it, and the names of the run through that.
fn in_place<T>(
    script: &Script,
    broker: &Broker,
    queue_type: &str,
    run: impl FnOnce(&Place, &Proxy, Names) -> Fallible<T>,
) -> Fallible<T> {
    let place = broker.place(script)?;
    let names = Names::new(script, queue_type, &place.vhost);
    let proxy = broker.proxy(&place, script, &names)?;
    let done = run(&place, &proxy, names);
    broker.leave(&place, Some(&proxy))?;
    done
}

/// What both runs have in common.
struct Both<'a> {
    script: &'a Script,
    broker: &'a Broker,
    queue_type: &'a str,
    place: &'a Place,
}

impl Both<'_> {
    fn directly(&self, other: Option<&Record>) -> Fallible<Record> {
        let names = Names::new(self.script, self.queue_type, &self.place.vhost);
        self.run(None, names, other, false)
    }

    fn run(
        &self,
        proxy: Option<&Proxy>,
        names: Names,
        other: Option<&Record>,
        patient: bool,
    ) -> Fallible<Record> {
        let way = Way {
            node: Node::Real(self.broker),
            vhost: &self.place.vhost,
            proxy,
            patient,
        };
        run::run(self.script, &way, names, other)
    }

    fn judge(&self, direct: &Record, proxy: &Proxy, names: &Names) -> Fallible<Verdict> {
        let facts = Facts {
            is_4x: self.broker.is_4x(),
            shows: self.script.shows.clone(),
            same_broker: false,
            since: direct.began,
        };
        show("direct", direct);
        if let [first, ..] = &direct.unmet[..] {
            return Err(format!(
                "the broker itself does not do this in time: {first}\n{}",
                printed(direct)
            ));
        }
        let proxied = self
            .run(Some(proxy), names.again(), Some(direct), false)
            .map_err(|problem| format!("in the run through the proxy: {problem}"))?;
        show("proxied", &proxied);
        let Some(found) = difference(&facts, direct, &proxied, None) else {
            return self.shown(&facts, direct, &proxied);
        };
        for _ in 0..REPETITIONS {
            let again = self
                .directly(Some(&proxied))
                .map_err(|problem| format!("in the direct run, again: {problem}"))?;
            let Some(found) = difference(&facts, direct, &again, None) else {
                continue;
            };
            // Nothing tells when a queue has taken back what was unacked at the end, nor whether a frame is still to come that no step
            // waits for: we may have looked too early.
            let too_early =
                difference(&facts, &direct.of_steps(), &again.cut_as(direct), None).is_none();
            if too_early && difference(&facts, &again, &proxied, None).is_none() {
                return Ok(Verdict::Equal);
            }
            return Ok(Verdict::Racing(format!(
                "two direct runs (so `proxied` is direct too):\n{found}"
            )));
        }
        if arrival::explains(&facts, self.script, direct, &proxied) {
            return Ok(Verdict::Arrival(found));
        }
        let patient = || -> Fallible<bool> {
            let again = self.run(Some(proxy), names.again(), Some(direct), true)?;
            Ok(difference(&facts, direct, &again, None).is_none())
        };
        for _ in 0..REPETITIONS {
            if direct.rests.is_empty() || !patient()? {
                return Ok(Verdict::Different(found));
            }
        }
        Ok(Verdict::Late(found))
    }

    /// The records are equal; does the scenario show what it says?
    fn shown(&self, facts: &Facts, direct: &Record, proxied: &Record) -> Fallible<Verdict> {
        match &self.script.shows {
            Some(name) if difference(facts, direct, proxied, Some(name)).is_none() => Err(format!(
                "it does not show `{name}` ({}): the records are equal without that rule\n{}",
                compare::reason(name),
                printed(direct)
            )),
            _ => Ok(Verdict::Equal),
        }
    }
}

/// With DLX_TEST_SHOW everything that was recorded is printed.
pub(crate) fn show(way: &str, record: &Record) {
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
