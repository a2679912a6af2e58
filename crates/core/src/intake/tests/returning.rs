//! Messages that come out of a delay queue.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::dead_letter::retries::{
    Attempts, BackOff, Counts, OnCrash, Retries, RetryType, Returned,
};
use crate::dead_letter::{Death, Dialect, Disposal, Lookup, Return, Target, give_back, retry};
use crate::machine::{Mono, Wall};
use crate::objects;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::catalogue::Told;
use crate::registry::catalogue::fact::Source;
use crate::registry::{Declared, Form};

const DUE: &str = "dlx-proxy.due";
const SECOND: Duration = Duration::from_secs(1);

/// As a session hands it to the publisher, a second before it is due: a message of `work`. `over`: its TTL ends before that, and then it goes to this
/// exchange.
fn away(now: Wall, over: Option<&str>) -> Content {
    let mut headers = TableBuilder::default();
    headers.longstr(b"a", b"1");
    let content = with_headers(headers, "hi");
    let queue = name("work");
    let target = |exchange| {
        Lookup::Target(Target {
            exchange: name(exchange),
            routing_key: None,
            at_least_once: false,
        })
    };
    let of = Return {
        death: Death {
            queue: &queue,
            reason: Reason::DeliveryLimit,
            exchange: b"in",
            routing_key: b"key",
            content: &content,
            recorded: false,
            by: None,
        },
        returned: Returned::ByReject,
        attempts: Attempts::default(),
        deadline: over.map(|_| now),
        queue_ttl: None,
        delivered: now,
        knows_all: true,
        dies_when_full: false,
        fits: true,
        by_exchange: None,
    };
    let retries = Retries {
        back_off: Some(BackOff {
            after: RetryType::All,
            min: SECOND,
            max: SECOND,
            multiplier: None,
        }),
        limit: None,
        counts: Counts::All,
        on_crash: OnCrash::Requeue,
    };
    let lookup = match over {
        Some("") | None => Lookup::NoExchange,
        Some(exchange) => target(exchange),
    };
    let rules = settings().rules.at(Dialect::V4, 256, Default::default());
    match give_back(&of, &retries, &lookup, &rules, b"proxy", now) {
        Some(Disposal::Retry(publication)) => publication.content,
        other => panic!("{other:?}"),
    }
}

/// The wall clock of the rig, at which what was sent with `away` is due.
fn second_ago(rig: &IntakeRig) -> Wall {
    Wall(rig.now.wall.0 - 1000)
}

fn rig_of_today() -> IntakeRig {
    let mut rig = rig();
    rig.now.wall = Wall::of_seconds(1_700_000_000);
    rig
}

#[test]
fn what_is_due_is_published_into_its_queue_and_acked_after_it() {
    let mut rig = rig_of_today();
    let content = away(second_ago(&rig), None);
    rig.deliver(1, DUE, &content);
    let dead = rig.dead();
    let [(ticket, publication)] = &dead[..] else {
        panic!("one publication");
    };
    assert_eq!(publication.purpose, Purpose::Return);
    assert_eq!(
        (&publication.exchange, &publication.routing_key),
        (&name(""), &name("work"))
    );
    assert_eq!(publication.queue, name("work"));
    assert!(!publisher::is_foreign(publication, &name("proxy")));
    let properties = Properties::parse(&publication.content.properties).unwrap();
    let (retry, original) = retry::read(&properties, b"proxy").unwrap();
    let mut headers = TableBuilder::default();
    headers.longstr(b"a", b"1");
    let before = retry.before(&publication.content, original).unwrap();
    assert_eq!(before, with_headers(headers, "hi"));
    assert_eq!(
        (retry.exchange, retry.routing_key),
        (name("in"), name("key"))
    );
    assert_eq!(rig.settlements(), []);
    rig.settle(&[(*ticket, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
    assert_eq!(rig.events(), [], "the publisher counts what comes back");
}

#[test]
fn what_is_not_due_goes_away_for_the_rest() {
    let mut rig = rig_of_today();
    let content = away(Wall(rig.now.wall.0 - 300), None);
    rig.deliver(1, DUE, &content);
    let dead = rig.dead();
    assert_eq!(
        dead[0].1.purpose,
        Purpose::Delay(Duration::from_millis(700))
    );
    assert_eq!(dead[0].1.content, content);
    rig.settle(&[(dead[0].0, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
}

#[test]
fn what_the_proxy_did_not_send_there_is_parked() {
    let mut rig = rig_of_today();
    let real = away(second_ago(&rig), None);
    let properties = Properties::parse(&real.properties).unwrap();
    let forged = Content {
        properties: properties.edit(&Edit {
            user_id: Change::Set(b"eve".to_vec()),
            ..Edit::default()
        }),
        body: real.body.clone(),
    };
    rig.deliver(1, DUE, &forged);
    // A signal has nothing to look for there, nor has what is no message of ours at all.
    rig.deliver(2, DUE, &died_in("work", "hi"));
    rig.deliver(3, DUE, &with_headers(TableBuilder::default(), "hi"));
    // It is in its queue already: somebody has moved it.
    let mut there = rig_of_today();
    there.deliver(1, DUE, &real);
    let came_back = there.dead().remove(0).1.content;
    rig.deliver(4, DUE, &came_back);
    assert_eq!(rig.dead(), []);
    let rejects = [1, 2, 3, 4].map(|tag| (MethodId::BASIC_REJECT, tag, false));
    assert_eq!(rig.settlements(), rejects);
    let parked = Outcome::Parked(Cause::Implausible);
    let events = rig.events();
    assert_eq!(events.len(), 4);
    assert!(
        events
            .iter()
            .all(|e| matches!(e, Event::DeadLetter(dead) if dead.outcome == parked))
    );
}

/// An intake exchange is for signals alone: nothing comes back by it.
#[test]
fn what_is_away_is_no_signal() {
    let mut rig = rig_of_today();
    let content = away(second_ago(&rig), None);
    rig.deliver(1, "dlx-proxy", &content);
    assert_eq!(rig.dead(), []);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_REJECT, 1, false)]);
}

/// That queue as the management API told it.
fn listed(settings: &Settings, queue: &str) {
    let form = Form::of(0, b"");
    let declared = Declared::of_queue(form, objects::QueueType::Classic, &settings.names);
    let (vhost, told) = (&settings.login.vhost, Told::Declared(Arc::new(declared)));
    let source = Source::Management;
    settings
        .catalogue
        .learn(vhost, &name(queue), &told, source, Mono(1));
}

/// The broker's policies: one that gives `^work` that exchange, if any.
fn brokers(exchange: Option<&str>) -> BrokerPolicies {
    let told = exchange.map(|exchange| BrokerPolicy {
        vhost: "/",
        pattern: "^work",
        apply_to: "queues",
        exchange: Some(exchange),
        ..BrokerPolicy::default()
    });
    BrokerPolicies::new(told).0
}

/// Nobody knows the queue; nobody reads the policies of the broker; one of them names a target by now.
#[test]
fn what_is_over_is_dropped_only_where_no_policy_of_the_broker_can_name_a_target() {
    let mut rig = rig_of_today();
    let settings = rig.machine.settings.clone();
    let at = second_ago(&rig);
    let mut tag = 0;
    let mut comes_back = |rig: &mut IntakeRig| {
        tag += 1;
        rig.deliver(tag, DUE, &away(at, Some("")));
        let dead = rig.dead();
        dead.iter().any(|(_, dead)| dead.purpose == Purpose::Return)
    };
    assert!(comes_back(&mut rig));
    listed(&settings, "work");
    assert!(comes_back(&mut rig));
    settings.policies.set_brokers(brokers(Some("theirs")));
    assert!(comes_back(&mut rig));
    settings.policies.set_brokers(brokers(None));
    assert!(!comes_back(&mut rig));
}

#[test]
fn what_is_over_goes_to_its_target_or_nowhere() {
    let mut rig = rig_of_today();
    let settings = rig.machine.settings.clone();
    listed(&settings, "work");
    settings.policies.set_brokers(brokers(None));
    let at = second_ago(&rig);
    rig.deliver(1, DUE, &away(at, Some("dlx")));
    let dead = rig.dead();
    assert_eq!(
        (dead[0].1.purpose, dead[0].1.reason),
        (Purpose::Death, Reason::Expired)
    );
    assert_eq!(
        (&dead[0].1.exchange, &dead[0].1.routing_key),
        (&name("dlx"), &name("key"))
    );
    rig.deliver(2, DUE, &away(at, Some("")));
    assert_eq!(rig.dead(), []);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 2, false)]);
    let [Event::DeadLetter(dead)] = &rig.events()[..] else {
        panic!("it was dropped");
    };
    assert_eq!((&dead.queue, dead.reason), (&name("work"), Reason::Expired));
    assert_eq!(dead.outcome, Outcome::Dropped(Cause::NoTarget));
}

#[test]
fn what_the_publisher_refuses_is_parked_or_waits() {
    let mut rig = rig_of_today();
    let due = away(second_ago(&rig), None);
    for tag in 1..=3 {
        rig.deliver(tag, DUE, &due);
    }
    let tickets: Vec<Ticket> = rig.dead().into_iter().map(|(ticket, _)| ticket).collect();
    // By the publisher; by the broker, if the publisher cannot; and not at all while there is none.
    rig.settle(&[(tickets[0], Outcome::Parked(Cause::Unroutable))]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_ACK, 1, false)]);
    rig.settle(&[(tickets[1], Outcome::Refused(Cause::NoExchange))]);
    assert_eq!(rig.settlements(), [(MethodId::BASIC_REJECT, 2, false)]);
    rig.settle(&[(tickets[2], Outcome::Refused(Cause::PublisherAway))]);
    let sent = rig.sent();
    let settle = Settle::parse(&sent[0].payload).unwrap();
    assert!(settle.requeue && settle.delivery_tag.0 == 3);
    assert_eq!(rig.machine.held(), 0);
}
