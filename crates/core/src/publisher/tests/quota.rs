//! Targets that refuse or do not answer hold up nobody else. The intake of these tests can hold eight, so two of one target may be late, and
//! four of all.

use super::*;

const BUSY: Outcome = Outcome::Parked(Cause::TargetBusy);
/// A quarter of `confirm-timeout`, and a tick.
const PATIENCE: u64 = 2_750;

/// Dead letters of the intake for a queue, with these tickets.
fn signals(queue: &str, tickets: std::ops::RangeInclusive<u64>) -> Vec<(u64, Publication)> {
    tickets.map(|n| (n, message("", queue, "1"))).collect()
}

impl PublisherRig {
    /// How many are published now at the parking exchange, and the keys of the others.
    fn parked_and_keys(&mut self) -> (usize, String) {
        let published = self.published();
        let (parked, others): (Vec<_>, Vec<_>) = published.into_iter().partition(|row| row.0 == 2);
        let keys: Vec<String> = others.into_iter().map(|row| row.2).collect();
        (parked.len(), keys.join(" "))
    }
}

#[test]
fn what_others_overtake_is_parked_but_for_a_quarter() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("stuck", 1..=5));
    assert_eq!(rig.published().len(), 5);
    rig.pass(PATIENCE - 500);
    rig.publish_as(INTAKE, signals("fine", 6..=6));
    rig.published();
    rig.ack(1, 6, false);
    rig.pass(500);
    assert_eq!(rig.published(), [], "it left too early to tell anything");
    rig.pass(300);
    rig.publish_as(INTAKE, signals("fine", 7..=7));
    rig.published();
    rig.ack(1, 7, false);
    rig.settled();
    rig.pass(300);
    assert_eq!(rig.parked_and_keys(), (3, String::new()));
    rig.ack(2, 3, true);
    assert_eq!(rig.settled(), [(3, BUSY), (4, BUSY), (5, BUSY)]);
    // Two wait; what is new is parked at once, and others pass. A session's own consumer waits as it should.
    let mut new = signals("stuck", 8..=8);
    new.extend(signals("fine", 9..=9));
    rig.publish_as(INTAKE, new);
    rig.publish(100, message("", "stuck", "1"));
    assert_eq!(rig.parked_and_keys(), (1, "fine stuck".into()));
    // One comes through: there is room again.
    rig.ack(1, 1, false);
    rig.publish_as(INTAKE, signals("stuck", 10..=10));
    assert_eq!(rig.parked_and_keys(), (0, "stuck".into()));
}

#[test]
fn if_nothing_is_left_to_overtake_them_the_broker_is_asked_and_nothing_is_parked() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("stuck", 1..=2));
    rig.published();
    rig.live(PATIENCE);
    assert_eq!(rig.asked(), [1], "two of one target hold up others");
    rig.live(3_000);
    assert!(rig.asked().is_empty(), "one question at a time");
    rig.answer(1);
    rig.pass(300);
    assert_eq!(rig.machine.store.channels.look(0).late, 2);
    rig.live(3_000);
    assert!(rig.asked().is_empty(), "it is known");
    rig.ack(1, 2, true);
    let confirmed = Outcome::Confirmed;
    assert_eq!(rig.settled(), [(1, confirmed), (2, confirmed)]);
}

#[test]
fn of_what_is_too_much_one_is_parked_and_tells_whether_queues_answer() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("stuck", 1..=8));
    rig.published();
    rig.live(PATIENCE);
    assert_eq!(rig.asked(), [1]);
    rig.answer(1);
    rig.pass(300);
    assert_eq!(rig.parked_and_keys(), (1, String::new()), "two are late");
    rig.pass(1_000);
    assert_eq!(rig.parked_and_keys(), (0, String::new()));
    rig.ack(2, 1, false);
    rig.pass(300);
    assert_eq!(rig.parked_and_keys(), (5, String::new()));
    rig.ack(2, 6, true);
    assert_eq!(rig.settled().len(), 6);
    assert_eq!(rig.machine.held(), 2);
}

#[test]
fn a_broker_that_stands_still_is_no_reason_to_park_anything() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("a", 1..=4));
    rig.publish_as(INTAKE, signals("b", 5..=8));
    rig.published();
    let mut asked = Vec::new();
    for _ in 0..9 {
        rig.live(1_000);
        asked.extend(rig.asked());
    }
    assert_eq!(asked, [1]);
    rig.answer(1);
    rig.ack(1, 8, true);
    rig.pass(300);
    assert_eq!(rig.published(), []);
    assert_eq!(rig.settled().len(), 8);
}

#[test]
fn the_answer_that_ends_a_silence_does_not_tell_who_was_overtaken() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("stuck", 1..=8));
    rig.published();
    rig.live(PATIENCE);
    assert_eq!(rig.asked(), [1]);
    rig.pass(PATIENCE);
    assert_eq!(rig.asked(), [1], "nothing was heard since");
    rig.answer(1);
    rig.answer(1);
    rig.pass(300);
    assert_eq!(rig.asked(), [1], "and now who was");
    rig.answer(1);
    rig.ack(1, 8, true);
    rig.pass(300);
    assert_eq!(rig.settled().len(), 8);
}

#[test]
fn a_target_that_is_slow_but_answers_in_order_keeps_all_of_its_own() {
    let mut rig = rig();
    let every = 1_000;
    for n in 1..=6 {
        rig.publish_as(INTAKE, signals("slow", n..=n));
        assert_eq!(rig.published().len(), 1);
        rig.pass(every);
    }
    for n in 7..=30 {
        rig.ack(1, n - 6, false);
        rig.publish_as(INTAKE, signals("slow", n..=n));
        assert_eq!(rig.published(), [row(1, "", "slow", "1")]);
        rig.pass(every);
    }
}

#[test]
fn of_those_that_are_nacked_together_a_quarter_is_tried_again() {
    let mut rig = rig();
    rig.publish_as(INTAKE, signals("full", 1..=6));
    rig.published();
    for tag in 1..=6 {
        rig.nack(1, tag);
    }
    assert_eq!(rig.parked_and_keys(), (4, String::new()));
    rig.pass(1_000);
    assert_eq!(rig.parked_and_keys(), (0, "full full".into()));
    rig.ack(2, 4, true);
    rig.ack(1, 8, true);
    let settled = rig.settled();
    assert_eq!(settled[..4], [(3, BUSY), (4, BUSY), (5, BUSY), (6, BUSY)]);
    assert_eq!(
        settled[4..],
        [(1, Outcome::Confirmed), (2, Outcome::Confirmed)]
    );
}

#[test]
fn all_bad_targets_together_leave_half_of_it_to_others() {
    let mut rig = rig();
    for (n, queue) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let n = n as u64;
        rig.publish_as(INTAKE, signals(queue, n + 1..=n + 1));
    }
    rig.published();
    for n in 1..=5 {
        rig.nack(1, n);
    }
    assert_eq!(rig.parked_and_keys(), (1, String::new()), "the fifth");
    // Nothing is known against others: they are tried, but may not wait.
    rig.publish_as(INTAKE, signals("f", 6..=7));
    assert_eq!(rig.parked_and_keys(), (0, "f f".into()));
    rig.ack(1, 6, false);
    rig.nack(1, 7);
    assert_eq!(rig.parked_and_keys(), (1, String::new()));
    rig.ack(2, 2, true);
    let settled = rig.settled();
    assert_eq!(settled, [(6, Outcome::Confirmed), (5, BUSY), (7, BUSY)]);
    rig.publish_as(INTAKE, signals("a", 8..=8));
    assert_eq!(rig.parked_and_keys(), (1, String::new()), "one of those");
}

#[test]
fn large_ones_count_by_their_octets() {
    let mut rig = rig();
    let large = "x".repeat(2_000);
    let batch = (1..=2).map(|n| (n, message("", "full", &large)));
    rig.publish_as(INTAKE, batch.collect());
    rig.published();
    rig.nack(1, 1);
    rig.nack(1, 2);
    assert_eq!(rig.published().len(), 1, "the second is parked");
}

#[test]
fn a_silent_target_does_not_fill_the_channel_of_its_neighbours() {
    let mut rig = rig();
    let batch = (1..=3_000).map(|n| (n, message("", "stuck", "1")));
    rig.publish_as(SESSION, batch.collect());
    assert_eq!(rig.published().len(), 2_048);
    rig.publish(4_000, message("", "fine", "1"));
    assert_eq!(rig.published(), []);
    rig.live(PATIENCE);
    assert_eq!(rig.asked(), [1]);
    rig.answer(1);
    rig.pass(300);
    let (parked, keys) = rig.parked_and_keys();
    assert!(keys.ends_with("stuck fine"), "all that waited goes out");
    assert_eq!(parked, 0, "and waits, as its own consumers do");
    assert_eq!(rig.machine.held(), 3_001);
    rig.ack(1, 3_001, true);
    rig.settled();
    let publisher = &rig.machine;
    assert_eq!(publisher.held(), 0);
    assert_eq!((publisher.store.waiting, publisher.store.in_flight), (0, 0));
    assert_eq!(publisher.store.in_flight_bytes, 0);
}

#[test]
fn what_sessions_hand_over_does_not_fill_the_publisher_with_one_target() {
    let mut rig = rig();
    let batch = (1..=20_000).map(|n| (n, message("full", "k", "1")));
    rig.publish_as(SESSION, batch.collect());
    let mut first = 1;
    while let sent @ 1.. = rig.published().iter().filter(|row| row.0 == 3).count() as u64 {
        for tag in first..first + sent {
            rig.nack(3, tag);
        }
        first += sent;
        if first > 20_000 {
            break;
        }
    }
    let parked = rig.machine.held() - rig.machine.store.backing_off.len();
    assert_eq!(parked, 20_000 - 16_384);
    assert!(rig.machine.accepts());
}
