//! Whether the user may publish is asked of the broker, for each routing key.

use super::moving::{ENDLESS, redrive};
use super::*;
use crate::amqp::ids::name;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::machine::{Cause, Outcome};

const NO_TOPIC: &str = "ACCESS_REFUSED - write access to topic 'bad' in exchange 'target' in vhost '/' refused for user 'o'";
const NO_RIGHT: &str =
    "ACCESS_REFUSED - write access to exchange 'target' in vhost '/' refused for user 'o'";

/// To an exchange, with a key or with the messages' own ones.
fn to_exchange(key: Option<&str>) -> Move {
    Move {
        to: Some(Redrive {
            to: Destination::Exchange {
                exchange: name("target"),
                routing_key: key.map(name),
            },
            keep_history: true,
            by: name("operator"),
        }),
        ..redrive()
    }
}

/// Its first question is sent.
fn testing(wanted: Move, ready: u32) -> WalkRig {
    let mut rig = rig_of(Task::Move(Box::new(wanted)), ENDLESS);
    rig.up("4.3.6");
    rig.counted(1, ready);
    rig.asks(true, 1);
    rig
}

/// Each message has a key of its own; deliveries are awaited.
fn moving(ready: u32) -> WalkRig {
    moving_at(to_exchange(None), ready)
}

fn moving_at(wanted: Move, ready: u32) -> WalkRig {
    let mut rig = testing(wanted, ready);
    rig.rolled_back();
    rig.is_of_type("classic");
    assert_eq!(rig.channel(), 3, "beside the questions");
    rig
}

impl WalkRig {
    fn refuses(&mut self, code: u16, text: &str) {
        self.broker(&close(2, code, text, MethodId::BASIC_PUBLISH));
    }

    /// It has closed the channel of the questions, too, and asks on.
    fn asks_anew(&mut self, questions: usize) {
        let sent = self.sent();
        assert!(sent[0].is(2, MethodId::CHANNEL_CLOSE_OK), "{sent:?}");
        let opens = 2 * usize::from(questions > 0);
        assert_eq!(sent.len(), 1 + opens + 3 * questions, "{sent:?}");
    }

    fn blocked(&mut self, is: bool) {
        let id = match is {
            true => MethodId::CONNECTION_BLOCKED,
            false => MethodId::CONNECTION_UNBLOCKED,
        };
        self.broker(&method(0, id, |a| match is {
            true => a.shortstr(b"low on disk").end(),
            false => a.end(),
        }));
    }
}

#[test]
fn a_right_that_all_need_is_asked_for_before_the_first_message() {
    for key in [Some("bad"), None] {
        for (code, text) in [
            (403, NO_RIGHT),
            (404, "NOT_FOUND - no exchange 'target' in vhost '/'"),
        ] {
            let mut rig = testing(to_exchange(key), 1);
            rig.refuses(code, text);
            let text = text.to_owned();
            assert_eq!(rig.ended(), Err(Failure::Refused { code, text }));
        }
    }
    let mut fixed = testing(to_exchange(Some("bad")), 1);
    fixed.refuses(403, NO_TOPIC);
    assert!(fixed.ended().is_err());
}

#[test]
fn a_key_that_no_message_has_tells_nothing_of_their_own() {
    let mut rig = testing(to_exchange(None), 1);
    rig.refuses(403, NO_TOPIC);
    let sent = rig.sent();
    assert!(sent[0].is(2, MethodId::CHANNEL_CLOSE_OK));
    assert_eq!(consumed(&sent), Some(true));
}

#[test]
fn a_message_is_handed_over_when_its_key_is_known_and_none_overtakes_it() {
    let mut rig = moving(4);
    rig.comes("ok", "");
    rig.asks(false, 1);
    rig.comes("bad", "");
    rig.asks(false, 1);
    rig.comes("ok", "");
    assert!(rig.handed().is_empty() && rig.methods().is_empty());
    rig.rolled_back();
    assert_eq!(rig.handed(), [1]);
    rig.refuses(403, NO_TOPIC);
    rig.asks_anew(0);
    assert_eq!(rig.handed(), [3]);
    rig.comes("bad", "");
    assert!(rig.handed().is_empty(), "it is known");
    rig.settles(1, Outcome::Confirmed);
    rig.settles(3, Outcome::Confirmed);
    rig.cancelled();
    rig.goes_back();
    let stays = vec![(NO_TOPIC.to_owned(), 2)];
    assert_eq!(rig.moved(), (Stopped::End, 2, stays));
}

#[test]
fn what_was_asked_behind_a_refusal_is_asked_again() {
    let mut rig = moving(2);
    rig.comes("bad", "");
    rig.comes("ok", "");
    rig.asks(false, 2);
    rig.refuses(403, NO_TOPIC);
    rig.asks_anew(1);
    rig.rolled_back();
    assert_eq!(rig.handed(), [2]);
}

#[test]
fn who_cancels_waits_for_no_answer() {
    let mut rig = moving(100);
    rig.comes("ok", "");
    rig.asks(false, 1);
    rig.input(Input::Enough);
    rig.rolled_back();
    assert!(rig.handed().is_empty());
    rig.puts_back();
    let (stopped, gone, stay) = rig.moved();
    assert_eq!((stopped, gone, stay.len()), (Stopped::Enough, 0, 1));
}

#[test]
fn a_pause_puts_back_what_waits_and_it_is_met_again() {
    let mut rig = moving(3);
    rig.comes("ok", "");
    rig.asks(false, 1);
    rig.blocked(true);
    rig.input(Input::Pause(true));
    rig.pass(300_000);
    rig.puts_back();
    rig.rolled_back();
    rig.input(Input::Pause(false));
    assert_eq!(consumed(&rig.sent()), Some(false));
    let channel = rig.channel();
    rig.broker(&method(channel, MethodId::BASIC_CONSUME_OK, |a| {
        a.shortstr(b"dlx-proxy").end();
    }));
    rig.comes("ok", "");
    assert_eq!(rig.handed(), [2], "it was not asked for nothing");
}

#[test]
fn an_answer_that_does_not_come_ends_it_and_an_alarm_is_waited_for() {
    let mut silent = moving(100);
    silent.comes("ok", "");
    silent.pass(29_999);
    assert_eq!(silent.fx.out.ended, None);
    silent.pass(1);
    assert_eq!(silent.ended(), Err(Failure::Silent));

    let mut alarm = moving(100);
    alarm.comes("ok", "");
    alarm.blocked(true);
    for _ in 0..100 {
        alarm.pass(1_000);
        // The broker sends heartbeats in an alarm, too.
        alarm.broker(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
    }
    assert_eq!(alarm.fx.out.ended, None);
    alarm.blocked(false);
    alarm.rolled_back();
    assert_eq!(alarm.handed(), [1]);
    alarm.settles(1, Outcome::Refused(Cause::Unroutable));
}

/// The broker reads nothing of a connection that publishes in an alarm: it cannot be told to put anything back, but it does when the connection ends.
#[test]
fn who_cancels_in_an_alarm_ends_it() {
    let mut rig = moving(100);
    rig.comes("ok", "");
    rig.asks(false, 1);
    rig.blocked(true);
    rig.input(Input::Enough);
    rig.cancelled();
    rig.pass(4_999);
    assert_eq!(rig.fx.out.ended, None, "the alarm may end");
    rig.pass(1);
    let (stopped, gone, stay) = rig.moved();
    assert_eq!((stopped, gone, stay.len()), (Stopped::Enough, 0, 1));
}

/// It is confirmed elsewhere, but that it may go from here the broker has not read.
#[test]
fn what_may_be_there_twice_when_it_is_cancelled_in_an_alarm_is_counted() {
    let mut rig = moving(100);
    for key in ["ok", "ok", "new"] {
        rig.comes(key, "");
    }
    rig.rolled_back();
    assert_eq!(rig.handed(), [1, 2]);
    rig.blocked(true);
    rig.settles(1, Outcome::Confirmed);
    rig.settles(2, Outcome::Refused(Cause::Unconfirmed));
    assert!(rig.machine.is_blocked());
    rig.input(Input::Enough);
    rig.cancelled();
    rig.pass(5_000);
    let summary = rig.summary();
    assert_eq!((summary.moved.gone, summary.unread), (1, 1));
    assert_eq!(summary.moved.stay["unconfirmed"], 1);

    let mut read = moving(100);
    read.comes("ok", "");
    read.comes("new", "");
    read.rolled_back();
    read.settles(1, Outcome::Confirmed);
    read.rolled_back();
    read.settles(2, Outcome::Confirmed);
    read.input(Input::Enough);
    read.cancelled();
    read.goes_back();
    assert_eq!(read.summary().unread, 0, "the alarm is over");
}

#[test]
fn a_long_pause_in_an_alarm_ends_nothing() {
    let mut rig = moving(100);
    rig.comes("ok", "");
    rig.asks(false, 1);
    rig.blocked(true);
    rig.input(Input::Pause(true));
    rig.pass(300_000);
    for _ in 0..100 {
        rig.pass(1_000);
        rig.broker(&[8, 0, 0, 0, 0, 0, 0, 0xce]);
    }
    assert_eq!(rig.fx.out.ended, None);
    rig.methods();
    rig.blocked(false);
    rig.rolled_back();
    rig.goes_back();
    rig.input(Input::Enough);
    assert_eq!(rig.summary().stopped, Stopped::Enough);
}

/// The answer stands behind messages that came before it.
#[test]
fn an_answer_is_read_while_nothing_may_be_taken() {
    let wanted = Move {
        per_second: std::num::NonZeroU32::new(10),
        ..to_exchange(None)
    };
    let mut rig = moving_at(wanted, 3);
    rig.comes("ok", "");
    assert!(rig.machine.wants_read(Leg::Broker, 0));
    rig.comes("ok", "");
    rig.comes("ok", "");
    rig.rolled_back();
    assert!(!rig.machine.wants_read(Leg::Broker, 0), "nothing is asked");
    let mut times = vec![];
    for millis in 0..300 {
        let handed = rig.handed().len();
        times.extend(std::iter::repeat_n(millis / 50, handed));
        rig.pass(1);
    }
    assert_eq!(times.len(), 3, "the rate is kept: {times:?}");
    assert!(times[2] >= 2, "{times:?}");

    let mut full = moving(10_000);
    assert_eq!(full.offered(300), 300);
    assert!(full.handed().is_empty());
    full.rolled_back();
    assert_eq!(full.handed().len(), 256);
    assert!(!full.machine.wants_read(Leg::Broker, 0));
    full.settles(1, Outcome::Confirmed);
    assert_eq!(full.handed(), [257]);
}

/// Of many refused keys only some are told apart.
#[test]
fn reasons_are_bounded() {
    let mut rig = moving_at(to_exchange(None), 1_000);
    for number in 0..40 {
        rig.comes(&format!("k{number}"), "");
        rig.refuses(403, &format!("access to topic 'k{number}'"));
    }
    let moved = rig.machine.progress().summary.moved;
    let stay = &moved.stay;
    assert_eq!((stay.len(), stay.values().sum::<u64>()), (33, 40));
}
