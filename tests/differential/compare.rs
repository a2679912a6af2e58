//! Are two records the same? Here stands everything that may differ, and why. A rule touches as little as it can; a *stated* one is a
//! difference that users are told about, and some scenario `shows` it. Those that count nowhere else stand in `wide`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::SystemTime;

use memchr::memmem;

use super::frame::Frame;
use super::methods::Arg;
use super::reader::Received;
use super::run::Record;
use super::side_by_side::side_by_side;
use super::value::{Array, Bytes, Table, Value};
use super::wide::WIDE;

type Field = (Bytes, Value);

/// Something that may differ.
pub(crate) struct Rule {
    pub name: &'static str,
    pub reason: &'static str,
    pub stated: bool,
    pub how: How,
}

/// What a rule does to frames. `Facts` come first.
pub(crate) enum How {
    /// Changes the frames of a channel, both sides alike.
    All(fn(&mut Vec<Received>)),
    /// Changes both sides alike.
    Each(fn(&Facts, &mut Frame)),
    /// Sees the frame of the direct run and the one of the proxy at the same place, if both have the same name: the direct one is changed
    /// to the other, where that is explained.
    Direct(fn(&Facts, &mut Frame, &Frame)),
    /// Sees all of a channel, by its name: the direct frames and the other ones.
    Both(fn(&Facts, &str, &mut Vec<Received>, &mut Vec<Received>)),
    /// Needs the whole of both records: see `arrival`.
    Arrival,
}

/// What rules may ask.
#[derive(Default)]
pub(crate) struct Facts {
    pub is_4x: bool,
    /// What the scenario shows, if anything.
    pub shows: Option<String>,
    /// No proxy took part: what its users are told counts for nothing.
    pub same_broker: bool,
    /// When the first of the runs began, in seconds since 1970.
    pub since: u64,
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "heartbeats",
        reason: "they come when time has passed; a scenario may expect them",
        stated: false,
        how: How::All(|frames| frames.retain(|came| came.frame.name != "heartbeat")),
    },
    Rule {
        name: "confirms",
        reason: "brokers put them together as time has it: where there are several, only which came is compared, and in what life of the channel",
        stated: false,
        how: How::All(gather_confirms),
    },
    Rule {
        name: "time-of-death",
        reason: "messages of both runs die at other times, but while these runs last; a time that a client made up stays what it is",
        stated: false,
        how: How::Each(|facts, frame| {
            // The broker's clock may be a second behind ours, or before it.
            let (since, now) = (i128::from(facts.since) - 1, i128::from(now()) + 1);
            each_death(frame, |death| {
                for (name, value) in &mut death.fields {
                    if let (b"time", Value::Integer(b'T', time)) = (&**name, value)
                        && (since..=now).contains(time)
                    {
                        *time = 0;
                    }
                }
            });
        }),
    },
    Rule {
        name: "header-order",
        reason: "3.x sorts the headers of what dies (S4.3, S4.6), 4.x those of every message; the proxy leaves them as they were",
        stated: true,
        how: How::Each(|facts, frame| {
            if !facts.is_4x {
                each_death(frame, by_name);
                dead_letter(frame, by_name);
            }
        }),
    },
    Rule {
        name: "header-types",
        reason: "3.x turns `L` into `l` when a message dies (S4.6), 4.x at once; the proxy leaves it as it was",
        stated: true,
        how: How::Each(|facts, frame| {
            let to_l =
                |headers: &mut Table| headers.fields.iter_mut().for_each(|(_, value)| to_l(value));
            if !facts.is_4x {
                dead_letter(frame, to_l);
            }
        }),
    },
    Rule {
        name: "server-property",
        reason: "the proxy shows that it is there by one more property of `connection.start`",
        stated: true,
        how: How::Direct(|_, direct, proxied| {
            let start = |frame: &Frame| frame.name == "connection.start";
            let Some(Arg::Table(shown)) =
                proxied.arg("server-properties").filter(|_| start(proxied))
            else {
                return;
            };
            if let Some(added @ (name, Value::Text(_))) = shown.fields.last()
                && name == b"dlx_proxy"
                && let Some(Arg::Table(said)) = direct.arg_mut("server-properties")
            {
                said.fields.push(added.clone());
            }
        }),
    },
    Rule {
        name: "refusal-words",
        reason: "what the broker says of a queue with another dead-letter target, or of the proxy's own objects, is told in other words, and without a name of the proxy's that its client did not write (S7.3)",
        stated: true,
        how: How::Direct(|_, direct, proxied| other_words(direct, proxied)),
    },
    Rule {
        name: "redelivered",
        reason: "4.x also shows as redelivered what failed before it died; a dead letter of the proxy is a new message (S3.6)",
        stated: true,
        how: How::Direct(|facts, direct, proxied| {
            let is_new = proxied.arg("redelivered") == Some(&Arg::Bit(false));
            let explained = facts.is_4x && is_new && direct.newest_death().is_some();
            if let Some(redelivered) = direct.arg_mut("redelivered").filter(|_| explained) {
                *redelivered = Arg::Bit(false);
            }
        }),
    },
    Rule {
        name: "delivery-count",
        reason: "4.x carries these headers from a quorum queue into the dead letter; the proxy's is a new publication (S3.6)",
        stated: true,
        how: How::Direct(|facts, direct, proxied| {
            let is_count =
                |(name, _): &&Field| name == b"x-acquired-count" || name == b"x-delivery-count";
            let Some(proxied) = proxied
                .headers()
                .filter(|_| facts.is_4x && direct.newest_death().is_some())
            else {
                return;
            };
            let counts: Vec<Field> = proxied.fields.iter().filter(is_count).cloned().collect();
            dead_letter(direct, |headers| {
                // Never more than the broker says.
                let carried = |(name, count): &Field| {
                    headers
                        .fields
                        .iter()
                        .any(|(of, more)| of == name && at_most(count, more))
                };
                if counts.iter().all(carried) {
                    headers.fields.retain(|field| !is_count(&field));
                    headers.fields.extend(counts);
                    by_name(headers);
                }
            });
        }),
    },
];

/// With those that count only where they are shown.
pub(crate) fn all_rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().chain(WIDE)
}

/// Why that may differ.
pub(crate) fn reason(name: &str) -> &'static str {
    all_rules()
        .find(|rule| rule.name == name)
        .map_or("no such rule", |rule| rule.reason)
}

/// Several confirms → one pseudo frame where the channel ends. A single one stays where it is, so that its order is compared.
fn gather_confirms(frames: &mut Vec<Received>) {
    let mut gathered = Vec::new();
    let mut lives = Vec::new();
    for came in frames.drain(..) {
        let last = matches!(
            &*came.frame.name,
            "channel.close" | "channel.close-ok" | "closed"
        );
        if !last {
            lives.push(came);
            continue;
        }
        gather_life(&mut lives);
        gathered.append(&mut lives);
        gathered.push(came);
    }
    gather_life(&mut lives);
    gathered.append(&mut lives);
    *frames = gathered;
}

fn gather_life(frames: &mut Vec<Received>) {
    let mut confirmed: BTreeMap<u64, &str> = BTreeMap::new();
    for came in &*frames {
        for tag in came.frame.confirms().into_iter().flatten() {
            let how = if came.frame.name == "basic.ack" {
                "ack"
            } else {
                "nack"
            };
            confirmed.entry(tag).or_insert(how);
        }
    }
    if confirmed.len() < 2 {
        return;
    }
    frames.retain(|came| came.frame.confirms().is_none());
    let text: Vec<String> = confirmed
        .iter()
        .map(|(tag, how)| format!("{tag}:{how}"))
        .collect();
    let frame = Frame::new(
        "confirms",
        vec![("tags", Arg::Text(text.join(" ").into_bytes()))],
    );
    frames.push(Received {
        channel: 0,
        step: 0,
        frame,
    });
}

/// A refusal that is told in other words, as the proxied one is; but not with a name of the proxy's that is new in it.
fn other_words(direct: &mut Frame, proxied: &Frame) {
    let text = |frame: &Frame| {
        let text = frame.arg("reply-text").map(Arg::text);
        text.unwrap_or_default().to_vec()
    };
    let (said, told) = (text(direct), text(proxied));
    let named = |text: &[u8]| memmem::find(text, b"dlx-prox").is_some();
    let begin = |words: &[u8]| said.starts_with(words) && told.starts_with(words);
    let about = begin(b"PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-")
        || begin(b"ACCESS_REFUSED - ")
        || begin(b"NOT_FOUND - no queue '");
    if let Some(words) = direct.arg_mut("reply-text")
        && about
        && (!named(&told) || named(&said))
    {
        *words = Arg::Text(told);
    }
}

fn at_most(count: &Value, more: &Value) -> bool {
    match (count, more) {
        (Value::Integer(_, count), Value::Integer(_, more)) => count <= more,
        _ => false,
    }
}

fn dead_letter(frame: &mut Frame, change: impl FnOnce(&mut Table)) {
    if frame.newest_death().is_some() {
        frame.headers_mut().map(change);
    }
}

fn each_death(frame: &mut Frame, mut change: impl FnMut(&mut Table)) {
    let Some(headers) = frame.headers_mut() else {
        return;
    };
    for (name, value) in &mut headers.fields {
        if let (b"x-death", Value::Array(Array { items, .. })) = (&**name, value) {
            for death in items {
                if let Value::Table(death) = death {
                    change(death);
                }
            }
        }
    }
}

/// Duplicates stay in their order.
fn by_name(table: &mut Table) {
    table.fields.sort_by(|(a, _), (b, _)| a.cmp(b));
}

/// In seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_secs())
}

fn to_l(value: &mut Value) {
    match value {
        Value::Integer(tag @ b'L', _) => *tag = b'l',
        Value::Array(array) => array.items.iter_mut().for_each(to_l),
        Value::Table(table) => table.fields.iter_mut().for_each(|(_, value)| to_l(value)),
        _ => {}
    }
}

/// The first difference in each connection's channel, side by side; nothing if there is none. `without`: a rule that is not applied.
pub(crate) fn difference(
    facts: &Facts,
    direct: &Record,
    proxied: &Record,
    without: Option<&str>,
) -> Option<String> {
    let names: BTreeSet<_> = direct.groups.keys().chain(proxied.groups.keys()).collect();
    let mut text = String::new();
    for name in names {
        let of = |record: &Record| record.groups.get(name).cloned().unwrap_or_default();
        let (mut left, mut right) = (of(direct), of(proxied));
        normalise(facts, name, &mut left, &mut right, without);
        let same =
            left.len() == right.len() && left.iter().zip(&right).all(|(a, b)| a.frame == b.frame);
        if !same {
            let _ = writeln!(text, "{}", side_by_side(name, &left, &right));
        }
    }
    (!text.is_empty()).then_some(text)
}

fn normalise(
    facts: &Facts,
    name: &str,
    direct: &mut Vec<Received>,
    proxied: &mut Vec<Received>,
    without: Option<&str>,
) {
    let shown = |rule: &&Rule| facts.shows.as_deref() == Some(rule.name);
    let stated = |rule: &&Rule| !(facts.same_broker && rule.stated);
    let counts = RULES.iter().chain(WIDE.iter().filter(shown)).filter(stated);
    for rule in counts.filter(|rule| Some(rule.name) != without) {
        match rule.how {
            How::All(change) => {
                change(direct);
                change(proxied);
            }
            How::Each(change) => direct
                .iter_mut()
                .chain(&mut *proxied)
                .for_each(|came| change(facts, &mut came.frame)),
            How::Direct(change) => {
                let pairs = direct.iter_mut().zip(&*proxied);
                let same =
                    pairs.filter(|(direct, proxied)| direct.frame.name == proxied.frame.name);
                same.for_each(|(direct, proxied)| change(facts, &mut direct.frame, &proxied.frame));
            }
            How::Both(change) => change(facts, name, direct, proxied),
            How::Arrival => {}
        }
    }
}
