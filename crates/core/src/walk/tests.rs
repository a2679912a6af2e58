//! A walk against a scripted queue.

use bytes::Bytes;

use super::*;
use crate::amqp::content::Content;
use crate::amqp::frame::Kind;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::letter::BodyHash;
use crate::link::Login;
use crate::link::peer::{Rig, Sent, close, content, method};
use crate::machine::{Flow, Leg, Machine};

mod acks;
mod asking;
mod back;
mod gets;
mod long;
mod moving;
mod passing;
mod readable;
mod returning;
mod windows;

type WalkRig = Rig<Walk>;

const FAR: Bounds = Bounds {
    messages: 1_000,
    held: 1_000,
    octets: 1 << 20,
    time: Duration::from_secs(60),
};

fn rig(bounds: Bounds) -> WalkRig {
    rig_of(Task::Look(Bodies::Begin), bounds)
}

fn rig_of(task: Task, bounds: Bounds) -> WalkRig {
    let settings = Settings {
        login: Login {
            vhost: name("/"),
            user: name("operator"),
            password: Bytes::from_static(b"secret"),
            seed: 1,
        },
        queue: name("dead"),
        bounds,
        task,
    };
    Rig::new(Walk::new(
        settings,
        Now {
            mono: Mono(1_000_000),
            ..Now::default()
        },
    ))
}

/// With this type and number of messages; awaits deliveries.
fn walking(version: &str, queue_type: &str, ready: u32, bounds: Bounds) -> WalkRig {
    let mut rig = rig(bounds);
    rig.up(version);
    rig.counted(1, ready);
    rig.is_of_type(queue_type);
    rig
}

impl WalkRig {
    fn channel(&self) -> u16 {
        self.machine.channel.id().0
    }

    fn counted(&mut self, channel: u16, ready: u32) {
        self.counted_with(channel, ready, 2);
    }

    fn counted_with(&mut self, channel: u16, ready: u32, consumers: u32) {
        let sent = self.sent();
        let asked = sent.last().expect("a question");
        assert!(asked.is(channel, MethodId::QUEUE_DECLARE), "{sent:?}");
        self.broker(&method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"dead").long(ready).long(consumers).end();
        }));
    }

    fn is_of_type(&mut self, queue_type: &str) {
        let asked = consumed(&self.sent());
        assert_eq!(asked, Some(true), "as a stream");
        if queue_type != "stream" {
            let text = format!(
                "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'dead' in vhost '/' of queue type rabbit_{queue_type}_queue"
            );
            let channel = self.channel();
            self.broker(&close(channel, 406, &text, MethodId::BASIC_CONSUME));
            assert_eq!(consumed(&self.sent()), Some(false), "as what it is");
        }
        let channel = self.channel();
        self.broker(&method(channel, MethodId::BASIC_CONSUME_OK, |a| {
            a.shortstr(b"dlx-proxy").end();
        }));
    }

    fn comes(&mut self, key: &str, body: &str) {
        self.comes_as(key, Bytes::from_static(&[0, 0]), body);
    }

    fn comes_with(&mut self, key: &str, properties: Bytes) {
        self.comes_as(key, properties, "");
    }

    fn comes_as(&mut self, key: &str, properties: Bytes, body: &str) {
        self.is_delivered(key, properties, body, false);
    }

    fn comes_again(&mut self, key: &str) {
        self.is_delivered(key, Bytes::from_static(&[0, 0]), "", true);
    }

    fn is_delivered(&mut self, key: &str, properties: Bytes, body: &str, redelivered: bool) {
        let channel = self.channel();
        let tag = self.machine.moving.mover.next_tag();
        let deliver = method(channel, MethodId::BASIC_DELIVER, |a| {
            a.shortstr(b"dlx-proxy")
                .longlong(tag)
                .octet(redelivered.into())
                .shortstr(b"orders")
                .shortstr(key.as_bytes())
                .end();
        });
        let message = Content {
            properties,
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        self.broker(&content(deliver, channel, &message));
    }

    /// After its cancel and the broker's: what it does then.
    fn puts_back(&mut self) -> Vec<MethodId> {
        let channel = self.channel();
        assert_eq!(self.cancelled(), [(channel, MethodId::BASIC_CANCEL)]);
        self.goes_back()
    }

    /// Frames until nothing is in flight.
    fn cancelled(&mut self) -> Vec<(u16, MethodId)> {
        let mut sent = self.methods();
        let is_cancel = |(_, id): &(u16, MethodId)| *id == MethodId::BASIC_CANCEL;
        if !sent.iter().any(is_cancel) {
            self.pass(300);
            sent.extend(self.methods());
        }
        sent
    }

    fn goes_back(&mut self) -> Vec<MethodId> {
        let channel = self.channel();
        self.broker(&method(channel, MethodId::BASIC_CANCEL_OK, |a| {
            a.shortstr(b"dlx-proxy").end();
        }));
        assert_eq!(self.methods(), [(channel, MethodId::BASIC_QOS)]);
        self.broker(&method(channel, MethodId::BASIC_QOS_OK, |_| {}));
        let done = self.methods().into_iter().map(|(_, id)| id).collect();
        assert_eq!(self.fx.out.ended, None, "the broker has not answered");
        self.broker(&method(channel, MethodId::CHANNEL_CLOSE_OK, |_| {}));
        done
    }

    fn is_dismissed(&mut self) {
        let channel = self.channel();
        self.broker(&method(channel, MethodId::BASIC_CANCEL, |a| {
            a.shortstr(b"dlx-proxy").octet(1).end();
        }));
        assert_eq!(
            self.fx.out.ended, None,
            "it asks whether the queue is there"
        );
    }

    fn keys(&mut self) -> Vec<String> {
        let letters = self.fx.out.letters.drain(..);
        letters
            .map(|letter| letter.routing_key.to_string())
            .collect()
    }

    fn ended(&mut self) -> Ended {
        let ended = self.fx.out.ended.take().expect("an end");
        // It says goodbye, and wants no other connection.
        self.closed();
        assert_eq!(self.machine.flow(), Flow::Finish);
        assert_eq!(self.fx.out.ended, None, "it ends once");
        ended
    }

    fn summary(&mut self) -> Summary {
        self.ended().expect("a summary")
    }

    fn closed(&mut self) {
        self.machine.closed(Leg::Broker, self.now, &mut self.fx);
    }
}

/// As a stream, or not.
fn consumed(sent: &[Sent]) -> Option<bool> {
    let consume = sent
        .iter()
        .find(|sent| sent.method() == Some(MethodId::BASIC_CONSUME))?;
    assert_eq!(consume.kind, Kind::Method);
    let named = memchr::memmem::find(&consume.payload, b"x-stream-offset");
    Some(named.is_some())
}

#[test]
fn messages_come_in_order_and_the_walk_ends_where_the_queue_did_when_it_began() {
    let mut rig = walking("4.3.6", "classic", 2, FAR);
    rig.comes("a", "");
    assert_eq!(rig.methods(), []);
    rig.comes("b", "long body");
    assert_eq!(rig.fx.out.letters[0].position, 1);
    let second = &rig.fx.out.letters[1];
    assert_eq!(
        (second.position, second.body_hash, second.size),
        (2, BodyHash::of(b"long body"), 9)
    );
    assert_eq!(rig.keys(), ["a", "b"]);
    assert_eq!(rig.puts_back(), [MethodId::CHANNEL_CLOSE]);
    let expected = Summary {
        ready: Some(2),
        consumers: Some(2),
        seen: 2,
        taken: 2,
        starves: false,
        queue_type: QueueType::Classic,
        counted: false,
        reordered: false,
        unread: 0,
        stopped: Stopped::End,
        moved: Moved::default(),
    };
    assert_eq!(rig.summary(), expected);
}

#[test]
fn messages_go_back_to_their_places_in_the_way_that_disturbs_least() {
    let nack_and_close = [MethodId::BASIC_NACK, MethodId::CHANNEL_CLOSE].as_slice();
    for (version, queue_type, expected, counted) in [
        ("4.3.6", "quorum", nack_and_close, false),
        ("4.2.9", "quorum", &[MethodId::CHANNEL_CLOSE], true),
        ("3.10.8", "quorum", &[MethodId::CHANNEL_CLOSE], true),
        ("4.3.6", "classic", &[MethodId::CHANNEL_CLOSE], false),
        ("3.10.8", "classic", &[MethodId::CHANNEL_CLOSE], false),
        ("4.3.6", "stream", &[MethodId::CHANNEL_CLOSE], false),
    ] {
        let mut rig = walking(version, queue_type, 1, FAR);
        rig.comes("a", "x");
        assert_eq!(rig.puts_back(), expected, "{version} {queue_type}");
        assert_eq!(rig.summary().counted, counted, "{version} {queue_type}");
    }
}

#[test]
fn an_empty_queue_is_not_consumed() {
    let mut rig = rig(FAR);
    rig.up("4.3.6");
    rig.counted(1, 0);
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    assert_eq!(rig.summary().seen, 0);
}

#[test]
fn each_bound_ends_a_walk() {
    let few = Bounds { messages: 2, ..FAR };
    let small = Bounds { octets: 40, ..FAR };
    let short = Bounds {
        time: Duration::from_millis(200),
        ..FAR
    };
    for (bounds, expected) in [
        (few, Stopped::Messages),
        (small, Stopped::Octets),
        (short, Stopped::Time),
    ] {
        let mut rig = walking("4.3.6", "classic", 100, bounds);
        rig.comes("a", "body");
        rig.comes("b", "body with more than a few octets");
        rig.pass(250);
        // What comes behind the end goes back with the others.
        rig.comes("c", "");
        rig.puts_back();
        assert_eq!(rig.keys(), ["a", "b"]);
        let summary = rig.summary();
        assert_eq!((summary.stopped, summary.seen), (expected, 2));
    }
}

#[test]
fn enough_is_enough() {
    let mut rig = walking("4.3.6", "quorum", 100, FAR);
    rig.comes("a", "");
    rig.input(Input::Enough);
    rig.input(Input::Enough);
    rig.puts_back();
    assert_eq!(rig.summary().stopped, Stopped::Enough);
}

/// The owner gives up while the broker already delivers.
#[test]
fn what_comes_before_the_broker_says_so_is_put_back_too() {
    let mut rig = rig(FAR);
    rig.up("4.3.6");
    rig.counted(1, 100);
    rig.sent();
    let text = "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'dead' in vhost '/' of queue type rabbit_quorum_queue";
    rig.broker(&close(1, 406, text, MethodId::BASIC_CONSUME));
    assert_eq!(consumed(&rig.sent()), Some(false), "as what it is");
    rig.drain();
    let channel = rig.channel();
    rig.broker(&method(channel, MethodId::BASIC_CONSUME_OK, |a| {
        a.shortstr(b"dlx-proxy").end();
    }));
    rig.comes("a", "");
    let put_back = [MethodId::BASIC_NACK, MethodId::CHANNEL_CLOSE];
    assert_eq!(rig.puts_back(), put_back);
    assert_eq!(rig.summary().stopped, Stopped::Enough);
}

/// Messages in flight at the cancel would come before the others (S12.6).
#[test]
fn a_walk_that_has_seen_enough_waits_for_what_is_on_its_way() {
    let three = Bounds { messages: 3, ..FAR };
    let mut rig = walking("4.3.6", "quorum", 100, three);
    rig.comes("a", "");
    rig.input(Input::Enough);
    rig.comes("b", "");
    assert_eq!(rig.methods(), [], "a third one may be on its way");
    rig.comes("c", "");
    let channel = rig.channel();
    assert_eq!(rig.methods(), [(channel, MethodId::BASIC_CANCEL)]);
    rig.goes_back();
    assert_eq!(rig.keys(), ["a"]);

    let mut rig = walking("4.3.6", "quorum", 100, FAR);
    rig.comes("a", "");
    rig.input(Input::Enough);
    for _ in 0..100 {
        rig.pass(299);
        if rig.methods() == [(rig.channel(), MethodId::BASIC_CANCEL)] {
            return;
        }
        rig.comes("b", "");
    }
    panic!("it waits for ever");
}

#[test]
fn a_queue_that_others_empty_is_at_its_end() {
    let mut rig = walking("4.3.6", "classic", 100, FAR);
    rig.comes("a", "");
    rig.pass(299);
    assert_eq!(rig.methods(), []);
    rig.pass(1);
    let channel = rig.channel();
    rig.counted(channel, 7);
    assert_eq!(rig.methods(), [], "seven are on their way");
    rig.pass(300);
    rig.counted(channel, 0);
    assert_eq!(rig.methods(), [], "some may be on their way");
    rig.comes("b", "");
    for _ in 0..2 {
        assert_eq!(rig.methods(), []);
        rig.pass(300);
        rig.counted(channel, 0);
    }
    rig.puts_back();
    let summary = rig.summary();
    assert_eq!((summary.stopped, summary.seen), (Stopped::End, 2));
}

#[test]
fn whoever_may_only_read_the_queue_sees_it() {
    let mut rig = rig(FAR);
    rig.up("4.3.6");
    let refusal = "ACCESS_REFUSED - configure access to queue 'dead' in vhost '/' refused for user 'operator'";
    rig.sent();
    rig.broker(&close(1, 403, refusal, MethodId::QUEUE_DECLARE));
    rig.is_of_type("quorum");
    rig.comes("a", "");
    rig.pass(1_999);
    assert_eq!(rig.methods(), []);
    rig.pass(1);
    rig.puts_back();
    let summary = rig.summary();
    assert_eq!(
        (summary.ready, summary.consumers, summary.seen),
        (None, None, 1)
    );
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_broker() {
    let text = "NOT_FOUND - no queue 'dead' in vhost '/'";
    let mut missing = rig(FAR);
    missing.up("4.3.6");
    missing.broker(&close(1, 404, text, MethodId::QUEUE_DECLARE));
    let refused = Failure::Refused {
        code: 404,
        text: text.to_owned(),
    };
    assert_eq!(missing.ended(), Err(refused));

    let text =
        "ACCESS_REFUSED - read access to queue 'dead' in vhost '/' refused for user 'operator'";
    let mut forbidden = rig(FAR);
    forbidden.up("4.3.6");
    forbidden.counted(1, 3);
    forbidden.broker(&close(1, 403, text, MethodId::BASIC_CONSUME));
    let refused = Failure::Refused {
        code: 403,
        text: text.to_owned(),
    };
    assert_eq!(forbidden.ended(), Err(refused));
}

#[test]
fn a_connection_that_ends_does_not_come_back() {
    let mut rig = walking("4.3.6", "classic", 100, FAR);
    rig.comes("a", "");
    rig.closed();
    let lost = Failure::Connection("the connection was cut".to_owned());
    assert_eq!(rig.ended(), Err(lost));
    assert_eq!(rig.events(), [], "nothing for the log");
}

#[test]
fn a_queue_that_is_deleted_ends_the_walk() {
    let mut rig = walking("4.3.6", "classic", 100, FAR);
    rig.comes("a", "");
    rig.is_dismissed();
    let text = "NOT_FOUND - no queue 'dead' in vhost '/'";
    rig.broker(&close(rig.channel(), 404, text, MethodId::QUEUE_DECLARE));
    let gone = Failure::Connection("the queue is gone".to_owned());
    assert_eq!(rig.ended(), Err(gone));
}

/// From 4.3 on the broker cancels a consumer of a quorum queue that holds a message for too long.
#[test]
fn a_consumer_that_is_cancelled_is_no_queue_that_is_gone() {
    for may_ask in [true, false] {
        let mut rig = walking("4.3.6", "quorum", 100, FAR);
        rig.comes("a", "");
        rig.is_dismissed();
        let (channel, text) = (rig.channel(), "ACCESS_REFUSED - configure access to queue");
        match may_ask {
            true => rig.counted(channel, 100),
            false => rig.broker(&close(channel, 403, text, MethodId::QUEUE_DECLARE)),
        }
        let ended = rig.ended().expect_err("it cannot go on").to_string();
        assert!(ended.contains("consumer timeout"), "{ended}");
    }
}

#[test]
fn a_broker_that_says_nothing_is_not_waited_for_for_ever() {
    let mut asked = rig(Bounds {
        time: Duration::from_secs(1),
        ..FAR
    });
    asked.up("4.3.6");
    asked.pass(1_000);
    assert_eq!(asked.ended(), Err(Failure::Silent));

    let mut leaving = walking("4.3.6", "classic", 100, FAR);
    leaving.input(Input::Enough);
    leaving.cancelled();
    leaving.pass(4_999);
    assert_eq!(leaving.fx.out.ended, None);
    leaving.pass(1);
    assert_eq!(leaving.ended(), Err(Failure::Silent));
}

#[test]
fn what_cannot_be_read_ends_the_walk() {
    let mut rig = walking("4.3.6", "classic", 100, FAR);
    let channel = rig.channel();
    rig.broker(&method(channel, MethodId::BASIC_DELIVER, |a| {
        a.octet(200).end();
    }));
    assert!(matches!(rig.ended(), Err(Failure::Connection(_))));
}
