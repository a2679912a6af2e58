use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::amqp::ids::name;
use crate::machine::{Outcome, Reason};

const BEGAN: Wall = Wall(1_000);
const FIRST: u64 = 1_000_001;

fn dead(queue: &str) -> Arc<DeadLetter> {
    Arc::new(DeadLetter {
        queue: name(queue),
        reason: Reason::Rejected,
        exchange: name("dlx"),
        routing_key: name("key"),
        octets: 1,
        outcome: Outcome::Confirmed,
        by: None,
    })
}

fn with(queues: &[&str]) -> RecentDeaths {
    let recent = RecentDeaths::new(BEGAN);
    for queue in queues {
        recent.add(&name("v"), BEGAN, &dead(queue));
    }
    recent
}

fn queues(listed: &Listed) -> Vec<String> {
    let queues = listed.deaths.iter().map(|death| &death.dead.queue);
    queues.map(ToString::to_string).collect()
}

#[test]
fn whoever_asks_goes_on_where_the_last_answer_ended() {
    let recent = with(&["a", "b", "c"]);
    let first = recent.list(b"v", 0, 2);
    assert_eq!(
        (queues(&first), first.next),
        (vec!["a".into(), "b".into()], FIRST + 1)
    );
    let rest = recent.list(b"v", first.next, 2);
    assert_eq!(
        (queues(&rest), rest.next, rest.missed),
        (vec!["c".into()], FIRST + 2, false)
    );
    let newest = recent.newest(b"v", 2);
    assert_eq!(
        (queues(&newest), newest.next),
        (vec!["b".into(), "c".into()], FIRST + 2)
    );
    assert_eq!(recent.list(b"v", rest.next, 2).deaths, []);
}

/// No deaths there yet, but elsewhere.
#[test]
fn a_number_of_an_empty_vhost_is_one_to_go_on_with() {
    let recent = with(&["a"]);
    let empty = recent.list(b"w", 0, 10);
    recent.add(&name("v"), BEGAN, &dead("b"));
    recent.add(&name("w"), BEGAN, &dead("c"));
    let next = recent.list(b"w", empty.next, 10);
    assert_eq!((queues(&next), next.missed), (vec!["c".into()], false));
}

#[test]
fn the_oldest_goes_and_who_has_not_seen_it_is_told() {
    let recent = with(&vec!["a"; MOST_DEATHS + 1]);
    let all = recent.list(b"v", 0, usize::MAX);
    assert_eq!((all.deaths.len(), all.missed), (MOST_DEATHS, false));
    assert!(
        !recent.list(b"v", FIRST, 1).missed,
        "it has seen the one that is gone"
    );
    recent.add(&name("v"), BEGAN, &dead("a"));
    assert!(recent.list(b"v", FIRST, 1).missed);
}

#[test]
fn the_vhost_in_which_nothing_died_for_longest_is_forgotten() {
    let recent = RecentDeaths::new(BEGAN);
    for number in 0..MOST_VHOSTS {
        recent.add(&name(&number.to_string()), BEGAN, &dead("a"));
    }
    recent.add(&name("0"), BEGAN, &dead("a"));
    recent.add(&name("one more"), BEGAN, &dead("a"));
    let left = |vhost: &str| recent.list(vhost.as_bytes(), 0, 10).deaths.len();
    assert_eq!(["0", "1", "2", "one more"].map(left), [2, 0, 1, 1]);
    assert!(recent.list(b"1", FIRST, 10).missed);
}

/// From another process, or before the clock was set back: later deaths are unknown.
#[test]
fn a_number_that_was_never_given_begins_anew() {
    let recent = with(&["a"]);
    for unknown in [FIRST + 7, 3] {
        let listed = recent.list(b"v", unknown, 10);
        assert_eq!((queues(&listed), listed.missed), (vec!["a".into()], true));
    }
}

#[test]
fn a_waiter_wakes_for_its_own_vhost() {
    let recent = with(&["a"]);
    let mut more = pin!(recent.more(b"v", FIRST));
    let mut poll = || more.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll(), Poll::Pending);
    recent.add(&name("w"), BEGAN, &dead("a"));
    assert_eq!(poll(), Poll::Pending);
    recent.add(&name("v"), BEGAN, &dead("a"));
    assert_eq!(poll(), Poll::Ready(()));
}

fn at(minute: u64) -> Wall {
    Wall(minute * 60_000 + 59_999)
}

#[test]
fn deaths_are_counted_by_the_minute_of_the_clock() {
    let recent = RecentDeaths::new(BEGAN);
    for minute in [100, 100, 101, 159] {
        recent.add(&name("v"), at(minute), &dead("a"));
    }
    let counts = |minute| {
        let rates = recent.rates(b"v", at(minute));
        let counts = rates.iter().map(|rate| rate.per_minute.to_vec());
        counts.collect::<Vec<_>>().concat()
    };
    let full = counts(159);
    assert_eq!((full.len(), &full[..3], full[59]), (60, &[2, 1, 0][..], 1));
    let later = counts(160);
    assert_eq!((&later[..2], later[58]), (&[1, 0][..], 1));
    assert_eq!(counts(218)[0], 1);
    assert!(counts(219).is_empty());
    // The clock was set back.
    recent.add(&name("v"), at(10), &dead("a"));
    assert_eq!(counts(10)[59], 2);
    // A long pause.
    recent.add(&name("v"), at(1_000), &dead("a"));
    assert_eq!(counts(1_000).iter().sum::<u32>(), 1);
}

#[test]
fn queues_beyond_the_bound_are_counted_together() {
    let recent = RecentDeaths::new(BEGAN);
    let add = |queue: &str, minute| recent.add(&name("v"), at(minute), &dead(queue));
    for queue in 0..MOST_SERIES + 5 {
        add(&queue.to_string(), 0);
    }
    let rates = recent.rates(b"v", at(0));
    assert_eq!(rates.len(), MOST_SERIES + 1);
    let other = rates.iter().find(|rate| rate.queue.is_none());
    assert_eq!(other.map(|rate| rate.per_minute[59]), Some(5));
    // An hour later there is room.
    add("late", 60);
    let rates = recent.rates(b"v", at(60));
    assert_eq!(rates.len(), 1);
    assert_eq!(rates[0].queue, Some(name("late")));
}
