//! An import against a scripted broker.

use bytes::Bytes;

use super::*;
use crate::amqp::frame::Kind;
use crate::amqp::ids::name;
use crate::link::peer::{Rig, close, content, method};
use crate::machine::{Flow, Leg, Machine};

type ImportRig = Rig<Import>;

/// Empty properties.
const NONE: &[u8] = &[0, 0];

fn message(body: impl Into<Bytes>) -> Content {
    Content {
        properties: Bytes::from_static(NONE),
        body: body.into(),
    }
}

fn many(number: usize) -> Vec<Content> {
    (0..number).map(|_| message("body")).collect()
}

fn importing(messages: Vec<Content>) -> ImportRig {
    let settings = Settings {
        login: Login {
            vhost: name("/"),
            user: name("operator"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        queue: name("dead"),
        messages: messages.into(),
        rules: RuleSettings {
            continue_history: true,
        },
        max_history: 100,
    };
    let now = Now {
        mono: Mono(1_000_000),
        ..Now::default()
    };
    let mut rig = Rig::new(Import::new(settings, now));
    rig.up("4.3.6");
    rig
}

impl ImportRig {
    fn published(&mut self) -> usize {
        let sent = self.sent();
        let published = |sent: &&_| crate::link::peer::Sent::is(sent, 1, MethodId::BASIC_PUBLISH);
        sent.iter().filter(published).count()
    }

    fn confirms(&mut self, id: MethodId, tag: u64, multiple: bool) {
        self.broker(&method(1, id, |a| {
            a.longlong(tag).octet(multiple.into()).end();
        }));
    }

    fn ended(&mut self) -> Imported {
        let ended = self.fx.out.take().expect("an end");
        self.machine.closed(Leg::Broker, self.now, &mut self.fx);
        assert_eq!(self.machine.flow(), Flow::Finish);
        assert_eq!(self.fx.out, None, "it ends once");
        ended
    }
}

#[test]
fn what_is_confirmed_is_imported() {
    let mut rig = importing(many(3));
    assert_eq!(rig.published(), 3);
    rig.confirms(MethodId::BASIC_ACK, 2, true);
    assert_eq!(rig.fx.out, None);
    rig.confirms(MethodId::BASIC_ACK, 3, false);
    let all = Imported {
        imported: 3,
        ..Imported::default()
    };
    assert_eq!(rig.ended(), all);
}

#[test]
fn nothing_to_import_ends_at_once() {
    let mut rig = importing(Vec::new());
    assert_eq!(rig.ended(), Imported::default());
}

#[test]
fn only_so_many_messages_and_octets_are_on_their_way() {
    let mut rig = importing(many(MOST_AWAY + 2));
    assert_eq!(rig.published(), MOST_AWAY);
    rig.confirms(MethodId::BASIC_ACK, 1, false);
    assert_eq!(rig.published(), 1);

    let large = || message(vec![0; MOST_OCTETS]);
    let mut rig = importing(vec![large(), large()]);
    assert_eq!(rig.published(), 1);
    rig.confirms(MethodId::BASIC_ACK, 1, false);
    assert_eq!(rig.published(), 1);
}

#[test]
fn what_the_queue_refuses_or_fits_no_frame_is_named_by_its_place() {
    let mut messages = many(4);
    let mut table = crate::amqp::table::TableBuilder::default();
    table.longstr(b"long", &[b'x'; 140_000]);
    messages[1] = crate::link::peer::with_headers(table, "body");
    messages[2].properties = Bytes::from_static(b"\xff");
    let mut rig = importing(messages);
    assert_eq!(rig.published(), 2);
    rig.confirms(MethodId::BASIC_NACK, 2, false);
    rig.confirms(MethodId::BASIC_ACK, 1, false);
    let two = Imported {
        imported: 1,
        refused: vec![1, 2, 3],
        ..Imported::default()
    };
    assert_eq!(rig.ended(), two);
}

#[test]
fn a_time_that_would_end_a_queue_is_left_out_and_counted() {
    let timed = |millis| {
        let mut table = crate::amqp::table::TableBuilder::default();
        table.long(b"x-opt-delivery-time", millis);
        crate::link::peer::with_headers(table, "body")
    };
    let mut rig = importing(vec![timed(5), timed(i64::MAX)]);
    let sent = rig.sent();
    let headers = sent.iter().filter(|sent| sent.kind == Kind::Header);
    let with = headers.map(|sent| memchr::memmem::find(&sent.payload, b"x-opt-").is_some());
    assert_eq!(with.collect::<Vec<_>>(), [true, false]);
    rig.confirms(MethodId::BASIC_ACK, 2, true);
    let all = Imported {
        imported: 2,
        without_time: 1,
        ..Imported::default()
    };
    assert_eq!(rig.ended(), all);
}

#[test]
fn a_queue_that_is_not_there_ends_it() {
    let mut rig = importing(many(MOST_AWAY + 1));
    rig.confirms(MethodId::BASIC_ACK, 1, false);
    assert_eq!(rig.published(), MOST_AWAY + 1);
    let returned = method(1, MethodId::BASIC_RETURN, |a| {
        a.short(312)
            .shortstr(b"NO_ROUTE")
            .shortstr(b"")
            .shortstr(b"dead")
            .end();
    });
    for tag in 2..=MOST_AWAY as u64 + 1 {
        rig.broker(&content(returned.clone(), 1, &message("body")));
        rig.confirms(MethodId::BASIC_ACK, tag, false);
    }
    let ended = rig.ended();
    assert_eq!((ended.imported, ended.left), (1, MOST_AWAY as u64));
    let failure = ended.failure.expect("a failure").to_string();
    assert_eq!(failure, "NOT_FOUND - no queue 'dead'");
}

#[test]
fn a_refusal_or_a_lost_connection_leaves_in_doubt_what_was_on_its_way() {
    let refused = close(
        1,
        403,
        "ACCESS_REFUSED - write access",
        MethodId::BASIC_PUBLISH,
    );
    let lost = close(0, 320, "CONNECTION_FORCED - bye", MethodId(0, 0));
    for (end, words) in [(refused, "ACCESS_REFUSED"), (lost, "CONNECTION_FORCED")] {
        let mut rig = importing(many(MOST_AWAY + 1));
        rig.confirms(MethodId::BASIC_ACK, 2, true);
        rig.broker(&end);
        let ended = rig.ended();
        assert_eq!((ended.imported, ended.unsure, ended.left), (2, 255, 0));
        assert!(ended.failure.expect("why").to_string().contains(words));
    }
}

#[test]
fn an_alarm_is_waited_for_and_then_told() {
    let mut rig = importing(many(1));
    rig.broker(&method(0, MethodId::CONNECTION_BLOCKED, |a| {
        a.shortstr(b"low on memory").end();
    }));
    rig.pass(29_000);
    assert_eq!(rig.fx.out, None);
    rig.pass(2_000);
    let ended = rig.ended();
    assert_eq!(ended.unsure, 1);
    assert!(ended.failure.expect("why").to_string().contains("alarm"));
}
