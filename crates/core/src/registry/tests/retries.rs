//! What the policies in force say of the messages that clients return.

use std::time::Duration;

use crate::amqp::version::Version;
use crate::dead_letter::retries::Retries;
use crate::objects::QueueType;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy, Queue};
use crate::registry::said_retries::SaidRetries;

const SILENT: SaidRetries = SaidRetries {
    delayed_retry_type: None,
    delayed_retry_min: None,
    delayed_retry_max: None,
    delayed_retry_multiplier: None,
    delivery_limit: None,
    delivery_limit_counts: None,
    on_crash: None,
};
/// Of the arguments of a queue.
const SAID: SaidRetries = SaidRetries {
    delayed_retry_min: Some(500),
    ..SILENT
};
/// Of a policy.
const SET: SaidRetries = SaidRetries {
    delayed_retry_min: Some(9000),
    delivery_limit: Some(3),
    ..SILENT
};

fn policy(pattern: &str, mode: Option<Mode>, retries: SaidRetries) -> Policy {
    Policy {
        pattern: Pattern::new(pattern).unwrap(),
        mode,
        definition: Definition {
            retries,
            ..Definition::default()
        },
        ..Policy::default()
    }
}

fn retries(live: &LivePolicies, name: &str, said: SaidRetries, mode: Mode) -> Option<Retries> {
    let queue = Queue {
        vhost: b"/",
        name: name.as_bytes(),
        queue_type: QueueType::Classic,
    };
    live.retries(queue, said, mode, Some(Version(4, 3, 0)))
}

/// The first delay in milliseconds, and the limit.
fn numbers(retries: Option<Retries>) -> Option<(u128, Option<u64>)> {
    retries.map(|retries| {
        let first = retries.back_off.map_or(Duration::ZERO, |of| of.min);
        (first.as_millis(), retries.limit)
    })
}

#[test]
fn a_queue_that_nobody_speaks_of_has_no_retries() {
    let live = LivePolicies::new(Policies::new(vec![policy("^a", None, SET)]));
    assert_eq!(retries(&live, "b", SILENT, Mode::Full), None);
    let none = LivePolicies::default();
    assert_eq!(retries(&none, "a", SILENT, Mode::Full), None);
}

#[test]
fn arguments_come_first_and_a_policy_completes_them() {
    let live = LivePolicies::new(Policies::new(vec![policy("^a", None, SET)]));
    let both = numbers(retries(&live, "a", SAID, Mode::Full));
    assert_eq!(both, Some((500, Some(3))));
    let by_policy = numbers(retries(&live, "a", SILENT, Mode::Full));
    assert_eq!(by_policy, Some((9000, Some(3))));
    let by_arguments = numbers(retries(&live, "b", SAID, Mode::Full));
    assert_eq!(by_arguments, Some((500, Some(20))));
}

#[test]
fn a_policy_that_overrules_comes_first_and_arguments_complete_it() {
    let overrules = Policy {
        overrules_arguments: true,
        ..policy("^a", None, SET)
    };
    let live = LivePolicies::new(Policies::new(vec![overrules]));
    let both = numbers(retries(&live, "a", SAID, Mode::Full));
    assert_eq!(both, Some((9000, Some(3))));
    let limit = SaidRetries {
        delivery_limit: Some(9),
        ..SILENT
    };
    let overruled = numbers(retries(&live, "a", limit, Mode::Full));
    assert_eq!(overruled, Some((9000, Some(3))));
    let others = numbers(retries(&live, "b", SAID, Mode::Full));
    assert_eq!(others, Some((500, Some(20))));
}

#[test]
fn mode_native_leaves_returns_to_the_broker() {
    for (of_policy, global, ours) in [
        (None, Mode::Full, true),
        (None, Mode::RejectsOnly, true),
        (None, Mode::Off, false),
        (Some(Mode::Off), Mode::Full, false),
        (Some(Mode::RejectsOnly), Mode::Off, true),
        (Some(Mode::Full), Mode::Off, true),
    ] {
        let live = LivePolicies::new(Policies::new(vec![policy("^a", of_policy, SET)]));
        for said in [SILENT, SAID] {
            let is_ours = retries(&live, "a", said, global).is_some();
            assert_eq!(is_ours, ours, "{of_policy:?} {global:?}");
        }
    }
}

#[test]
fn the_policy_that_fits_first_is_the_only_one() {
    let silent = Policy {
        priority: 1,
        ..policy("^a", None, SILENT)
    };
    let live = LivePolicies::new(Policies::new(vec![policy("^a", None, SET), silent]));
    assert_eq!(retries(&live, "a", SILENT, Mode::Full), None);
    assert_eq!(
        numbers(retries(&live, "a", SAID, Mode::Full)),
        Some((500, Some(20)))
    );
}

#[test]
fn a_changed_policy_acts_at_the_next_return() {
    let live = LivePolicies::default();
    live.set_ours(Policies::new(vec![policy("^a", None, SET)]));
    assert!(retries(&live, "a", SILENT, Mode::Full).is_some());
    live.set_ours(Policies::default());
    assert_eq!(retries(&live, "a", SILENT, Mode::Full), None);
}
