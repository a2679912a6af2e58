//! A client is lost: what a policy counts then of what it had not settled.

use super::retries::{SECOND, policy, said};
use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::dead_letter::retries::OnCrash;
use crate::machine::*;
use crate::registry::policy::Mode;
use crate::registry::said_retries::SaidRetries;
use crate::session::Input;

/// Channel 1 consumes from `orders`, which counts so and delivered the first three tags; there may be so many dead letters in flight.
fn with(on_crash: OnCrash, tickets: usize) -> Script {
    let settings = limited(Mode::RejectsOnly, |limits| {
        limits.max_tickets_per_connection = tickets
    });
    settings.policies.set_ours(policy(SaidRetries {
        on_crash: Some(on_crash),
        ..said(Some(1000), None)
    }));
    let mut s = Script::open(settings).consume("orders");
    for tag in 1..=3 {
        s.broker(&deliver("orders", tag, b"hi")).passes();
    }
    s
}

fn cancelled() -> Vec<u8> {
    cancel("orders", 1)
}

fn not_counted(cause: Fallback) -> Event {
    let queue = name("orders");
    Event::CrashNotCounted { queue, cause }
}

#[test]
fn what_counts_goes_away_as_if_it_had_been_returned() {
    for (on_crash, counted) in [(OnCrash::CountAll, 3), (OnCrash::CountOldest, 1)] {
        let mut s = with(on_crash, 10);
        s.gone(Leg::Client).broker_gets(&[&cancelled()]);
        assert_eq!(s.dead.len(), counted);
        assert!(s.dead.iter().all(|(_, dead)| dead.purpose == SECOND));
        assert_eq!(s.events, []);
    }
    let mut s = with(OnCrash::Requeue, 10);
    s.gone(Leg::Client).silent();
    assert_eq!((s.dead.len(), s.events.len()), (0, 0));
}

/// The broker waits for the end of the frame, and would read no ack: there would be two of each message.
#[test]
fn within_a_frame_nothing_is_counted_and_that_is_said_once_for_a_queue() {
    let mut s = with(OnCrash::CountAll, 10);
    let mut content = Vec::new();
    reply::method(&mut content, CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"").shortstr(b"q").octet(0).end();
    });
    s.client(&[content, header(40)].concat()).passes();
    let part = &body(&[7; 40])[..20];
    s.client(part).passes();
    s.gone(Leg::Client).silent();
    assert_eq!(s.dead, []);
    assert_eq!(s.events, [not_counted(Fallback::InsideFrame)]);
}

#[test]
fn what_finds_no_ticket_is_not_counted_and_that_is_said() {
    let mut s = with(OnCrash::CountAll, 2);
    s.gone(Leg::Client).broker_gets(&[&cancelled()]);
    assert_eq!(s.dead.len(), 2);
    let met = Event::LimitMet(Limit::Tickets);
    assert_eq!(s.events, [met, not_counted(Fallback::NoTicket)]);
}

/// Its last word about a delivery waits for a ticket, and is not heard any more.
#[test]
fn what_is_left_behind_counts_as_a_failure_whatever_its_client_still_said() {
    let retry = |s: &mut Script| s.dead.remove(0).1.content;
    let mut silent = with(OnCrash::CountAll, 1);
    silent.gone(Leg::Client).broker_gets(&[&cancelled()]);

    let mut s = with(OnCrash::CountAll, 1);
    s.client(&nack(3, false, true)).silent();
    let ticket = s.ticket();
    s.client(&nack(1, false, true)).silent();
    assert_eq!(s.dead, []);
    let settled = Input::Settled(vec![(ticket, Outcome::Confirmed)]);
    s.session.input(settled, s.now, &mut s.fx);
    let acked = ack(3, false);
    s.gone(Leg::Client).broker_gets(&[&acked, &cancelled()]);
    assert_eq!(retry(&mut s), retry(&mut silent));
}
