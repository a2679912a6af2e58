//! What clients return to queues with retries: it is withheld like a reject, goes to a delay queue or dies, and is acked then.

use std::time::Duration;

use super::order::{delete_ok, queue_delete};
use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::table::TableBuilder;
use crate::machine::*;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};
use crate::session::{Settings, Turn};

pub(super) const CONFIRMED: Outcome = Outcome::Confirmed;
pub(super) const AWAY: Outcome = Outcome::Refused(Cause::PublisherAway);

pub(super) const MIN: &[u8] = b"x-delayed-retry-min";
pub(super) const LIMIT: &[u8] = b"x-delivery-limit";

/// What the arguments or a policy say of retries.
pub(super) fn said(min: Option<u32>, limit: Option<i32>) -> SaidRetries {
    SaidRetries {
        delayed_retry_min: min,
        delivery_limit: limit,
        ..SaidRetries::default()
    }
}

/// A policy of ours that fits `orders`.
pub(super) fn policy(retries: SaidRetries) -> Policies {
    Policies::new(vec![Policy {
        pattern: Pattern::new("^orders$").expect("a good pattern"),
        definition: Definition {
            retries,
            ..Definition::default()
        },
        ..Policy::default()
    }])
}

/// A declared queue without a dead-letter exchange.
pub(super) fn declared(retries: SaidRetries) -> Declared {
    Declared {
        said: DeclaredTarget::Policy {
            at_least_once: false,
        },
        retries,
        queue_type: QueueType::Classic,
        taken_over: false,
        form: Form::default(),
    }
}

/// Channel 1 consumes from `orders`, which was declared so, and from the unmanaged `other`.
pub(super) fn of(settings: Settings, declared: Declared) -> Script {
    let mut script = Script::open(settings);
    let mut turn = Turn {
        src: &[],
        now: script.now,
        fx: &mut script.fx,
        mute: false,
    };
    let (_, mut line) = script.session.line(&mut turn);
    line.manage(name("orders"), declared);
    let mut script = script.consume("orders").consume("other");
    script.events.clear();
    script
}

/// The same of a queue whose messages come back after a second, with deliveries 1 to `n`.
pub(super) fn with(n: u64) -> Script {
    let mut script = of(
        settings(Mode::RejectsOnly),
        declared(said(Some(1000), None)),
    );
    for tag in 1..=n {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script
}

/// What becomes of a return there.
pub(super) const SECOND: Purpose = Purpose::Delay(Duration::from_secs(1));

#[test]
fn a_return_is_withheld_until_it_is_in_a_delay_queue() {
    for word in [nack(1, false, true), reject(1, true), nack(1, true, true)] {
        let mut s = with(1);
        s.client(&word).silent();
        let publication = &s.dead[0].1;
        assert_eq!(publication.purpose, SECOND);
        assert_eq!(publication.queue, name("orders"));
        assert_eq!(&publication.content.body[..], b"hi");
        assert_eq!((s.session.withheld(), s.dead.len()), (1, 1));
        let ticket = s.ticket();
        s.settled(&[(ticket, CONFIRMED)])
            .broker_gets(&[&ack(1, false)]);
        assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
        assert_eq!(s.events, []);
    }
}

#[test]
fn so_it_is_where_only_a_policy_says_so_of_a_queue_that_nobody_declared_here() {
    let settings = settings(Mode::RejectsOnly);
    settings.policies.set_ours(policy(said(Some(1000), None)));
    let mut s = Script::open(settings).consume("orders");
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&get("orders")).passes();
    s.broker(&got(2)).passes();
    s.client(&nack(1, false, true)).silent();
    s.client(&reject(2, true)).silent();
    let purposes: Vec<_> = s.dead.iter().map(|(_, dead)| dead.purpose).collect();
    assert_eq!(purposes, [SECOND, SECOND]);
    let all: Vec<_> = s.tickets().into_iter().map(|t| (t, CONFIRMED)).collect();
    s.settled(&all).broker_gets(&[&ack(2, true)]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));

    // Its rejects are the broker's, as nothing is known of its dead letters.
    s.broker(&deliver("orders", 3, b"hi")).passes();
    s.client(&reject(3, false)).passes();
    assert_eq!(s.session.retained(), 0);
}

#[test]
fn without_retries_a_return_passes() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("orders", target("dlx"));
    for tag in 1..=4 {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s.client(&nack(2, true, true)).passes();
    s.client(&reject(3, true)).passes();
    // Another queue has them.
    s.policies.set_ours(Policies::new(vec![Policy {
        pattern: Pattern::new("^other$").expect("a good pattern"),
        definition: Definition {
            retries: said(Some(1000), None),
            ..Definition::default()
        },
        ..Policy::default()
    }]));
    s.client(&nack(4, false, true)).passes();
    assert_eq!(s.session.retained(), 0);
}

#[test]
fn a_multiple_leaves_to_the_broker_what_has_no_retries() {
    for last in [0, 4] {
        let mut s = with(1);
        s.broker(&deliver("other", 2, b"hi")).passes();
        s.broker(&deliver("orders", 3, b"hi")).passes();
        s.broker(&deliver("other", 4, b"hi")).passes();
        s.client(&nack(last, true, true))
            .broker_gets(&[&nack(2, false, true), &nack(4, false, true)]);
        let all: Vec<_> = s.tickets().into_iter().map(|t| (t, CONFIRMED)).collect();
        assert_eq!(all.len(), 2);
        s.settled(&all).broker_gets(&[&ack(3, true)]);
        assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
    }
    // Below the first that is withheld it stays one.
    let mut s = with(0);
    for tag in 1..=2 {
        s.broker(&deliver("other", tag, b"hi")).passes();
    }
    s.broker(&deliver("orders", 3, b"hi")).passes();
    s.client(&nack(3, true, true))
        .broker_gets(&[&nack(2, true, true)]);
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn a_multiple_of_what_has_no_retries_waits_if_it_would_be_many_pieces() {
    let settings = limited(Mode::RejectsOnly, |limits| {
        limits.max_tickets_per_connection = 100
    });
    settings.policies.set_ours(policy(said(Some(1000), None)));
    for queue in ["orders", "mine"] {
        let mut s = Script::open(settings.clone()).managed(queue, target("dlx"));
        for tag in 1..=11 {
            s.broker(&deliver(queue, tag, b"hi")).passes();
        }
        s.client(&reject(2, false)).silent();
        let ticket = s.ticket();
        let word = nack(11, true, true);
        if queue == "orders" {
            s.client(&word).silent();
            assert_eq!(s.dead.len(), 10);
        } else {
            s.client(&word).silent();
            assert_eq!(s.dead, []);
            s.settled(&[(ticket, CONFIRMED)])
                .broker_gets(&[&ack(2, false), &word]);
        }
    }
}

#[test]
fn a_return_waits_for_a_ticket() {
    let mut s = with(5);
    s.client(&nack(5, true, true)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let tickets = s.tickets();
    assert_eq!(tickets.len(), 4);
    s.settled(&[(tickets[0], CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    assert_eq!(s.dead.len(), 1);
}

#[test]
fn in_tx_mode_a_return_is_the_brokers() {
    let tx = |id| method(CH, id, |_| {});
    for policies in [
        policy(said(Some(1000), None)),
        super::kept::policies(), // names a target: then a copy is kept
    ] {
        let settings = settings(Mode::RejectsOnly);
        settings.policies.set_ours(policies);
        let mut s = of(settings, declared(said(Some(1000), None)));
        s.broker(&deliver("orders", 1, b"hi")).passes();
        s.client(&tx(MethodId::TX_SELECT)).passes();
        s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
        s.broker(&deliver("orders", 2, b"hi")).passes();
        let copied = s.session.retained() > 0;
        for word in [nack(1, false, true), reject(2, true)] {
            match copied {
                true => s.client(&word).silent(),
                false => s.client(&word).passes(),
            }
        }
        match copied {
            true => s.client(&tx(MethodId::TX_COMMIT)).broker_gets(&[
                &nack(1, false, true),
                &nack(2, false, true),
                &tx(MethodId::TX_COMMIT),
            ]),
            false => s.client(&tx(MethodId::TX_COMMIT)).passes(),
        }
        assert_eq!((s.session.retained(), s.dead.len()), (0, 0));
    }
}

/// The table of a declare.
pub(super) fn table(build: impl FnOnce(&mut TableBuilder)) -> Vec<u8> {
    let mut table = TableBuilder::default();
    build(&mut table);
    table.finish()
}

/// Whoever declared it. Its messages that are away are in the delay queues.
#[test]
fn a_purge_or_a_delete_of_a_queue_with_delays_is_told_of() {
    let purge = method(CH, MethodId::QUEUE_PURGE, |a| {
        a.short(0).shortstr(b"orders").octet(0).end();
    });
    let purge_ok = method(CH, MethodId::QUEUE_PURGE_OK, |a| a.long(0).end());
    let delete = queue_delete("orders", 0);
    for retries in [said(Some(1000), None), said(None, Some(3))] {
        let delays = retries.delayed_retry_min.is_some();
        let first = of(settings(Mode::RejectsOnly), declared(retries));
        let mut s = first.another();
        for (asked, answer, deleted) in [(&purge, &purge_ok, false), (&delete, &delete_ok(), true)]
        {
            s.client(asked).passes();
            assert_eq!(s.events, [], "the broker may refuse it");
            s.broker(answer).passes();
            let queue = name("orders");
            let told = Event::StillWaiting { queue, deleted };
            let events = std::mem::take(&mut s.events);
            assert_eq!(events, Vec::from_iter(delays.then_some(told)));
        }
    }
}
