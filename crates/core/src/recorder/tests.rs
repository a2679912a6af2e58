//! The recorder against a scripted stream: `testdata/*.txt`. Its broker makes the stream when it is declared.

use super::message::Message;
use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame::{self, Kind};
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::Target;
use crate::link::peer::{Rig, Sent, login, method};
use crate::link::script::{Script, Words, check, tell};
use crate::objects::DeclaredTarget;
use crate::registry::policy::{Policies, Policy};
use crate::registry::redeclared::Existing;

mod newest;

struct Scripted {
    rig: Rig<Recorder>,
    /// Of the next message in the stream.
    place: i64,
    said: Vec<String>,
}

impl Script for Scripted {
    type Machine = Recorder;

    /// `new [fresh] [reading] [strict]`: else its mark has come.
    fn begin(words: &mut Words) -> Scripted {
        let lenient = match words.flag("strict") {
            true => Lenient::default(),
            false => Lenient::targets(),
        };
        let keeps_record = lenient.follows_targets();
        let settings = Settings {
            login: login(),
            stream: name("dlx-proxy.redeclared"),
            lenient,
            policies: LivePolicies::default(),
        };
        let mut script = Scripted {
            rig: Rig::new(Recorder::new(settings, Now::default())),
            place: 0,
            said: Vec::new(),
        };
        let (fresh, reading) = (words.flag("fresh"), words.flag("reading"));
        if !fresh && keeps_record {
            script.rig.up("4.3.6");
            tell(&mut script, &mut None);
        }
        if !fresh && !reading && keeps_record {
            script.comes(&Message::Mark(name("1-1")), b"proxy");
            tell(&mut script, &mut None);
            script.told();
        }
        script
    }

    fn rig(&mut self) -> &mut Rig<Recorder> {
        &mut self.rig
    }

    /// `entry queue N exchange [by=user]` and `mark …` come · `declare queue exchange [of=OWNER]`, `count …` before the recorder hears of it, `record
    /// queue N exchange of=OWNER` · `gave-up OWNER` · `foreign BYTES` · `lenient` by a policy · `said queue`.
    fn line(&mut self, words: &mut Words) -> bool {
        let of = |words: &mut Words| words.option_number("of").map(Owner);
        match words.verb.as_str() {
            "entry" => {
                let by = words.option("by").unwrap_or("proxy".to_owned());
                let queue = name(&words.word());
                let entry = Message::Entry(queue, entry(words.number(), &words.word()));
                self.comes(&entry, by.as_bytes());
            }
            "mark" => self.comes(&Message::Mark(name(&words.word())), b"proxy"),
            "declare" | "count" => {
                let owner = of(words);
                let queue = name(&words.word());
                let entry = self.count(&queue, &words.word());
                if words.verb == "declare" {
                    self.rig.input(Input::Record(queue, entry, owner));
                }
            }
            "record" => {
                let owner = of(words);
                let queue = name(&words.word());
                let entry = entry(words.number(), &words.word());
                self.rig.input(Input::Record(queue, entry, owner));
            }
            "gave-up" => self.rig.input(Input::GaveUp(Owner(words.number()))),
            "foreign" => self.foreign(words.number()),
            "lenient" => {
                let lenient = Policy {
                    lenient: Some(Lenient::targets()),
                    ..Policy::default()
                };
                let policies = &self.rig.machine.settings.policies;
                policies.set_ours(Policies::new(vec![lenient]));
                self.rig.input(Input::PoliciesChanged);
            }
            "said" => {
                let queue = words.word();
                let said = match self.target(&queue) {
                    Some(DeclaredTarget::Target(target)) => target.exchange.to_string(),
                    other => format!("{other:?}"),
                };
                self.said
                    .push(format!("{queue}: {said}, {} bytes", self.rig.machine.end));
            }
            _ => return false,
        }
        true
    }

    fn told(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.rig.fx.out);
        let recorded = out.recorded.into_iter().map(|(owner, queue, is)| match is {
            true => format!("{} has {queue} recorded", owner.0),
            false => format!("{} has {queue} not recorded", owner.0),
        });
        let mut told: Vec<String> = recorded.collect();
        told.extend(out.current.map(|current| format!("current: {current}")));
        told.append(&mut self.said);
        told
    }

    fn answer(&mut self, sent: &Sent) -> (bool, Vec<u8>) {
        let channel = sent.channel;
        let answer = match sent.method() {
            Some(MethodId::QUEUE_DECLARE) => method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
                a.shortstr(b"q").long(0).long(0).end();
            }),
            _ => Vec::new(),
        };
        (true, answer)
    }
}

fn to(exchange: &str) -> DeclaredTarget {
    DeclaredTarget::Target(Target {
        exchange: name(exchange),
        routing_key: None,
        at_least_once: false,
    })
}

fn existing() -> Existing {
    Existing::taken_over(&name("dlx-proxy/old"))
}

fn entry(number: u64, exchange: &str) -> Entry {
    Entry {
        number,
        existing: existing(),
        said: Some(to(exchange)),
    }
}

impl Scripted {
    fn comes(&mut self, message: &Message, user: &[u8]) {
        let content = message.written(user).expect("properties");
        let properties = Properties::parse(&content.properties).expect("properties");
        let mut headers = TableBuilder::default();
        for field in Table(properties.headers().unwrap_or_default()).fields() {
            headers.raw(&field.expect("a field"));
        }
        headers.long(b"x-stream-offset", self.place);
        self.place += 1;
        let edit = Edit {
            headers: Change::Set(headers.finish()),
            ..Edit::default()
        };
        let content = Content {
            properties: properties.edit(&edit),
            body: content.body.clone(),
        };
        let deliver = self.deliver();
        let whole = crate::link::peer::content(deliver, 1, &content);
        self.rig.broker(&whole);
    }

    fn deliver(&self) -> Vec<u8> {
        let tag = self.rig.machine.mover.next_tag();
        method(1, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(TAG).longlong(tag).octet(0);
            a.shortstr(b"").shortstr(b"dlx-proxy.redeclared").end();
        })
    }

    /// A message that no proxy wrote, with a body of that size.
    fn foreign(&mut self, bytes: u64) {
        let mut deliver = self.deliver();
        let header = [&[0, 60, 0, 0][..], &bytes.to_be_bytes(), &[0, 0]].concat();
        frame::put(&mut deliver, 2, CHANNEL, |out| out.extend(header));
        self.rig.broker(&deliver);
        let mut left = bytes as usize;
        while left > 0 {
            let mut out = Vec::new();
            let piece = left.min(100_000);
            frame::put(&mut out, 3, CHANNEL, |out| out.resize(out.len() + piece, 0));
            self.rig.broker(&out);
            left -= piece;
        }
    }

    fn count(&self, queue: &ShortStr, exchange: &str) -> Entry {
        let policies = &self.rig.machine.settings.policies;
        let (old, said) = (to("old"), to(exchange));
        let declared = policies.redeclare(&name("/"), queue, &existing(), &old, &said);
        declared.expect("something else").0
    }

    fn target(&self, queue: &str) -> Option<DeclaredTarget> {
        let redeclared = self.rig.machine.settings.policies.redeclared();
        let said = redeclared.said(b"/", queue.as_bytes(), &existing());
        said.cloned()
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("recorder/testdata");
}
