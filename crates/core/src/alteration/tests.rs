//! An alteration against a scripted broker and scripted sessions (`testdata`).

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

use super::others::{Numbered, Reply};
use super::*;
use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::dead_letter::aside::{Delivered, aside};
use crate::dead_letter::{Dialect, HistoryForm};
use crate::link::peer::{Rig, content, login, method};
use crate::link::script::{Script, Words, check};
use crate::machine::Wall;

mod broker;
mod crashes;
mod following;
mod plans;

const RULES: RuleSettings = RuleSettings {
    continue_history: true,
    history_form: HistoryForm::Compact,
};

struct Scripted {
    rig: Rig<Alteration>,
}

fn order(quorum: bool) -> Order {
    let limits = |length: u32| [("x-max-length".to_owned(), json!(length))].into();
    Order {
        queue: "q".to_owned(),
        durable: true,
        quorum,
        old: limits(1),
        new: limits(2),
        bindings: vec![Binding {
            source: "x".to_owned(),
            routing_key: "key".to_owned(),
            arguments: Arguments::new(),
        }],
        exchanges: BTreeSet::new(),
        kept: BTreeSet::new(),
        allow_direct: false,
    }
}

impl Script for Scripted {
    type Machine = Alteration;

    /// `new [quorum] [direct] [finish] [wait=MS] [others=N] [backlog=N] [keeps=EXCHANGE]`
    fn begin(words: &mut Words) -> Scripted {
        let wait = words.option_number("wait").unwrap_or(10_000);
        let task = match words.flag("finish") {
            true => Task::Finish,
            false => Task::Alter {
                wait: Duration::from_millis(wait),
                others: words.option_number("others").unwrap_or(0) as usize,
                backlog: Backlog {
                    most: words.option_number("backlog").unwrap_or(0) as u32,
                    window: 10,
                },
            },
        };
        let mut machine = alteration(task, words.flag("quorum"));
        machine.settings.order.allow_direct = words.flag("direct");
        let kept = words.option("keeps");
        machine.settings.order.kept = kept.into_iter().collect();
        Scripted {
            rig: Rig::new(machine),
        }
    }

    fn rig(&mut self) -> &mut Rig<Alteration> {
        &mut self.rig
    }

    /// As [`input`], `given TAG BODY [back]`: a message of a backlog, `got TAG`: the answer to a `basic.get`; and `joins NAME [stale]`, `proxy NAME held|settled|cancelled [attempt=N] [by=user]` from other proxies.
    fn line(&mut self, words: &mut Words) -> bool {
        let verb = words.verb.clone();
        if verb == "given" {
            let moving = self.rig.machine.moving.as_ref().expect("it moves");
            let given = given(words, moving.channel().0);
            self.rig.broker(&given);
            return true;
        }
        if verb == "got" {
            let channel = self.rig.machine.channel.0;
            let got = method(channel, MethodId::BASIC_GET_OK, |a| {
                a.longlong(words.number()).octet(0);
                a.shortstr(b"x").shortstr(b"key").long(0).end();
            });
            let got = content(got, channel, &plain("one".to_owned()));
            self.rig.broker(&got);
            return true;
        }
        if !["joins", "proxy"].contains(&&*verb) {
            return input(words).map(|input| self.rig.input(input)).is_some();
        }
        let attempt = words.option_number("attempt").unwrap_or(1) as u32;
        let by = words.option("by").unwrap_or("proxy".to_owned());
        let reply = Reply {
            queue: words.word(),
            order: match words.flag("stale") {
                true => 0,
                false => self.rig.machine.order().mark(),
            },
            ready: (verb == "proxy").then(|| ready(&words.word()).expect("a state")),
            attempt,
        };
        let tag = self.rig.machine.mover.next_tag();
        self.rig.broker(&comes(tag, &reply, &by));
        true
    }

    fn told(&mut self) -> Vec<String> {
        shown(std::mem::take(&mut self.rig.fx.out))
    }
}

/// `told 1..3`: so many sessions were told, or `nobody` · `held 1`, `settled 1`, `cancelled 1`, `gone 1` · `paused`: the publisher.
fn input(words: &mut Words) -> Option<Input> {
    let verb = words.verb.clone();
    Some(match (&*verb, ready(&verb)) {
        ("nobody", _) => Input::Told(BTreeSet::new()),
        ("told", _) => Input::Told(words.numbers().map(Owner).collect()),
        ("paused", _) => Input::Paused,
        ("gone", _) => Input::Gone(Owner(words.number())),
        (_, Some(ready)) => Input::Ready(Owner(words.number()), ready),
        (_, None) => return None,
    })
}

fn ready(word: &str) -> Option<Ready> {
    match word {
        "held" => Some(Ready::Held),
        "settled" => Some(Ready::Settled),
        "cancelled" => Some(Ready::Cancelled),
        _ => None,
    }
}

fn settings(task: Task, quorum: bool) -> Settings {
    Settings {
        login: login(),
        names: Names::default(),
        order: order(quorum),
        task,
        rules: RULES,
    }
}

fn alteration(task: Task, quorum: bool) -> Alteration {
    let now = Now {
        mono: Mono(1_000_000),
        ..Now::default()
    };
    Alteration::new(settings(task, quorum), now)
}

fn comes(tag: u64, what: &impl Serialize, by: &str) -> Vec<u8> {
    delivered(
        tag,
        &others::written(what, by.as_bytes()).expect("a message"),
    )
}

/// A message for the first channel.
fn delivered(tag: u64, message: &Content) -> Vec<u8> {
    delivered_on(1, tag, (b"", b""), message)
}

fn delivered_on(
    channel: u16,
    tag: u64,
    (exchange, routing_key): (&[u8], &[u8]),
    message: &Content,
) -> Vec<u8> {
    let deliver = method(channel, MethodId::BASIC_DELIVER, |a| {
        a.shortstr(b"dlx-proxy").longlong(tag).octet(0);
        a.shortstr(exchange).shortstr(routing_key).end();
    });
    content(deliver, channel, message)
}

/// A message of a backlog; `back`: as it waited aside.
fn given(words: &mut Words, channel: u16) -> Vec<u8> {
    let (tag, body) = (words.number(), words.word());
    let message = plain(body);
    let (queue, x, key) = (name("q"), name("x"), name("key"));
    let of = Delivered {
        queue: &queue,
        exchange: &x,
        routing_key: &key,
        content: &message,
        acquired: false,
        counted: false,
    };
    let rules = RULES.at(Dialect::V3, usize::MAX, false);
    let message = match words.flag("back") {
        true => aside(of, &rules, &login().user, Wall(0)).expect("a message"),
        false => message,
    };
    delivered_on(channel, tag, (b"x", b"key"), &message)
}

fn shown(out: Output) -> Vec<String> {
    let swaps = out.swap.iter().map(|told| format!("sessions: {told:?}"));
    let ended = out.ended.iter().map(|ended| match ended {
        Ok(altered) => format!("done: {altered:?}"),
        Err(failure) => format!("failed: {failure}"),
    });
    swaps.chain(ended).collect()
}

fn plain(body: String) -> Content {
    Content {
        properties: Bytes::from_static(&[0, 0]),
        body: body.into(),
    }
}

#[test]
fn scripts_show_what_comes_of_them() {
    check::<Scripted>("alteration/testdata");
}

#[test]
fn an_order_is_read_as_it_was_written() {
    let order = order(true);
    assert_eq!(Order::read(&order.text()), Some(order));
    assert_eq!(Order::read("nothing"), None);
}
