//! A walk against a scripted queue: `testdata/*.txt`. By itself the broker counts the messages, says the type of the queue, accepts consumers and
//! their ends, and lets the user publish; `manual` ends that, `auto` begins it again.

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::dead_letter::HistoryForm;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::link::Login;
use crate::link::peer::{Rig, Sent, close, content, method, with_headers};
use crate::link::script::{Script, Words, check, quoted, runs, tell};
use crate::machine::{Cause, Leg, Machine};
use crate::objects::Names;

mod acks;
mod readable;

type WalkRig = Rig<Walk>;

struct Scripted {
    rig: WalkRig,
    auto: bool,
    queue_type: String,
    ready: u32,
    consumers: u32,
    counts: Option<String>,
}

fn login() -> Login {
    Login {
        vhost: name("/"),
        user: name("operator"),
        password: Bytes::from_static(b"secret"),
        seed: 1,
    }
}

/// All messages, to a queue by its name.
fn redrive() -> Move {
    Move {
        filter: Filter::default(),
        most: u64::MAX,
        per_second: None,
        to: Some(Redrive {
            to: Destination::Queue(name("orders")),
            keep_history: true,
            by: name("operator"),
            edit: None,
        }),
        rejects: false,
        own_user: name("proxy"),
        names: Names::default(),
        history_form: HistoryForm::WRITTEN,
    }
}

/// `look`, or what moves: `redrive` to `queue=…`, `exchange=…` with `key=…`, or `source`; `purge`; `release`: those that the broker is to
/// dead-letter. `most=N` `rate=N` `match=key` `body=text`.
fn task(words: &mut Words) -> Task {
    let mut wanted = redrive();
    let to = match (
        words.option("exchange"),
        words.option("queue"),
        words.flag("source"),
    ) {
        (Some(exchange), ..) => Some(Destination::Exchange {
            exchange: name(&exchange),
            routing_key: words.option("key").map(|key| name(&key)),
        }),
        (_, Some(queue), _) => Some(Destination::Queue(name(&queue))),
        (.., true) => Some(Destination::Source),
        _ => None,
    };
    if let (Some(to), Some(redrive)) = (to, &mut wanted.to) {
        redrive.to = to;
    }
    wanted.most = words.option_number("most").unwrap_or(u64::MAX);
    wanted.per_second = words.option_number("rate");
    wanted.filter.routing_key = words.option("match").map(|key| name(&key));
    wanted.filter.body = words.option("body").map(Into::into);
    match words.word().as_str() {
        "look" => return Task::Look(Bodies::Begin),
        "redrive" => {}
        "purge" => wanted.to = None,
        "release" => (wanted.to, wanted.rejects) = (None, true),
        other => panic!("no task {other}"),
    }
    Task::Move(Box::new(wanted))
}

impl Script for Scripted {
    type Machine = Walk;

    /// `new TASK [type=classic] [version=…] [ready=N] [consumers=N] [manual] [shown]`, so that one sees how it begins, and bounds: `messages=` `held=` `bytes=` `time=MS`.
    fn begin(words: &mut Words) -> Scripted {
        let is_look = words.flag("look");
        let bounds = Bounds {
            messages: words.option_number("messages").unwrap_or(if is_look {
                1_000
            } else {
                u64::MAX
            }),
            held: words
                .option_number("held")
                .unwrap_or(if is_look { 1_000 } else { 10_000 }),
            bytes: words
                .option_number("bytes")
                .unwrap_or(if is_look { 1 << 20 } else { u64::MAX }),
            time: match (words.option_number("time"), is_look) {
                (Some(millis), _) => Duration::from_millis(millis),
                (None, true) => Duration::from_secs(60),
                (None, false) => Duration::MAX,
            },
        };
        let (queue_type, version) = (words.option("type"), words.option("version"));
        let (ready, consumers) = (
            words.option_number("ready"),
            words.option_number("consumers"),
        );
        let (auto, shown) = (!words.flag("manual"), words.flag("shown"));
        let settings = Settings {
            login: login(),
            queue: name("dead"),
            bounds,
            task: match is_look {
                true => Task::Look(Bodies::Begin),
                false => task(words),
            },
        };
        let now = Now {
            mono: Mono(1_000_000),
            ..Now::default()
        };
        let mut script = Scripted {
            rig: Rig::new(Walk::new(settings, now)),
            auto,
            queue_type: queue_type.unwrap_or("classic".to_owned()),
            ready: ready.unwrap_or(100),
            consumers: consumers.unwrap_or(2),
            counts: None,
        };
        script.rig.up(&version.unwrap_or("4.3.6".to_owned()));
        if script.auto && !shown {
            tell(&mut script, &mut None);
        }
        script
    }

    fn rig(&mut self) -> &mut WalkRig {
        &mut self.rig
    }

    /// `comes key [body] [again] [size=N] [died=exchange] [times=N]`, `got …` where it gets them · `offered N`: as far as it reads · `enough` ·
    /// `pause yes` · `settle 1..3=confirmed 4=refused/nacked` · `ready N` · `window N`: that many consumers were there · `counts`.
    fn line(&mut self, words: &mut Words) -> bool {
        match words.verb.as_str() {
            "comes" | "got" => {
                let times: u64 = words.option_number("times").unwrap_or(1);
                let is_got = words.verb == "got";
                let again = words.flag("again");
                let (size, died) = (words.option_number("size"), words.option("died"));
                let key = words.word();
                let body = words.next().unwrap_or_default();
                let body = size.map_or(body, |size| "x".repeat(size));
                let properties =
                    died.map_or(Bytes::from_static(&[0, 0]), |exchange| death(&exchange));
                let message = Content {
                    properties,
                    body: body.into(),
                };
                (0..times).for_each(|_| self.comes(&key, &message, is_got, again));
            }
            "offered" => {
                let most: u64 = words.number();
                let message = Content {
                    properties: Bytes::from_static(&[0, 0]),
                    body: Bytes::new(),
                };
                let reads = |script: &Scripted| script.rig.machine.wants_read(Leg::Broker, 0);
                let taken = (0..most).take_while(|_| {
                    let reads = reads(self);
                    if reads {
                        self.comes("a", &message, false, false);
                    }
                    reads
                });
                self.counts = Some(format!("takes {}", taken.count()));
            }
            "enough" => self.rig.input(Input::Enough),
            "pause" => self.rig.input(Input::Pause(words.word() == "yes")),
            "settle" => {
                let all = std::mem::take(&mut words.options).into_iter().flat_map(
                    |(numbers, outcome)| {
                        let (first, last) =
                            numbers.split_once("..").unwrap_or((&numbers, &numbers));
                        let (first, last): (u64, u64) =
                            (first.parse().unwrap(), last.parse().unwrap());
                        (first..=last).map(move |n| (Ticket(n), outcome_of(&outcome)))
                    },
                );
                self.rig.input(Input::Settled(all.collect()));
            }
            "ready" => self.ready = words.number(),
            "window" => self.rig.machine.channel.window.number = words.number(),
            "manual" => self.auto = false,
            "auto" => self.auto = true,
            "counts" => {
                let walk = &self.rig.machine;
                let (held, prefetch) = (walk.channel.held(), walk.channel.window.prefetch());
                let (reads, progress) = (walk.wants_read(Leg::Broker, 0), walk.progress());
                let Progress {
                    under_way, blocked, ..
                } = progress;
                let summary = summary(&progress.summary);
                self.counts = Some(format!(
                    "holds {held} of {prefetch}; reads: {reads}; under way: {under_way}; blocked: {blocked}; {summary}"
                ));
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.rig.fx.out);
        let mut told = runs(out.letters.iter().map(|letter| {
            let (key, bytes) = (quoted(&letter.routing_key), letter.body.len());
            (letter.position, format!("looked at: {key}, {bytes} bytes"))
        }));
        told.extend(runs(out.publish.iter().map(|(ticket, publication)| {
            let to = [&publication.exchange, &publication.routing_key]
                .map(|it| quoted(it))
                .join(" ");
            (ticket.0, format!("goes to {to}"))
        })));
        told.extend(out.ended.map(|ended| match ended {
            Ok(ended) => format!("ended: {}", summary(&ended)),
            Err(failure) => format!("failed: {failure:?}"),
        }));
        told.extend(self.counts.take());
        told
    }

    fn answer(&mut self, sent: &Sent) -> (bool, Vec<u8>) {
        let (channel, id) = (sent.channel, sent.method());
        let named = |id| method(channel, id, |a| a.shortstr(b"dlx-proxy").end());
        let answer = match id {
            _ if !self.auto => Vec::new(),
            Some(MethodId::QUEUE_DECLARE) => {
                let declare = QueueDeclare::parse(&sent.payload).unwrap();
                let counts = [self.ready, self.consumers];
                match declare.has(QueueDeclare::PASSIVE) {
                    true => method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
                        a.shortstr(b"dead").long(counts[0]).long(counts[1]).end();
                    }),
                    false => Vec::new(),
                }
            }
            Some(MethodId::BASIC_CONSUME) => {
                let as_stream = memchr::memmem::find(&sent.payload, b"x-stream-offset").is_some();
                match as_stream && self.queue_type != "stream" {
                    true => {
                        let text = format!(
                            "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'dead' in vhost '/' of queue type rabbit_{}_queue",
                            self.queue_type
                        );
                        close(channel, 406, &text, MethodId::BASIC_CONSUME)
                    }
                    false => named(MethodId::BASIC_CONSUME_OK),
                }
            }
            Some(MethodId::BASIC_CANCEL) => named(MethodId::BASIC_CANCEL_OK),
            Some(MethodId::BASIC_QOS) => method(channel, MethodId::BASIC_QOS_OK, |_| {}),
            Some(MethodId::TX_ROLLBACK) => method(channel, MethodId::TX_ROLLBACK_OK, |_| {}),
            Some(MethodId::CHANNEL_CLOSE) => method(channel, MethodId::CHANNEL_CLOSE_OK, |_| {}),
            _ => Vec::new(),
        };
        (true, answer)
    }
}

impl Scripted {
    fn comes(&mut self, key: &str, message: &Content, is_got: bool, again: bool) {
        let (channel, tag) = (
            self.rig.machine.channel.id().0,
            self.rig.machine.moving.mover.next_tag(),
        );
        let comes = match is_got {
            true => method(channel, MethodId::BASIC_GET_OK, |a| {
                a.longlong(tag).octet(again.into()).shortstr(b"orders");
                a.shortstr(key.as_bytes()).long(0).end();
            }),
            false => method(channel, MethodId::BASIC_DELIVER, |a| {
                a.shortstr(b"dlx-proxy").longlong(tag).octet(again.into());
                a.shortstr(b"orders").shortstr(key.as_bytes()).end();
            }),
        };
        self.rig.broker(&content(comes, channel, message));
    }
}

/// What is not as it mostly is.
fn summary(summary: &Summary) -> String {
    let Summary {
        ready,
        consumers,
        seen,
        queue_type,
        taken,
        starves,
        counted,
        reordered,
        unread,
        stopped,
        moved,
    } = summary;
    let Moved { gone, stay, waits } = moved;
    let mut all = format!(
        "{stopped:?}, {queue_type:?}, seen {seen}, taken {taken}, ready {ready:?} with {consumers:?}, gone {gone}"
    );
    for (is, word) in [
        (*starves, "starves"),
        (*counted, "counted"),
        (*reordered, "reordered"),
        (*waits, "waits"),
        (*unread > 0, "some unread"),
    ] {
        if is {
            all += &format!(", {word}");
        }
    }
    if *unread > 0 {
        all += &format!(" ({unread})");
    }
    if !stay.is_empty() {
        let most = stay.iter().take(3).map(|(why, n)| format!("{n} for {why}"));
        all += &format!(
            ", {} reasons to stay: {}",
            stay.len(),
            most.collect::<Vec<_>>().join("; ")
        );
    }
    all
}

/// `confirmed`, or `refused/cause`.
fn outcome_of(text: &str) -> Outcome {
    let cause = text.strip_prefix("refused/");
    let cause = cause.and_then(|cause| Cause::ALL.into_iter().find(|it| it.as_str() == cause));
    cause.map_or_else(
        || {
            assert_eq!(text, "confirmed");
            Outcome::Confirmed
        },
        Outcome::Refused,
    )
}

/// Properties of a message that died in `orders`, to which it had come by that exchange with the key `new`.
fn death(exchange: &str) -> Bytes {
    let (mut keys, mut death, mut deaths) = <(ArrayBuilder, TableBuilder, ArrayBuilder)>::default();
    keys.longstr(b"new");
    death
        .long(b"count", 1)
        .longstr(b"reason", b"rejected")
        .longstr(b"queue", b"orders")
        .longstr(b"exchange", exchange.as_bytes())
        .array(b"routing-keys", &keys);
    deaths.table(&death);
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    with_headers(headers, "").properties
}

/// So many messages have come.
fn walking(of: &str, messages: u64) -> WalkRig {
    let mut words = Words::of(&format!("new {of}"));
    let mut script = Scripted::begin(&mut words);
    tell(&mut script, &mut None);
    for _ in 0..messages {
        let message = Content {
            properties: Bytes::from_static(&[0, 0]),
            body: Bytes::new(),
        };
        script.comes("a", &message, false, false);
    }
    script.rig
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("walk/testdata");
}
