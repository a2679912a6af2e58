//! Runs the blocks of `testdata/*.txt`. `UPDATE=1` rewrites their answers; a human reads the diff.
//!
//! A block is a comment with the rule's number, lines, `----` and the answers: each line that asks has one, in order.

use std::path::Path;

use crate::dead_letter::Target;
use crate::machine::Fallback;
use crate::registry::arguments::{DeclareArguments, Wanted};
use crate::registry::broker_policy::{BrokerPolicies, Told};
use crate::registry::intake_name::{Intake, Names};
use crate::registry::live::LivePolicies;
use crate::registry::policy::{ApplyTo, Mode, Policies, Queue, QueueType, Spec};
use crate::registry::refusal::{
    Fit, decode_names_in, fit, is_channel_limit, permission, taken_over,
};
use crate::registry::wording::{Access, Wording};

use super::words::{Line, quoted, show_arguments};

#[test]
fn rules_hold_as_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/registry/testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no tables");
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let answered = answer_all(&text);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, answered).unwrap();
        } else if answered != text {
            let blocks = text
                .trim_end()
                .split("\n\n")
                .zip(answered.trim_end().split("\n\n"));
            for (expected, got) in blocks.filter(|(expected, got)| expected != got) {
                wrong.push(format!(
                    "{}:\n{expected}\n>>>> is now\n{got}",
                    path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn answer_all(text: &str) -> String {
    let blocks = text.trim_end().split("\n\n").map(|block| {
        let Some((asked, _)) = block.split_once("\n----") else {
            return block.to_owned(); // only a comment
        };
        let lines = asked.lines().filter(|line| !line.starts_with('#'));
        let mut scene = Scene::default();
        let answers: Vec<_> = lines.filter_map(|line| scene.line(line)).collect();
        format!("{asked}\n----\n{}", answers.join("\n"))
    });
    blocks.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// What is not UTF-8 as `\xNN`.
fn octets(text: &[u8]) -> String {
    match str::from_utf8(text) {
        Ok(text) => text.to_owned(),
        Err(_) => text.escape_ascii().to_string(),
    }
}

/// What the lines of a block have said so far.
#[derive(Default)]
struct Scene {
    names: Names,
    policies: Vec<Spec>,
    /// Lines that say them.
    broker_policies: Vec<Line>,
    keep: bool,
    version: Option<Vec<u8>>,
    arguments: Vec<u8>,
}

impl Scene {
    /// The answer, if the line asks.
    fn line(&mut self, text: &str) -> Option<String> {
        let line = Line::parse(text);
        match line.verb.as_str() {
            "prefix" => {
                let prefix = String::from_utf8(line.alone().to_vec()).unwrap();
                match Names::new(&prefix) {
                    Ok(names) => self.names = names,
                    Err(bad) => return Some(bad.to_string()),
                }
                None
            }
            "encode" => {
                let name = self.names.encode(&intake(&line), queue_type(&line));
                Some(name.map_or("none".to_owned(), |name| name.to_string()))
            }
            "decode" => Some(match self.names.decode(line.alone()) {
                Some((intake, QueueType::Quorum)) if !intake.at_least_once() => {
                    format!("{} quorum", show_intake(&intake))
                }
                Some((intake, _)) => show_intake(&intake),
                None => "not ours to read".to_owned(),
            }),
            "ours" => Some(match self.names.is_ours(line.alone()) {
                true => "ours".to_owned(),
                false => "the client's".to_owned(),
            }),
            "policy" => {
                self.policies.push(policy(&line));
                None
            }
            "mode" => {
                self.keep = line.flag("keep");
                None
            }
            "broker-policy" => {
                self.broker_policies.push(line);
                None
            }
            "dies" => Some(self.dies(&line)),
            "match" => Some(self.matching(&line)),
            "version" => {
                self.version = Some(line.alone().to_vec());
                None
            }
            "declare" => {
                self.arguments = line.arguments();
                None
            }
            "wanted" => Some(self.wanted(&line)),
            "permission" => {
                let (code, text) = refusal(text);
                Some(format!("{:?}", permission(code, text)).to_lowercase())
            }
            "refused" => {
                let (code, text) = refusal(text);
                let arguments = DeclareArguments::read(&self.arguments);
                Some(
                    match fit(code, text, &arguments, &self.names, self.wording()) {
                        Fit::Rewritten => "forward rewritten".to_owned(),
                        Fit::RewrittenAs(intake) => format!("forward rewritten as {intake}"),
                        Fit::Answer(text) => format!("answer {}", octets(&text)),
                        Fit::Original => "forward original".to_owned(),
                    },
                )
            }
            "seen" => {
                let (code, text) = refusal(text);
                Some(match taken_over(code, text, b"q", &self.names) {
                    Some(true) => "taken over".to_owned(),
                    Some(false) => "native".to_owned(),
                    None => "nothing".to_owned(),
                })
            }
            "closed" => {
                let (code, text) = refusal(text);
                Some(match is_channel_limit(code, text) {
                    true => "channel limit".to_owned(),
                    false => "something else".to_owned(),
                })
            }
            "reply" => {
                let (_, text) = refusal(text);
                Some(match decode_names_in(text, &self.names, self.wording()) {
                    Some(text) => octets(&text),
                    None => "as it is".to_owned(),
                })
            }
            "probe" => {
                let get = |name| line.get(name).unwrap();
                let wording = Wording::of_version(get("version"));
                let can =
                    wording.can_refuse(get("queue"), get("vhost"), get("exchange"), get("intake"));
                Some(
                    if can {
                        "can be refused"
                    } else {
                        "would crash the channel"
                    }
                    .to_owned(),
                )
            }
            "access" => {
                let get = |name| line.get(name).unwrap();
                let access = match get("to") {
                    b"configure" => Access::Configure,
                    b"write" => Access::Write,
                    b"read" => Access::Read,
                    other => panic!("no access {other:?}"),
                };
                let kind = line.text("kind").unwrap();
                let wording = Wording::of_version(get("version"));
                let text =
                    wording.access_refused(access, &kind, get("name"), get("vhost"), get("user"));
                Some(String::from_utf8(text).unwrap())
            }
            other => panic!("no verb {other}"),
        }
    }

    /// That of 4.3.6 if nothing is said.
    fn wording(&self) -> Wording {
        Wording::of_version(self.version.as_deref().unwrap_or(b"4.3.6"))
    }

    fn policies(&self) -> Policies {
        Policies::new(&self.policies).unwrap()
    }

    fn matching(&self, line: &Line) -> String {
        let policies = match Policies::new(&self.policies) {
            Ok(policies) => policies,
            Err(bad) => return bad.to_string(),
        };
        let policy = policies.matching(queue(line));
        policy.map_or("none".to_owned(), |policy| policy.name.clone())
    }

    /// Where a message of that queue goes that was rejected, or, with a key, that the broker sent with it into an intake exchange.
    fn dies(&self, line: &Line) -> String {
        let told = self.broker_policies.iter().map(|line| {
            let text = |name| line.get(name).map(|value| str::from_utf8(value).unwrap());
            Told {
                vhost: text("vhost").unwrap_or("/"),
                name: "",
                pattern: text("pattern").unwrap_or(".*"),
                apply_to: text("apply-to").unwrap_or("queues"),
                priority: text("priority").map_or(0.0, |number| number.parse().unwrap()),
                keys: text("keys").map_or(Vec::new(), |keys| keys.split(',').collect()),
                routing_key: text("key"),
                strategy: text("strategy"),
            }
        });
        let (brokers, _) = BrokerPolicies::new(told);
        let live = LivePolicies::new(self.policies());
        live.set_brokers(brokers);
        let said = DeclareArguments::read(&self.arguments).said().unwrap();
        let target = match line.get("signal") {
            Some(key) => live.target_of_signal(queue(line), &said, key),
            None => live.target(queue(line), &said),
        };
        target.map_or("the broker's".to_owned(), |target| show_target(&target))
    }

    fn wanted(&self, line: &Line) -> String {
        let arguments = DeclareArguments::read(&self.arguments);
        let policies = self.policies();
        let policy = policies.matching(Queue {
            vhost: b"/",
            name: line.get("queue").unwrap_or(b"q"),
            queue_type: arguments.queue_type(),
        });
        let target = |said: &Intake| show_target(&said.target(policy).unwrap());
        let mode = match self.keep {
            true => Mode::Keep,
            false => Mode::Takeover,
        };
        let mode = policy.and_then(|policy| policy.mode).unwrap_or(mode);
        match arguments.wanted(policy, mode, &self.names) {
            Wanted::Nothing => "nothing".to_owned(),
            Wanted::Leave(Fallback::NameTooLong) => "leave: name too long".to_owned(),
            Wanted::Leave(Fallback::NotSupported) => "leave: not supported".to_owned(),
            Wanted::Leave(other) => panic!("{other:?}"),
            Wanted::Compare { intake, .. } => format!("compare as {intake}"),
            Wanted::Keep(said) => format!("keep {}", target(&said)),
            Wanted::TakeOver { said, intake } => [
                format!("take over {}", target(&said)),
                format!(
                    "rewritten  {}",
                    show_arguments(&arguments.rewritten(&intake))
                ),
                match arguments.exchange() {
                    Some(_) => format!(
                        "permission {}",
                        show_arguments(&arguments.permission_probe())
                    ),
                    None => "permission of nobody".to_owned(),
                },
                format!(
                    "permission {}",
                    show_arguments(&arguments.permission_probe_rewritten(&intake))
                ),
            ]
            .join("\n"),
        }
    }
}

fn intake(line: &Line) -> Intake {
    let at_least_once = line.flag("at-least-once");
    match line.name("exchange") {
        None => Intake::Policy { at_least_once },
        Some(exchange) => Intake::Target(Target {
            exchange,
            routing_key: line.name("key"),
            at_least_once,
        }),
    }
}

fn queue(line: &Line) -> Queue<'_> {
    Queue {
        vhost: line.get("vhost").unwrap_or(b"/"),
        name: line.get("queue").unwrap(),
        queue_type: queue_type(line),
    }
}

fn queue_type(line: &Line) -> QueueType {
    match line.get("type") {
        Some(b"classic") => QueueType::Classic,
        Some(b"quorum") => QueueType::Quorum,
        None => QueueType::Default,
        Some(_) => QueueType::Other,
    }
}

fn show_intake(intake: &Intake) -> String {
    match intake {
        Intake::Target(target) => show_target(target),
        Intake::Policy {
            at_least_once: true,
        } => "policy at-least-once".to_owned(),
        Intake::Policy {
            at_least_once: false,
        } => "policy".to_owned(),
    }
}

fn show_target(target: &Target) -> String {
    let mut words = vec![format!("exchange={}", quoted(&target.exchange))];
    words.extend(
        target
            .routing_key
            .iter()
            .map(|key| format!("key={}", quoted(key))),
    );
    words.extend(target.at_least_once.then(|| "at-least-once".to_owned()));
    words.join(" ")
}

fn policy(line: &Line) -> Spec {
    Spec {
        name: line.text("name").unwrap_or_default(),
        vhost: line.text("vhost").unwrap_or("/".to_owned()),
        pattern: line.text("pattern").unwrap_or(".*".to_owned()),
        apply_to: match line.get("apply-to") {
            None | Some(b"queues") => ApplyTo::Queues,
            Some(b"classic_queues") => ApplyTo::ClassicQueues,
            Some(b"quorum_queues") => ApplyTo::QuorumQueues,
            other => panic!("no apply-to {other:?}"),
        },
        priority: line
            .text("priority")
            .map_or(0, |number| number.parse().unwrap()),
        mode: line.get("mode").map(|mode| match mode {
            b"keep" => Mode::Keep,
            b"takeover" => Mode::Takeover,
            other => panic!("no mode {other:?}"),
        }),
        dead_letter_exchange: line.text("exchange"),
        dead_letter_routing_key: line.text("key"),
    }
}

/// `verb code text`, as the broker sent it.
fn refusal(line: &str) -> (u16, &[u8]) {
    let mut parts = line.splitn(3, ' ').skip(1);
    let code = parts.next().unwrap().parse().unwrap();
    (code, parts.next().unwrap_or_default().as_bytes())
}
