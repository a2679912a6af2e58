//! Which delay queues there are, and which one a message takes.

use super::*;

/// A client that asks for 64 delays of days must not make others wait for days.
#[test]
fn beyond_the_bound_no_delay_is_more_than_doubled() {
    let day = 24 * 3600 * 1000;
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    let mut choose = |millis| delays.choose(Duration::from_millis(millis), 64).unwrap();
    let spoiled = (0..64).filter(|n| choose(day + n * 1001) == (day + n * 1001, false));
    assert_eq!(spoiled.count(), 64 - ROUND);
    for (wanted, chosen) in [
        (1, 64),
        (60, 64),
        (1000, 1024),
        (1024, 1024),
        (60_000, 65_536),
        (3_600_000, 4_194_304),
        (day + 1, day + 1001),
        (5 * day, 1 << 29),
        (7 * day, 7 * day),
    ] {
        assert_eq!(choose(wanted), (chosen, chosen != wanted), "{wanted}");
    }
    for wanted in (1..7 * day).step_by(9_999_991) {
        let (chosen, _) = choose(wanted);
        assert!(chosen >= wanted && chosen <= wanted.max(32) * 2, "{wanted}");
    }
    assert!(delays.known.len() <= 64);
    let mut rests = (1..7 * day).step_by(9_999_991);
    let mut rest = |millis| delays.choose_rest(Duration::from_millis(millis), 64).0;
    assert!(rests.all(|left| rest(left) <= left.max(64)) && delays.known.len() <= 64);
}

#[test]
fn where_there_is_no_room_it_is_one_that_is_near_or_shorter_or_none() {
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    let mut choose = |millis| delays.choose(Duration::from_millis(millis), 2);
    assert_eq!(choose(1000), Some((1000, false)));
    assert_eq!(choose(5000), Some((5000, false)));
    assert_eq!(choose(1000), Some((1000, false)));
    assert_eq!(choose(4500), Some((5000, true)));
    assert_eq!(choose(999), Some((1000, true)));
    for longer in [1001, 2400] {
        let comes_back = Some((1000, true));
        assert_eq!(choose(longer), comes_back, "it waits for the rest");
    }
    assert_eq!(choose(9000), Some((5000, true)));
    assert_eq!(choose(10), None);
    let mut rest = |millis| delays.choose_rest(Duration::from_millis(millis), 2);
    let mut rests = [10, 600, 1200, 9000].map(&mut rest).into_iter();
    assert!(rests.all(|(chosen, _)| [1000, 5000].contains(&chosen)));
}

#[test]
fn what_others_have_made_counts_and_is_used() {
    let existing = ExistingDelays::default();
    let mut delays = Delays::new(Names::default(), existing.clone());
    let mut choose = |millis| delays.choose(Duration::from_millis(millis), 3).unwrap();
    assert_eq!(choose(1000), (1000, false));
    existing.set(BTreeSet::from([300, 1000, 2000, 4000]));
    assert_eq!(choose(2000), (2000, false), "it exists");
    assert_eq!(choose(3000), (4000, true), "there is no room");
    assert_eq!(choose(9000), (4000, true));
    existing.set(BTreeSet::from([1000]));
    assert_eq!(choose(9000), (9000, false), "some were deleted");
    assert_eq!(choose(8000), (9000, true));
}

#[test]
fn what_is_left_of_delays_takes_few_queues() {
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    delays.choose(Duration::from_millis(1000), 64);
    let mut takes = |millis| delays.choose_rest(Duration::from_millis(millis), 64).0;
    for left in 1..=1000 {
        let millis = takes(left);
        assert!(millis <= left.max(64) && millis > left / 2, "{left}");
    }
    assert_eq!((takes(1), takes(127), takes(128)), (64, 64, 128));
    assert_eq!(takes(u64::MAX), 1 << 63, "of a clock that was set");
    let known: Vec<u64> = delays.known.into_keys().collect();
    assert_eq!(known, [64, 128, 256, 512, 1000, 1 << 63]);
}

#[test]
fn a_queue_is_made_once_in_each_life_of_a_link() {
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    let (millis, _) = delays.choose(Duration::from_millis(5), 2).unwrap();
    let key = Delays::key(millis);
    let made = |delays: &mut Delays| {
        let mut out = Vec::new();
        delays.build(&key, Dialect::V4, &mut out, ChannelId(1));
        !out.is_empty()
    };
    assert!(made(&mut delays));
    assert!(!made(&mut delays));
    delays.forget(&Delays::key(5));
    assert!(made(&mut delays));
    delays.doubt();
    assert!(made(&mut delays));
}
