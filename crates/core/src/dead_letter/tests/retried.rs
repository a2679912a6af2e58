//! The blocks of `testdata/retries.txt`: `delays` of one return after the other, the `verdict` of one, and `return`, with the message.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::retries::{
    Attempts, BackOff, Counts, OnCrash, Retries, RetryType, Returned, Verdict,
};
use crate::dead_letter::{Disposal, Lookup, Return, Rules, give_back};

use super::away::{self, NOW, OWN};
use super::message::Message;
use super::script::Words;

/// What has no message.
pub(super) fn answer(mut words: Words) -> String {
    let retries = retries(&mut words);
    match words.verb.as_str() {
        "delays" => {
            let count: u64 = words.take("count").unwrap().parse().unwrap();
            let from = number(&mut words, "from").unwrap_or(0);
            words.done();
            let delay = |all| match retries.verdict(attempts(all, 0), Returned::ByNack) {
                Verdict::Back(delay, _) => delay.as_millis().to_string(),
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
            match retries.verdict(before, returned) {
                Verdict::Native => "native".to_owned(),
                Verdict::Dies => "dies".to_owned(),
                Verdict::Back(delay, Attempts { all, failed }) => {
                    let delay = delay.as_millis();
                    format!("back after {delay} ms, all={all} failed={failed}")
                }
            }
        }
        other => panic!("no command {other} without a message"),
    }
}

/// What becomes of a message that was returned to its queue, which has no dead-letter exchange.
pub(super) fn returned(mut words: Words, message: &Message, rules: &Rules) -> Option<Disposal> {
    let retries = retries(&mut words);
    let (before, returned) = (before(&mut words), verb(&mut words));
    let queue = ShortStr::copy(words.take("queue").unwrap().as_bytes()).unwrap();
    let queue_ttl = number(&mut words, "ttl").map(Duration::from_millis);
    let by = words.take("by-exchange");
    words.done();
    let by = by.map(|name| ShortStr::copy(name.as_bytes()).unwrap());
    let of = Return {
        returned,
        attempts: before,
        queue_ttl,
        by_exchange: by.as_ref(),
        ..away::returned(&queue, (&message.exchange, &message.key), &message.content)
    };
    give_back(&of, &retries, &Lookup::NoExchange, rules, OWN, NOW)
}

fn retries(words: &mut Words) -> Retries {
    let millis = |words: &mut Words, name| number(words, name).map(Duration::from_millis);
    let (min, max) = (millis(words, "min"), millis(words, "max"));
    let multiplier = number(words, "multiplier").map(|number| number.try_into().unwrap());
    let after = words.take("type");
    let after = after.map_or(RetryType::All, |name| {
        RetryType::parse(name.as_bytes()).unwrap()
    });
    Retries {
        back_off: min.map(|min| BackOff {
            after,
            min,
            max: max.unwrap_or(Duration::MAX),
            multiplier,
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

fn before(words: &mut Words) -> Attempts {
    let mut count = |name| number(words, name).unwrap_or(0);
    attempts(count("all"), count("failed"))
}

fn attempts(all: u64, failed: u64) -> Attempts {
    Attempts { all, failed }
}

fn verb(words: &mut Words) -> Returned {
    match words.take("by").as_deref() {
        Some("nack") => Returned::ByNack,
        Some("reject") => Returned::ByReject,
        other => panic!("by={other:?}"),
    }
}

fn number(words: &mut Words, name: &str) -> Option<u64> {
    Some(words.take(name)?.parse().unwrap())
}
