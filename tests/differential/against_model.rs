//! Is the model as the broker? Each scenario that it can do runs on the newest broker and on the model, without a proxy, and so do random
//! programs. Nothing may differ that a user of the proxy would have to be told.

use super::arrival;
use super::compare::{Facts, difference};
use super::judge::{REPETITIONS, Verdict, show};
use super::lab::Broker;
use super::names::Names;
use super::run::{self, Draw, Node, Record, Way};
use super::script::{Action, Script, Step};
use super::stand_in::StandIn;
use super::value::Fallible;

/// Scenarios that the model cannot be held to, by the beginning of their names, and why.
const BEYOND: &[(&str, &str)] = &[
    ("connection-vhost", "another vhost"),
    (
        "S9.3-delete-then-another-queue-of-that-name",
        "a classic queue takes what its former life delivered for its own, by numbers",
    ),
];

/// What a step needs that the model has not, by a piece of its text.
const MISSING: &[(&str, &str)] = &[
    (" tx.commit", "transactions that are committed"),
    ("\"stream\"", "streams"),
    ("x-delayed-retry", "native retries"),
    ("x-priority", "priorities"),
    ("x-max-priority", "priorities"),
    ("at-least-once", "the strategy at-least-once"),
    ("amq.rabbitmq.reply-to", "direct reply-to"),
    ("amqp-1.0", "AMQP 1.0"),
];

/// The model has no settlement that waits for a commit.
const SETTLES: &[&str] = &[" basic.ack", " basic.nack", " basic.reject"];

/// Why the model is not held to that scenario.
pub(crate) fn beyond(script: &Script) -> Option<&'static str> {
    let known = BEYOND
        .iter()
        .find(|(name, _)| script.name.starts_with(name));
    let step = |step: &Step| match step {
        Step::Operator(operation) => {
            let can = ["user", "delete user", "close"];
            (!can.contains(&&*operation.verb)).then_some("management")
        }
        step => {
            let text = step.to_string();
            let found = MISSING.iter().find(|(piece, _)| text.contains(piece));
            found.map(|(_, why)| *why)
        }
    };
    let says = |words: &[&str]| {
        let mut texts = script.steps.iter().map(Step::to_string);
        texts.any(|text| words.iter().any(|word| text.contains(word)))
    };
    // A script that is still to be drawn may settle something: it says nothing of a rollback yet.
    let settles = says(&[" tx.select"]) && (says(SETTLES) || !says(&[" tx.rollback"]));
    known
        .map(|(_, why)| *why)
        .or(settles.then_some("transactions that settle something"))
        .or((!script.policies.is_empty()).then_some("policies"))
        .or_else(|| script.steps.iter().find_map(step))
        .or_else(|| {
            let raw = |step: &Step| matches!(step, Step::Client(_, Action::Raw(bytes)) if bytes.starts_with(b"AMQP\x03"));
            script.steps.iter().any(raw).then_some("AMQP 1.0")
        })
}

/// Runs a scenario on the broker, unless its direct run is known, and on the model, and compares.
pub(crate) fn judge(script: &Script, broker: &Broker, queue_type: &str) -> Fallible<Verdict> {
    if let Some((vhost, real)) = broker.take(script, queue_type) {
        let both = Both {
            broker,
            queue_type,
            vhost,
        };
        return both.judge(script, &real);
    }
    let both = Both::new(script, broker, queue_type)?;
    let real = both.run(script, Node::Real(broker), None)?;
    both.judge(script, &real)
}

/// The same for a script whose further steps are drawn in the run on the broker. Returns the whole of it.
pub(crate) fn explore(
    beginning: Script,
    broker: &Broker,
    draw: Draw<'_>,
) -> Fallible<(Script, Verdict)> {
    let both = Both::new(&beginning, broker, "")?;
    let names = Names::new(&beginning, "", &both.vhost);
    let (real, drawn) = run::explore(&beginning, &both.way(Node::Real(broker)), names, draw)?;
    let mut script = beginning;
    script.steps.extend(drawn);
    let verdict = both.judge(&script, &real)?;
    Ok((script, verdict))
}

/// What both runs have in common.
struct Both<'a> {
    broker: &'a Broker,
    queue_type: &'a str,
    vhost: String,
}

impl<'a> Both<'a> {
    fn new(script: &Script, broker: &'a Broker, queue_type: &'a str) -> Fallible<Both<'a>> {
        // Whatever the proxy's settings are: there is none.
        let plain = Script {
            name: script.name.clone(),
            ..Script::default()
        };
        let vhost = broker.place(&plain)?.vhost;
        Ok(Both {
            broker,
            queue_type,
            vhost,
        })
    }

    fn way<'b>(&'b self, node: Node<'b>) -> Way<'b> {
        Way {
            node,
            vhost: &self.vhost,
            proxy: None,
            patient: false,
        }
    }

    fn run(&self, script: &Script, node: Node<'_>, other: Option<&Record>) -> Fallible<Record> {
        let names = Names::new(script, self.queue_type, &self.vhost);
        run::run(script, &self.way(node), names, other)
    }

    fn judge(&self, script: &Script, real: &Record) -> Fallible<Verdict> {
        let facts = Facts {
            is_4x: true,
            shows: None,
            same_broker: true,
            since: real.began,
        };
        show("real", real);
        let model = StandIn::start(&self.vhost, &self.broker.version, real.connection_start())?;
        let modelled = self
            .run(script, Node::Model(&model), Some(real))
            .map_err(|problem| format!("on the model: {problem}"))?;
        show("model", &modelled);
        let Some(found) = difference(&facts, real, &modelled, None) else {
            return Ok(Verdict::Equal);
        };
        // What the real one does now and then, the model may do.
        for _ in 0..REPETITIONS {
            let again = self.run(script, Node::Real(self.broker), Some(&modelled))?;
            if difference(&facts, real, &again, None).is_none() {
                continue;
            }
            return Ok(match difference(&facts, &again, &modelled, None) {
                None => Verdict::Equal,
                Some(found) => {
                    Verdict::Racing(format!("the broker is not always the same\n{found}"))
                }
            });
        }
        // Lanes have no order among each other; the model takes one, the broker another.
        Ok(match arrival::explains(&facts, script, real, &modelled) {
            true => Verdict::Arrival(found),
            false => Verdict::Different(found),
        })
    }
}
