//! Scripts as text, in `testdata/scripts`: what happens at the left margin, and right of it or below what comes of it. `UPDATE=1` writes the latter;
//! a human reads the diff.
//!
//! ```text
//! = a reject is withheld until its dead letter is confirmed
//! session rejects-only                     a mode, then what differs from `settings` and from the limits of tests
//! manages q {x-dead-letter-exchange=dlx}
//! consumes q                               a consumer of the same name
//! broker -> deliver q 1                    the arrow: it passes to the other peer as it is
//! client reject 1                          dead 1: q rejected to "dlx" ""
//! outcome 1=confirmed                      > ack 1           to the broker; `<` is to the client
//! ```
//! `after TITLE` does all that another script does, and shows nothing of it. `another` is the next session with the same settings; `beside`, too, while
//! the first one goes on, and `back` changes between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::policies::{brokers, policy};
use super::script::*;
use super::words::{Words, frames, lenient, quoted, shown, table, time};
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::dead_letter::edited;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::retries::RetryType;
use crate::dead_letter::schedule::Schedule;
use crate::machine::*;
use crate::objects::QueueType;
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::delayed_exchanges::DelayedPublish;
use crate::registry::policy::{Mode, Policies};
use crate::registry::reach::Reach;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};
use crate::session::{Input, Swap};

pub(super) fn mode(word: &str) -> Mode {
    match word {
        "full" => Mode::Full,
        "rejects-only" => Mode::RejectsOnly,
        "off" => Mode::Off,
        other => panic!("a mode: {other}"),
    }
}

/// `word` or `name=value`, each.
pub(super) fn pairs(words: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = words.split_whitespace();
    words.map(|word| word.split_once('=').unwrap_or((word, "")))
}

pub(super) fn number<N: std::str::FromStr>(word: &str) -> N {
    let number = word.parse().ok();
    number.unwrap_or_else(|| panic!("a number: {word}"))
}

fn session(words: &str) -> Script {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let mut settings = settings(mode(first));
    let mut limits = Limits::clone(&settings.limits.now());
    let (mut version, mut channels, mut frame_max) = ("4.3.6", None, None);
    let mut flags = [false, false];
    for (word, value) in pairs(rest) {
        match word {
            "api" => settings.policies.set_hears_broker(true),
            "lenient" => settings.lenient = lenient(value),
            "version" => version = value,
            "channels" => channels = Some(number(value)),
            "frame-max" => frame_max = Some(number(value)),
            "retained" => limits.retained_bytes_per_connection = number(value),
            "tickets" => limits.max_tickets_per_connection = number(value),
            "close-wait" => limits.close_wait = time(value),
            "replies" => limits.max_replies_per_connection = number(value),
            "queues" => limits.max_queues_per_connection = number(value),
            "redeclared" => limits.max_redeclared_queues = number(value),
            "delays" => {
                settings.delays = DelayedPublish {
                    x_delay: true,
                    delivery_time: value == "all",
                    ..DelayedPublish::default()
                };
            }
            "doubts" => flags[0] = true,
            "inquires" => flags[1] = true,
            other => panic!("a setting: {other}"),
        }
    }
    settings.limits.set(limits);
    let mut script = Script::fresh(settings);
    script.channel_max = channels.unwrap_or(script.channel_max);
    script.frame_max = frame_max.unwrap_or(script.frame_max);
    let mut script = script.opened_at(version);
    [script.doubts, script.inquires] = flags;
    script
}

/// `QUEUE [taken-over] [min=MS] [delays=MS,…] [jitter=J] [ack-timeout=MS] [limit=N] [delayed=failed] [bits=N] [type=quorum] {arguments}`
fn declared(words: &str) -> (&str, Declared) {
    let (words, table) = words.split_at(words.find('{').unwrap_or(words.len()));
    let (queue, words) = words.split_once(' ').unwrap_or((words, ""));
    let mut form = Form::of(0, &Words(table.as_bytes()).table());
    let (mut kind, mut taken_over) = (QueueType::Classic, false);
    let mut retries = SaidRetries::default();
    for (word, value) in pairs(words) {
        match word {
            "taken-over" => taken_over = true,
            "min" => retries.delayed_retry_min = Some(number(value)),
            "delays" => retries.delayed_retry_delays = Schedule::parse(value),
            "jitter" => retries.delayed_retry_jitter = Jitter::parse(value).unwrap(),
            "ack-timeout" => retries.ack_timeout = Some(number(value)),
            "limit" => retries.delivery_limit = Some(number(value)),
            "delayed" if value == "failed" => {
                retries.delayed_retry_type = Some(RetryType::Failed);
            }
            "bits" => form.bits = number(value),
            "type" if value == "quorum" => kind = QueueType::Quorum,
            other => panic!("of a queue: {other}"),
        }
    }
    let declared = Declared::of_queue(form, kind, &super::names());
    let declared = Declared {
        retries,
        taken_over,
        ..declared
    };
    (queue, declared)
}

fn outcome(words: &str) -> Outcome {
    let (word, cause) = words.split_once(':').unwrap_or((words, ""));
    let mut causes = Cause::ALL.into_iter();
    let cause = causes.find(|known| known.as_str() == cause);
    match (word, cause) {
        ("confirmed", None) => Outcome::Confirmed,
        ("parked", Some(cause)) => Outcome::Parked(cause),
        ("dropped", Some(cause)) => Outcome::Dropped(cause),
        ("refused", Some(cause)) => Outcome::Refused(cause),
        _ => panic!("an outcome: {words}"),
    }
}

/// `NAME yes`
fn yes_or_no(words: &str) -> (ShortStr, bool) {
    let (of, answer) = words.split_once(' ').expect("an answer");
    (name(of), answer == "yes")
}

/// What a script was like.
pub(super) struct Mark {
    is_read: bool,
    flow: Flow,
}

// === impl Script ===

impl Script {
    /// Nothing has come of it yet.
    pub(super) fn mark(&mut self) -> Mark {
        self.to_client.clear();
        self.to_broker.clear();
        self.fx.out.unknown.clear();
        self.fx.out.swap = None;
        self.dead.clear();
        self.ensure.clear();
        self.record.clear();
        self.events.clear();
        Mark {
            is_read: self.session.wants_read(Leg::Client, 0),
            flow: self.session.flow(),
        }
    }

    /// All that came of this since then.
    pub(super) fn came(&self, line: &str, mark: &Mark) -> String {
        let [client, broker] =
            [&self.to_client, &self.to_broker].map(|bytes| shown(bytes).join(" ; "));
        let (side, said) = line.split_once(' ').unwrap_or((line, ""));
        let passes = match side {
            "client" => client.is_empty() && broker == said,
            "broker" => broker.is_empty() && client == said,
            _ => false,
        };
        if passes {
            return laid_out(format!("{side} -> {said}"), self.came_besides(mark));
        }
        let peers = [("> ", broker), ("< ", client)].into_iter();
        let sent = peers.filter(|(_, words)| !words.is_empty());
        let sent = sent.map(|(to, words)| format!("{to}{words}"));
        laid_out(
            line.to_owned(),
            sent.chain(self.came_besides(mark)).collect(),
        )
    }

    fn came_besides(&self, mark: &Mark) -> Vec<String> {
        let mut out = Vec::new();
        for (ticket, dead) in &self.dead {
            let number = self.tickets.iter().position(|of| of == ticket);
            let mut words = format!(
                "dead {}: {} {} to {:?} {:?} {}",
                number.expect("a ticket") + 1,
                dead.queue,
                dead.reason.as_str(),
                dead.exchange,
                dead.routing_key,
                quoted(&dead.content.body),
            );
            let properties = Properties::parse(&dead.content.properties);
            let headers = properties.ok().and_then(|properties| properties.headers());
            let users = Table(headers.unwrap_or_default()).without(edited::is_kept);
            if let Some(users) = users.filter(|users| !users.is_empty()) {
                words += &format!(" {}", table(&users).unwrap_or_default());
            }
            if dead.purpose != Purpose::Death {
                words += &format!(" {:?}", dead.purpose);
            }
            out.push(words);
        }
        let ensure = self.ensure.iter();
        out.extend(ensure.map(|asked| format!("ensure {}", asked.exchange)));
        let record = self.record.iter();
        out.extend(record.map(|(queue, waits)| match waits {
            true => format!("record {queue} and wait"),
            false => format!("record {queue}"),
        }));
        let unknown = self.fx.out.unknown.iter();
        out.extend(unknown.map(|queue| format!("look up {queue}")));
        out.extend(self.fx.out.swap.map(|ready| format!("{ready:?}")));
        out.extend(self.events.iter().map(|event| format!("{event:?}")));
        let is_read = self.session.wants_read(Leg::Client, 0);
        out.extend((is_read != mark.is_read).then(|| match is_read {
            true => "the client is read".to_owned(),
            false => "the client waits".to_owned(),
        }));
        let flow = self.session.flow();
        out.extend((flow != mark.flow).then(|| format!("{flow:?}")));
        out
    }

    /// What of it is left in the end.
    pub(super) fn left(&self) -> Option<String> {
        let left = (self.session.withheld(), self.session.retained());
        (left != (0, 0)).then(|| format!("  left: {} withheld, {} bytes", left.0, left.1))
    }

    /// `hold` of the queue q, to which the exchange x leads; or `settle`, `cancel`, `over`, `over anew`.
    fn swap(&self, words: &str) -> Swap {
        match words {
            "hold" => Swap::Hold(Arc::new(Reach {
                vhost: self.session.peer.vhost.clone(),
                queue: name("q"),
                exchanges: [name("x")].into(),
            })),
            "settle" => Swap::Settle,
            "cancel" => Swap::Cancel,
            over => Swap::Over {
                anew: over == "over anew",
            },
        }
    }

    /// Does what a line says.
    pub(super) fn does(&mut self, line: &str, others: &mut Vec<Script>) {
        let (verb, words) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "session" => *self = session(words),
            "another" | "beside" => {
                let mut another = self.another();
                (another.doubts, another.inquires) = (self.doubts, self.inquires);
                let before = std::mem::replace(self, another);
                others.extend((verb == "beside").then_some(before));
            }
            "back" => std::mem::swap(self, others.last_mut().expect("another session")),
            "client" => drop(self.client(&frames(words))),
            "broker" => {
                drop(self.broker(&frames(words)));
                drop(self.resume());
            }
            "manages" => {
                let (queue, declared) = declared(words);
                self.manages(queue, declared);
            }
            "consumes" => self.consumes(words),
            "opens" => self.open_channel(),
            "outcome" => {
                let settled = pairs(words).map(|(of, became)| {
                    let ticket = self.tickets[number::<usize>(of) - 1];
                    (ticket, outcome(became))
                });
                let settled: Vec<_> = settled.collect();
                drop(self.settled(&settled));
            }
            "ensured" => {
                let (exchange, ready) = yes_or_no(words);
                drop(self.input(Input::Ensured(Ensured { exchange, ready })));
            }
            "recorded" => {
                let (queue, is_recorded) = yes_or_no(words);
                drop(self.input(Input::Recorded(queue, is_recorded)));
            }
            "shows" => {
                let (queue, shown) = declared(words);
                let (shown, now) = (Report::Declared(Arc::new(shown)), self.now.mono);
                let registry = &self.session.registry;
                registry.tell(&name(queue), &shown, Source::Management, now);
            }
            "swap" => drop(self.input(Input::Swap(self.swap(words)))),
            "looked" => drop(self.input(Input::LookedUp(name(words)))),
            "wait" => drop(self.wait(time(words))),
            "drain" => drop(self.drain()),
            "gone" if words == "client" => drop(self.gone(Leg::Client)),
            "gone" => drop(self.gone(Leg::Broker)),
            "doubts" => self.doubts = true,
            "default-type" => {
                let kind = match words {
                    "quorum" => QueueType::Quorum,
                    _ => QueueType::Classic,
                };
                let registry = &self.session.registry;
                registry.learn_default_type(Some(kind), self.now.mono);
            }
            "policy" => self.policies.set_ours(policy(words)),
            "no-policy" => self.policies.set_ours(Policies::default()),
            "brokers-policy" => self.policies.set_brokers(brokers(words)),
            "no-brokers-policy" => self.policies.set_brokers(BrokerPolicies::default()),
            other => panic!("what is to be done: {other}"),
        }
    }
}

/// A script in which that has happened, line by line.
pub(super) fn after(lines: &str) -> Script {
    let mut script = session("off");
    for line in lines.lines() {
        script.does(line.trim_start(), &mut Vec::new());
        script.mark();
    }
    script
}

/// Each script by its title: what happens in it.
type Scripts = BTreeMap<String, Vec<String>>;

fn is_input(line: &str) -> bool {
    !line.is_empty() && !line.starts_with([' ', '#', '='])
}

/// Without what a former run has shown.
fn input(line: &str) -> String {
    let (input, _) = line.split_once("  ").unwrap_or((line, ""));
    input.replacen(" -> ", " ", 1)
}

/// Right of its cause, or below.
fn laid_out(cause: String, came: Vec<String>) -> String {
    const CAUSE: usize = 44;
    const ALL: usize = 140;
    let mut lines = vec![cause];
    for (at, words) in came.into_iter().enumerate() {
        let line = lines.last_mut().expect("the cause");
        let (width, between) = match at {
            0 => (line.len().max(CAUSE), "  "),
            _ => (line.len(), " | "),
        };
        match width + between.len() + words.len() <= ALL {
            true => *line = format!("{line:width$}{between}{words}"),
            false => lines.push(format!("  {words}")),
        }
    }
    lines.join("\n")
}

fn run(title: &str, scripts: &Scripts, script: &mut Script, others: &mut Vec<Script>) {
    let lines = scripts.get(title);
    for line in lines.unwrap_or_else(|| panic!("a script: {title}")) {
        match line.strip_prefix("after ") {
            Some(title) => run(title, scripts, script, others),
            None => {
                script.mark();
                script.does(line, others);
            }
        }
    }
}

/// The text as it has to be.
fn made(text: &str, scripts: &Scripts) -> String {
    let mut out: Vec<String> = Vec::new();
    let (mut script, mut others) = (session("off"), Vec::new());
    let mut last = 0;
    let end = std::iter::once("= ");
    for line in text.lines().chain(end) {
        if line.starts_with("= ") {
            let left = script.left();
            out.splice(last..last, left);
            (script, others) = (session("off"), Vec::new());
        }
        if line.starts_with("  ") {
            continue;
        }
        let line = match is_input(line) {
            true => input(line),
            false => line.to_owned(),
        };
        if let Some(title) = line.strip_prefix("after ") {
            run(title, scripts, &mut script, &mut others);
            out.push(line);
        } else if is_input(&line) {
            let mark = script.mark();
            script.does(&line, &mut others);
            out.push(script.came(&line, &mark));
        } else {
            out.push(line);
            continue;
        }
        last = out.len();
    }
    out.pop();
    out.join("\n") + "\n"
}

fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session/testdata/scripts");
    let files = std::fs::read_dir(folder).expect("scripts");
    let paths = files.map(|file| file.expect("a file").path());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a text");
        (path, text)
    };
    paths.map(read).collect()
}

#[test]
fn scripts_show_what_comes_of_them() {
    let files = files();
    let mut scripts = Scripts::new();
    for (_, text) in &files {
        let mut title = "";
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("= ") {
                title = next;
                let before = scripts.insert(title.to_owned(), Vec::new());
                assert_eq!(before, None, "twice: {title}");
            } else if is_input(line) {
                let lines = scripts.get_mut(title).expect("a title");
                lines.push(input(line));
            }
        }
    }
    for (path, text) in files {
        let made = made(&text, &scripts);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &made).expect("a file");
        } else {
            assert_same(&made, &text);
        }
    }
}

/// Of the first script that differs, what it says now.
fn assert_same(made: &str, text: &str) {
    let [made, text] = [made, text].map(|text| text.split("\n= ").collect::<Vec<_>>());
    for (made, text) in made.iter().zip(&text) {
        assert!(made == text, "\n{made}\n\nand not\n\n{text}");
    }
    assert_eq!(made.len(), text.len());
}
