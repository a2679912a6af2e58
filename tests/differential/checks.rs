//! Can the instrument be trusted? Its parts, without a broker.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::{Failed, Trial};

use super::compare::{self, Facts, all_rules, difference};
use super::frame::Frame;
use super::methods::Arg;
use super::notation::Cursor;
use super::parse;
use super::reader::Received;
use super::run::Record;
use super::script::Script;
use super::value::{Fallible, Table};

/// What must be true.
type Check = fn() -> Fallible<()>;

/// Named `instrument::…`.
pub(crate) fn trials() -> Vec<Trial> {
    let all: [(&str, Check); 5] = [
        ("scripts-are-kept", scripts_are_kept),
        ("differences-are-seen", differences_are_seen),
        ("rules-are-narrow", rules_are_narrow),
        ("confirms-are-gathered", confirms_are_gathered),
        ("stated-differences-are-shown", stated_differences_are_shown),
    ];
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("instrument::{name}"), move || {
            check().map_err(Failed::from)
        })
    };
    all.into_iter().map(trial).collect()
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Fallible<()> {
    match is == should {
        true => Ok(()),
        false => Err(format!("{what}: {is:?}, and not {should:?}")),
    }
}

fn table(text: &str) -> Fallible<Table> {
    Cursor { text }.table()
}

/// Printed, each scenario is the same again: what differs is printed to be run once more.
fn scripts_are_kept() -> Fallible<()> {
    for script in super::scenarios()? {
        let text = script.to_string();
        let scripts = parse::scripts("check", &text)?;
        equal(
            "printed",
            scripts.iter().map(Script::to_string).collect(),
            text,
        )?;
    }
    Ok(())
}

fn record(group: &str, frames: Vec<Frame>) -> Record {
    let received = |frame| Received {
        channel: 1,
        step: 1,
        frame,
    };
    let groups = BTreeMap::from([(group.to_owned(), frames.into_iter().map(received).collect())]);
    Record {
        groups,
        ..Record::default()
    }
}

fn deliver(redelivered: bool, headers: &str) -> Fallible<Frame> {
    let args = vec![
        ("redelivered", Arg::Bit(redelivered)),
        ("headers", Arg::Table(table(headers)?)),
    ];
    Ok(Frame::new("basic.deliver", args))
}

/// A deliberately different pair prints what differs, and only that is marked.
fn differences_are_seen() -> Fallible<()> {
    let facts = Facts {
        same_broker: false,
        is_4x: true,
        ..Facts::default()
    };
    let one = record("a.1", vec![deliver(false, "{a: 1, b: 2}")?]);
    equal("equal records", difference(&facts, &one, &one, None), None)?;
    let other = record("a.1", vec![deliver(false, "{a: 1, b: l:2}")?]);
    let found = difference(&facts, &one, &other, None).ok_or("another type is not seen")?;
    let marked: Vec<&str> = found.lines().filter(|line| line.starts_with('|')).collect();
    equal("marked lines", marked.len(), 1)?;
    let shows = |text: &str| marked[0].contains(text);
    equal("both sides", shows("b: 2") && shows("b: l:2"), true)?;
    let seen = |other: &Record| difference(&facts, &one, other, None).is_some();
    equal(
        "order of headers of what did not die",
        seen(&record("a.1", vec![deliver(false, "{b: 2, a: 1}")?])),
        true,
    )?;
    equal("a frame less", seen(&record("a.1", vec![])), true)?;
    equal(
        "another channel",
        seen(&record("a.2", vec![deliver(false, "{a: 1, b: 2}")?])),
        true,
    )
}

fn rules_are_narrow() -> Fallible<()> {
    let death = |reason: &str, time: u32, more: &str| {
        format!("{{x-death: A[F{{reason: \"{reason}\", time: T:{time}}}]{more}}}")
    };
    let differ = |is_4x: bool, direct: &Frame, proxied: &Frame| {
        let record = |frame: &Frame| record("a.1", vec![frame.clone()]);
        difference(
            &Facts {
                same_broker: false,
                is_4x,
                ..Facts::default()
            },
            &record(direct),
            &record(proxied),
            None,
        )
        .is_some()
    };
    let rejected = deliver(true, &death("rejected", 1, ""))?;
    let ours = deliver(false, &death("rejected", 2, ""))?;
    equal("explained on 4.3", differ(true, &rejected, &ours), false)?;
    equal("not before", differ(false, &rejected, &ours), true)?;
    let expired = |redelivered| deliver(redelivered, &death("expired", 1, ""));
    equal(
        "what expired is never shown but by the broker",
        differ(true, &expired(false)?, &expired(true)?),
        true,
    )?;
    equal(
        "not for what is no dead letter",
        differ(true, &deliver(true, "{}")?, &deliver(false, "{}")?),
        true,
    )?;
    let times = |direct: u64, proxied: u64| {
        let record = |time: u64| -> Fallible<Record> {
            let death = format!("{{x-death: A[F{{time: T:{time}}}]}}");
            Ok(record("a.1", vec![deliver(false, &death)?]))
        };
        let facts = Facts {
            since: compare::now(),
            ..Facts::default()
        };
        let found = difference(&facts, &record(direct)?, &record(proxied)?, None);
        Ok::<bool, String>(found.is_some())
    };
    let now = compare::now();
    equal("times of both runs", times(now, now + 1)?, false)?;
    equal("a time from before", times(now, now - 100)?, true)?;
    equal("a time that is to come", times(now, now + 100)?, true)?;
    let count = |count: u32| {
        deliver(
            false,
            &death("rejected", 1, &format!(", x-delivery-count: l:{count}")),
        )
    };
    equal(
        "a lower count is explained",
        differ(true, &count(3)?, &count(1)?),
        false,
    )?;
    equal(
        "a higher count is not",
        differ(true, &count(1)?, &count(3)?),
        true,
    )
}

fn confirms_are_gathered() -> Fallible<()> {
    let confirm = |name: &str, tag: u64, multiple: bool| {
        Frame::new(
            name,
            vec![
                ("delivery-tag", Arg::Number(tag)),
                ("multiple", Arg::Bit(multiple)),
            ],
        )
    };
    let returned = || Frame::new("basic.return", vec![]);
    let differ = |direct: Vec<Frame>, proxied: Vec<Frame>| {
        difference(
            &Facts {
                same_broker: false,
                is_4x: true,
                ..Facts::default()
            },
            &record("a.1", direct),
            &record("a.1", proxied),
            None,
        )
        .is_some()
    };
    let singly = || {
        vec![
            confirm("basic.ack", 2, false),
            confirm("basic.ack", 1, false),
            returned(),
        ]
    };
    let together = vec![returned(), confirm("basic.ack", 2, true)];
    equal("the same confirms", differ(singly(), together), false)?;
    let one_less = vec![confirm("basic.ack", 2, false), returned()];
    equal("one less", differ(singly(), one_less), true)?;
    let refused = vec![
        confirm("basic.ack", 1, false),
        confirm("basic.nack", 2, false),
        returned(),
    ];
    equal("one refused", differ(singly(), refused), true)?;
    let before = vec![confirm("basic.ack", 1, false), returned()];
    let after = vec![returned(), confirm("basic.ack", 1, false)];
    equal("the order of a single one", differ(before, after), true)
}

/// Each by a scenario.
fn stated_differences_are_shown() -> Fallible<()> {
    let shown: BTreeSet<String> = super::scenarios()?
        .into_iter()
        .filter_map(|script| script.shows)
        .collect();
    let stated = all_rules()
        .filter(|rule| rule.stated)
        .map(|rule| rule.name.to_owned());
    equal("shown", shown, stated.collect())
}
