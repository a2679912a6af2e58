//! The take-over of a declare: what is asked, in which order, and which form goes on.

use std::time::Duration;

use super::probes::*;
use super::script::*;
use super::verify;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback, Leg, Machine};
use crate::registry::policy::Mode;

#[test]
fn a_declare_that_fits_goes_on_with_the_intake_exchange_in_it() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    assert!(s.session.wants_read(Leg::Client, 0));
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

/// The broker closes the connection for it.
#[test]
fn a_declare_that_cannot_be_read_passes() {
    for mode in [Mode::RejectsOnly, Mode::Full] {
        let mut s = Script::open(settings(mode));
        s.client(&method(CH, MethodId::QUEUE_DECLARE, |a| a.short(0).end()))
            .passes();
        assert_eq!(s.events, []);
    }
}

#[test]
fn line_breaks_in_a_name_are_taken_out_as_the_broker_does() {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declare_on(CH, "q\r\n", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
}

/// The broker says whether it is there, however it comes and goes: nothing but the last step makes a queue.
#[test]
fn a_queue_that_is_there_is_not_made_anew_should_it_go() {
    let mut s = comparing(0);
    s.broker(&declare_ok(PROBE, "q")).silent();
    s.ensured(true).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &if_there(&rewritten())),
    ]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn should_it_have_gone_the_client_reads_so() {
    for text in [
        ABSENT,
        "ACCESS_REFUSED - write access to exchange 'dlx-proxy/dlx' in vhost '/' refused for user 'guest'",
    ] {
        let mut s = comparing(0);
        s.broker(&declare_ok(PROBE, "q")).silent();
        s.ensured(true).broker_gets(&[
            &probe_closed(),
            &declare_on(CH, "q", 0, &if_there(&rewritten())),
        ]);
        let code = if text == ABSENT { 406 } else { 403 };
        let missing = "NOT_FOUND - no queue 'q' in vhost '/'";
        s.broker(&close(CH, code, text))
            .client_gets(&[&close(CH, 404, missing)]);
    }
}

#[test]
fn a_queue_that_appears_is_looked_at_again() {
    let mut s = asked(0);
    let there = "PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received the value '-1' of type 'long' but current is none";
    s.broker(&close(PROBE, 406, there)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
    ]);
    // Once: who makes and deletes it again and again is no matter of the proxy.
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &asking(&original())),
    ]);
    s.broker(&close(PROBE, 406, there))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    assert!(s.ensure.is_empty());
}

#[test]
fn a_user_who_may_not_write_to_the_exchange_hears_it_from_the_broker() {
    let mut s = asked(0);
    s.broker(&close(
        PROBE,
        403,
        "ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'lim'",
    ))
    .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    assert!(s.ensure.is_empty(), "nothing is left behind");
}

#[test]
fn without_an_intake_exchange_the_declare_is_left_alone() {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(false)
        .broker_gets(&[&declare_on(CH, "q", 0, &original())]);
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [
            Event::DeclareLeft {
                cause: Fallback::NoIntake,
                ..
            },
            Event::QueueManaged {
                taken_over: false,
                ..
            }
        ]
    ));
}

#[test]
fn without_an_intake_exchange_a_queue_that_was_taken_over_is_still_found() {
    let mut s = comparing(0);
    s.broker(&declare_ok(PROBE, "q")).silent();
    s.ensured(false).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &if_there(&rewritten())),
    ]);
}

#[test]
fn nothing_is_tried_while_something_before_the_declare_may_fail() {
    let mut s = Script::open(settings(Mode::Full));
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"x").shortstr(b"k").octet(0).end()
    });
    s.client(&publish).passes();
    s.client(&header(0)).passes();
    let mut flow = Vec::new();
    reply::channel_flow(&mut flow, CH);
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[&flow]);
    let flow_ok = method(CH, MethodId::CHANNEL_FLOW_OK, |a| a.octet(1).end());
    s.broker(&flow_ok).broker_gets(&[
        &opened(),
        &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
    ]);
}

#[test]
fn when_what_came_before_fails_there_is_no_queue() {
    let mut s = asked(0);
    s.broker(&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'"))
        .broker_and_client(
            &[&probe_closed()],
            &[&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'")],
        );
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn a_probe_that_takes_too_long_is_given_up() {
    let mut s = asked(0);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &original())]);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
}

#[test]
fn an_intake_that_does_not_answer_is_away() {
    let mut s = asked(0);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&declare_on(CH, "q", 0, &original())]);
    assert_left(&s, Fallback::NoIntake);
}

#[test]
fn a_declare_that_wants_no_reply_gets_none() {
    let mut s = asked(NO_WAIT);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &rewritten())]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    // We want one: it tells that the queue is there.
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).silent();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn a_permission_is_remembered_for_a_minute() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    s.client(&declare_on(CH, "q2", 0, &original())).silent();
    s.ensured(true)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q2", 0, &rewritten())]);
    s.broker(&declare_ok(PROBE, "q2"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q2", 0, &rewritten())]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q2")).passes();
    s.wait(Duration::from_secs(60)).silent();
    s.client(&declare_on(CH, "q3", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q3", 0, &if_there(&rewritten())),
        ]);
}

/// The token may be another's.
#[test]
fn a_permission_is_forgotten_with_the_secret_that_gave_it() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.broker(&close_ok(PROBE)).silent();
    s.broker(&declare_ok(CH, "q")).passes();
    let update = MethodId::CONNECTION_UPDATE_SECRET;
    s.client(&method(ChannelId::CONNECTION, update, |a| {
        a.longstr(b"token").shortstr(b"").end()
    }))
    .passes();
    s.client(&declare_on(CH, "q2", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q2", 0, &if_there(&rewritten())),
        ]);
}

#[test]
fn a_declare_that_would_grow_over_the_frame_stays_as_it_is() {
    // 10 octets for the prefix, 2 for that of another type, 20 for the argument that makes no queue.
    let mut table = original();
    let mut filler = TableBuilder::default();
    filler.longstr(b"x", &vec![b'x'; 4000]);
    table.extend(filler.finish());
    let declare = declare_on(CH, "q", 0, &table);
    for (room, fits) in [(0, false), (31, false), (32, true)] {
        let frame_max = declare.len() as u32 - 8 + room;
        let mut s = Script::cramped(settings(Mode::Full), frame_max);
        match fits {
            false => {
                s.client(&declare).passes();
                assert_left(&s, Fallback::FrameMax);
                s.broker(&declare_ok(CH, "q")).passes();
            }
            true => {
                let mut wanted = rewritten();
                wanted.extend(&table[original().len()..]);
                let wanted = declare_on(PROBE, "q", 0, &if_there(&wanted));
                assert!(wanted.len() <= frame_max as usize + 8);
                s.client(&declare).broker_gets(&[&opened(), &wanted]);
            }
        }
    }
}

#[test]
fn a_queue_that_the_broker_names_is_not_tried_out() {
    let mut s = permitted_a_name();
    s.ensured(true)
        .broker_gets(&[&declare_on(CH, "", 0, &rewritten())]);
    s.broker(&declare_ok(CH, "amq.gen-1")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

#[test]
fn a_second_declare_waits_for_the_end_of_the_first_probe() {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.client(&declare_on(CH, "q2", 0, &original())).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&close_ok(PROBE)).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn passive_declares_and_queues_without_dead_letters_pass() {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declare_on(CH, "q", 1, &original())).passes();
    s.client(&declare_on(CH, "q", 0, b"")).passes();
}

#[test]
fn in_keep_mode_a_declare_passes_and_its_queue_is_managed() {
    let mut s = Script::open(settings(Mode::RejectsOnly));
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: false,
            ..
        }]
    ));
}

#[test]
fn what_is_managed_ends_with_its_queue() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&method(CH, MethodId::QUEUE_DELETE, |a| {
        a.short(0).shortstr(b"q").octet(0).end()
    }))
    .passes();
    s.broker(&method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end()))
        .passes();
    s.client(&reject(1, false)).passes();
}

/// The broker says so by cancelling the consumer: the queue was deleted, or moved to another node.
#[test]
fn and_with_a_consumer_that_the_broker_cancels() {
    let mut s = Script::open(settings(Mode::RejectsOnly)).managed("q", target("dlx"));
    s.broker(&method(CH, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(b"q").octet(1).end()
    }))
    .passes();
    verify::has_gone(s, 0);
}

/// While it asks, and when its channel is being closed.
#[test]
fn what_a_probe_hears_stays_unseen_behind_a_close_of_the_connection() {
    let nobody = MethodId(0, 0);
    let mut closed = Vec::new();
    reply::close(&mut closed, ChannelId::CONNECTION, 504, b"", nobody);
    let mut decided = fitting();
    decided
        .broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    for (mut s, late) in [
        (fitting(), declare_ok(PROBE, "q")),
        (decided, close_ok(PROBE)),
    ] {
        s.broker(&closed).passes();
        s.broker(&late).silent();
        s.client(&method(
            ChannelId::CONNECTION,
            MethodId::CONNECTION_CLOSE_OK,
            |_| {},
        ))
        .passes();
        s.gone(Leg::Broker).silent();
    }
}
