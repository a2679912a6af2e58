//! Queues whose dead-letter exchange only a policy of ours names, on channels in tx mode: nothing is published for them, and nothing is lost.

use super::kept::{AWAY, CONFIRMED, SECOND, declare, declare_ok, kept, open, policies, returned};
use super::script::*;
use super::without_copy::unreadable;
use crate::amqp::frame;
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
    let mut s = open(settings(Mode::RejectsOnly));
    select(&mut s);
    for tag in 1..=n {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s
}

fn select(s: &mut Script) {
    s.client(&tx(SELECT)).passes();
    s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
}

fn commit(s: &mut Script) {
    s.client(&tx(COMMIT)).passes();
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
}

#[test]
fn a_reject_returns_with_the_commit_which_waits() {
    let mut s = selected(3);
    s.client(&nack(2, true, false))
        .broker_gets(&[&nack(1, false, true), &nack(2, false, true)]);
    assert_eq!(s.events, [returned(), returned()]);
    s.client(&ack(3, false)).passes();
    s.client(&tx(COMMIT)).silent();
    s.wait(SECOND).broker_gets(&[&tx(COMMIT)]);
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    commit(&mut s);
    assert_eq!((s.dead.len(), s.session.retained()), (0, 0));
}

#[test]
fn after_a_rollback_it_is_outstanding_again() {
    let mut s = selected(3);
    s.client(&reject(2, false))
        .broker_gets(&[&nack(2, false, true)]);
    s.client(&ack(3, true)).passes();
    s.client(&tx(ROLLBACK)).passes();
    s.broker(&tx(MethodId::TX_ROLLBACK_OK)).passes();
    s.client(&ack(1, false)).passes();
    commit(&mut s);
    s.client(&nack(0, true, false))
        .broker_gets(&[&nack(2, false, true), &nack(3, false, true)]);
}

/// Of what was delivered before `tx.select` no copy is kept any more.
#[test]
fn deliveries_from_before_count_too() {
    let mut s = open(settings(Mode::RejectsOnly));
    s.broker(&deliver("orders", 1, b"hi")).passes();
    select(&mut s);
    assert_eq!(s.session.retained(), 0);
    s.client(&reject(1, false))
        .broker_gets(&[&nack(1, false, true)]);
}

#[test]
fn near_a_limit_on_deliveries_it_stays() {
    let settings = settings(Mode::RejectsOnly);
    settings.policies.set_ours(policies());
    let mut s = Script::fresh(settings);
    s.client(&frame::PROTOCOL).passes();
    s.handshake(b"4.2.0");
    s.open_channel();
    s.client(&declare()).passes();
    s.broker(&declare_ok()).passes();
    s.consumes("orders");
    s.events.clear();
    select(&mut s);
    for tag in 1..=2 {
        s.broker(&unreadable(tag)).passes();
    }
    s.client(&reject(1, false)).silent();
    assert_eq!(s.events, [kept(Fallback::Transaction)]);
    commit(&mut s);
    s.wait(1000 * SECOND).silent();
    // Whatever the client says of it afterwards.
    s.client(&ack(1, false)).silent();
    s.client(&ack(2, true)).broker_gets(&[&ack(2, false)]);
}

#[test]
fn a_dead_letter_from_before_is_acked_with_the_next_commit() {
    let mut s = open(limited(Mode::RejectsOnly, |limits| {
        limits.close_wait = SECOND;
    }));
    for tag in 1..=2 {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s.client(&nack(0, true, false)).silent();
    let tickets = s.tickets();
    s.client(&tx(SELECT)).silent();
    s.wait(SECOND).broker_gets(&[&tx(SELECT)]);
    s.broker(&tx(MethodId::TX_SELECT_OK)).passes();
    s.settled(&[(tickets[0], CONFIRMED), (tickets[1], AWAY)])
        .silent();
    s.client(&tx(COMMIT))
        .broker_gets(&[&ack(1, false), &tx(COMMIT)]);
    s.broker(&tx(MethodId::TX_COMMIT_OK)).passes();
    s.wait(1000 * SECOND).silent();
}

/// All of it is in its queue again, so nothing of it can be settled.
#[test]
fn a_recover_takes_all() {
    let mut s = selected(2);
    let recover = method(CH, MethodId::BASIC_RECOVER, |a| a.octet(1).end());
    s.client(&recover).passes();
    s.broker(&method(CH, MethodId::BASIC_RECOVER_OK, |_| {}))
        .passes();
    s.client(&nack(0, true, false)).silent();
    commit(&mut s);
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
    s.client(&ack(2, true)).passes();
    s.client(&reject(3, false))
        .broker_gets(&[&nack(3, false, true)]);
}
