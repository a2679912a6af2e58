//! Random programs over a small `alphabet`: two channels that consume and one that publishes. The next step is
//! drawn when the direct run has shown what came of those before, so that most settlements name what is outstanding.
//!
//! Retries are drawn where both runs have them from the broker: of a quorum queue of 4.3, which the proxy leaves to it. With the proxy's own there
//! is nothing to compare, as no queue of the direct run comes back later: `s11-retries` and the simulation judge them by what docs/reference/retries.md says.

use std::collections::BTreeMap;

use super::alphabet::Alphabet;
use super::client::Client;
use super::methods::Arg;
use super::parse;
use super::reader::Received;
use super::script::{Script, Step};
use super::value::Fallible;

/// The channel that publishes.
pub(crate) const PUBLISHING: u16 = 3;

/// A program that is being written.
pub(crate) struct Program {
    alphabet: Alphabet,
    /// Steps that are drawn already, the next one last.
    due: Vec<String>,
    left: usize,
    queues: Vec<String>,
    channels: BTreeMap<u16, Channel>,
    consumers: usize,
    /// Frames that were looked at.
    seen: usize,
    /// Each publish rests: confirms have an order then.
    confirms: bool,
    over: bool,
}

/// What is known of a channel.
#[derive(Default)]
struct Channel {
    open: bool,
    is_tx: bool,
    outstanding: Vec<u64>,
    /// In `tx`: settled since the last commit.
    uncommitted: Vec<u64>,
    /// Tag, and whether without acks.
    consumers: Vec<(String, bool)>,
    /// Of the latest `basic.get`.
    no_ack: bool,
}

// === impl Program ===

impl Program {
    /// The program of a seed, and with what it begins.
    /// `retries`: the broker has them itself.
    pub(crate) fn new(seed: u64, is_4x: bool, retries: bool) -> Fallible<(Program, Script)> {
        let mut program = Program {
            alphabet: Alphabet::new(seed),
            due: Vec::new(),
            left: 0,
            queues: Vec::new(),
            channels: BTreeMap::new(),
            consumers: 0,
            seen: 0,
            confirms: false,
            over: false,
        };
        program.left = program.alphabet.rng.usize(8..26);
        program.confirms = program.alphabet.rng.u8(..4) == 0;
        let mut script = Script {
            name: format!("generated-{seed}"),
            // Cycles through named exchanges end at once then.
            proxy: vec![("management-url".to_owned(), "$management".to_owned())],
            ..Script::default()
        };
        let (declares, policies) = program.alphabet.declares(is_4x, retries);
        for policy in policies {
            script.policies.push(parse::policy_of(&policy)?);
        }
        program.queues = declares;
        for line in program.beginning() {
            script.steps.push(parse::step_of(&line)?);
        }
        Ok((program, script))
    }

    fn beginning(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, kind) in [("e1", "direct"), ("e2", "fanout"), ("e3", "topic")] {
            lines.push(format!(
                "a.{PUBLISHING} exchange.declare exchange={name} type={kind} durable"
            ));
        }
        lines.extend(self.queues.iter().map(|declare| format!("a.1 {declare}")));
        for _ in 0..self.alphabet.rng.usize(1..5) {
            lines.push(format!("a.1 {}", self.alphabet.binding("bind")));
        }
        if self.confirms {
            lines.push(format!("a.{PUBLISHING} confirm.select"));
        }
        let tx = self.alphabet.rng.u8(..8) == 0;
        for channel in [1, 2] {
            let prefetch = self.alphabet.prefetch();
            lines.push(format!("a.{channel} basic.qos prefetch-count={prefetch}"));
            if tx && channel == 2 {
                lines.push("a.2 tx.select".to_owned());
            }
            let state = Channel {
                open: true,
                is_tx: tx && channel == 2,
                ..Channel::default()
            };
            self.channels.insert(channel, state);
        }
        self.channels.insert(
            PUBLISHING,
            Channel {
                open: true,
                ..Channel::default()
            },
        );
        lines
    }

    /// The next step, after a look at what came.
    pub(crate) fn next(&mut self, clients: &[(String, Client)]) -> Option<Step> {
        let received = clients.first().map(|(_, client)| client.received());
        let received = received.unwrap_or_default();
        for came in received.get(self.seen..).unwrap_or_default() {
            self.look(came);
        }
        self.seen = received.len();
        if self.due.is_empty() {
            if self.over || self.left == 0 {
                return None;
            }
            self.left -= 1;
            let mut lines = self.draw();
            lines.push("rest".to_owned());
            lines.reverse();
            self.due = lines;
        }
        let line = self.due.pop()?;
        Some(parse::step_of(&line).expect("well written"))
    }

    fn look(&mut self, came: &Received) {
        let Some(channel) = self.channels.get_mut(&came.channel) else {
            self.over |= matches!(&*came.frame.name, "connection.close" | "closed");
            return;
        };
        let text = |name: &str| match came.frame.arg(name) {
            Some(Arg::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let tag = came.frame.number("delivery-tag");
        match &*came.frame.name {
            "basic.deliver" => {
                let consumer = text("consumer-tag");
                if !channel.consumers.contains(&(consumer, true)) {
                    channel.outstanding.push(tag);
                }
            }
            "basic.get-ok" if !channel.no_ack => channel.outstanding.push(tag),
            "basic.cancel" => {
                let consumer = text("consumer-tag");
                channel.consumers.retain(|(of, _)| *of != consumer);
            }
            "channel.close" => *channel = Channel::default(),
            _ => {}
        }
    }

    fn draw(&mut self) -> Vec<String> {
        match self.alphabet.rng.u8(..100) {
            0..32 => {
                let mut lines = Vec::new();
                for publish in self.alphabet.publishes(self.confirms) {
                    lines.extend(self.on(PUBLISHING, publish));
                }
                lines
            }
            32..42 => self.consume(),
            42..46 => self.cancel(),
            46..56 => self.get(),
            56..84 => self.settle(),
            84..87 => {
                let channel = self.consuming();
                let of = self.channel(channel);
                of.outstanding.clear();
                of.uncommitted.clear();
                self.on(channel, "basic.recover requeue".to_owned())
            }
            87..89 => {
                let channel = self.consuming();
                let prefetch = self.alphabet.prefetch();
                self.on(channel, format!("basic.qos prefetch-count={prefetch}"))
            }
            89..91 => {
                let queue = self.alphabet.one(&["q1", "q2", "q3"]);
                let channel = self.consuming();
                let verb = self.alphabet.one(&["purge", "delete", "delete"]);
                self.on(channel, format!("queue.{verb} queue={queue}"))
            }
            91..94 => {
                let channel = self.consuming();
                let mut declare = self.queues[self.alphabet.rng.usize(..3)].clone();
                if self.alphabet.perhaps(30) {
                    let other = self
                        .alphabet
                        .one(&["x-dead-letter-exchange: \"other\"", "x-max-length: 9"]);
                    let name = other.split(':').next().unwrap_or_default();
                    if !declare.contains(name) {
                        declare = declare.replace('}', &format!(", {other}}}"));
                    }
                }
                self.on(channel, declare)
            }
            94..97 => {
                let verb = self.alphabet.one(&["bind", "unbind"]);
                let binding = self.alphabet.binding(verb);
                let channel = self.consuming();
                self.on(channel, binding)
            }
            _ => {
                let channel = self.consuming();
                let lines = self.on(channel, "channel.close reply-code=200".to_owned());
                self.channels.insert(channel, Channel::default());
                lines
            }
        }
    }

    fn consuming(&mut self) -> u16 {
        self.alphabet.rng.u16(1..3)
    }

    fn channel(&mut self, channel: u16) -> &mut Channel {
        self.channels.entry(channel).or_default()
    }

    /// The step on that channel, which is opened again if it is closed.
    fn on(&mut self, channel: u16, step: String) -> Vec<String> {
        let mut lines = Vec::new();
        if !std::mem::replace(&mut self.channel(channel).open, true) {
            lines.push(format!("a.{channel} channel.open"));
        }
        lines.push(format!("a.{channel} {step}"));
        lines
    }

    fn consume(&mut self) -> Vec<String> {
        let channel = self.consuming();
        self.consumers += 1;
        let (tag, no_ack) = (format!("c{}", self.consumers), self.alphabet.perhaps(15));
        let queue = self.alphabet.one(&["q1", "q2", "q3"]);
        let bits = if no_ack { " no-ack" } else { "" };
        let lines = self.on(
            channel,
            format!("basic.consume queue={queue} consumer-tag={tag}{bits}"),
        );
        self.channel(channel).consumers.push((tag, no_ack));
        lines
    }

    fn cancel(&mut self) -> Vec<String> {
        let channel = self.consuming();
        match self.channel(channel).consumers.pop() {
            Some((tag, _)) => self.on(channel, format!("basic.cancel consumer-tag={tag}")),
            None => self.consume(),
        }
    }

    fn get(&mut self) -> Vec<String> {
        let channel = self.consuming();
        let no_ack = self.alphabet.perhaps(15);
        let queue = self.alphabet.one(&["q1", "q2", "q3"]);
        let bits = if no_ack { " no-ack" } else { "" };
        let lines = self.on(channel, format!("basic.get queue={queue}{bits}"));
        self.channel(channel).no_ack = no_ack;
        lines
    }

    fn settle(&mut self) -> Vec<String> {
        let mut channel = self.consuming();
        if self.channel(channel).outstanding.is_empty() {
            channel = 3 - channel;
        }
        if self.channel(channel).is_tx && self.alphabet.perhaps(30) {
            return self.end_tx(channel);
        }
        if self.channel(channel).outstanding.is_empty() {
            return self.get();
        }
        let last = self.channel(channel).outstanding.len() - 1;
        let at = match self.alphabet.rng.u8(..4) {
            0 => 0,
            1 => last,
            _ => self.alphabet.rng.usize(..=last),
        };
        let mut tag = self.channel(channel).outstanding[at];
        let multiple = self.alphabet.perhaps(30);
        match self.alphabet.rng.u8(..40) {
            0 => tag += 7,
            1 if multiple => tag = 0,
            _ => {}
        }
        let of = self.channel(channel);
        let settled = |of: &u64| *of == tag || (multiple && (tag == 0 || *of < tag));
        let gone: Vec<u64> = of.outstanding.iter().copied().filter(settled).collect();
        of.outstanding.retain(|tag| !gone.contains(tag));
        if of.is_tx {
            of.uncommitted.extend(gone);
        }
        let bit = |set: bool, name: &'static str| if set { name } else { "" };
        let step = match self.alphabet.rng.u8(..10) {
            0..3 => format!("basic.ack delivery-tag={tag}{}", bit(multiple, " multiple")),
            3..7 => {
                let requeue = self.alphabet.perhaps(30);
                format!(
                    "basic.nack delivery-tag={tag}{}{}",
                    bit(multiple, " multiple"),
                    bit(requeue, " requeue")
                )
            }
            _ => {
                let requeue = self.alphabet.perhaps(25);
                format!(
                    "basic.reject delivery-tag={tag}{}",
                    bit(requeue, " requeue")
                )
            }
        };
        self.on(channel, step)
    }

    fn end_tx(&mut self, channel: u16) -> Vec<String> {
        let commit = self.alphabet.perhaps(70);
        let of = self.channel(channel);
        let settled = std::mem::take(&mut of.uncommitted);
        if !commit {
            of.outstanding.extend(settled);
            of.outstanding.sort_unstable();
        }
        let verb = if commit { "commit" } else { "rollback" };
        self.on(channel, format!("tx.{verb}"))
    }
}
