//! A queue that is deleted with its last consumer does not get one.

use super::moving::{ENDLESS, redrive};
use super::*;
use crate::machine::{Outcome, Ticket};

const CLASSIC: &str = "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'dead' in vhost '/' of queue type rabbit_classic_queue";
const NOT_DURABLE: &str = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'dead' in vhost '/': received 'true' but current is 'false'";
const AUTO_DELETE: &str = "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'dead' in vhost '/': received 'false' but current is 'true'";
const OTHER: &str = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'dead' in vhost '/': received none but current is the value '5' of type 'signedint'";
const GONE: &str = "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'dead' in vhost '/' of queue type rabbit_classic_queue";
const NO_RIGHT: &str =
    "ACCESS_REFUSED - configure access to queue 'dead' in vhost '/' refused for user 'operator'";

impl WalkRig {
    /// It is a classic queue without consumers, with so many messages: whether it is deleted with its last one is asked.
    fn is_alone(&mut self, ready: u32) {
        self.counted_with(1, ready, 0);
        if self.machine.moving.wanted().is_some() {
            self.asks(true, 1);
            self.rolled_back();
        }
        assert_eq!(consumed(&self.sent()), Some(true));
        let channel = self.channel();
        self.broker(&close(channel, 406, CLASSIC, MethodId::BASIC_CONSUME));
        self.compares();
    }

    /// It declares the queue, and does not make it.
    fn compares(&mut self) {
        let sent = self.sent();
        let last = sent.last().expect("a declare");
        assert!(last.is(self.channel(), MethodId::QUEUE_DECLARE), "{sent:?}");
        let conditional = memchr::memmem::find(&last.payload, b"x-max-age");
        assert!(conditional.is_some(), "{last:?}");
    }

    fn differs(&mut self, code: u16, text: &str) {
        let channel = self.channel();
        self.broker(&close(channel, code, text, MethodId::QUEUE_DECLARE));
    }

    /// So many messages that it wants to get, since the last call.
    fn gets(&mut self) -> usize {
        let sent = self.methods();
        assert!(!sent.iter().any(|(_, id)| *id == MethodId::BASIC_CONSUME));
        let gets = sent.iter().filter(|(_, id)| *id == MethodId::BASIC_GET);
        gets.count()
    }

    fn is_got(&mut self, key: &str) {
        let channel = self.channel();
        let tag = self.machine.moving.mover.next_tag();
        let got = method(channel, MethodId::BASIC_GET_OK, |a| {
            a.longlong(tag)
                .octet(0)
                .shortstr(b"orders")
                .shortstr(key.as_bytes())
                .long(0)
                .end();
        });
        let message = Content {
            properties: Bytes::from_static(&[0, 0]),
            body: Bytes::new(),
        };
        self.broker(&content(got, channel, &message));
    }

    fn is_not_there(&mut self) {
        let channel = self.channel();
        self.broker(&method(channel, MethodId::BASIC_GET_EMPTY, |a| {
            a.shortstr(b"").end();
        }));
    }

    /// It closes the channel, and has had no consumer to cancel.
    fn lets_go(&mut self) {
        let channel = self.channel();
        assert_eq!(self.methods(), [(channel, MethodId::BASIC_QOS)]);
        self.broker(&method(channel, MethodId::BASIC_QOS_OK, |_| {}));
        assert_eq!(self.methods(), [(channel, MethodId::CHANNEL_CLOSE)]);
        self.broker(&method(channel, MethodId::CHANNEL_CLOSE_OK, |_| {}));
        let channel = self.channel();
        self.counted_with(channel, 100, 0);
    }
}

fn alone(task: Task, ready: u32) -> WalkRig {
    let mut rig = rig_of(task, ENDLESS);
    rig.up("4.3.6");
    rig.is_alone(ready);
    rig
}

#[test]
fn what_would_be_deleted_is_not_consumed() {
    for (refusals, gets) in [
        (&[(406, AUTO_DELETE)][..], true),
        (&[(406, NOT_DURABLE), (406, AUTO_DELETE)], true),
        (&[(406, NOT_DURABLE), (406, OTHER)], false),
        (&[(406, OTHER)], false),
        // The user may not ask: no harm is done.
        (&[(403, NO_RIGHT)], true),
        (&[(406, GONE)], true),
    ] {
        let mut rig = alone(Task::Look(Bodies::Begin), 3);
        for (at, (code, text)) in refusals.iter().enumerate() {
            if at > 0 {
                rig.compares();
            }
            rig.differs(*code, text);
        }
        match gets {
            true => assert_eq!(rig.gets(), 3, "{refusals:?}"),
            false => assert_eq!(consumed(&rig.sent()), Some(false), "{refusals:?}"),
        }
    }
    let mut stays = alone(Task::Look(Bodies::Begin), 3);
    let channel = stays.channel();
    stays.broker(&method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"dead").long(3).long(0).end();
    }));
    assert_eq!(consumed(&stays.sent()), Some(false));
}

#[test]
fn messages_that_are_got_come_in_order_and_go_back() {
    let mut rig = alone(Task::Look(Bodies::Begin), 20);
    rig.differs(406, AUTO_DELETE);
    assert_eq!(rig.gets(), 16, "the first window");
    for number in 0..16 {
        rig.is_got(&number.to_string());
    }
    assert_eq!(rig.gets(), 4, "the second");
    for number in 16..20 {
        rig.is_got(&number.to_string());
    }
    assert_eq!(rig.keys().len(), 20);
    rig.lets_go();
    let summary = rig.summary();
    assert_eq!((summary.seen, summary.stopped), (20, Stopped::End));
}

#[test]
fn a_queue_that_others_empty_is_at_its_end_when_nothing_is_got() {
    let mut rig = alone(Task::Look(Bodies::Begin), 3);
    rig.differs(406, AUTO_DELETE);
    assert_eq!(rig.gets(), 3);
    rig.is_got("a");
    rig.is_not_there();
    assert_eq!(rig.methods(), [], "one answer is on its way");
    rig.is_not_there();
    rig.lets_go();
    assert_eq!(rig.summary().seen, 1);
}

#[test]
fn what_is_got_and_gone_makes_room() {
    let wanted = Move {
        most: 300,
        ..redrive()
    };
    let mut rig = alone(Task::Move(Box::new(wanted)), 258);
    rig.differs(406, AUTO_DELETE);
    assert_eq!(rig.gets(), 256);
    for number in 0..256_u64 {
        rig.is_got(&number.to_string());
    }
    let confirmed = |tickets: std::ops::RangeInclusive<u64>| {
        Input::Settled(tickets.map(|at| (Ticket(at), Outcome::Confirmed)).collect())
    };
    rig.input(confirmed(1..=100));
    assert_eq!(rig.gets(), 2, "there are no more");
    rig.is_got("last but one");
    rig.is_got("last");
    rig.input(confirmed(101..=258));
    assert_eq!(
        rig.methods().last().expect("the end").1,
        MethodId::BASIC_QOS
    );
    assert_eq!(rig.machine.progress().summary.moved.gone, 258);
}

/// Somebody has seen enough: what is on its way comes first.
#[test]
fn who_has_seen_enough_waits_for_what_is_being_got() {
    let mut rig = alone(Task::Look(Bodies::Begin), 2);
    rig.differs(406, AUTO_DELETE);
    rig.gets();
    rig.is_got("a");
    rig.input(Input::Enough);
    assert_eq!(rig.methods(), []);
    rig.is_got("b");
    rig.lets_go();
    assert_eq!(rig.summary().seen, 1);
}
