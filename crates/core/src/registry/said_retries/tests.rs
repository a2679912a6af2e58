//! Who carries out what arguments and policies say of retries, and what of it means nothing.

use super::*;
use crate::amqp::table::TableBuilder;

fn arguments(build: impl FnOnce(&mut TableBuilder)) -> Vec<u8> {
    let mut table = TableBuilder::default();
    build(&mut table);
    table.finish()
}

fn said(build: impl FnOnce(&mut TableBuilder)) -> SaidRetries {
    SaidRetries::of_arguments(&arguments(build))
}

fn by_us(said: SaidRetries, queue_type: QueueType, version: Version) -> Option<Retries> {
    said.by_us(
        (SaidRetries::default(), false),
        None,
        queue_type,
        Some(version),
    )
}

const V4_2: Version = Version(4, 2, 9);
const V4_3: Version = Version(4, 3, 6);

#[test]
fn a_minimum_is_enough() {
    let said = said(|table| {
        table.long(MIN, 500);
    });
    let retries = by_us(said, QueueType::Classic, V4_3).unwrap();
    let back_off = retries.back_off.unwrap();
    assert_eq!(back_off.after, RetryType::All);
    let half = Duration::from_millis(500);
    assert_eq!(
        (back_off.min, back_off.max),
        (half, half),
        "as 4.3 takes it"
    );
    assert_eq!(retries.limit, Some(DEFAULT_LIMIT));
}

#[test]
fn what_the_broker_cannot_use_is_disabled() {
    for bad in [
        said(|table| {
            table.longstr(TYPE, b"bogus").long(MIN, 500);
        }),
        said(|table| {
            table.longstr(TYPE, b"all").long(MIN, 0);
        }),
        said(|table| {
            table.longstr(TYPE, b"all").longstr(MIN, b"1s");
        }),
        said(|table| {
            table.longstr(TYPE, b"all");
        }),
        said(|table| {
            table.long(MAX, 1000).long(MULTIPLIER, 2);
        }),
    ] {
        assert_eq!(by_us(bad, QueueType::Classic, V4_3), None, "{bad:?}");
    }
}

#[test]
fn what_arguments_say_in_vain_is_named_in_the_words_for_policies() {
    let type_words =
        "is not a valid delayed retry type. Must be one of: all, failed, returned, disabled";
    let (min, max) = (no_delay("0", "minimum"), no_delay("1s", "maximum"));
    let required = "delayed-retry-min is required when delayed-retry-type is all";
    let smaller = "delayed-retry-max (5) must not be smaller than delayed-retry-min (9)";
    type Build = fn(&mut TableBuilder);
    let asked: [(Build, &str); 7] = [
        (
            |t| _ = t.longstr(TYPE, b"bogus"),
            &format!("bogus {type_words}"),
        ),
        (
            |t| _ = t.long(TYPE, 1).long(MIN, 5),
            &format!("1 {type_words}"),
        ),
        (|t| _ = t.long(MIN, 0), &min),
        (|t| _ = t.long(MIN, 5).longstr(MAX, b"1s"), &max),
        (|t| _ = t.longstr(TYPE, b"all"), required),
        (|t| _ = t.long(MIN, 9).long(MAX, 5), smaller),
        (|t| _ = t.long(MAX, 9), MIN_IS_MISSING),
    ];
    for (build, words) in asked {
        let said = arguments(build);
        assert_eq!(in_vain(&said, |_| false).as_deref(), Some(words));
        let by_a_policy = [required, MIN_IS_MISSING].contains(&words);
        assert_eq!(in_vain(&said, |_| true).is_none(), by_a_policy, "{words}");
    }
    let fine: [Build; 5] = [
        |_| {},
        |t| _ = t.long(MIN, 9),
        |t| _ = t.longstr(TYPE, b"disabled"),
        |t| _ = t.long(LIMIT, 3),
        |t| {
            _ = t
                .longstr(TYPE, b"all")
                .long(MIN, 5)
                .long(MAX, 5)
                .long(MULTIPLIER, 2)
        },
    ];
    for build in fine {
        assert_eq!(in_vain(&arguments(build), |_| false), None);
    }
}

#[test]
fn a_policy_that_does_nothing_by_itself_is_told() {
    let silent = SaidRetries::default();
    let (max, crash) = (Some(9), Some(OnCrash::CountAll));
    for (policy, told) in [
        (
            SaidRetries {
                delayed_retry_max: max,
                ..silent
            },
            Some(MIN_IS_MISSING),
        ),
        (
            SaidRetries {
                delayed_retry_multiplier: Some(2),
                ..silent
            },
            Some(MIN_IS_MISSING),
        ),
        (
            SaidRetries {
                on_crash: crash,
                ..silent
            },
            Some(NOTHING_COUNTS),
        ),
        (
            SaidRetries {
                on_crash: crash,
                delivery_limit: Some(-1),
                ..silent
            },
            Some(NOTHING_COUNTS),
        ),
        (
            SaidRetries {
                on_crash: crash,
                delivery_limit: Some(3),
                ..silent
            },
            None,
        ),
        (
            SaidRetries {
                on_crash: crash,
                delayed_retry_min: Some(5),
                delayed_retry_max: max,
                ..silent
            },
            None,
        ),
        (silent, None),
    ] {
        assert_eq!(policy.does_nothing(), told, "{policy:?}");
    }
}

#[test]
fn a_limit_alone_is_ours_on_classic_queues() {
    let said = said(|table| {
        table.long(LIMIT, 3);
    });
    let retries = by_us(said, QueueType::Classic, V4_3).unwrap();
    assert_eq!((retries.back_off, retries.limit), (None, Some(3)));
    assert_eq!(by_us(said, QueueType::Quorum, V4_2), None);
    let none = SaidRetries {
        delivery_limit: Some(-1),
        ..SaidRetries::default()
    };
    assert_eq!(by_us(none, QueueType::Classic, V4_3), None);
}

#[test]
fn a_quorum_queue_of_4_3_is_left_alone_unless_more_is_asked() {
    let native = |table: &mut TableBuilder| {
        table.longstr(TYPE, b"all").long(MIN, 500);
    };
    assert_eq!(by_us(said(native), QueueType::Quorum, V4_3), None);
    assert!(by_us(said(native), QueueType::Quorum, V4_2).is_some());
    let untyped = said(|table| {
        table.long(MIN, 500);
    });
    assert!(by_us(untyped, QueueType::Quorum, V4_3).is_some());
    let grows = said(|table| {
        native(table);
        table.long(MULTIPLIER, 2);
    });
    assert!(by_us(grows, QueueType::Quorum, V4_3).is_some());
    let policy = SaidRetries {
        delivery_limit: Some(3),
        ..SaidRetries::default()
    };
    let both = said(native)
        .by_us((policy, false), None, QueueType::Quorum, Some(V4_3))
        .unwrap();
    assert_eq!(both.limit, Some(3));
}

#[test]
fn arguments_beat_a_policy_key_by_key() {
    let said = said(|table| {
        table.long(MIN, 500);
    });
    let policy = SaidRetries {
        delayed_retry_min: Some(9),
        delayed_retry_max: Some(2000),
        delayed_retry_multiplier: Some(2),
        delivery_limit: Some(7),
        ..SaidRetries::default()
    };
    let retries = said
        .by_us((policy, false), None, QueueType::Default, Some(V4_2))
        .unwrap();
    let back_off = retries.back_off.unwrap();
    assert_eq!(back_off.min, Duration::from_millis(500));
    assert_eq!(back_off.max, Duration::from_secs(2));
    assert_eq!((back_off.multiplier, retries.limit), (Some(2), Some(7)));
}

#[test]
fn a_limit_of_the_broker_s_policies_counts_where_it_is_the_smallest() {
    for (argument, by_us, by_broker, counts) in [
        (None, None, None, Some(20)), // the default
        (None, None, Some(50), Some(50)),
        (None, Some(3), Some(5), Some(3)),
        (Some(10), Some(3), Some(5), Some(5)),
        (Some(-1), None, Some(5), Some(5)),
        (Some(-1), None, None, None),
    ] {
        let said = |delivery_limit| SaidRetries {
            delayed_retry_min: Some(9),
            delivery_limit,
            ..SaidRetries::default()
        };
        let policy = (said(by_us), false);
        let retries = said(argument).by_us(policy, by_broker, QueueType::Quorum, Some(V4_3));
        assert_eq!(retries.map(|retries| retries.limit), Some(counts));
    }
}

#[test]
fn a_classic_queue_is_declared_without_what_its_broker_refuses() {
    let all = arguments(|table| {
        table
            .long(MIN, 500)
            .longstr(b"x-queue-mode", b"lazy")
            .long(LIMIT, 3);
    });
    let rest = arguments(|table| {
        table.longstr(b"x-queue-mode", b"lazy");
    });
    assert_eq!(without(&all, QueueType::Classic), Some(rest.clone()));
    assert_eq!(without(&all, QueueType::Default), Some(rest.clone()));
    assert_eq!(without(&all, QueueType::Quorum), None);
    assert_eq!(
        without(&rest, QueueType::Classic),
        None,
        "nothing to take out"
    );
}
