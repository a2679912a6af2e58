//! How much a walk takes at once.

use std::num::NonZeroU32;

use super::moving::{moving, redrive};
use super::*;
use crate::letter::Filter;
use crate::machine::Outcome;

impl WalkRig {
    /// It asks for a larger window, and gets it: the prefetch of that.
    pub(super) fn widens(&mut self) -> u16 {
        let (channel, sent) = (self.channel(), self.sent());
        let ids: Vec<_> = sent.iter().filter_map(Sent::method).collect();
        let expected = [
            MethodId::BASIC_CANCEL,
            MethodId::BASIC_QOS,
            MethodId::BASIC_CONSUME,
        ];
        assert_eq!(ids, expected);
        for (asked, answer) in [
            (MethodId::BASIC_CANCEL, MethodId::BASIC_CANCEL_OK),
            (MethodId::BASIC_QOS, MethodId::BASIC_QOS_OK),
            (MethodId::BASIC_CONSUME, MethodId::BASIC_CONSUME_OK),
        ] {
            assert!(ids.contains(&asked));
            let named = answer != MethodId::BASIC_QOS_OK;
            self.broker(&method(channel, answer, |a| {
                if named {
                    a.shortstr(b"dlx-proxy").end();
                }
            }));
        }
        let qos = sent.get(1).expect("three");
        let [.., high, low, _] = qos.payload[..] else {
            panic!("no prefetch");
        };
        u16::from_be_bytes([high, low])
    }

    /// So many messages come, and at none but the last it says anything.
    fn come(&mut self, messages: u64, body: &str) {
        for _ in 0..messages {
            assert_eq!(self.methods(), []);
            self.comes("a", body);
        }
    }

    /// The answer to a question that was sent in between.
    pub(super) fn counts(&mut self, ready: u32) {
        let channel = self.channel();
        self.broker(&method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
            a.shortstr(b"dead").long(ready).long(1).end();
        }));
    }
}

#[test]
fn what_is_found_early_takes_little() {
    let prefetches = [48, 192, 744];
    for queue_type in ["quorum", "classic"] {
        let mut rig = walking("4.3.6", queue_type, 10_000, FAR);
        assert_eq!(rig.machine.channel.window.prefetch(), 16);
        let mut came = 0;
        for (full, prefetch) in [16, 64, 256].into_iter().zip(prefetches) {
            rig.come(full - came, "");
            came = full;
            assert_eq!(rig.widens(), prefetch, "{queue_type}");
        }
        rig.come(1_000 - came, "");
        rig.puts_back();
        let summary = rig.summary();
        assert_eq!((summary.seen, summary.taken), (1_000, 1_000));
    }
}

#[test]
fn a_walk_that_ends_while_its_window_grows_takes_no_answer_for_another() {
    let mut rig = walking("4.3.6", "quorum", 100, FAR);
    for _ in 0..16 {
        rig.comes("a", "");
    }
    rig.input(Input::Enough);
    assert_eq!(rig.widens(), 48);
    rig.comes("b", "");
    rig.puts_back();
    let summary = rig.summary();
    assert_eq!((summary.seen, summary.taken), (16, 17));
}

#[test]
fn a_walk_along_no_message_only_counts() {
    let none = Bounds { messages: 0, ..FAR };
    let mut rig = rig(none);
    rig.up("4.3.6");
    rig.counted_with(1, 7, 3);
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
    let summary = rig.summary();
    assert_eq!((summary.ready, summary.consumers), (Some(7), Some(3)));

    let text = "ACCESS_REFUSED - configure access to queue 'dead' in vhost '/' refused for user 'operator'";
    let mut forbidden = self::rig(none);
    forbidden.up("4.3.6");
    forbidden.broker(&close(1, 403, text, MethodId::QUEUE_DECLARE));
    assert!(matches!(
        forbidden.ended(),
        Err(Failure::Refused { code: 403, .. })
    ));
}

/// Of large messages the bound on octets would be passed by far.
#[test]
fn a_window_is_no_larger_than_the_octets_that_are_left() {
    let bounds = Bounds {
        octets: 20 * 1_014,
        ..FAR
    };
    let mut rig = walking("4.3.6", "quorum", 1_000, bounds);
    let body = "x".repeat(1_000);
    rig.come(16, &body);
    assert_eq!(rig.widens(), 4);
    rig.come(4, &body);
    rig.puts_back();
    assert_eq!(rig.summary().stopped, Stopped::Octets);
}

#[test]
fn a_stream_is_not_begun_anew() {
    let mut rig = walking("4.3.6", "stream", 900, FAR);
    assert_eq!(rig.machine.channel.window.prefetch(), 900);
    rig.come(100, "");
    assert_eq!(rig.methods(), []);
}

#[test]
fn it_takes_no_more_than_are_wanted_or_than_its_rate_moves_in_a_minute() {
    let filter = Filter {
        body: Some(b"x".to_vec()),
        ..Filter::default()
    };
    for (most, rate, filter, prefetch) in [
        (u64::MAX, None, Filter::default(), 256),
        (1, None, Filter::default(), 1),
        (u64::MAX, Some(2), Filter::default(), 120),
        (u64::MAX, Some(1_000), Filter::default(), 256),
        (1, Some(1), Filter::default(), 1),
        (1, None, filter, 16),
    ] {
        let wanted = Move {
            most,
            per_second: rate.and_then(NonZeroU32::new),
            filter,
            ..redrive()
        };
        let rig = moving(wanted, 10_000);
        assert_eq!(
            rig.machine.channel.window.prefetch(),
            prefetch,
            "{most} {rate:?}"
        );
    }
}

#[test]
fn it_takes_more_where_most_of_what_it_has_stays() {
    let wanted = Move {
        filter: Filter {
            body: Some(b"wanted".to_vec()),
            ..Filter::default()
        },
        ..redrive()
    };
    let mut rig = moving(wanted, 10_000);
    for _ in 0..8 {
        rig.comes("a", "wanted");
    }
    for _ in 0..8 {
        rig.comes("a", "other");
    }
    // Of 16 messages 8 stay, 8 are on their way.
    assert_eq!(rig.widens(), 24);
    for ticket in 1..=8 {
        rig.settles(ticket, Outcome::Confirmed);
    }
    assert_eq!(rig.acked(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Whatever the queue, its policies and the broker's settings say.
#[test]
fn a_walk_of_a_quorum_queue_asks_for_the_time_that_it_may_hold_messages() {
    for (version, queue_type, asks) in [
        ("4.3.6", "quorum", true),
        ("4.3.6", "classic", false),
        ("4.2.5", "quorum", false),
    ] {
        let mut rig = rig(FAR);
        rig.up(version);
        rig.counted(1, 100);
        rig.sent();
        let text = format!(
            "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'dead' in vhost '/' of queue type rabbit_{queue_type}_queue"
        );
        rig.broker(&close(1, 406, &text, MethodId::BASIC_CONSUME));
        let sent = rig.sent();
        let said = |sent: &Sent| memchr::memmem::find(&sent.payload, b"x-consumer-timeout");
        assert_eq!(sent.iter().any(|it| said(it).is_some()), asks, "{version}");
    }
}
