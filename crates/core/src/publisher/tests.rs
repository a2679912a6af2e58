//! The publisher against a scripted broker: `testdata/*.txt`, by the rows of the table of outcomes. Its broker opens channels by itself.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame::Kind;
use crate::amqp::ids::name;
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::TableBuilder;
use crate::dead_letter::proof;
use crate::link::peer::{Rig, Sent, content, login, method, with_headers};
use crate::link::script::{Script, Words, check, runs};
use crate::machine::{Flow, Leg, Limits, Machine, Reason, Rejecter};

mod comes_back;
mod peer;

use self::comes_back::returned;

const SESSION: Owner = Owner(7);
const INTAKE: Owner = Owner(1);

type PublisherRig = Rig<Publisher>;

fn settings() -> Settings {
    Settings {
        login: login(),
        names: Names::default(),
        on_unroutable: OnUnroutable::Park,
        limits: LiveLimits::new(Limits {
            intake_bytes: 8_000,
            ..Limits::of_tests()
        }),
        intake: Some(INTAKE),
        existing_delays: Default::default(),
        prefetch: 8,
        careful: false,
    }
}

fn message(exchange: &str, routing_key: &str, body: &str) -> Publication {
    Publication {
        exchange: name(exchange),
        routing_key: name(routing_key),
        content: Content {
            properties: Bytes::from_static(&[0, 0]),
            body: Bytes::copy_from_slice(body.as_bytes()),
        },
        queue: name("work"),
        reason: Reason::Rejected,
        at_least_once: false,
        history_cut: false,
        purpose: Purpose::Death,
        by: None,
    }
}

struct Scripted {
    rig: PublisherRig,
    /// Channels that the broker has just opened.
    opened: BTreeSet<u16>,
    /// The broker answers no `channel.open`.
    silent: bool,
    counts: Option<String>,
}

impl Script for Scripted {
    type Machine = Publisher;

    /// `new [drop] [stamp] [careful] [silent] [version=…] [channels=N]`
    fn begin(words: &mut Words) -> Scripted {
        let mut settings = settings();
        if words.flag("drop") {
            settings.on_unroutable = OnUnroutable::Drop;
        }
        settings.careful = words.flag("careful");
        let mut limits = Limits::clone(&settings.limits.now());
        limits.stamp = words.flag("stamp");
        settings.limits.set(limits);
        let silent = words.flag("silent");
        let mut rig = Rig::new(Publisher::new(settings, Now::default()));
        let version = words.option("version").unwrap_or("4.3.6".to_owned());
        rig.up_with(&version, words.option_number("channels").unwrap_or(2047));
        rig.events();
        Scripted {
            rig,
            opened: BTreeSet::new(),
            silent,
            counts: None,
        }
    }

    fn rig(&mut self) -> &mut PublisherRig {
        &mut self.rig
    }

    /// `publish 1..3 …`, as `published` has it; `intake` gives it, else a session. `3 return exchange key [body]` with what `written` knows;
    /// `hand-over`; `speaks` after `silent`; `counts`.
    fn line(&mut self, words: &mut Words) -> bool {
        match (words.channel, words.verb.as_str()) {
            (None, "publish") => {
                let owner = match words.flag("intake") {
                    true => INTAKE,
                    false => SESSION,
                };
                self.rig.input(Input::Publish(owner, published(words)));
            }
            (Some(channel), "return") => {
                let back = match words.flag("like") {
                    true => returned(None, false).content,
                    false => Content::default(),
                };
                let (exchange, key) = (words.word(), words.word());
                let body = words.next().unwrap_or_default();
                let back = match back.body.is_empty() {
                    true => written(words, &body, false),
                    false => back,
                };
                let returned = method(channel, MethodId::BASIC_RETURN, |a| {
                    a.short(312).shortstr(b"NO_ROUTE");
                    a.shortstr(exchange.as_bytes())
                        .shortstr(key.as_bytes())
                        .end();
                });
                self.rig.broker(&content(returned, channel, &back));
            }
            (None, "speaks") => self.silent = false,
            (None, "hand-over") => self.rig.input(Input::HandOver),
            (None, "pause") => self.rig.input(Input::Pause(true)),
            (None, "go-on") => self.rig.input(Input::Pause(false)),
            (None, "counts") => {
                let Publisher { store, tick, .. } = &self.rig.machine;
                let (waiting, flies, flying) =
                    (store.waiting, store.in_flight, store.in_flight_bytes);
                let (held, bytes, ticks) = (store.items.len(), store.items.bytes(), tick.is_some());
                let accepts = self.rig.machine.accepts();
                self.counts = Some(format!(
                    "holds {held} ({bytes}): {waiting} wait, {flies} in flight ({flying}); ticks: {ticks}; accepts: {accepts}"
                ));
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.rig.fx.out);
        let mut told = runs(out.settled.into_iter().map(|(owner, ticket, outcome)| {
            let owner = if owner == INTAKE {
                "of the intake "
            } else {
                ""
            };
            (ticket.0, format!("{owner}{outcome:?}"))
        }));
        told.extend(out.takes.iter().map(|(_, takes)| format!("takes: {takes}")));
        told.extend(out.careful.iter().map(|input| match input {
            Input::Publish(_, batch) => format!("{} to the careful one", batch[0].0.0),
            other => format!("{other:?} to the careful one"),
        }));
        told.extend(self.counts.take());
        told.extend(out.paused.then(|| "paused".to_owned()));
        told
    }

    fn answer(&mut self, sent: &Sent) -> (bool, Vec<u8>) {
        let channel = sent.channel;
        match sent.method() {
            _ if self.silent => (true, Vec::new()),
            Some(MethodId::CHANNEL_OPEN) => {
                self.opened.insert(channel);
                (
                    false,
                    method(channel, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end()),
                )
            }
            Some(MethodId::CONFIRM_SELECT) if self.opened.remove(&channel) => {
                (false, method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}))
            }
            _ => (true, Vec::new()),
        }
    }
}

/// `1..3 exchange key [body]`, with what `publication` knows; the body is the number where it says none, or `same`: all have the same. Or `1
/// returned [by=exchange] [dies-when-full]`: a message that comes back to its queue.
fn published(words: &mut Words) -> Vec<(Ticket, Publication)> {
    let numbers = words.numbers();
    if words.flag("returned") {
        let by = words.option("by");
        let back = returned(by.as_deref(), words.flag("dies-when-full"));
        return vec![(Ticket(*numbers.start()), back)];
    }
    let same = words.flag("same");
    let publication = publication(words);
    let batch = numbers.map(|n| {
        let mut publication = publication.clone();
        if publication.content.body.is_empty() {
            publication.content.body = if same {
                "1".into()
            } else {
                n.to_string().into()
            };
        }
        (Ticket(n), publication)
    });
    batch.collect()
}

/// `exchange key [body]`, and: `redrive` `return` `unpark` `tail` `delay=MS` `park=CAUSE` `at-least-once`, `cut`: its history · `stamped` by the proxy · `proven`.
fn publication(words: &mut Words) -> Publication {
    let purpose = [
        ("redrive", Purpose::Redrive),
        ("return", Purpose::Return),
        ("unpark", Purpose::Unpark),
        ("tail", Purpose::Tail),
    ];
    let purpose = purpose.into_iter().find(|(word, _)| words.flag(word));
    let delay = words
        .option_number("delay")
        .map(|ms| Purpose::Delay(Duration::from_millis(ms)));
    let cause = words.option("park");
    let cause = Cause::ALL
        .into_iter()
        .find(|it| cause.as_deref() == Some(it.as_str()));
    let by = words.flag("stamped").then(|| {
        Box::new(Rejecter {
            connection: Default::default(),
            consumer: None,
            held: Default::default(),
        })
    });
    let at_least_once = words.flag("at-least-once");
    let history_cut = words.flag("cut");
    let proven = words.flag("proven");
    let (exchange, key) = (words.word(), words.word());
    let body = words.next().unwrap_or_default();
    let purpose = purpose.map(|(_, purpose)| purpose).or(delay);
    Publication {
        content: written(words, &body, proven),
        purpose: purpose
            .or(cause.map(Purpose::Park))
            .unwrap_or(Purpose::Death),
        by,
        at_least_once,
        history_cut,
        ..message(&exchange, &key, "")
    }
}

/// `size=N`: of the body · `user=bob` · `priority=N` · `timestamp=N` · headers, in this order: `h:name=number` or `t:name=text`, `big=N`: of so many
/// bytes, `who=N`: who rejected it, `history=N`: a private one.
fn written(words: &mut Words, body: &str, proven: bool) -> Content {
    let body = words
        .option_number("size")
        .map_or(body.to_owned(), |size| "x".repeat(size));
    let mut headers = TableBuilder::default();
    let long = |n: String| vec![b'x'; n.parse().expect("a size")];
    if let Some(big) = words.option("big") {
        headers.longstr(b"big", &long(big));
    }
    for (word, header, member) in [
        ("who", &b"x-rejected-by"[..], &b"connection"[..]),
        ("history", b"x-dlx-proxy-history", b"x-death"),
    ] {
        if let Some(bytes) = words.option(word) {
            let mut table = TableBuilder::default();
            table.longstr(member, &long(bytes));
            headers.table(header, &table);
        }
    }
    let is_header =
        |(name, _): &mut (String, String)| name.starts_with("h:") || name.starts_with("t:");
    for (name, value) in words.options.extract_if(.., is_header) {
        match value.parse() {
            Ok(number) if name.starts_with("h:") => headers.long(&name.as_bytes()[2..], number),
            _ => headers.longstr(&name.as_bytes()[2..], value.as_bytes()),
        };
    }
    let headers = headers.finish();
    let set = |value: Option<String>| value.map_or(Change::Keep, |value| Change::Set(value.into()));
    let priority = words
        .option_number("priority")
        .map_or(Change::Keep, |it: u8| Change::Set(vec![it]));
    let edit = Edit {
        headers: if headers.is_empty() {
            Change::Keep
        } else {
            Change::Set(headers)
        },
        user_id: set(words.option("user")),
        priority,
        ..Edit::default()
    };
    let mut properties = Properties::parse(&[0, 0]).expect("none").edit(&edit);
    if let Some(seconds) = words.option_number::<u64>("timestamp") {
        let flags = [properties[0], properties[1] | 1 << 6];
        properties = [&flags[..], &properties[2..], &seconds.to_be_bytes()]
            .concat()
            .into();
    }
    if proven {
        properties = proof::prove(&properties, b"proxy", None).expect("proven");
    }
    Content {
        properties,
        body: body.into(),
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("publisher/testdata");
}

fn rig() -> PublisherRig {
    Scripted::begin(&mut Words::default()).rig
}

/// Opens the channels that it wants; the bodies that it publishes meanwhile are not looked at.
fn publishes(rig: &mut PublisherRig) -> usize {
    let mut published = 0;
    loop {
        let sent = rig.sent();
        let is = |id| move |sent: &&Sent| sent.method() == Some(id);
        published += sent.iter().filter(is(MethodId::BASIC_PUBLISH)).count();
        let opened: Vec<u16> = sent
            .iter()
            .filter(is(MethodId::CHANNEL_OPEN))
            .map(|sent| sent.channel)
            .collect();
        if opened.is_empty() {
            return published;
        }
        for channel in opened {
            rig.broker(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
        }
    }
}

fn batch(numbers: std::ops::RangeInclusive<u64>, of: impl Fn(u64) -> Publication) -> Input {
    Input::Publish(SESSION, numbers.map(|n| (Ticket(n), of(n))).collect())
}

fn ack(channel: u16, tag: u64) -> Vec<u8> {
    method(channel, MethodId::BASIC_ACK, |a| {
        a.longlong(tag).octet(0).end()
    })
}

#[test]
fn one_that_nobody_answers_does_not_fill_the_books() {
    let mut rig = rig();
    rig.input(batch(0..=0, |_| message("", "stuck", "1")));
    publishes(&mut rig);
    let mut last = 1;
    for _ in 0..2 * traffic::MOST_BOOKED / 2_000 {
        rig.input(batch(1..=2_000, |_| message("", "fine", "1")));
        assert_eq!(publishes(&mut rig), 2_000, "after {last}");
        (last + 1..=last + 2_000).for_each(|tag| rig.broker(&ack(1, tag)));
        last += 2_000;
        assert_eq!(rig.fx.out.settled.drain(..).len(), 2_000);
        rig.pass(5);
    }
    rig.pass(1_000);
    rig.broker(&ack(1, last + 1));
    let again = (SESSION, Ticket(0), Outcome::Confirmed);
    assert_eq!(rig.fx.out.settled, [again]);
}

#[test]
fn so_many_internal_exchanges_are_remembered_and_no_more() {
    let mut known = Known::new(Names::default());
    let exchange = |n: usize| name(&format!("int-{n}"));
    for n in 0..1_024 {
        known.learn(&exchange(n));
    }
    assert!(known.bridge(&exchange(0)).is_some());
    known.learn(&exchange(1_024));
    assert!(known.bridge(&exchange(0)).is_none() && known.bridge(&exchange(1_024)).is_some());
}

/// 4.x drops duplicates deep inside, too. Comparing each return with all that is in flight would take minutes here.
#[test]
fn large_headers_that_come_back_changed_are_matched() {
    let with = |n: i64, copies: usize| {
        let mut inner = TableBuilder::default();
        for _ in 0..copies {
            inner.long(b"twice", n);
        }
        let mut headers = TableBuilder::default();
        for number in 0..1_000 {
            headers.long(format!("h{number:05}").as_bytes(), n);
        }
        headers.table(b"inner", &inner);
        with_headers(headers, "same")
    };
    let number = 500;
    let mut rig = rig();
    rig.input(batch(1..=number, |n| Publication {
        content: with(n as i64, 2),
        ..message("x", "k", "same")
    }));
    while publishes(&mut rig) > 0 {
        rig.machine.drained(rig.now, &mut rig.fx);
    }
    for n in 1..number {
        let returned = method(3, MethodId::BASIC_RETURN, |a| {
            a.short(312)
                .shortstr(b"NO_ROUTE")
                .shortstr(b"x")
                .shortstr(b"k")
                .end();
        });
        rig.broker(&content(returned, 3, &with(n as i64, 1)));
    }
    (1..=number).for_each(|tag| rig.broker(&ack(3, tag)));
    assert_eq!(
        rig.fx.out.settled,
        [(SESSION, Ticket(number), Outcome::Confirmed)]
    );
}
