//! Where dead letters go of a queue whose last declare said something else than its arguments.

use crate::amqp::ids::name;
use crate::dead_letter::{Lookup, Target};
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Definition, Policies, Policy, Queue};
use crate::registry::redeclared::Existing;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form, arguments::DeclareArguments};

fn to(exchange: &str) -> DeclaredTarget {
    DeclaredTarget::Target(Target {
        exchange: name(exchange),
        routing_key: Some(name("k")),
        at_least_once: false,
    })
}

const NOWHERE: DeclaredTarget = DeclaredTarget::Policy {
    at_least_once: false,
};

fn names() -> Names {
    Names::new("dlx-proxy").unwrap()
}

fn queue(name: &str) -> Queue<'_> {
    Queue {
        vhost: b"/",
        name: name.as_bytes(),
        queue_type: QueueType::Classic,
    }
}

fn intake() -> Existing {
    Existing::taken_over(&name("dlx-proxy/old/k"))
}

fn redeclare(live: &LivePolicies, of: &str, said: &DeclaredTarget) -> Option<DeclaredTarget> {
    let redeclared = live.redeclare(&name("/"), &name(of), &intake(), &to("old"), said);
    redeclared.map(|(_, before)| before)
}

/// Where a message goes that died in the queue `q` of the connection which declared it so, or of the broker.
fn goes(live: &LivePolicies, existing: &Existing, said: &DeclaredTarget) -> [Lookup; 2] {
    let declared = Declared {
        said: said.clone(),
        retries: SaidRetries::default(),
        queue_type: QueueType::Classic,
        taken_over: true,
        form: Form::of(0, &DeclareArguments::read(b"").with(existing)),
    };
    let exchange = existing.exchange.clone().unwrap_or_default();
    [
        live.target_of_declared(queue("q"), &declared, &names()),
        live.target_of_signal(queue("q"), &exchange, said, b"key"),
    ]
}

fn target(exchange: &str) -> [Lookup; 2] {
    let DeclaredTarget::Target(target) = to(exchange) else {
        unreachable!("it names an exchange");
    };
    [Lookup::Target(target.clone()), Lookup::Target(target)]
}

#[test]
fn what_the_last_declare_said_counts_for_rejects_and_for_signals() {
    let live = LivePolicies::default();
    live.set_brokers(BrokerPolicies::new([]).0);
    assert_eq!(goes(&live, &intake(), &to("old")), target("old"));
    assert_eq!(redeclare(&live, "q", &to("new")), Some(to("old")));
    assert_eq!(goes(&live, &intake(), &to("old")), target("new"));
    assert_eq!(redeclare(&live, "q", &to("new")), None, "as before");
    assert_eq!(redeclare(&live, "q", &NOWHERE), Some(to("new")));
    let nowhere = [Lookup::NoExchange, Lookup::NoExchange];
    assert_eq!(goes(&live, &intake(), &to("old")), nowhere);
    assert!(live.is_redeclared(queue("q"), &name("dlx-proxy/old/k")));
    assert_eq!(redeclare(&live, "q", &to("old")), Some(NOWHERE));
    assert_eq!(live.count_redeclared(), 0);
    assert_eq!(goes(&live, &intake(), &to("old")), target("old"));
}

/// The connection that said `new` goes by that no longer when another one says again what the queue was made with.
#[test]
fn who_said_something_else_before_goes_by_the_last_declare_too() {
    let live = LivePolicies::default();
    live.set_brokers(BrokerPolicies::new([]).0);
    redeclare(&live, "q", &to("new"));
    redeclare(&live, "q", &to("old"));
    let [rejected, _] = goes(&live, &intake(), &to("new"));
    assert_eq!(rejected, target("old")[0]);
    redeclare(&live, "q", &NOWHERE);
    let [rejected, _] = goes(&live, &intake(), &to("new"));
    assert_eq!(rejected, Lookup::NoExchange);
}

#[test]
fn it_counts_for_that_queue_alone() {
    let live = LivePolicies::default();
    redeclare(&live, "other", &to("new"));
    assert_eq!(goes(&live, &intake(), &to("old")), target("old"));
}

/// It was deleted, and made anew with other arguments.
#[test]
fn it_does_not_count_for_the_next_queue_of_that_name() {
    let live = LivePolicies::default();
    redeclare(&live, "q", &to("new"));
    let next = Existing::taken_over(&name("dlx-proxy/next/k"));
    assert_eq!(goes(&live, &next, &to("next")), target("next"));
}

#[test]
fn a_policy_that_overrules_arguments_overrules_it_too() {
    let policy = Policy {
        overrules_arguments: true,
        definition: Definition {
            dead_letter_exchange: Some(name("ours")),
            ..Definition::default()
        },
        ..Policy::default()
    };
    let live = LivePolicies::new(Policies::new(vec![policy]));
    redeclare(&live, "q", &to("new"));
    assert_eq!(goes(&live, &intake(), &to("old")), target("ours"));
}
