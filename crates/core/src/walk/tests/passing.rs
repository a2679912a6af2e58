//! Of messages that had come back to a quorum queue before, a walk puts back all or none.

use super::moving::{ENDLESS, moving_in, redrive};
use super::*;
use crate::amqp::ids::name;
use crate::letter::Filter;
use crate::machine::Outcome;

const TWO: Bounds = Bounds { messages: 2, ..FAR };

/// Two messages that had come back were looked at, of so many in all.
fn looked_at_two(version: &str, queue_type: &str, ready: u32, bounds: Bounds) -> WalkRig {
    let mut rig = walking(version, queue_type, ready, bounds);
    rig.comes_again("a");
    rig.comes_again("b");
    rig
}

#[test]
fn a_look_passes_on_until_it_holds_all_that_had_come_back() {
    let mut rig = looked_at_two("4.3.6", "quorum", 10, TWO);
    assert_eq!(rig.widens(), 6);
    rig.comes_again("c");
    assert_eq!(rig.methods(), []);
    rig.comes("d", "");
    assert_eq!(
        rig.puts_back(),
        [MethodId::BASIC_NACK, MethodId::CHANNEL_CLOSE]
    );
    assert_eq!(rig.keys(), ["a", "b"]);
    let summary = rig.summary();
    assert_eq!((summary.seen, summary.taken), (2, 4));
    assert_eq!(
        (summary.stopped, summary.reordered),
        (Stopped::Messages, false)
    );
}

#[test]
fn where_that_would_count_or_changes_nothing_it_does_not() {
    for (version, queue_type, ready, reordered) in [
        ("4.2.9", "quorum", 10, true),
        ("4.2.9", "quorum", 2, false),
        ("4.3.6", "quorum", 2, false),
        ("4.3.6", "classic", 10, false),
    ] {
        let mut rig = looked_at_two(version, queue_type, ready, TWO);
        rig.puts_back();
        let case = format!("{version} {queue_type} {ready}");
        assert_eq!(rig.summary().reordered, reordered, "{case}");
    }
}

#[test]
fn it_passes_on_within_its_bounds_and_says_what_became_of_the_order() {
    let few = Bounds { held: 3, ..TWO };
    let mut rig = looked_at_two("4.3.6", "quorum", 10, few);
    assert_eq!(rig.widens(), 1);
    rig.comes_again("c");
    rig.puts_back();
    assert!(rig.summary().reordered);

    // Each message is 14 octets.
    let small = Bounds { octets: 20, ..TWO };
    let mut rig = looked_at_two("4.3.6", "quorum", 10, small);
    rig.puts_back();
    assert!(rig.summary().reordered);

    let short = Bounds {
        time: Duration::from_secs(1),
        ..TWO
    };
    let mut rig = looked_at_two("4.3.6", "quorum", 10, short);
    assert_eq!(rig.widens(), 6);
    for _ in 0..5 {
        rig.pass(200);
        rig.comes_again("c");
    }
    assert_eq!(rig.methods(), []);
    rig.comes_again("c");
    rig.puts_back();
    assert!(rig.summary().reordered);
}

#[test]
fn nothing_that_does_not_come_is_waited_for() {
    let mut rig = looked_at_two("4.3.6", "quorum", 10, TWO);
    assert_eq!(rig.widens(), 6);
    rig.pass(200);
    assert_eq!(rig.methods(), []);
    rig.puts_back();
    assert_eq!(rig.summary().taken, 2);
}

#[test]
fn a_redrive_passes_on_if_it_puts_any_back() {
    let wanted = Move {
        filter: Filter {
            routing_key: Some(name("a")),
            ..Filter::default()
        },
        most: 1,
        ..redrive()
    };
    let mut rig = moving_in("quorum", wanted, 20, ENDLESS);
    rig.comes_again("other");
    rig.comes_again("a");
    for _ in 2..16 {
        rig.comes_again("other");
    }
    assert_eq!(rig.methods(), [], "one has no outcome yet");
    rig.settles(2, Outcome::Confirmed);
    assert_eq!(rig.acked(), [2]);
    rig.comes_again("other");
    assert_eq!(rig.widens(), 3);
    rig.comes("new", "");
    rig.cancelled();
    rig.goes_back();
    assert_eq!(rig.summary().taken, 18);

    let one = Move {
        most: 1,
        ..redrive()
    };
    let mut rig = moving_in("quorum", one, 20, ENDLESS);
    rig.comes_again("a");
    rig.settles(1, Outcome::Confirmed);
    assert_eq!(rig.acked(), [1]);
    rig.cancelled();
    rig.goes_back();
    assert!(!rig.summary().reordered);
}

/// A pause puts back what is held after a while.
#[test]
fn what_a_pause_puts_back_keeps_its_place_too() {
    let wanted = Move {
        filter: Filter {
            routing_key: Some(name("a")),
            ..Filter::default()
        },
        ..redrive()
    };
    let mut rig = moving_in("quorum", wanted, 100, ENDLESS);
    for _ in 0..16 {
        rig.comes_again("other");
    }
    assert_eq!(rig.widens(), 48);
    rig.input(Input::Pause(true));
    rig.pass(5 * 60_000);
    for _ in 0..48 {
        rig.comes_again("other");
    }
    assert_eq!(rig.widens(), 36);
    rig.comes("new", "");
    rig.cancelled();
    rig.goes_back();
    assert_eq!(rig.machine.progress().summary.taken, 65);
}
