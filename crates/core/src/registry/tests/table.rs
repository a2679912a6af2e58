//! Runs the tables. A block is a comment with the rule's number, lines, `----` and the answers: each line that asks has one, in order.

use crate::amqp::ids::{ShortStr, Vhost, name};
use crate::amqp::version::Version;
use crate::dead_letter::Target;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::retries::{Counts, OnCrash, RetryType};
use crate::dead_letter::schedule::Schedule;
use crate::machine::Fallback;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use crate::registry::adoption::{self, OfFile};
use crate::registry::arguments::{Aim, DeclareArguments, Wanted};
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::handling::Circumstances;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{
    ApplyTo, BadPattern, Definition, Mode, Pattern, Policies, Policy, Queue,
};
use crate::registry::redeclared::Existing;
use crate::registry::refusal::{
    decode_names_in, ends_knowledge, is_channel_limit, refused_type, seen_with, there,
};
use crate::registry::said_retries::SaidRetries;
use crate::registry::wording::Wording;
use crate::registry::{Declared, Form, generated, in_vain, said_retries};

use super::adoption::Lists;
use super::brokers;
use super::handling::handled;
use super::shown;
use super::words::{Line, show_arguments};

#[test]
fn rules_hold_as_the_tables_say() {
    crate::tables::hold("registry/testdata", |lines| {
        let mut scene = Scene::default();
        let answers: Vec<_> = lines.iter().filter_map(|line| scene.line(line)).collect();
        answers.join("\n")
    });
}

/// What is not UTF-8 as `\xNN`.
pub(super) fn bytes(text: &[u8]) -> String {
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
    /// Of the file before it was read again.
    policies_before: Vec<Policy>,
    /// Lines that say them.
    broker_policies: Vec<Line>,
    /// The same of an earlier reading.
    before: Vec<Line>,
    /// Both in force; the broker's are not known before a line says one.
    live: LivePolicies,
    /// The global one.
    mode: Option<Mode>,
    version: Option<Version>,
    arguments: Vec<u8>,
    lists: Lists,
}

impl Scene {
    /// The answer, if the line asks.
    fn line(&mut self, text: &str) -> Option<String> {
        let line = Line::parse(text);
        match line.verb.as_str() {
            "prefix" => match Names::new(str::from_utf8(line.alone()).unwrap()) {
                Ok(names) => self.names = names,
                Err(bad) => return Some(bad.to_string()),
            },
            "policy" => match policy(&line) {
                Ok(policy) if line.flag("before") => self.policies_before.push(policy),
                Ok(policy) => self.policies.push(policy),
                Err(bad) => return Some(bad.to_string()),
            },
            "mode" => self.mode = Some(mode(line.alone())),
            "broker-policy" if line.flag("before") => self.before.push(line),
            "broker-policy" => {
                self.broker_policies.push(line);
                self.live.set_brokers(brokers::read(&self.broker_policies));
            }
            "no-broker-policy" => self.live.set_brokers(brokers::read(&[])),
            "unread" => self.live.set_brokers(BrokerPolicies::unread()),
            "version" => self.version = Version::parse(line.alone()),
            "declare" => self.arguments = line.arguments(),
            "listed-policy" | "newer-policy" => self.lists.policy(&line),
            "listed-queue" => self.lists.queue(&line),
            _ => return Some(self.answer(&line, text)),
        }
        self.live.set_ours(self.policies());
        None
    }

    fn answer(&self, line: &Line, text: &str) -> String {
        let mode = self.mode.unwrap_or(Mode::Full);
        match line.verb.as_str() {
            "encode" => {
                let object = OwnObject::intake_exchange(&intake(line), queue_type(line));
                let name = self.names.name(&object);
                name.map_or("none".to_owned(), |name| name.to_string())
            }
            "decode" => match self.names.parse(line.alone()) {
                Some(OwnObject::IntakeExchange(intake, queue_type)) => {
                    let is_quorum = queue_type == QueueType::Quorum && !intake.at_least_once();
                    shown::intake(&intake) + if is_quorum { " quorum" } else { "" }
                }
                Some(_) | None => "not ours to read".to_owned(),
            },
            "ours" => either(self.names.is_ours(line.alone()), "ours", "the client's"),
            "dies" => self.dies(line),
            "left" => self.left(line),
            "effective" => brokers::effective(&brokers::read(&self.broker_policies), queue(line)),
            "redeclare" => self.redeclare(line),
            "goes" => self.goes(line),
            "retries" => {
                let said = SaidRetries::of_arguments(&self.arguments);
                let retries = self.live.retries(queue(line), said, mode, self.version);
                retries.map_or("none of ours".to_owned(), shown::retries)
            }
            "ack-timeout" => {
                let said = SaidRetries::of_arguments(&self.arguments);
                let timeout = self.live.ack_timeout(queue(line), &said, mode);
                timeout.map_or("none".to_owned(), |timeout| format!("{timeout:?}"))
            }
            "in-vain" => {
                let delays = line.flag("delayed-by-policy");
                let said = said_retries::in_vain(&self.arguments, |_| delays);
                said.unwrap_or("fine".to_owned())
            }
            "does-nothing" => {
                let says = retries_said(line).does_nothing();
                says.unwrap_or("fine").to_owned()
            }
            "without" => {
                let without = said_retries::without(&self.arguments, queue_type(line));
                without.map_or("as it is".to_owned(), |table| show_arguments(&table))
            }
            "expires" => {
                let says = in_vain::goes_with_messages(&self.arguments, queue_type(line));
                says.unwrap_or("fine").to_owned()
            }
            "match" => self.matching(line),
            "adopt" | "release" => self.lists.plan(line, &self.names, &self.policies()),
            "ended" => {
                let before = brokers::read(&self.before);
                let now = self.live.brokers();
                let ended = adoption::ended(&before, &now, queue(line), &self.names);
                ended.map_or("no".to_owned(), |(ours, by)| format!("{ours}, by {by}"))
            }
            "follow" => {
                let before = Policies::new(self.policies_before.clone());
                let file = OfFile {
                    now: &self.policies(),
                    before: &before,
                };
                self.lists.followed(line, &self.names, file)
            }
            "begins" => self.begins(line.alone()),
            "generated" => bytes(&generated::start(&self.arguments, self.version)),
            "wanted" => self.wanted(line),
            "handled" => {
                let circumstances = Circumstances {
                    policies: &self.live,
                    mode,
                    names: &self.names,
                    version: Some(Version(3, 13, 0)),
                };
                handled(line, &self.arguments, &self.names, &circumstances)
            }
            "probe" => {
                let [queue, vhost, exchange, intake] =
                    ["queue", "vhost", "exchange", "intake"].map(|name| line.get(name).unwrap());
                let wording = Wording::of_version(line.get("version").unwrap());
                let can = wording.can_refuse(queue, vhost, exchange, intake);
                either(can, "can be refused", "would crash the channel")
            }
            verb => self.heard(verb, refusal(text)),
        }
    }

    /// What the words of a refusal say.
    fn heard(&self, verb: &str, (code, text): (u16, &[u8])) -> String {
        match verb {
            "refused" => {
                let arguments = DeclareArguments::read(&self.arguments);
                shown::there(&there(code, text, &arguments, &self.names))
            }
            "seen" => match seen_with(code, text, b"q", &self.names) {
                Some(Some(intake)) => format!("taken over with {intake}"),
                Some(None) => "native".to_owned(),
                None => "nothing".to_owned(),
            },
            "verify" => either(
                ends_knowledge(code, text),
                "gone, or another one",
                "unknown",
            ),
            "type" => format!("{:?}", refused_type(code, text)).to_lowercase(),
            "closed" => either(
                is_channel_limit(code, text),
                "channel limit",
                "something else",
            ),
            "reply" => {
                let decoded = decode_names_in(text, &self.names);
                decoded.map_or("as it is".to_owned(), |text| bytes(&text))
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
        let (live, queue) = (&self.live, queue(line));
        let said = DeclareArguments::read(&self.arguments).said().unwrap();
        shown::lookup(match line.get("signal") {
            Some(key) => live.target_of_signal(queue, &ShortStr::EMPTY, &said, key),
            None => live.target(queue, &said),
        })
    }

    /// What counted before a declare of a queue that has the `made` intake exchange, if the declare says something else.
    fn redeclare(&self, line: &Line) -> String {
        let made = made(line);
        let own = made.said(&self.names);
        let queue = line.name("queue").unwrap();
        let before = self
            .live
            .redeclare(&Vhost::ROOT, &queue, &made, &own, &intake(line));
        let count = self.live.count_redeclared();
        match before {
            None => "as before".to_owned(),
            Some((_, before)) => format!("before: {}, {count} redeclared", shown::intake(&before)),
        }
    }

    /// Where a message goes that died there by a reject on the connection which declared it so, or at the broker.
    fn goes(&self, line: &Line) -> String {
        let (queue, said, made) = (queue(line), intake(line), made(line));
        let declared = Declared {
            said: said.clone(),
            retries: SaidRetries::default(),
            queue_type: QueueType::Classic,
            taken_over: true,
            form: Form::of(0, &DeclareArguments::read(b"").with(&made)),
            kept: Default::default(),
        };
        let exchange = made.exchange.unwrap();
        let rejected = self.live.target_of_declared(queue, &declared, &self.names);
        let signal = self.live.target_of_signal(queue, &exchange, &said, b"key");
        let is_redeclared = self.live.is_redeclared(queue, &exchange);
        let (rejected, signal) = (shown::lookup(rejected), shown::lookup(signal));
        format!("rejected: {rejected}, signalled: {signal}, redeclared: {is_redeclared}")
    }

    /// What the broker does with a reject in that queue, if it gets it.
    fn left(&self, line: &Line) -> String {
        let declared = Declared {
            said: DeclareArguments::read(&self.arguments).said().unwrap(),
            retries: SaidRetries::default(),
            queue_type: queue_type(line),
            taken_over: line.flag("taken-over"),
            form: Form::of(0, &self.arguments),
            kept: Default::default(),
        };
        let by_broker = self.live.broker_dead_letters(queue(line), &declared);
        either(by_broker, "dead-letters", "discards")
    }

    fn wanted(&self, line: &Line) -> String {
        let arguments = DeclareArguments::read(&self.arguments);
        let policies = self.policies();
        let policy = policies.matching(Queue {
            vhost: b"/",
            name: line.get("queue").unwrap_or(b"q"),
            queue_type: arguments.queue_type(),
        });
        let target = |said: &DeclaredTarget| shown::target(&said.target(policy).unwrap());
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

fn either(is: bool, yes: &str, no: &str) -> String {
    (if is { yes } else { no }).to_owned()
}

fn made(line: &Line) -> Existing {
    let intake = line.name("made");
    Existing::taken_over(&intake.unwrap_or(name("dlx-proxy/old/k")))
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
        lenient: None,
        overrules_arguments: line.flag("overrules"),
        definition: Definition {
            dead_letter_exchange: short("exchange"),
            dead_letter_routing_key: short("key"),
            retries: retries_said(line),
        },
    })
}

/// The keys of a policy that are about retries.
fn retries_said(line: &Line) -> SaidRetries {
    let number = |key| line.text(key).map(|number| number.parse().unwrap());
    SaidRetries {
        delayed_retry_type: line.get("retry-type").and_then(RetryType::parse),
        delayed_retry_min: number("retry-min"),
        delayed_retry_max: number("retry-max"),
        delayed_retry_multiplier: number("multiplier"),
        delayed_retry_delays: line.text("delays").map(|it| Schedule::parse(&it).unwrap()),
        delayed_retry_jitter: line
            .text("jitter")
            .and_then(|it| Jitter::parse(&it).unwrap()),
        delivery_limit: line.text("limit").map(|limit| limit.parse().unwrap()),
        delivery_limit_counts: line.flag("failed-count").then_some(Counts::Failed),
        on_crash: line.flag("crashes-count").then_some(OnCrash::CountAll),
        ack_timeout: number("ack-timeout"),
    }
}

/// `verb code text`, as the broker sent it.
fn refusal(line: &str) -> (u16, &[u8]) {
    let mut parts = line.splitn(3, ' ').skip(1);
    let code = parts.next().unwrap().parse().unwrap();
    (code, parts.next().unwrap_or_default().as_bytes())
}
