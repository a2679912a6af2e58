//! A declare that waits for the record is the newest one, whatever is read meanwhile: nobody has heard yet that it is accepted.

use std::collections::VecDeque;

use super::*;
use crate::amqp::ids::name;

/// All read the stream, and what they write stands behind it. Who is answered, and what the entry said that had just come.
fn to_both(
    rigs: &mut [RecorderRig; 2],
    stream: impl IntoIterator<Item = Message>,
) -> Vec<(usize, Option<DeclaredTarget>)> {
    let mut stream = VecDeque::from_iter(stream);
    let mut answered = Vec::new();
    let mut place = 0;
    while let Some(message) = stream.pop_front() {
        place += 1;
        assert!(place < 20, "it has no end");
        let Message::Entry(_, entry) = &message else {
            panic!("no entry: {message:?}");
        };
        for (n, rig) in rigs.iter_mut().enumerate() {
            rig.comes(place, &message);
            if !rig.recorded().is_empty() {
                answered.push((n, entry.said.clone()));
            }
            stream.extend(rig.published());
        }
    }
    answered
}

/// A proxy that has read nothing yet counts from 1.
#[test]
fn what_is_read_later_is_no_newer_than_a_declare_that_waits() {
    let mut rig = reading();
    rig.declare("q", "x", Some(OWNER));
    rig.comes(0, &of("q", 5, "z"));
    assert_eq!(rig.recorded(), [], "it is another's");
    assert_eq!(rig.said("q"), Some(to("x")));
    rig.comes(1, &of("q", 7, "z"));
    rig.comes(2, &mark("1-1"));
    assert_eq!(rig.published(), [of("q", 8, "x")]);
    assert_eq!(rig.recorded(), []);
    rig.comes(3, &of("q", 8, "x"));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), true)]);
    assert_eq!(rig.said("q"), Some(to("x")));
}

/// The session counts it, and something is read before the recorder hears of it.
#[test]
fn nor_is_what_is_read_before_the_recorder_hears_of_the_declare() {
    let mut rig = current();
    let entry = rig.count("q", "x");
    rig.comes(1, &of("q", 5, "z"));
    rig.input(Input::Record(name("q"), entry, Some(OWNER)));
    assert_eq!(rig.published(), [of("q", 6, "x")]);
    rig.comes(2, &of("q", 6, "x"));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), true)]);
    assert_eq!(rig.said("q"), Some(to("x")));
}

/// The number of an entry from before, and all that it says, can be those of the declare.
#[test]
fn what_was_there_before_is_no_answer_until_all_of_it_is_read() {
    let mut rig = reading();
    rig.declare("q", "x", Some(OWNER));
    rig.comes(0, &of("q", 1, "x"));
    assert_eq!(rig.recorded(), []);
    rig.comes(1, &of("q", 2, "z"));
    rig.comes(2, &mark("1-1"));
    assert_eq!(rig.published(), [of("q", 3, "x")]);

    let mut rig = reading();
    rig.declare("q", "x", Some(OWNER));
    rig.comes(0, &of("q", 1, "x"));
    rig.comes(1, &mark("1-1"));
    assert_eq!(rig.recorded(), [(OWNER, name("q"), true)]);
    assert_eq!(rig.published(), []);
}

/// Only the last of them is written.
#[test]
fn who_waits_for_a_declare_waits_for_a_later_one_here() {
    let mut rig = reading();
    rig.declare("q", "x", Some(OWNER));
    rig.declare("q", "y", Some(Owner(8)));
    rig.declare("q", "w", None);
    rig.comes(0, &mark("1-1"));
    assert_eq!(rig.published(), [of("q", 3, "w")]);
    rig.comes(1, &of("q", 3, "w"));
    let both = [OWNER, Owner(8)].map(|owner| (owner, name("q"), true));
    assert_eq!(rig.recorded(), both);
    assert_eq!(rig.said("q"), Some(to("w")));
}

/// Two proxies that have read the same count alike. The stream decides which of two declares came first.
#[test]
fn of_two_declares_at_once_both_are_recorded_and_one_counts_for_all() {
    for old in [None, Some(of("q", 5, "z"))] {
        for first in [0, 1] {
            let mut rigs = [current(), current()];
            rigs[0].declare("q", "a", Some(OWNER));
            rigs[1].declare("q", "b", Some(OWNER));
            let mut written = rigs.each_mut().map(|rig| rig.published());
            written.rotate_left(first);
            let stream = old.clone().into_iter().chain(written.concat());
            let answered = to_both(&mut rigs, stream);
            let last = answered.last().and_then(|(_, said)| said.clone());
            let said = rigs.each_ref().map(|rig| rig.said("q"));
            assert_eq!(said, [last.clone(), last], "the last one, for both");
            let mut own = answered;
            own.sort();
            assert_eq!(own, [(0, Some(to("a"))), (1, Some(to("b")))]);
        }
    }
}
