//! Which delay queues there are, and which one a message takes.

use super::*;

const DAY: u64 = 24 * 3600 * 1000;

fn takes(millis: u64) -> u64 {
    on_grid(Duration::from_millis(millis))
}

#[test]
fn a_delay_is_rounded_up_by_a_quarter_at_most() {
    for wanted in (10..20_000).chain((20_000..=7 * DAY).step_by(7919)) {
        let taken = takes(wanted);
        assert!(
            taken >= wanted && 4 * taken <= 5 * wanted,
            "{wanted}: {taken}"
        );
    }
    assert_eq!((takes(0), takes(1), takes(9)), (10, 10, 10));
    assert_eq!((takes(7 * DAY), takes(u64::MAX)), (7 * DAY, 7 * DAY));
}

#[test]
fn what_people_say_is_on_the_grid() {
    for unit in [1000, 60 * 1000, 3600 * 1000] {
        for of in [1, 2, 3, 5, 10, 15, 20, 30] {
            assert_eq!(takes(of * unit), of * unit);
        }
    }
}

#[test]
fn there_are_few() {
    let mut all = std::collections::BTreeSet::new();
    let mut delay = 1;
    while delay <= 7 * DAY {
        delay = takes(delay) + 1;
        all.insert(delay);
    }
    assert_eq!(all.len(), 102);
}

#[test]
fn a_queue_is_made_once_in_each_life_of_a_link() {
    let mut delays = Delays::new(Names::default(), ExistingDelays::default());
    let key = key(Duration::from_millis(50));
    let made = |delays: &mut Delays| {
        let mut out = Vec::new();
        delays.build(&key, Dialect::V4, &mut out, ChannelId(1));
        !out.is_empty()
    };
    assert!(made(&mut delays));
    assert!(!made(&mut delays));
    delays.forget(&key);
    assert!(made(&mut delays));
    delays.doubt();
    assert!(made(&mut delays));
}
