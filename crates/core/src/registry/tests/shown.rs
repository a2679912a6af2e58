//! What the tables show of answers.

use crate::dead_letter::retries::{Delays, Retries};
use crate::dead_letter::{Lookup, Target};
use crate::objects::DeclaredTarget;
use crate::registry::refusal::There;

use super::words::quoted;

pub(super) fn there(there: &There) -> String {
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
        There::Unanswered => "nobody answers",
        There::Else => "unknown",
    };
    words.to_owned()
}

pub(super) fn lookup(lookup: Lookup) -> String {
    match lookup {
        Lookup::Target(target) => self::target(&target),
        Lookup::KeyUnknown => "the broker's".to_owned(),
        Lookup::Unknown => "unknown".to_owned(),
        Lookup::NoExchange => "nowhere".to_owned(),
    }
}

pub(super) fn retries(retries: Retries) -> String {
    let Retries {
        back_off,
        limit,
        counts,
        on_crash,
    } = retries;
    let back_off = back_off.map_or("at once".to_owned(), |it| {
        let after = it.after.as_str();
        let delays = match it.delays {
            Delays::Listed(schedule) => format!("{schedule:?}"),
            Delays::Growing {
                min,
                max,
                multiplier,
            } => {
                let times = multiplier.map_or(String::new(), |by| format!(" times {by}"));
                format!("{min:?} to {max:?}{times}")
            }
        };
        let jitter = it.jitter.map_or(String::new(), |by| format!(" {by:?}"));
        format!("after {after} {delays}{jitter}")
    });
    let limit = limit.map_or("no limit".to_owned(), |limit| format!("limit {limit}"));
    format!("{back_off}, {limit}, counts {counts:?}, on crash {on_crash:?}")
}

pub(super) fn intake(intake: &DeclaredTarget) -> String {
    match intake {
        DeclaredTarget::Target(target) => self::target(target),
        DeclaredTarget::Policy {
            at_least_once: true,
        } => "policy at-least-once".to_owned(),
        DeclaredTarget::Policy {
            at_least_once: false,
        } => "policy".to_owned(),
    }
}

pub(super) fn target(target: &Target) -> String {
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
