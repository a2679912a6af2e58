//! Scripts of frames as text: `testdata/*.txt` of each machine with a link. `UPDATE=1` rewrites the answers; a human reads the diff.
//!
//! A block is comments that say the rule, a line `new …` with the setting, and lines of what the machine meets. Below each line stands,
//! indented, what it does then: frames with their channels, what it has for others, facts, and what its link wants.
//! A line that begins with a number is a frame of the broker's on that channel; behind `: ` stand the broker's words. `""` is an empty word.
//! `for 1..3: 1 ack {} | pass 100` is all of that for each number,
//! and `silently for …` does not show what it does.

use std::time::Duration;

use super::peer::{Rig, Sent, close, method};
use crate::amqp::frame::{HEARTBEAT, PROTOCOL};
use crate::amqp::method::MethodId;
use crate::machine::{Event, Flow, Leg, Machine};

#[path = "shown.rs"]
mod shown;

use self::shown::{Frames, METHODS};
pub(crate) use self::shown::{properties, quoted};

/// A machine in its setting, and the lines that only it knows.
pub(crate) trait Script {
    type Machine: Machine;

    fn begin(words: &mut Words) -> Self;

    fn rig(&mut self) -> &mut Rig<Self::Machine>;

    /// False: a line that each machine knows, perhaps.
    fn line(&mut self, words: &mut Words) -> bool;

    /// What it has for other machines.
    fn told(&mut self) -> Vec<String>;

    /// What the broker answers by itself, and whether the frame is worth showing.
    fn answer(&mut self, _: &Sent) -> (bool, Vec<u8>) {
        (true, Vec::new())
    }
}

/// The words of a line. What nobody asks for is a mistake.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) channel: Option<u16>,
    pub(crate) verb: String,
    words: Vec<String>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) text: String,
}

pub(crate) fn check<S: Script>(folder: &str) {
    crate::tables::hold_blocks(folder, answered::<S>);
}

fn answered<S: Script>(block: &str) -> String {
    let mut script: Option<S> = None;
    let mut flow = None;
    let mut out = Vec::new();
    for line in block.lines().filter(|line| !line.starts_with(' ')) {
        out.push(line.to_owned());
        if line.starts_with('#') {
            continue;
        }
        let mut told = Vec::new();
        let silently = line.strip_prefix("silently ");
        for line in repeated(silently.unwrap_or(line)) {
            let mut words = Words::of(&line);
            match (&mut script, words.verb.as_str()) {
                (_, "new") => {
                    let begun = script.insert(S::begin(&mut words));
                    flow = Some(begun.rig().machine.flow());
                }
                (Some(script), _) => {
                    let is_known = script.line(&mut words) || does(script.rig(), &mut words);
                    assert!(is_known, "no such line: {line}");
                }
                (None, _) => panic!("a block begins with `new`: {block}"),
            }
            let used = words.words.is_empty() && words.options.is_empty();
            assert!(used, "unknown words: {words:?}");
            told.extend(tell(script.as_mut().expect("new"), &mut flow));
        }
        told.extend(script.as_mut().expect("new").told());
        if silently.is_none() {
            out.extend(wrapped(told));
        }
    }
    out.join("\n")
}

fn repeated(line: &str) -> Vec<String> {
    let Some((numbers, lines)) = line.strip_prefix("for ").and_then(|of| of.split_once(": "))
    else {
        return vec![line.to_owned()];
    };
    let (first, last) = numbers.split_once("..").expect("A..B");
    let (first, last): (u64, u64) = (
        first.parse().expect("a number"),
        last.parse().expect("a number"),
    );
    let all = (first..=last).flat_map(|number| {
        let of = move |line: &str| line.replace("{}", &number.to_string());
        lines.split(" | ").map(of)
    });
    all.collect()
}

/// The lines that each machine knows; false: none of them.
fn does<M: Machine>(rig: &mut Rig<M>, words: &mut Words) -> bool {
    match (words.channel, words.verb.as_str()) {
        (None, "up") => rig.up(&words.next().unwrap_or_else(|| "4.3.6".to_owned())),
        (None, "connected") => {
            rig.machine.connected(Leg::Broker, rig.now, &mut rig.fx);
            let header = rig.fx.broker.finish().0.split_off(0);
            assert_eq!(header, PROTOCOL);
        }
        (None, "cut") => {
            rig.machine.closed(Leg::Broker, rig.now, &mut rig.fx);
            rig.fx.broker.finish().0.clear();
        }
        (None, "pass") => rig.pass(words.number()),
        // The process stood still, and all is due at once.
        (None, "stands") => {
            let millis = Duration::from_millis(words.number());
            rig.now.mono = rig.now.mono.after(millis);
            rig.machine.timeout(rig.now, &mut rig.fx);
        }
        // The broker is not silent, but answers nothing.
        (None, "live") => {
            let mut left: u64 = words.number();
            while left > 0 {
                let step = left.min(1_000);
                rig.pass(step);
                rig.broker(&HEARTBEAT);
                left -= step;
            }
        }
        // The socket takes nothing, or again.
        (None, "no-room") => rig.takes = false,
        (None, "room") => rig.takes = true,
        (None, "drain") => rig.drain(),
        (None, "drained") => rig.machine.drained(rig.now, &mut rig.fx),
        (Some(channel), verb) => {
            let verb = verb.to_owned();
            let Some(frame) = says(channel, &verb, words) else {
                return false;
            };
            rig.broker(&frame);
        }
        _ => return false,
    }
    true
}

/// A frame of the broker's.
fn says(channel: u16, verb: &str, words: &mut Words) -> Option<Vec<u8>> {
    let id = match verb {
        "ack" | "nack" => {
            let (id, bits) = match verb {
                "ack" => (MethodId::BASIC_ACK, words.flag("multiple")),
                _ => (MethodId::BASIC_NACK, words.flag("multiple")),
            };
            let tag = words.number();
            return Some(method(channel, id, |a| {
                a.longlong(tag).octet(bits.into()).end()
            }));
        }
        "close" => {
            let code = words.number();
            let failed = words.next();
            let known = METHODS.iter().find(|it| failed.as_deref() == Some(it.1));
            let failed = known.map_or(MethodId(0, 0), |it| it.0);
            return Some(close(channel, code, &words.text, failed));
        }
        "declare-ok" => {
            let counts = [words.next(), words.next()]
                .map(|it| it.map_or(0, |it| it.parse().expect("a count")));
            return Some(method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
                a.shortstr(b"q").long(counts[0]).long(counts[1]).end();
            }));
        }
        "delete-ok" => {
            let messages = words.number();
            return Some(method(channel, MethodId::QUEUE_DELETE_OK, |a| {
                a.long(messages).end();
            }));
        }
        "cancel" => {
            return Some(method(channel, MethodId::BASIC_CANCEL, |a| {
                a.shortstr(b"tag").octet(1).end()
            }));
        }
        "open-ok" => {
            return Some(method(channel, MethodId::CHANNEL_OPEN_OK, |a| {
                a.longstr(b"").end()
            }));
        }
        "start" => {
            let version = words.next().expect("a version");
            return Some(super::peer::start(&version));
        }
        "tune" => {
            return Some(super::peer::tune(
                words.number(),
                words.number(),
                words.number(),
            ));
        }
        "flow" => {
            let active = words.flag("active");
            return Some(method(channel, MethodId::CHANNEL_FLOW, |a| {
                a.octet(active.into()).end();
            }));
        }
        "opened" => return Some(super::peer::open_ok()),
        "blocked" => MethodId::CONNECTION_BLOCKED,
        "get-ok" => MethodId::BASIC_GET_OK,
        "get-empty" => MethodId::BASIC_GET_EMPTY,
        "consume-ok" => MethodId::BASIC_CONSUME_OK,
        "cancel-ok" => MethodId::BASIC_CANCEL_OK,
        "unblocked" => MethodId::CONNECTION_UNBLOCKED,
        "close-ok" => match channel {
            0 => MethodId::CONNECTION_CLOSE_OK,
            _ => MethodId::CHANNEL_CLOSE_OK,
        },
        "select-ok" => MethodId::CONFIRM_SELECT_OK,
        "qos-ok" => MethodId::BASIC_QOS_OK,
        "bind-ok" => MethodId::QUEUE_BIND_OK,
        "unbind-ok" => MethodId::QUEUE_UNBIND_OK,
        "exchange-ok" => MethodId::EXCHANGE_DECLARE_OK,
        "rollback-ok" => MethodId::TX_ROLLBACK_OK,
        _ => return None,
    };
    let named = ["blocked", "get-ok", "get-empty", "consume-ok", "cancel-ok"].contains(&verb);
    Some(method(channel, id, |a| {
        if named {
            a.shortstr(b"word").end();
        }
    }))
}

pub(crate) fn tell<S: Script>(script: &mut S, before: &mut Option<Flow>) -> Vec<String> {
    let mut frames = Frames::default();
    loop {
        let sent = script.rig().sent();
        if sent.is_empty() {
            break;
        }
        for sent in sent {
            let (shown, answer) = script.answer(&sent);
            if shown {
                frames.add(&sent);
            }
            if !answer.is_empty() {
                script.rig().broker(&answer);
            }
        }
    }
    let mut told = frames.finish();
    let rig = script.rig();
    told.extend(rig.events().iter().map(event));
    let flow = rig.machine.flow();
    if before.replace(flow) != Some(flow) {
        told.extend(match flow {
            Flow::Reconnect(at) => Some(format!(
                "reconnects in {} ms",
                rig.now.mono.until(at).as_millis()
            )),
            Flow::Finish => Some("finished".to_owned()),
            Flow::Open | Flow::HalfClosed => None,
        });
    }
    told
}

/// `1..3 Confirmed`: numbers that follow each other, and the same is to be said of them.
pub(crate) fn runs(all: impl IntoIterator<Item = (u64, String)>) -> Vec<String> {
    let all: Vec<_> = all.into_iter().collect();
    let alike = all.chunk_by(|one, next| one.0 + 1 == next.0 && one.1 == next.1);
    let told = alike.map(|run| match run {
        [(number, what)] => format!("{number} {what}"),
        [(first, what), .., (last, _)] => format!("{first}..{last} {what}"),
        [] => String::new(),
    });
    told.collect()
}

fn event(event: &Event) -> String {
    match event {
        Event::DeadLetter(dead) => {
            let target = [&dead.exchange, &dead.routing_key]
                .map(|it| quoted(it))
                .join(" ");
            let (queue, reason, bytes) = (&dead.queue, dead.reason.as_str(), dead.bytes);
            format!(
                "dead letter of {queue} ({reason}) to {target}, {bytes} bytes: {:?}",
                dead.outcome
            )
        }
        other => format!("{other:?}"),
    }
}

/// Lines of such results; what is there several times in a row stands there once.
fn wrapped(told: Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for same in told.chunk_by(|one, next| one == next) {
        let word = match same.len() {
            1 => same[0].clone(),
            times => format!("{} ×{times}", same[0]),
        };
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < 125 => {
                line.push_str(" · ");
                line.push_str(&word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines
}

// === impl Words ===

impl Words {
    pub(crate) fn of(line: &str) -> Words {
        let (line, text) = line.split_once(": ").unwrap_or((line, ""));
        let mut all = line.split(' ').map(str::to_owned).peekable();
        let channel = all.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let channel = channel.map(|channel| channel.parse().expect("a channel"));
        let mut words = Words {
            channel,
            verb: all.next().expect("a verb"),
            text: text.to_owned(),
            ..Words::default()
        };
        for word in all {
            match word.split_once('=') {
                Some((name, value)) => words.options.push((name.to_owned(), value.to_owned())),
                None => words.words.push(word.replace("\"\"", "")),
            }
        }
        words
    }

    pub(crate) fn next(&mut self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    pub(crate) fn word(&mut self) -> String {
        self.next().expect("one more word")
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.word();
        word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
    }

    /// `3`, or `3..5`.
    pub(crate) fn numbers(&mut self) -> std::ops::RangeInclusive<u64> {
        let word = self.word();
        let (first, last) = word.split_once("..").unwrap_or((&word, &word));
        first.parse().expect("a number")..=last.parse().expect("a number")
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    pub(crate) fn option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(of, _)| of == name)?;
        Some(self.options.remove(at).1)
    }

    pub(crate) fn option_number<T: std::str::FromStr>(&mut self, name: &str) -> Option<T> {
        let value = self.option(name)?;
        Some(
            value
                .parse()
                .unwrap_or_else(|_| panic!("no number: {value}")),
        )
    }
}
