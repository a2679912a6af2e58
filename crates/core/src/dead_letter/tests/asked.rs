//! What the words of a command ask for; and what has no message: the `delays` of one return after the other, and the `verdict` of one.

use std::time::Duration;

use crate::amqp::ids::name;
use crate::dead_letter::edited::Edited;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::redrive::Destination;
use crate::dead_letter::retries::{
    Attempts, BackOff, Counts, Decision, Delays, OnCrash, Retries, RetryType, Returned,
};
use crate::dead_letter::schedule::Schedule;
use crate::dead_letter::{Lookup, Target};
use crate::machine::{Reason, Wall};

use super::away::NOW;
use super::message::typed;
use super::script::{Words, list, parts};

/// What has no message.
pub(super) fn answer(mut words: Words) -> String {
    let retries = retries(&mut words);
    match words.verb.as_str() {
        "delays" => {
            let count: u64 = words.take("count").unwrap().parse().unwrap();
            let from = number(&mut words, "from").unwrap_or(0);
            let draw = draw(&mut words);
            words.done();
            let delay = |all| match retries.decide(attempts(all, 0), Returned::ByNack, draw) {
                Decision::Back(delay, _) => delay.as_millis().to_string(),
                other => format!("{other:?}"),
            };
            (from..from + count)
                .map(delay)
                .collect::<Vec<_>>()
                .join(" ")
        }
        "verdict" => {
            let (before, returned) = (before(&mut words), verb(&mut words));
            words.done();
            match retries.decide(before, returned, 0) {
                Decision::Native => "native".to_owned(),
                Decision::Dies => "dies".to_owned(),
                Decision::Back(delay, Attempts { all, failed }) => {
                    let delay = delay.as_millis();
                    format!("back after {delay} ms, all={all} failed={failed}")
                }
            }
        }
        other => panic!("no command {other} without a message"),
    }
}

pub(super) fn retries(words: &mut Words) -> Retries {
    let millis = |words: &mut Words, name| number(words, name).map(Duration::from_millis);
    let (min, max) = (millis(words, "min"), millis(words, "max"));
    let multiplier = number(words, "multiplier").map(|number| number.try_into().unwrap());
    let growing = |min| Delays::Growing {
        min,
        max: max.unwrap_or(Duration::MAX),
        multiplier,
    };
    let listed = words.take("list");
    let listed = listed.map(|list| Delays::Listed(Schedule::parse(&list).unwrap()));
    let jitter = words
        .take("jitter")
        .and_then(|it| Jitter::parse(&it).unwrap());
    let after = words.take("type");
    let after = after.map_or(RetryType::All, |name| {
        RetryType::parse(name.as_bytes()).unwrap()
    });
    Retries {
        back_off: listed.or(min.map(growing)).map(|delays| BackOff {
            after,
            delays,
            jitter,
        }),
        limit: number(words, "limit"),
        counts: match words.take("counts").as_deref() {
            None | Some("all") => Counts::All,
            Some("failed") => Counts::Failed,
            Some(other) => panic!("counts={other}"),
        },
        on_crash: OnCrash::Requeue,
    }
}

pub(super) fn before(words: &mut Words) -> Attempts {
    let mut count = |name| number(words, name).unwrap_or(0);
    attempts(count("all"), count("failed"))
}

fn attempts(all: u64, failed: u64) -> Attempts {
    Attempts { all, failed }
}

pub(super) fn verb(words: &mut Words) -> Returned {
    match words.take("by").as_deref() {
        None | Some("nack") => Returned::ByNack,
        Some("reject") => Returned::ByReject,
        other => panic!("by={other:?}"),
    }
}

/// `draw=N`: out of a thousand.
pub(super) fn draw(words: &mut Words) -> u64 {
    number(words, "draw").unwrap_or(0) * (u64::MAX / 1000)
}

pub(super) fn number(words: &mut Words, name: &str) -> Option<u64> {
    Some(words.take(name)?.parse().unwrap())
}

pub(super) fn moment(words: &mut Words) -> Wall {
    NOW.after(Duration::from_millis(number(words, "at").unwrap_or(0)))
}

pub(super) fn reason(words: &mut Words, otherwise: Reason) -> Reason {
    let reason = words.take("reason");
    reason.map_or(otherwise, |reason| {
        Reason::parse(reason.as_bytes()).unwrap()
    })
}

/// Where its queue's dead letters go: nowhere, unless words say something else.
pub(super) fn lookup(words: &mut Words) -> Lookup {
    if words.flag("key-unknown") {
        return Lookup::KeyUnknown;
    }
    target(words).map_or(Lookup::NoExchange, Lookup::Target)
}

pub(super) fn target(words: &mut Words) -> Option<Target> {
    let target = words.take("target")?;
    let target = parts(target.trim_start_matches('(').trim_end_matches(')'));
    Some(Target {
        exchange: name(&target[0]),
        routing_key: target.get(1).map(|key| name(key)),
        at_least_once: words.flag("at-least-once"),
    })
}

/// `source`, `queue:b`, `exchange:e`, or `exchange:e/key`.
pub(super) fn destination(text: &str) -> Destination {
    match text.split_once(':') {
        None => Destination::Source,
        Some(("queue", queue)) => Destination::Queue(name(queue)),
        Some((_, exchange)) => {
            let (exchange, key) = match exchange.split_once('/') {
                None => (exchange, None),
                Some((exchange, key)) => (exchange, Some(key)),
            };
            Destination::Exchange {
                exchange: name(exchange),
                routing_key: key.map(name),
            }
        }
    }
}

/// `set=[name=TYPE:value]` and `unset=[name]`.
pub(super) fn edit(words: &mut Words) -> Option<Edited> {
    let (set, unset) = (words.take("set"), words.take("unset"));
    let is_one = set.is_some() || unset.is_some();
    let (set, unset) = (set.unwrap_or_default(), unset.unwrap_or_default());
    let member = |pair: &String| {
        let (name, value) = pair.split_once('=').expect("name=TYPE:value");
        typed(name.as_bytes(), value)
    };
    is_one.then(|| Edited {
        body: None,
        headers: list(&set).iter().flat_map(member).collect(),
        removed: list(&unset).iter().map(|it| name(it)).collect(),
    })
}
