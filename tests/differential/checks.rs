//! Can the instrument be trusted? Its parts, without a broker.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::{Failed, Trial};

use super::compare::{self, Facts, all_rules, difference};
use super::frame::Frame;
use super::methods::{Arg, Method};
use super::model_checks;
use super::names::Names;
use super::notation::Cursor;
use super::parse;
use super::reader::Received;
use super::run::Record;
use super::script::{Action, Script, Step};
use super::value::{Fallible, Table};

/// Of every type, and of every oddity that is to be kept.
const ODD_TABLE: &str = r#"{S: "a\"\\\n\xff", b: b:-128, B: B:255, s: s:-32768, u: u:65535, I: -5, i: i:4294967295, l: l:-9223372036854775808, L: L:7, f: f:1.5, n: f:0x7fc00001, d: d:-0.1, N: d:0x7ff8000000000001, D: D:3/12345, T: T:18446744073709551615, t: true, V: void, x: x"\x00\xff", A: A[1, A["x", raw"\x01"], F{}], F: F{n: F{"two words": 1}, n: 2}, n: "twice", "\xff": "not UTF-8", long: "z"*40000, raw"\x01q\x7f"}"#;

/// Each form that a step or a directive has; printed, it is the same again.
const EVERY_FORM: &str = r#"=== S0.0-every-form
# It does nothing sensible.
only 4.x >=4.1 quorum
proxy mode=rejects-only close-wait=2s
proxy-policy p pattern=^src$ priority=1 definition={dead-letter-exchange: "dlx"}
names x y
shows cc
as bob: b
user bob configure=.* write=^x read="a b" tags=impersonator
operator-policy o pattern=^src$ apply-to=queues definition={max-length: l:5}
vhost-limit max-queues=5
delete policy p
close a
describe a
a open frame-max=8192 client-properties={a: 1}
b open raw
b raw "AMQP\x00\x00\x09\x01"
b.0 expect connection.start
a.7 frame 2 "\x00<"
a.1 > queue.declare queue=q durable arguments={x-queue-type: "$type", x-max-length: l:5}
a.1 basic.publish exchange="" routing-key=# mandatory delivery-mode=2 headers={n: l:5} body="m 1"
a.1 expect basic.deliver 3
a.0 expect closed
a hold
a send
a stop-reading
a read
a drop
until q ready=1 consumers=0
until q gone
wait 300ms
rest
restart proxy
"#;

/// What must be true.
pub(crate) type Check = fn() -> Fallible<()>;

/// Named `instrument::…`.
pub(crate) fn trials() -> Vec<Trial> {
    let mut all: Vec<(&str, Check)> = vec![
        ("values-are-kept", values_are_kept),
        ("values-have-their-bytes", values_have_their_bytes),
        ("methods-are-kept", methods_are_kept),
        ("scripts-are-kept", scripts_are_kept),
        ("mistakes-are-told", mistakes_are_told),
        ("repetition-counts", repetition_counts),
        ("names-are-fresh-and-removed", names_are_fresh_and_removed),
        ("differences-are-seen", differences_are_seen),
        ("rules-are-narrow", rules_are_narrow),
        ("confirms-are-gathered", confirms_are_gathered),
        ("stated-differences-are-shown", stated_differences_are_shown),
    ];
    all.extend(model_checks::CHECKS);
    let trial = |(name, check): (&str, Check)| {
        Trial::test(format!("instrument::{name}"), move || {
            check().map_err(Failed::from)
        })
    };
    all.into_iter().map(trial).collect()
}

pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Fallible<()> {
    match is == should {
        true => Ok(()),
        false => Err(format!("{what}: {is:?}, and not {should:?}")),
    }
}

fn table(text: &str) -> Fallible<Table> {
    Cursor { text }.table()
}

fn values_are_kept() -> Fallible<()> {
    let odd = table(ODD_TABLE)?;
    equal("text → value → text", odd.to_string(), ODD_TABLE.to_owned())?;
    equal("value → bytes → value", Table::decode(&odd.encode()), odd)
}

/// Against bytes that were written by hand.
fn values_have_their_bytes() -> Fallible<()> {
    let bytes = b"\x01a\x53\0\0\0\x02hi\x01l\x6c\0\0\0\0\0\0\0\x05\x01A\x41\0\0\0\x05\x49\xff\xff\xff\xff\x01Dd\x40\x04\0\0\0\0\0\0";
    equal(
        "decoded",
        Table::decode(bytes).to_string(),
        r#"{a: "hi", l: l:5, A: A[-1], D: d:2.5}"#.to_owned(),
    )?;
    let cut = Table::decode(&bytes[..bytes.len() - 1]);
    equal(
        "the rest",
        cut.rest,
        bytes[bytes.len() - 11..bytes.len() - 1].to_vec(),
    )
}

fn methods_are_kept() -> Fallible<()> {
    let call = |line: &str| -> Fallible<_> {
        let scripts = parse::scripts("check", &format!("=== x\na.1 {line}"))?;
        match scripts.first().and_then(|script| script.steps.first()) {
            Some(Step::Client(_, Action::Method(call))) => Ok(call.clone()),
            other => Err(format!("not a method: {other:?}")),
        }
    };
    let nack = call("basic.nack delivery-tag=258 requeue")?;
    equal(
        "basic.nack",
        nack.method.encode(&nack.args),
        b"\0\x3c\0\x78\0\0\0\0\0\0\x01\x02\x02".to_vec(),
    )?;
    let declare = call("queue.declare queue=q durable no-wait arguments={a: b:1}")?;
    let bytes = b"\0\x32\0\x0a\0\0\x01q\x12\0\0\0\x04\x01ab\x01";
    equal(
        "queue.declare",
        declare.method.encode(&declare.args),
        bytes.to_vec(),
    )?;
    let publish = call(r#"basic.publish headers={a: b:1} delivery-mode=2 body="xy""#)?;
    let header = Method::encode_header(&publish.args);
    equal(
        "header",
        &header[..],
        b"\0\x3c\0\0\0\0\0\0\0\0\0\x02\x30\0\0\0\0\x04\x01ab\x01\x02",
    )?;
    let (length, properties) =
        Method::decode_header(&header).ok_or("the header does not decode")?;
    equal("length of the body", length, 2)?;
    equal(
        "properties",
        &properties[1],
        &("delivery-mode", Arg::Number(2)),
    )?;
    let decoded =
        Method::decode(bytes).map(|(method, args)| Frame::new(&method.name, args).to_string());
    let text = "queue.declare queue=q passive=false durable exclusive=false auto-delete=false no-wait arguments={a: b:1}";
    equal("decoded", decoded, Some(text.to_owned()))?;
    equal(
        "with a byte too many",
        Method::decode(b"\0\x14\0\x29\0").is_none(),
        true,
    )?;
    equal(
        "replies of basic.get",
        call("basic.get")?.method.replies(),
        vec!["basic.get-ok", "basic.get-empty"],
    )
}

fn scripts_are_kept() -> Fallible<()> {
    let mut texts = vec![EVERY_FORM.to_owned()];
    texts.extend(super::scenarios()?.iter().map(Script::to_string));
    for text in texts {
        let scripts = parse::scripts("check", &text)?;
        equal(
            "printed",
            scripts.iter().map(Script::to_string).collect(),
            text,
        )?;
    }
    Ok(())
}

fn mistakes_are_told() -> Fallible<()> {
    let mistakes = [
        ("a.1 queue.declair", "no such method"),
        ("a.1 queue.declare name=q", "no such field"),
        ("a queue.declare queue=q", "which channel"),
        ("a.1 basic.qos prefetch-count=70000", "not a number"),
        ("a.1 basic.publish headers={a: b:300}", "not a value"),
        ("a.1 basic.publish headers={a: 1", "expected"),
        (
            "a.1 basic.publish routing-key=\"x\"*256",
            "not a short string",
        ),
        ("untill q ready=1", "no such method"),
        ("restart broker", "`proxy` expected"),
    ];
    for (line, told) in mistakes {
        match parse::scripts("check", &format!("=== x\n{line}")) {
            Err(problem) if problem.contains(told) && problem.starts_with("check:2: ") => {}
            other => return Err(format!("{line}: {other:?}")),
        }
    }
    Ok(())
}

fn repetition_counts() -> Fallible<()> {
    let script = parse::scripts(
        "check",
        "=== x\nrepeat 3 a.1 \\\n  basic.get queue=q$i # a comment",
    )?;
    let steps: Vec<String> = script[0].steps.iter().map(Step::to_string).collect();
    equal(
        "steps",
        steps.join("; "),
        "a.1 basic.get queue=q1; a.1 basic.get queue=q2; a.1 basic.get queue=q3".to_owned(),
    )?;
    let array = table(r#"{a: A[F{q: "q$i"} times 2, "x" times 2]}"#)?;
    equal(
        "members",
        array.to_string(),
        r#"{a: A[F{q: "q1"}, F{q: "q2"}, "x", "x"]}"#.to_owned(),
    )
}

fn names_are_fresh_and_removed() -> Fallible<()> {
    let script = &parse::scripts("check", "=== x\nnames src\na.1 queue.declare queue=dlq")?[0];
    let names = Names::new(script, "quorum", "v");
    let text = "^src$ src.x x-src dlq, $type";
    let inserted = names.inserted(text);
    let suffix = &names.suffix;
    equal(
        "inserted",
        &inserted,
        &format!("^src{suffix}$ src.x x-src dlq{suffix}, quorum"),
    )?;
    equal("always the same length", suffix.len(), 6)?;
    let cut = format!("inequivalent arg for 'dlq{}...", &suffix[..3]);
    let generated = "amq.gen-0123456789abcdef_-ABCD of dlq";
    let of = |text: &str| ("reply-text", Arg::Text(text.as_bytes().to_vec()));
    let mut frame = Frame::new(
        "connection.close",
        vec![of(&inserted), of(&cut), of(generated)],
    );
    names.remove_from(&mut frame);
    let removed: Vec<_> = frame
        .args
        .iter()
        .map(|(_, arg)| String::from_utf8_lossy(arg.text()).into_owned())
        .collect();
    equal(
        "removed",
        removed.join("|"),
        "^src$ src.x x-src dlq, quorum|inequivalent arg for 'dlq...|$gen1 of dlq".to_owned(),
    )?;
    equal(
        "the server's name",
        names.inserted("$gen1"),
        "amq.gen-0123456789abcdef_-ABCD".to_owned(),
    )
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
    let marked: Vec<&str> = found
        .lines()
        .filter(|line| line.starts_with(['<', '>']))
        .map(str::trim)
        .collect();
    equal("marked lines", marked.len(), 2)?;
    equal("the direct one", marked[0].contains("b: 2"), true)?;
    equal("the other one", marked[1].contains("b: l:2"), true)?;
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
