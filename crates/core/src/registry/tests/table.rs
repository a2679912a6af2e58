//! Runs the blocks of `testdata/*.txt`. `UPDATE=1` rewrites their answers; a human reads the diff.
//!
//! A block is a comment with the rule's number, lines, `----` and the answers: each line that asks has one, in order.

use std::path::Path;

use crate::amqp::ids::ShortStr;
use crate::amqp::version::Version;
use crate::dead_letter::{Lookup, Target};
use crate::machine::Fallback;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, Wanted};
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::generated;
use crate::registry::handling::Circumstances;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{
    ApplyTo, BadPattern, Definition, Mode, Pattern, Policies, Policy, Queue,
};
use crate::registry::refusal::{
    There, decode_names_in, ends_knowledge, is_channel_limit, refused_type, seen_with, there,
};
use crate::registry::said_retries::SaidRetries;
use crate::registry::wording::Wording;
use crate::registry::{Declared, Form};

use super::brokers;
use super::handling::handled;
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
pub(super) fn octets(text: &[u8]) -> String {
    match str::from_utf8(text) {
        Ok(text) => text.to_owned(),
        Err(_) => text.escape_ascii().to_string(),
    }
}

/// What the lines of a block have said so far.
#[derive(Default)]
struct Scene {
    names: Names,
    policies: Vec<Policy>,
    /// Lines that say them.
    broker_policies: Vec<Line>,
    /// The global one.
    mode: Option<Mode>,
    version: Option<Vec<u8>>,
    /// The broker's policies are not known.
    unread: bool,
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
                let name = self.names.name(&OwnObject::intake_exchange(
                    &intake(&line),
                    queue_type(&line),
                ));
                Some(name.map_or("none".to_owned(), |name| name.to_string()))
            }
            "decode" => Some(match self.names.parse(line.alone()) {
                Some(OwnObject::IntakeExchange(intake, QueueType::Quorum))
                    if !intake.at_least_once() =>
                {
                    format!("{} quorum", show_intake(&intake))
                }
                Some(OwnObject::IntakeExchange(intake, _)) => show_intake(&intake),
                Some(_) | None => "not ours to read".to_owned(),
            }),
            "ours" => Some(match self.names.is_ours(line.alone()) {
                true => "ours".to_owned(),
                false => "the client's".to_owned(),
            }),
            "policy" => {
                match policy(&line) {
                    Ok(policy) => self.policies.push(policy),
                    Err(bad) => return Some(bad.to_string()),
                }
                None
            }
            "mode" => {
                self.mode = Some(mode(line.alone()));
                None
            }
            "broker-policy" => {
                self.broker_policies.push(line);
                None
            }
            "dies" => Some(self.dies(&line)),
            "left" => Some(self.left(&line)),
            "effective" => Some(self.effective(&line)),
            "match" => Some(self.matching(&line)),
            "begins" => Some(self.begins(line.alone())),
            "generated" => {
                let version = self.version.as_deref().and_then(Version::parse);
                Some(octets(&generated::start(&self.arguments, version)))
            }
            "version" => {
                self.version = Some(line.alone().to_vec());
                None
            }
            "declare" => {
                self.arguments = line.arguments();
                None
            }
            "wanted" => Some(self.wanted(&line)),
            "refused" => {
                let (code, text) = refusal(text);
                let arguments = DeclareArguments::read(&self.arguments);
                Some(show_there(&there(code, text, &arguments, &self.names)))
            }
            "seen" => {
                let (code, text) = refusal(text);
                Some(match seen_with(code, text, b"q", &self.names) {
                    Some(Some(intake)) => format!("taken over with {intake}"),
                    Some(None) => "native".to_owned(),
                    None => "nothing".to_owned(),
                })
            }
            "unread" => {
                self.unread = true;
                None
            }
            "handled" => {
                let circumstances = Circumstances {
                    policies: &self.live().0,
                    mode: self.mode.unwrap_or(Mode::Full),
                    names: &self.names,
                    version: Some(Version(3, 13, 0)),
                };
                Some(handled(&line, &self.arguments, &self.names, &circumstances))
            }
            "verify" => {
                let (code, text) = refusal(text);
                Some(match ends_knowledge(code, text) {
                    true => "gone, or another one".to_owned(),
                    false => "unknown".to_owned(),
                })
            }
            "type" => {
                let (code, text) = refusal(text);
                Some(format!("{:?}", refused_type(code, text)).to_lowercase())
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
                Some(match decode_names_in(text, &self.names) {
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
            other => panic!("no verb {other}"),
        }
    }

    fn policies(&self) -> Policies {
        Policies::new(self.policies.clone())
    }

    fn matching(&self, line: &Line) -> String {
        let policies = self.policies();
        let policy = policies.matching(queue(line));
        policy.map_or("none".to_owned(), |policy| policy.name.to_string())
    }

    /// The policy of a queue whose generated name begins like that.
    fn begins(&self, start: &[u8]) -> String {
        let policies = self.policies();
        let called = |name| Queue {
            vhost: b"/",
            name,
            queue_type: QueueType::Default,
        };
        if !policies.decide(called(start)) {
            return "undecided".to_owned();
        }
        let policy = policies.matching(called(&generated::sample(start)));
        policy.map_or("none".to_owned(), |policy| policy.name.to_string())
    }

    /// Where a message of that queue goes that was rejected, or, with a key, that the broker sent with it into an intake exchange.
    fn dies(&self, line: &Line) -> String {
        let (live, _) = self.live();
        let said = DeclareArguments::read(&self.arguments).said().unwrap();
        let target = match line.get("signal") {
            Some(key) => live.target_of_signal(queue(line), &ShortStr::EMPTY, &said, key),
            None => live.target(queue(line), &said),
        };
        match target {
            Lookup::Target(target) => show_target(&target),
            Lookup::KeyUnknown => "the broker's".to_owned(),
            Lookup::Unknown => "unknown".to_owned(),
            Lookup::NoExchange => "nowhere".to_owned(),
        }
    }

    /// What the broker does with a reject in that queue, if it gets it.
    fn left(&self, line: &Line) -> String {
        let declared = Declared {
            said: DeclareArguments::read(&self.arguments).said().unwrap(),
            retries: SaidRetries::default(),
            queue_type: queue_type(line),
            taken_over: line.flag("taken-over"),
            form: Form::of(0, &self.arguments),
        };
        match self.live().0.broker_dead_letters(queue(line), &declared) {
            true => "dead-letters".to_owned(),
            false => "discards".to_owned(),
        }
    }

    /// What the broker's policies say of that queue.
    fn effective(&self, line: &Line) -> String {
        brokers::effective(&self.live().1, queue(line))
    }

    /// The policies; and those of the broker, which are read where a line says one.
    fn live(&self) -> (LivePolicies, BrokerPolicies) {
        let brokers = brokers::read(&self.broker_policies);
        let live = LivePolicies::new(self.policies());
        if self.unread {
            live.set_brokers(BrokerPolicies::unread());
        } else if !self.broker_policies.is_empty() {
            live.set_brokers(brokers.clone());
        }
        (live, brokers)
    }

    fn wanted(&self, line: &Line) -> String {
        let arguments = DeclareArguments::read(&self.arguments);
        let policies = self.policies();
        let policy = policies.matching(Queue {
            vhost: b"/",
            name: line.get("queue").unwrap_or(b"q"),
            queue_type: arguments.queue_type(),
        });
        let target = |said: &DeclaredTarget| show_target(&said.target(policy).unwrap());
        let global = self.mode.unwrap_or(Mode::Full);
        match arguments.wanted(policy, global, &self.names) {
            Wanted::Nothing => "nothing".to_owned(),
            Wanted::Leave(Fallback::NameTooLong) => "leave: name too long".to_owned(),
            Wanted::Leave(Fallback::NotSupported) => "leave: not supported".to_owned(),
            Wanted::Leave(other) => panic!("{other:?}"),
            Wanted::Probe(Aim::Compare, _, intake) => format!("compare as {intake}"),
            Wanted::Probe(Aim::Off, _, intake) => format!("native, or as {intake}"),
            Wanted::Probe(Aim::Lenient, ..) => unreachable!("no table has lenient declares"),
            Wanted::Keep(said) => format!("keep {}", target(&said)),
            Wanted::Probe(Aim::Full, said, intake) => [
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
                    "if there   {}",
                    show_arguments(&arguments.rewritten_if_there(&intake))
                ),
            ]
            .join("\n"),
        }
    }
}

fn intake(line: &Line) -> DeclaredTarget {
    let at_least_once = line.flag("at-least-once");
    match line.name("exchange") {
        None => DeclaredTarget::Policy { at_least_once },
        Some(exchange) => DeclaredTarget::Target(Target {
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

pub(super) fn queue_type(line: &Line) -> QueueType {
    match line.get("type") {
        Some(b"classic") => QueueType::Classic,
        Some(b"quorum") => QueueType::Quorum,
        None => QueueType::Default,
        Some(_) => QueueType::Other,
    }
}

fn show_there(there: &There) -> String {
    let words = match there {
        There::Fits => "fits",
        There::Absent => "none",
        There::Granted => "none, and the user may write to the exchange",
        There::Invalid => "none, and an argument is invalid",
        There::InvalidTarget => "none, and where dead letters go is invalid",
        There::Ours(intake) => return format!("ours as {intake}"),
        There::OursOtherwise => "ours, with another target",
        There::OtherExchange => "another dead-letter exchange",
        There::Otherwise => "another argument differs",
        There::Forbidden { intake: true } => "forbidden: the intake exchange",
        There::Forbidden { intake: false } => "forbidden",
        There::MayWrite => "the user may write to the exchange",
        There::Else => "unknown",
    };
    words.to_owned()
}

fn show_intake(intake: &DeclaredTarget) -> String {
    match intake {
        DeclaredTarget::Target(target) => show_target(target),
        DeclaredTarget::Policy {
            at_least_once: true,
        } => "policy at-least-once".to_owned(),
        DeclaredTarget::Policy {
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

fn mode(name: &[u8]) -> Mode {
    match name {
        b"full" => Mode::Full,
        b"rejects-only" => Mode::RejectsOnly,
        b"off" => Mode::Off,
        other => panic!("no mode {other:?}"),
    }
}

fn policy(line: &Line) -> Result<Policy, BadPattern> {
    let default = Policy::default();
    let short = |key| line.get(key).map(|text| ShortStr::copy(text).unwrap());
    Ok(Policy {
        name: short("name").unwrap_or_default(),
        vhost: short("vhost").unwrap_or(default.vhost),
        pattern: Pattern::new(&line.text("pattern").unwrap_or_default())?,
        apply_to: match line.get("apply-to") {
            None | Some(b"queues") => ApplyTo::Queues,
            Some(b"classic_queues") => ApplyTo::ClassicQueues,
            Some(b"quorum_queues") => ApplyTo::QuorumQueues,
            Some(b"all") => ApplyTo::All,
            other => panic!("no apply-to {other:?}"),
        },
        priority: line
            .text("priority")
            .map_or(0, |number| number.parse().unwrap()),
        mode: line.get("mode").map(mode),
        declares: None,
        overrules_arguments: line.flag("overrules"),
        definition: Definition {
            dead_letter_exchange: short("exchange"),
            dead_letter_routing_key: short("key"),
            ..Definition::default()
        },
    })
}

/// `verb code text`, as the broker sent it.
fn refusal(line: &str) -> (u16, &[u8]) {
    let mut parts = line.splitn(3, ' ').skip(1);
    let code = parts.next().unwrap().parse().unwrap();
    (code, parts.next().unwrap_or_default().as_bytes())
}
