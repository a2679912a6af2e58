//! Policies change while a session runs: what counts is what they say when a message dies.

use super::order::{consume, consume_ok};
use super::probes::*;
use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::machine::{DeadLettersTo, Event, Fallback};
use crate::registry::Form;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};

fn brokers(key: Option<&str>, pattern: &str) -> BrokerPolicies {
    let told = BrokerPolicy {
        vhost: "/",
        pattern,
        apply_to: "queues",
        routing_key: key,
        ..BrokerPolicy::default()
    };
    BrokerPolicies::new([told]).0
}

fn ours(exchange: &str, key: Option<&str>) -> Policies {
    Policies::new(vec![policy(exchange, key)])
}

fn policy(exchange: &str, key: Option<&str>) -> Policy {
    Policy {
        pattern: Pattern::new("orders").expect("a good pattern"),
        definition: Definition {
            dead_letter_exchange: Some(name(exchange)),
            dead_letter_routing_key: key.map(name),
            ..Definition::default()
        },
        ..Policy::default()
    }
}

/// The queue `orders`, with a dead-letter exchange by argument, and three deliveries.
fn session() -> Script {
    let mut script = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    for tag in 1..=3 {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script.events.clear();
    script
}

#[test]
fn a_broker_policy_s_key_counts_from_the_moment_it_is_known() {
    let mut s = session();
    let policies = s.policies.clone();
    for (tag, known, key) in [
        (1, BrokerPolicies::default(), "key"),
        (2, brokers(Some("late"), "orders"), "late"),
        (3, brokers(None, "orders"), "key"),
    ] {
        policies.set_brokers(known);
        s.client(&reject(tag, false)).silent();
        let (_, publication) = s.dead.remove(0);
        assert_eq!(publication.exchange, name("dlx"));
        assert_eq!(publication.routing_key, name(key));
    }
}

#[test]
fn a_key_that_only_the_broker_knows_leaves_the_reject_to_it() {
    let mut s = session();
    s.policies.set_brokers(brokers(Some("late"), "(?=orders)"));
    s.client(&reject(1, false)).passes();
    assert_eq!(s.dead, []);
    let forwarded = Event::RejectForwarded {
        queue: name("orders"),
        cause: Fallback::TargetUnknown,
    };
    assert_eq!(s.events, [forwarded]);
    assert_eq!((s.session.retained(), s.session.withheld()), (2 * 457, 0));
}

#[test]
fn a_multiple_is_split_where_only_the_broker_knows() {
    let mut s = session();
    s.client(&nack(1, false, false)).silent();
    s.policies.set_brokers(brokers(Some("late"), "(?=orders)"));
    s.client(&nack(3, true, false))
        .broker_gets(&[&nack(2, false, false), &nack(3, false, false)]);
}

#[test]
fn a_policy_of_ours_that_changes_or_goes() {
    let mut s = session();
    s.policies.set_ours(ours("other", Some("mine")));
    s.policies.set_brokers(brokers(Some("late"), "orders"));
    s.client(&reject(1, false)).silent();
    let (_, publication) = s.dead.remove(0);
    // The exchange is the argument's.
    assert_eq!(publication.exchange, name("dlx"));
    assert_eq!(publication.routing_key, name("mine"));
    s.policies.set_ours(ours("other", None));
    s.client(&reject(2, false)).silent();
    assert_eq!(s.dead.remove(0).1.routing_key, name("late"));
    s.policies.set_ours(Policies::default());
    s.policies.set_brokers(BrokerPolicies::default());
    s.client(&reject(3, false)).silent();
    assert_eq!(s.dead.remove(0).1.routing_key, name("key"));
}

/// Simulation seed 2008: the new policy was noticed at a delivery of another queue, before the broker had answered the consume.
#[test]
fn a_policy_that_comes_while_a_consumer_begins_counts_for_it() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    for queue in ["other", "orders"] {
        s.client(&declare_on(CH, queue, 0, b"")).passes();
        s.broker(&declare_ok(CH, queue)).passes();
    }
    s.consumes("other");
    s.client(&consume("orders", "c", 0)).passes();
    s.policies.set_ours(ours("dlx", None));
    s.broker(&deliver("other", 1, b"hi")).passes();
    s.broker(&consume_ok("c")).passes();
    s.broker(&deliver("c", 2, b"hi")).passes();
    // Whether it is the queue that was declared is not known either.
    s.client(&reject(2, false))
        .broker_gets(&[&opened(), &declare_on(PROBE, "orders", 0, &if_there(b""))]);
    s.broker(&declare_ok(PROBE, "orders"))
        .broker_gets(&[&probe_closed()]);
    s.broker(&method(PROBE, MethodId::CHANNEL_CLOSE_OK, |_| {}))
        .silent();
    s.resume().silent();
    assert_eq!(s.dead[0].1.exchange, name("dlx"));
}

#[test]
fn a_policy_that_comes_while_a_message_is_fetched_counts_for_it() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    for queue in ["other", "q"] {
        s.client(&declare_on(CH, queue, 0, b"")).passes();
        s.broker(&declare_ok(CH, queue)).passes();
    }
    s.consumes("other");
    s.client(&get("q")).passes();
    let everything = Pattern::new("q").expect("a good pattern");
    s.policies.set_ours(Policies::new(vec![Policy {
        pattern: everything,
        ..policy("dlx", None)
    }]));
    s.broker(&deliver("other", 1, b"hi")).passes();
    s.broker(&got(2)).passes();
    assert!(s.session.retained() > 0);
}

/// The broker knows nothing of a policy of ours: what it does by itself in such a queue goes by the queue's own arguments.
#[test]
fn a_policy_that_acts_on_rejects_only_is_told_of() {
    for (mode, overrules, taken_over, told) in [
        (Mode::Full, true, false, true),
        (Mode::RejectsOnly, true, false, true),
        (Mode::RejectsOnly, false, false, false), // as was asked for
        (Mode::Full, false, false, false),        // the argument counts
        (Mode::Full, true, true, false),
    ] {
        let s = Script::open(settings(mode));
        s.policies.set_ours(Policies::new(vec![Policy {
            overrules_arguments: overrules,
            ..policy("other", None)
        }]));
        let form = Form::of(0, &original());
        let s = s.managed_as("orders", target("dlx"), taken_over, form);
        let to = |exchange| DeadLettersTo {
            exchange: Some(name(exchange)),
            routing_key: None,
        };
        let event = Event::RejectsOnly {
            queue: name("orders"),
            now: to("other"),
            own: to("dlx"),
        };
        let is_told = s.events.contains(&event);
        assert_eq!(is_told, told, "{mode:?} {overrules} {taken_over}");
    }
}
