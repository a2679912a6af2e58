//! The numbers of dead-letter queues.

use super::*;
use crate::amqp::ids::ShortStr;
use crate::known::{Handlings, Known};
use crate::machine::{DeadLetter, Outcome, Reason, Wall};
use crate::management::dead_letter_queues::Counting;

#[tokio::test]
async fn dead_letter_queues_are_counted_as_long_as_they_are_there() {
    let scene = Scene::open().await;
    let (vhost, queue) = (name("a/b"), name("dead.1"));
    let known = Known::new(Handlings::of_tests());
    let mut counting = Counting::new(&scene.management, &vhost, &known);
    // Whether anything is parked there; nothing is yet.
    scene.says(GONE);
    assert!(counting.look().await);
    scene.was_asked("queues/a%2Fb/dlx%2Dproxy%2Eparked?");
    known.hear(&vhost, Wall(0), &Arc::new(dead_letter(&queue)));
    let labels = "{vhost=\"a/b\",queue=\"dead.1\"}";
    let messages = format!("dlx_proxy_dead_letter_queue_messages{labels}");
    let oldest = format!("dlx_proxy_dead_letter_queue_oldest_seconds{labels}");
    for (answer, answered, series) in [
        (ok("{}"), true, None),
        (ok(r#"{"messages":1}"#), true, Some("1")),
        (ok("<html>"), false, Some("1")), // not so long ago
        (GONE.to_owned(), true, None),
    ] {
        scene.says(answer);
        assert_eq!(counting.look().await, answered);
        let text = scene.management.metrics.encode();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.map(|line| line[name.len()..].trim().to_owned())
        };
        assert_eq!(value(&messages).as_deref(), series);
        assert_eq!(value(&oldest).is_some(), series.is_some());
    }
    scene.was_asked("queues/a%2Fb/dead%2E1?columns=messages ");
    assert!(known.of(&vhost).queues.is_empty());
}

#[tokio::test]
async fn many_dead_letter_queues_are_counted_by_one_list_and_a_long_one_is_read_less_often() {
    let scene = Scene::open().await;
    let vhost = name("v");
    let known = Known::new(Handlings::of_tests());
    let mut counting = Counting::new(&scene.management, &vhost, &known);
    let queue = |number: usize| name(&format!("dead-{number}"));
    (0..250).for_each(|number| known.hear(&vhost, Wall(0), &Arc::new(dead_letter(&queue(number)))));
    let list = |numbers: std::ops::Range<usize>, messages: usize| {
        let listed =
            numbers.map(|number| format!(r#"{{"name":"dead-{number}","messages":{messages}}}"#));
        format!("[{}]", listed.collect::<Vec<_>>().join(","))
    };
    let sum = || {
        let queues = known.of(&vhost).queues;
        let counted = queues.iter().map(|of| of.messages.expect("counted"));
        (queues.len(), counted.sum())
    };
    scene.says_of("enable_queue_totals=true", list(0..2_000, 3));
    assert!(counting.look().await);
    scene.was_asked("queues/v?disable_stats=true&enable_queue_totals=true&columns=name,messages ");
    assert_eq!(sum(), (250, 750));
    let text = scene.management.metrics.encode();
    let series = text.matches("dlx_proxy_dead_letter_queue_messages{");
    assert_eq!(series.count(), 200, "the fullest ones");
    // The list was long, so the next look does without.
    scene.says_of("enable_queue_totals=true", list(0..249, 4));
    assert!(counting.look().await);
    assert_eq!(sum(), (250, 750));
    assert!(counting.look().await);
    assert_eq!(sum(), (249, 996), "one has gone");
    scene.says_of("enable_queue_totals=true", "[");
    assert!(!counting.look().await);
    assert_eq!(sum(), (249, 996));
}

fn dead_letter(queue: &ShortStr) -> DeadLetter {
    DeadLetter {
        queue: name("orders"),
        reason: Reason::Rejected,
        exchange: ShortStr::EMPTY,
        routing_key: queue.clone(),
        bytes: 1,
        outcome: Outcome::Confirmed,
        by: None,
    }
}
