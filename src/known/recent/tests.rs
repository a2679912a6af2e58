use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::amqp::ids::name;
use crate::known::{Handlings, Known};
use crate::machine::{Outcome, Reason};
use crate::tests::lines_hold;

const BEGAN: Wall = Wall(1_000);
/// The number before the first one.
const BEFORE: u64 = 1_000_000;

fn dead(queue: &str) -> Arc<DeadLetter> {
    Arc::new(DeadLetter {
        queue: name(queue),
        reason: Reason::Rejected,
        exchange: name("dlx"),
        routing_key: name("key"),
        bytes: 1,
        outcome: Outcome::Confirmed,
        by: None,
    })
}

/// `minute died VHOST QUEUE TIMES`; a `#` in a name is the number of the time.
#[tokio::test]
async fn the_last_deaths_are_listed_and_counted_by_minute() {
    let mut recent = Recent::new(BEGAN);
    lines_hold("known/testdata/recent.txt", async |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[..] {
            [""] => recent = Recent::new(BEGAN),
            [_, "died", vhost, queue, _] => (0..number(4)).for_each(|time| {
                let named = |text: &str| text.replace('#', &time.to_string());
                let at = Wall(number(0) * 60_000 + 59_999);
                recent.add(&name(&named(vhost)), at, dead(&named(queue)));
            }),
            [_, "list", vhost, _, _] => {
                let after = match words[3] {
                    "0" => 0,
                    "old" => 3,
                    _ => BEFORE + number(3),
                };
                return listed(&recent.list(vhost.as_bytes(), after, number(4) as usize));
            }
            [_, "newest", vhost, _] => {
                return listed(&recent.newest(vhost.as_bytes(), number(3) as usize));
            }
            [_, "rates", vhost] => {
                let now = Wall(number(0) * 60_000);
                let rates = recent.rates(vhost.as_bytes(), now);
                return match &rates[..] {
                    [] => "none".to_owned(),
                    [rate] => counts(rate),
                    all => format!("{} series; the first {}", all.len(), counts(&all[0])),
                };
            }
            _ => panic!("{line}"),
        }
        String::new()
    })
    .await;
}

fn listed(
    Listed {
        deaths,
        next,
        missed,
    }: &Listed,
) -> String {
    let queues = deaths.iter().map(|death| death.dead.queue.to_string());
    let queues: Vec<_> = match deaths.len() {
        0..4 => queues.collect(),
        many => vec![format!("{many} deaths")],
    };
    let missed = if *missed { ", missed" } else { "" };
    format!("{} next {}{missed}", queues.join(" "), next - BEFORE)
}

/// `QUEUE MINUTE:COUNT …`; the minute of now is 59.
fn counts(rate: &Rate) -> String {
    let counts = rate.per_minute.iter().enumerate();
    let counts = counts.filter(|(_, count)| **count > 0);
    let counts = counts.map(|(minute, count)| format!("{minute}:{count}"));
    let queue = rate
        .queue
        .as_ref()
        .map_or("others".to_owned(), ToString::to_string);
    format!("{queue} {}", counts.collect::<Vec<_>>().join(" "))
}

#[test]
fn a_waiter_wakes_for_its_own_vhost() {
    let known = Known::new(Handlings::of_tests());
    let hear = |vhost| known.hear(&name(vhost), BEGAN, &dead("a"));
    hear("v");
    let last = known.recent().newest(b"v", 0).next;
    let mut more = pin!(known.more(b"v", last));
    let mut poll = || more.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll(), Poll::Pending);
    hear("w");
    assert_eq!(poll(), Poll::Pending);
    hear("v");
    assert_eq!(poll(), Poll::Ready(()));
}
