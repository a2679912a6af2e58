//! The recorder against a scripted stream.

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame::Kind;
use crate::amqp::ids::name;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::Target;
use crate::link::Login;
use crate::link::peer::{Rig, Sent, close, content, method};
use crate::machine::Owner;
use crate::objects::DeclaredTarget;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Declares, Policies, Policy};
use crate::registry::redeclared::Existing;

use super::message::Message;
use crate::machine::{Flow, Machine};

mod newest;
mod room;

type RecorderRig = Rig<Recorder>;

const OWNER: Owner = Owner(7);

fn settings(declares: Declares) -> Settings {
    Settings {
        login: Login {
            vhost: name("/"),
            user: name("proxy"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        stream: name("dlx-proxy.redeclared"),
        declares,
        policies: LivePolicies::default(),
    }
}

fn fresh() -> RecorderRig {
    let settings = settings(Declares::Lenient);
    Rig::new(Recorder::new(settings, Now::default()))
}

fn reading() -> RecorderRig {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.declared();
    assert_eq!(rig.consumed(), ["1-1"], "one mark");
    rig
}

fn current() -> RecorderRig {
    let mut rig = reading();
    rig.comes(0, &mark("1-1"));
    assert_eq!(rig.fx.out.current.take(), Some(true));
    rig.sent();
    rig.events();
    rig
}

fn mark(mark: &str) -> Message {
    Message::Mark(name(mark))
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

fn of(queue: &str, number: u64, exchange: &str) -> Message {
    Message::Entry(name(queue), entry(number, exchange))
}

fn at(place: u64, content: &Content) -> Content {
    let properties = Properties::parse(&content.properties).expect("properties");
    let mut headers = TableBuilder::default();
    for field in Table(properties.headers().unwrap_or_default()).fields() {
        headers.raw(&field.expect("a field"));
    }
    headers.long(b"x-stream-offset", place as i64);
    let edit = Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    };
    Content {
        properties: properties.edit(&edit),
        body: content.body.clone(),
    }
}

impl RecorderRig {
    fn declared(&mut self) {
        let methods = self.methods();
        assert_eq!(
            methods,
            [(1, MethodId::CHANNEL_OPEN), (1, MethodId::QUEUE_DECLARE)]
        );
        self.broker(&method(1, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"q").long(0).long(0).end();
        }));
    }

    fn consumed(&mut self) -> Vec<String> {
        let sent = self.sent();
        assert!(sent[0].is(1, MethodId::BASIC_QOS));
        assert!(sent[1].is(1, MethodId::BASIC_CONSUME));
        published(&sent)
            .into_iter()
            .map(|message| match message {
                Message::Mark(mark) => mark.to_string(),
                Message::Entry(..) => panic!("no mark: {message:?}"),
            })
            .collect()
    }

    fn deliver(&mut self, content_: &Content) {
        let tag = self.machine.mover.next_tag();
        let deliver = method(1, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(TAG)
                .longlong(tag)
                .octet(0)
                .shortstr(b"")
                .shortstr(b"dlx-proxy.redeclared")
                .end();
        });
        self.broker(&content(deliver, 1, content_));
    }

    fn comes(&mut self, place: u64, message: &Message) {
        let content = message.written(b"proxy").expect("properties");
        self.deliver(&at(place, &content));
    }

    fn declare(&mut self, queue: &str, exchange: &str, owner: Option<Owner>) {
        let entry = self.count(queue, exchange);
        self.input(Input::Record(name(queue), entry, owner));
    }

    fn count(&self, queue: &str, exchange: &str) -> Entry {
        let policies = self.machine.settings.policies.clone();
        let (old, said) = (to("old"), to(exchange));
        let declared = policies.redeclare(&name("/"), &name(queue), &existing(), &old, &said);
        declared.expect("something else").0
    }

    fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.pass(1000);
            self.broker(&crate::amqp::frame::HEARTBEAT);
        }
    }

    fn published(&mut self) -> Vec<Message> {
        published(&self.sent())
    }

    fn recorded(&mut self) -> Vec<(Owner, ShortStr, bool)> {
        std::mem::take(&mut self.fx.out.recorded)
    }

    fn said(&self, queue: &str) -> Option<DeclaredTarget> {
        let redeclared = self.machine.settings.policies.redeclared();
        redeclared
            .said(b"/", queue.as_bytes(), &existing())
            .cloned()
    }
}

fn published(sent: &[Sent]) -> Vec<Message> {
    let headers = sent.iter().filter(|sent| sent.kind == Kind::Header);
    let read = |sent: &Sent| Message::read(&sent.payload[12..], b"proxy");
    headers.filter_map(read).collect()
}

#[test]
fn without_leniency_there_is_no_connection_and_nobody_waits() {
    let mut rig = Rig::new(Recorder::new(settings(Declares::Strict), Now::default()));
    assert_eq!(rig.machine.flow(), Flow::Open);
    assert_eq!(rig.machine.deadline(), None);
    assert!(!rig.machine.is_wanted());
    let lenient = Policy {
        declares: Some(Declares::Lenient),
        ..Policy::default()
    };
    rig.machine
        .settings
        .policies
        .set_ours(Policies::new(vec![lenient]));
    rig.input(Input::PoliciesChanged);
    assert!(matches!(rig.machine.flow(), Flow::Reconnect(_)));
}

#[test]
fn what_was_recorded_counts_before_the_mark_has_come() {
    let mut rig = reading();
    rig.comes(0, &of("q", 1, "x"));
    rig.comes(1, &of("q", 2, "y"));
    rig.comes(2, &of("other", 1, "x"));
    rig.comes(3, &mark("1-7"));
    assert_eq!(rig.fx.out.current, None, "another's mark");
    assert_eq!(rig.said("q"), Some(to("y")));
    rig.comes(4, &mark("1-1"));
    assert_eq!(rig.fx.out.current, Some(true));
    assert_eq!(rig.published(), [], "all of it stands there");
}

#[test]
fn a_mark_that_does_not_come_is_written_again() {
    let mut rig = reading();
    rig.pass(5_000);
    assert_eq!(rig.published(), [mark("1-1")]);
    rig.comes(0, &mark("1-1"));
    rig.comes(1, &mark("1-1"));
    assert_eq!(rig.fx.out.current, Some(true));
    rig.pass(5_000);
    assert_eq!(rig.published(), []);
}

/// Anywhere in the stream: an old entry may have been rewritten behind a newer one.
#[test]
fn the_greatest_number_counts() {
    let mut rig = current();
    rig.comes(1, &of("q", 2, "new"));
    rig.comes(2, &of("q", 1, "old"));
    assert_eq!(rig.said("q"), Some(to("new")));
}

#[test]
fn what_has_no_proof_counts_for_nothing() {
    let mut rig = current();
    let forged = of("q", 1, "x").written(b"mallory").expect("properties");
    rig.deliver(&at(1, &forged));
    assert_eq!(rig.said("q"), None);
}

#[test]
fn who_waits_is_told_when_it_has_come_back() {
    let mut rig = current();
    rig.declare("q", "x", Some(OWNER));
    assert_eq!(rig.published(), [of("q", 1, "x")]);
    assert_eq!(rig.recorded(), []);
    rig.comes(1, &of("q", 1, "x"));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), true)]);
}

#[test]
fn who_says_the_same_waits_for_it_too_until_it_stands_there() {
    let mut rig = current();
    rig.declare("q", "x", Some(OWNER));
    let again = |owner| Input::Record(name("q"), entry(1, "x"), Some(Owner(owner)));
    rig.input(again(8));
    assert_eq!(rig.recorded(), []);
    rig.comes(1, &of("q", 1, "x"));
    let both = [OWNER, Owner(8)].map(|owner| (owner, name("q"), true));
    assert_eq!(rig.recorded(), both);
    rig.sent();
    rig.input(again(9));
    assert_eq!(rig.recorded(), [(Owner(9), name("q"), true)]);
    assert_eq!(rig.published(), []);
}

#[test]
fn what_does_not_come_back_is_written_again() {
    let mut rig = current();
    rig.declare("q", "x", None);
    assert_eq!(rig.published(), [of("q", 1, "x")]);
    rig.pass(5_000);
    assert_eq!(rig.published(), [of("q", 1, "x")]);
    rig.comes(1, &of("q", 1, "x"));
    rig.pass(5_000);
    assert_eq!(rig.published(), []);
}

/// After a lost link or a deleted stream.
#[test]
fn what_counts_here_and_is_not_there_is_written_when_the_mark_has_come() {
    let mut rig = fresh();
    rig.declare("q", "x", Some(OWNER));
    assert_eq!(rig.recorded(), [], "it comes soon");
    rig.up("4.3.6");
    rig.declared();
    rig.consumed();
    rig.comes(0, &mark("1-1"));
    assert_eq!(rig.published(), [of("q", 1, "x")]);
    rig.comes(1, &of("q", 1, "x"));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), true)]);

    rig.broker(&method(1, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(TAG).octet(1).end();
    }));
    assert_eq!(rig.fx.out.current.take(), Some(false));
    rig.sent();
    rig.up("4.3.6");
    rig.declared();
    assert_eq!(rig.consumed(), ["1-2"]);
    rig.comes(0, &mark("1-2"));
    assert_eq!(rig.published(), [of("q", 1, "x")]);
}

/// A new stream cannot be consumed at once.
#[test]
fn a_refusal_is_tried_again_until_nobody_waits() {
    let mut rig = reading();
    rig.declare("q", "x", Some(OWNER));
    let refuse = |rig: &mut RecorderRig| {
        let text = "PRECONDITION_FAILED - no replica";
        rig.broker(&close(1, 406, text, MethodId::BASIC_CONSUME));
        assert_eq!(rig.methods(), [(1, MethodId::CHANNEL_CLOSE_OK)]);
    };
    refuse(&mut rig);
    for _ in 0..28 {
        rig.pass(1000);
        rig.declared();
        rig.consumed();
        refuse(&mut rig);
    }
    assert_eq!((rig.recorded(), rig.fx.out.current), (vec![], None));
    rig.events();
    rig.pass(3000);
    assert_eq!(rig.fx.out.current, Some(true));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), false)]);
    let unread = |event: &Event| matches!(event, Event::RecordUnread { cause } if cause.contains("no replica"));
    assert!(rig.events().iter().any(unread));
}

#[test]
fn who_may_not_have_the_stream_does_without_it_at_once() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.methods();
    let text = "ACCESS_REFUSED - access to queue refused";
    rig.broker(&close(1, 403, text, MethodId::QUEUE_DECLARE));
    assert_eq!(rig.fx.out.current, Some(true));
    rig.declare("q", "x", Some(OWNER));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), false)]);
    rig.methods();
    rig.seconds(60);
    rig.declared();
}

#[test]
fn a_stream_with_other_arguments_is_used_as_it_is() {
    let mut rig = fresh();
    rig.up("4.3.6");
    rig.methods();
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-max-length-bytes'";
    rig.broker(&close(1, 406, text, MethodId::QUEUE_DECLARE));
    let sent = rig.sent();
    let declare = QueueDeclare::parse(&sent[2].payload).expect("a declare");
    assert!(declare.has(QueueDeclare::PASSIVE));
}

/// Nothing published would be read. A waiting intake misses nothing: its dead letters cannot be
/// published.
#[test]
fn during_an_alarm_nothing_is_written_and_no_patience_is_lost() {
    let mut rig = reading();
    rig.broker(&method(0, MethodId::CONNECTION_BLOCKED, |a| {
        a.shortstr(b"disk").end();
    }));
    rig.seconds(100);
    assert_eq!(rig.fx.out.current, None);
    rig.declare("q", "x", Some(OWNER));
    rig.comes(0, &mark("1-1"));
    assert_eq!(rig.published(), []);
    rig.broker(&method(0, MethodId::CONNECTION_UNBLOCKED, |_| {}));
    assert_eq!(rig.published(), [of("q", 1, "x")]);
}

#[test]
fn a_session_waits_for_what_it_asked_last() {
    let mut rig = current();
    rig.declare("q", "x", Some(OWNER));
    rig.declare("other", "x", Some(OWNER));
    rig.comes(1, &of("q", 1, "x"));
    assert_eq!(rig.recorded(), []);
    rig.comes(2, &of("other", 1, "x"));
    assert_eq!(rig.recorded(), [(OWNER, name("other"), true)]);
}

/// Its declare is answered: later declares of others are newer.
#[test]
fn what_nobody_waits_for_any_more_is_not_counted_again() {
    let mut rig = current();
    rig.declare("q", "x", Some(OWNER));
    rig.input(Input::GaveUp(OWNER));
    rig.sent();
    rig.comes(1, &of("q", 5, "y"));
    assert_eq!((rig.recorded(), rig.published()), (vec![], vec![]));
    assert_eq!(rig.said("q"), Some(to("y")));
}

#[test]
fn the_end_waits_for_what_was_written() {
    let mut rig = current();
    rig.declare("q", "x", None);
    rig.sent();
    rig.drain();
    assert_eq!(rig.methods(), []);
    rig.comes(1, &of("q", 1, "x"));
    let methods = rig.methods();
    assert!(
        methods.contains(&(0, MethodId::CONNECTION_CLOSE)),
        "{methods:?}"
    );
}
