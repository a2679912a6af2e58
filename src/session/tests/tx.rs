//! The same queues on channels in tx mode: a reject counts at commit, and the ack of ours must not be rolled back.

use super::kept::{AWAY, CONFIRMED, SECOND, kept, large, open, policies};
use super::script::*;
use crate::amqp::method::MethodId;
use crate::machine::Fallback;
use crate::registry::policy::{Mode, Policies};

fn tx(id: MethodId) -> Vec<u8> {
    method(CH, id, |_| {})
}

const SELECT: MethodId = MethodId::TX_SELECT;
const COMMIT: MethodId = MethodId::TX_COMMIT;
const ROLLBACK: MethodId = MethodId::TX_ROLLBACK;

/// In tx mode, with deliveries 1 to `n`.
fn selected(n: u64) -> Script {
    let mut s = open(settings(Mode::Keep));
    s.client(&tx(SELECT)).passes();
    s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
    for tag in 1..=n {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s
}

#[test]
fn in_a_transaction_a_reject_counts_at_commit() {
    let mut s = selected(2);
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead, []);
    s.client(&tx(COMMIT)).passes();
    let ticket = s.ticket();
    // The ack is part of no transaction of the client's.
    s.settled(&[(ticket, CONFIRMED)]).silent();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).broker_and_client(
        &[&ack(1, false), &tx(COMMIT)],
        &[&tx(MethodId::TX_COMMIT_OK)],
    );
    s.broker(&tx(MethodId::TX_COMMIT_OK)).silent();
    // Or of one that it commits itself.
    s.client(&reject(2, false)).silent();
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"").shortstr(b"k").octet(0).end()
    });
    s.client(&[publish.clone(), header(0)].concat()).passes();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)]).silent();
    s.client(&tx(COMMIT))
        .broker_gets(&[&ack(2, false), &tx(COMMIT)]);
    assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
}

#[test]
fn a_rollback_takes_it_back() {
    let mut s = selected(3);
    s.client(&nack(2, true, false)).silent();
    s.client(&ack(3, false)).silent();
    s.client(&tx(ROLLBACK)).passes();
    s.broker(&tx(MethodId::TX_ROLLBACK_OK)).passes();
    assert_eq!(s.dead, []);
    assert_eq!(s.session.retained(), 3 * 457);
    s.client(&ack(1, false)).silent();
    s.client(&nack(2, false, true)).silent();
    s.client(&reject(3, false)).silent();
    s.client(&tx(COMMIT))
        .broker_gets(&[&ack(1, false), &nack(2, false, true), &tx(COMMIT)]);
    assert_eq!(s.dead.len(), 1);
    assert_eq!(s.session.retained(), 457);
}

#[test]
fn in_a_transaction_what_is_refused_is_kept() {
    let mut s = selected(2);
    s.client(&nack(0, true, false)).silent();
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    let refused: Vec<_> = s.dead.drain(..).map(|(ticket, _)| (ticket, AWAY)).collect();
    s.settled(&refused).silent();
    s.wait(SECOND).silent();
    let again: Vec<_> = s
        .dead
        .drain(..)
        .map(|(ticket, _)| (ticket, CONFIRMED))
        .collect();
    s.settled(&again).broker_gets(&[&ack(2, true), &tx(COMMIT)]);
}

#[test]
fn in_a_transaction_what_gets_no_ticket_is_kept() {
    let mut s = open(limited(Mode::Keep, |limits| {
        limits.max_tickets_per_connection = 1
    }));
    s.client(&tx(SELECT)).passes();
    s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
    for tag in 1..=2 {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s.client(&nack(0, true, false)).silent();
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    assert_eq!(s.events, [kept(Fallback::CloseWait)]);
    let first = s.ticket();
    s.settled(&[(first, CONFIRMED)])
        .broker_gets(&[&ack(1, false), &tx(COMMIT)]);
    s.broker(&tx(MethodId::TX_COMMIT_OK)).silent();
    s.wait(SECOND).silent();
    let second = s.ticket();
    s.settled(&[(second, CONFIRMED)])
        .broker_gets(&[&ack(2, false), &tx(COMMIT)]);
}

/// All of it is in its queue again, so nothing of it can be settled.
#[test]
fn in_a_transaction_too_a_recover_takes_all() {
    let mut s = selected(2);
    s.client(&reject(1, false)).silent();
    let recover = method(CH, MethodId::BASIC_RECOVER, |a| a.octet(1).end());
    s.client(&recover).passes();
    s.broker(&method(CH, MethodId::BASIC_RECOVER_OK, |_| {}))
        .passes();
    assert_eq!(s.session.retained(), 0);
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    assert_eq!((s.dead.len(), s.session.withheld()), (0, 0));
}

#[test]
fn in_a_transaction_without_a_copy_it_stays() {
    let mut s = large(1);
    s.client(&tx(SELECT)).passes();
    s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
    s.client(&reject(1, false)).silent();
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    assert_eq!(s.events, [kept(Fallback::Budget)]);
    s.wait(1000 * SECOND).silent();
    s.client(&channel_close()).passes();
}

#[test]
fn in_a_transaction_others_pass_and_come_back() {
    let mut s = selected(0);
    let mut s = {
        s.policies.set_ours(Policies::default());
        s.broker(&deliver("orders", 1, b"hi")).passes(); // nobody names a target
        s.policies.set_ours(policies());
        s.broker(&deliver("orders", 2, b"hi")).passes();
        s.broker(&deliver("orders", 3, b"hi")).passes();
        s
    };
    s.client(&ack(1, false)).passes();
    s.client(&tx(ROLLBACK)).passes();
    s.broker(&tx(MethodId::TX_ROLLBACK_OK)).passes();
    // It is outstanding again, so it is told of by itself.
    s.client(&ack(2, true)).broker_gets(&[&ack(1, false)]);
    s.client(&tx(COMMIT))
        .broker_gets(&[&ack(2, false), &tx(COMMIT)]);
}
