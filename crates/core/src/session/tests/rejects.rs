//! The reject path: withheld, confirmed, then acked; `multiple` never touches what is withheld.

use std::time::Duration;

use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::method::MethodId;
use crate::machine::{Cause, Event, Fallback, Flow, Leg, Limits, Machine, Outcome};
use crate::registry::policy::Mode;

const CONFIRMED: Outcome = Outcome::Confirmed;

/// Channel 1 consumes from the managed queue `orders` and from the unmanaged `other`; `orders` delivered the first `n` tags.
fn with(n: u64) -> Script {
    let mut script = Script::open(settings(Mode::RejectsOnly))
        .managed("orders", target("dlx"))
        .consume("other");
    for tag in 1..=n {
        script.broker(&deliver("orders", tag, b"hi")).passes();
    }
    script.events.clear();
    script
}

#[test]
fn a_reject_is_withheld_until_its_dead_letter_is_confirmed() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    assert_eq!(s.dead[0].1.exchange, name("dlx"));
    assert_eq!(s.dead[0].1.routing_key, name("key"));
    assert_eq!(&s.dead[0].1.content.body[..], b"hi");
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
}

#[test]
fn parked_and_dropped_count_as_settled() {
    for outcome in [
        Outcome::Parked(Cause::Unroutable),
        Outcome::Dropped(Cause::NoExchange),
    ] {
        let mut s = with(1);
        s.client(&nack(1, false, false)).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, outcome)])
            .broker_gets(&[&ack(1, false)]);
    }
}

#[test]
fn a_refused_dead_letter_leaves_the_reject_to_the_broker() {
    let mut s = with(1);
    s.client(&nack(1, false, false)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, Outcome::Refused(Cause::PublisherAway))])
        .broker_gets(&[&nack(1, false, false)]);
    assert!(matches!(
        &s.events[..],
        [Event::RejectForwarded {
            cause: Fallback::Refused(Cause::PublisherAway),
            ..
        }]
    ));
}

#[test]
fn requeue_and_ack_pass() {
    let mut s = with(3);
    s.client(&reject(1, true)).passes();
    s.client(&ack(2, false)).passes();
    s.client(&nack(3, false, true)).passes();
    assert_eq!(s.session.retained(), 0);
}

#[test]
fn rejects_of_other_queues_pass() {
    let mut s = with(0);
    s.broker(&deliver("other", 1, b"hi")).passes();
    s.client(&reject(1, false)).passes();
}

#[test]
fn multiple_ack_spares_a_withheld_tag() {
    let mut s = with(4);
    s.client(&reject(2, false)).silent();
    s.client(&ack(4, true))
        .broker_gets(&[&ack(1, false), &ack(3, false), &ack(4, false)]);
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(2, false)]);
}

#[test]
fn below_the_first_hole_multiple_stays_multiple() {
    let mut s = with(4);
    s.client(&reject(3, false)).silent();
    s.client(&ack(4, true))
        .broker_gets(&[&ack(2, true), &ack(4, false)]);
}

#[test]
fn a_multiple_that_would_be_many_pieces_waits() {
    let mut s = with(11);
    s.client(&reject(2, false)).silent();
    s.client(&ack(11, true)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(2, false), &ack(11, true)]);

    let mut s = with(11);
    s.client(&reject(2, false)).silent();
    s.client(&nack(5, true, false)).silent();
    assert_eq!(s.dead.len(), 4);
}

#[test]
fn tag_zero_means_all_that_the_client_has_not_settled() {
    let mut s = with(3);
    s.client(&reject(1, false)).silent();
    s.client(&ack(0, true))
        .broker_gets(&[&ack(2, false), &ack(3, false)]);
    s.client(&ack(0, true)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    s.client(&ack(0, true)).silent();
}

#[test]
fn tag_zero_that_waits_means_nothing_that_came_later() {
    // Until it would be few pieces.
    let mut s = with(11);
    s.client(&reject(2, false)).silent();
    s.client(&ack(0, true)).silent();
    s.broker(&deliver("orders", 12, b"hi")).passes();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(2, false), &ack(11, true)]);
    s.client(&ack(0, true)).broker_gets(&[&ack(12, true)]);

    // Until there are tickets.
    let mut s = with(5);
    s.client(&nack(0, true, false)).silent();
    s.broker(&deliver("orders", 6, b"hi")).passes();
    let first = s.tickets();
    s.settled(&[(first[0], CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    assert!(s.session.wants_read(Leg::Client, 0));
    assert_eq!(s.tickets().len(), 1);
}

#[test]
fn nack_multiple_withholds_each_in_delivery_order() {
    let mut s = with(3);
    s.client(&nack(3, true, false)).silent();
    let tickets = s.tickets();
    assert_eq!(tickets.len(), 3);
    let all: Vec<_> = tickets
        .into_iter()
        .map(|ticket| (ticket, CONFIRMED))
        .collect();
    s.settled(&all).broker_gets(&[&ack(3, true)]);
}

#[test]
fn nack_multiple_over_two_queues_leaves_the_unmanaged_to_the_broker() {
    let mut s = with(1);
    s.broker(&deliver("other", 2, b"hi")).passes();
    s.broker(&deliver("orders", 3, b"hi")).passes();
    s.client(&nack(0, true, false))
        .broker_gets(&[&nack(2, false, false)]);
    assert_eq!(s.dead.len(), 2);
}

#[test]
fn acks_that_are_due_are_coalesced_only_below_the_first_hole() {
    let mut s = with(4);
    s.client(&nack(4, true, false)).silent();
    let t = s.tickets();
    let confirmed: Vec<_> = [t[3], t[0]].map(|ticket| (ticket, CONFIRMED)).to_vec();
    s.settled(&confirmed)
        .broker_gets(&[&ack(1, false), &ack(4, false)]);
    s.settled(&[(t[2], CONFIRMED), (t[1], CONFIRMED)])
        .broker_gets(&[&ack(3, true)]);
}

#[test]
fn an_unknown_tag_is_the_brokers_to_refuse() {
    let mut s = with(1);
    s.client(&ack(9, false)).passes();
    s.client(&ack(9, true)).passes();
}

#[test]
fn a_tag_settled_twice_waits_for_the_withheld_reject_and_is_then_the_brokers_to_refuse() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.client(&ack(1, false)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false), &ack(1, false)]);
}

#[test]
fn commands_that_end_things_stay_behind_withheld_rejects() {
    let commands = [
        channel_close(),
        method(CH, MethodId::BASIC_RECOVER, |a| a.octet(1).end()),
        method(CH, MethodId::BASIC_CANCEL, |a| {
            a.shortstr(b"orders").octet(0).end()
        }),
        method(CH, MethodId::QUEUE_DELETE, |a| {
            a.short(0).shortstr(b"orders").octet(0).end()
        }),
        method(CH, MethodId::TX_SELECT, |_| {}),
        method(
            crate::amqp::ids::ChannelId::CONNECTION,
            MethodId::CONNECTION_CLOSE,
            |a| a.short(200).shortstr(b"").short(0).short(0).end(),
        ),
    ];
    for command in commands {
        let mut s = with(1);
        s.client(&reject(1, false)).silent();
        s.client(&command).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, CONFIRMED)])
            .broker_gets(&[&ack(1, false), &command]);

        let mut s = with(1);
        s.client(&reject(1, false)).silent();
        s.client(&command).silent();
        s.wait(Duration::from_secs(5))
            .broker_gets(&[&reject(1, false), &command]);
        let ticket = s.ticket();
        s.settled(&[(ticket, CONFIRMED)]).silent();
    }
}

#[test]
fn out_of_tickets_the_client_is_not_read() {
    let mut s = with(6);
    s.client(&nack(6, true, false)).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    let t = s.tickets();
    assert_eq!(t.len(), 4);
    s.settled(&[(t[0], CONFIRMED), (t[1], CONFIRMED)])
        .broker_gets(&[&ack(2, true)]);
    assert_eq!(s.dead.len(), 2);
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn over_the_budget_nothing_is_retained_and_the_reject_is_forwarded() {
    let small = |limits: &mut Limits| limits.retained_bytes_per_connection = 480;
    let mut s = Script::open(limited(Mode::RejectsOnly, small)).managed("orders", target("dlx"));
    s.broker(&deliver("orders", 1, b"more than thirty bytes of a body"))
        .passes();
    s.broker(&deliver("orders", 2, b"hi")).passes();
    assert!(matches!(&s.events[..], [.., Event::NotRetained { .. },]));
    s.client(&reject(1, false)).passes();
    s.client(&reject(2, false)).silent();
}

#[test]
fn in_tx_mode_all_is_the_brokers() {
    let mut s = with(1);
    s.client(&method(CH, MethodId::TX_SELECT, |_| {})).passes();
    s.client(&reject(1, false)).passes();
}

#[test]
fn an_ack_of_ours_waits_for_the_end_of_a_content() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"").shortstr(b"k").octet(0).end()
    });
    s.client(&publish).passes();
    s.client(&header(4)).passes();
    let whole = body(b"four");
    let (first, last) = whole.split_at(9);
    s.client(first).passes();
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)]).silent();
    s.client(last).broker_gets(&[last, &ack(1, false)]);
}

#[test]
fn so_does_a_reject_that_is_forwarded() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"").shortstr(b"k").octet(0).end()
    });
    s.client(&publish).passes();
    let ticket = s.ticket();
    s.settled(&[(ticket, Outcome::Refused(Cause::PublisherAway))])
        .silent();
    s.client(&header(4)).passes();
    let last = body(b"four");
    s.client(&last).broker_gets(&[&last, &reject(1, false)]);
}

#[test]
fn when_the_broker_closes_the_channel_withheld_rejects_are_forgotten() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.broker(&channel_close()).passes();
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)]).silent();
    s.client(&method(CH, MethodId::CHANNEL_CLOSE_OK, |_| {}))
        .passes();
}

#[test]
fn a_client_that_vanishes_has_its_withheld_rejects_settled() {
    let mut s = with(2);
    s.client(&reject(1, false)).silent();
    s.gone(Leg::Client)
        .broker_gets(&[&cancel("orders", 1), &cancel("other", 1)]);
    let zero = crate::amqp::ids::ChannelId::CONNECTION;
    let bye = method(zero, MethodId::CONNECTION_CLOSE, |a| {
        a.short(200).shortstr(b"").short(0).short(0).end();
    });
    let ticket = s.ticket();
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false), &bye]);
    assert_eq!(s.session.flow(), Flow::Open);
    let bye_ok = method(zero, MethodId::CONNECTION_CLOSE_OK, |_| {});
    s.broker(&bye_ok).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

/// Found by the simulation: the broker closed the connection over it.
#[test]
fn a_channel_that_waits_to_be_opened_is_not_closed() {
    let mut s = Script::open(limited(Mode::RejectsOnly, |limits| {
        limits.fixed.replies = 1
    }))
    .managed("orders", target("dlx"))
    .consume("orders");
    let on = |channel, id| {
        method(crate::amqp::ids::ChannelId(channel), id, |a| {
            a.shortstr(b"").end()
        })
    };
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    s.client(&on(2, MethodId::CHANNEL_OPEN)).passes();
    s.client(&on(3, MethodId::CHANNEL_OPEN)).silent();
    let closed = method(
        crate::amqp::ids::ChannelId(2),
        MethodId::CHANNEL_CLOSE,
        |a| {
            a.short(200).shortstr(b"").short(0).short(0).end();
        },
    );
    s.gone(Leg::Client)
        .broker_gets(&[&cancel("orders", 1), &closed]);
}

#[test]
fn its_channels_that_withhold_nothing_are_closed_at_once() {
    let mut s = with(1);
    let second = crate::amqp::ids::ChannelId(2);
    s.client(&method(second, MethodId::CHANNEL_OPEN, |a| {
        a.shortstr(b"").end()
    }))
    .passes();
    s.broker(&method(second, MethodId::CHANNEL_OPEN_OK, |a| {
        a.longstr(b"").end()
    }))
    .passes();
    s.client(&reject(1, false)).silent();
    let close = method(second, MethodId::CHANNEL_CLOSE, |a| {
        a.short(200).shortstr(b"").short(0).short(0).end();
    });
    s.gone(Leg::Client)
        .broker_gets(&[&cancel("orders", 1), &cancel("other", 1), &close]);
}

#[test]
fn what_is_not_settled_when_close_wait_has_passed_is_forwarded_in_order() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.gone(Leg::Client)
        .broker_gets(&[&cancel("orders", 1), &cancel("other", 1)]);
    let bye = method(
        crate::amqp::ids::ChannelId::CONNECTION,
        MethodId::CONNECTION_CLOSE,
        |a| {
            a.short(200).shortstr(b"").short(0).short(0).end();
        },
    );
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&reject(1, false), &bye]);
    s.wait(Duration::from_secs(2)).silent();
    assert_eq!(s.session.flow(), Flow::Finish);
}

#[test]
fn a_client_that_is_not_read_is_kept_alive_at_the_broker() {
    let mut s = with(1);
    s.client(&reject(1, false)).silent();
    s.session.peer.tune = Some(crate::amqp::method::Tune {
        channel_max: 0,
        frame_max: 131_072,
        heartbeat: 2,
    });
    s.client(&channel_close()).silent();
    s.wait(Duration::from_secs(1))
        .broker_gets(&[&crate::amqp::frame::HEARTBEAT]);
    s.wait(Duration::from_secs(1))
        .broker_gets(&[&crate::amqp::frame::HEARTBEAT]);
}
