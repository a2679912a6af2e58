//! Few of many messages are meant: the others are held, however many they are.

use std::num::NonZeroU32;

use super::moving::{ENDLESS, moving, moving_at, moving_in, purge, redrive};
use super::*;
use crate::amqp::ids::name;
use crate::letter::Filter;
use crate::machine::{Cause, Outcome};
use crate::walk::MOST_HELD;

/// As a redrive has them.
const AS_EVER: Bounds = Bounds {
    held: MOST_HELD,
    ..ENDLESS
};

/// Those with this key.
fn with_key(key: &str, wanted: Move) -> Move {
    Move {
        filter: Filter {
            routing_key: Some(name(key)),
            ..Filter::default()
        },
        ..wanted
    }
}

/// Removes some of 140,000 messages.
fn purging(version: &str, queue_type: &str) -> WalkRig {
    let wanted = with_key("meant", purge());
    moving_at(version, queue_type, wanted, 140_000, AS_EVER)
}

impl WalkRig {
    /// One message comes, and a window that it wants is opened: its prefetch.
    fn one(&mut self, key: &str, body: &str) -> Option<u16> {
        self.comes(key, body);
        match self.machine.channel.window.opens {
            true => Some(self.widens()),
            false => None,
        }
    }

    /// So many messages come, of which each that this divides is meant and acked. The windows that it opens for them.
    fn many(&mut self, messages: u64, meant: u64) -> Vec<u16> {
        let mut windows = Vec::new();
        for message in 1..=messages {
            let is_meant = message.is_multiple_of(meant);
            windows.extend(self.one(if is_meant { "meant" } else { "other" }, ""));
            let acked = is_meant.then_some(MethodId::BASIC_ACK);
            let sent = self.methods().into_iter().map(|(_, id)| id);
            assert_eq!(sent.collect::<Vec<_>>(), Vec::from_iter(acked), "{message}");
        }
        windows
    }
}

/// More than one consumer can hold, and than a look passes.
#[test]
fn all_that_are_meant_go_out_of_a_queue_of_any_length() {
    for (version, queue_type) in [("4.3.6", "classic"), ("3.10.8", "quorum")] {
        let mut rig = purging(version, queue_type);
        let windows = rig.many(139_999, 500);
        assert_eq!(windows[..6], [48, 192, 768, 3_072, 12_288, 49_152]);
        assert_eq!((windows[6], windows.len()), (u16::MAX, 8));
        rig.comes("meant", "");
        rig.cancelled();
        rig.goes_back();
        assert_eq!(rig.moved(), (Stopped::End, 280, vec![]));
    }
}

/// A quorum queue sends all of a window at once, and the broker keeps that in memory until it is read.
#[test]
fn a_window_of_large_messages_is_small() {
    let mut rig = purging("4.3.6", "quorum");
    let body = "x".repeat(1 << 20);
    let windows: Vec<_> = (0..70).filter_map(|_| rig.one("other", &body)).collect();
    assert_eq!(windows, [48, 127]);
}

/// What many consumers hold has no order when it goes back.
#[test]
fn a_quorum_queue_has_few_windows_and_what_does_not_fit_ends_it() {
    for (version, queue_type, ends) in [
        ("4.2.9", "quorum", true),
        ("4.3.6", "quorum", true),
        ("4.3.6", "classic", false),
    ] {
        let mut rig = purging(version, queue_type);
        rig.machine.channel.window.number = 20;
        let windows = rig.many(16, 100);
        assert_eq!(windows, [if ends { u16::MAX } else { 48 }]);
        let windows = rig.many(65_534, 100_000);
        assert_eq!(windows.is_empty(), ends);
        rig.comes("other", "");
        assert_eq!(rig.machine.state == State::Walking, !ends, "{version}");
        if ends {
            rig.cancelled();
            rig.goes_back();
            assert_eq!(rig.moved(), (Stopped::Messages, 0, vec![]));
        }
    }
}

/// With few that go among many, a rate does not keep it from passing the others.
#[test]
fn a_rate_bounds_what_is_held_to_go_and_not_what_stays() {
    let slow = Move {
        per_second: NonZeroU32::new(1),
        ..purge()
    };
    let mut rare = moving(with_key("meant", slow.clone()), 200_000);
    assert_eq!(rare.many(300, 1_000), [48, 192, 768]);

    let mut common = moving(with_key("meant", slow), 200_000);
    let mut windows = common.many(16, 100);
    for message in 0..600 {
        common.pass(1_000);
        common.methods();
        let key = if message % 3 == 0 { "other" } else { "meant" };
        windows.extend(common.one(key, ""));
    }
    assert!(windows.iter().all(|room| *room <= 200), "{windows:?}");
}

/// It would meet the same messages for ever.
#[test]
fn what_moves_nothing_until_all_has_to_go_back_ends() {
    for moves in [false, true] {
        let mut rig = purging("4.3.6", "classic");
        rig.one(if moves { "meant" } else { "other" }, "");
        for _ in 0..1_200 {
            assert_eq!(rig.machine.state, State::Walking);
            rig.one("other", "");
            rig.pass(1_000);
            rig.methods();
        }
        rig.puts_back();
        match moves {
            true => assert_eq!(rig.fx.out.ended, None, "it goes on"),
            false => assert_eq!(rig.moved(), (Stopped::Time, 0, vec![])),
        }
    }
}

/// A classic queue of RabbitMQ 4 keeps what is held in memory, bodies and all.
#[test]
fn what_takes_too_much_of_the_brokers_memory_ends_it() {
    for (queue_type, stopped) in [("classic", true), ("quorum", false)] {
        let mut rig = purging("4.3.6", queue_type);
        let body = "x".repeat(16 << 20);
        for message in 0..64 {
            assert_eq!(rig.machine.state, State::Walking, "{message}");
            rig.one("other", &body);
        }
        assert_eq!(rig.machine.state != State::Walking, stopped);
        if stopped {
            rig.puts_back();
            assert_eq!(rig.moved(), (Stopped::Octets, 0, vec![]));
        }
    }
}

/// The alarm may be about the memory for what it holds.
#[test]
fn an_alarm_while_it_holds_much_ends_it() {
    for (messages, ends) in [(5, true), (3, false)] {
        let wanted = with_key("meant", redrive());
        let mut rig = moving_in("classic", wanted, 200_000, AS_EVER);
        let body = "x".repeat(16 << 20);
        for _ in 1..messages {
            rig.one("other", &body);
        }
        rig.one("meant", "");
        for _ in 0..35 {
            rig.settles(messages, Outcome::Refused(Cause::PublisherAway));
            rig.pass(1_000);
            rig.fx.out.publish.clear();
        }
        assert_eq!(rig.machine.state != State::Walking, ends, "{messages}");
        if ends {
            rig.settles(messages, Outcome::Refused(Cause::PublisherAway));
            rig.cancelled();
            rig.goes_back();
            let stay = vec![("publisher_away".to_owned(), 1)];
            assert_eq!(rig.moved(), (Stopped::Octets, 0, stay));
        }
    }
}
