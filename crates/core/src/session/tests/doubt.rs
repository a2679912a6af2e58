//! What sessions know of each other: what need not be asked again, and which form goes on when no probe can tell.

use std::time::Duration;

use super::order::publish;
use super::probes::*;
use super::script::*;
use crate::amqp::ids::{ChannelId, name};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Machine};
use crate::registry::catalogue::Told;
use crate::registry::catalogue::fact::Source;
use crate::registry::policy::Mode;

const LIMIT: &str = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)";

fn connection_close(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(
        &mut out,
        ChannelId::CONNECTION,
        530,
        text.as_bytes(),
        MethodId(0, 0),
    );
    out
}

fn channel_open(channel: u16) -> Vec<u8> {
    let mut out = Vec::new();
    reply::channel_open(&mut out, ChannelId(channel));
    out
}

/// Up to the point where the queue is taken over; the probe's channel is still being closed.
fn taken_over() -> Script {
    let mut s = fitting();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    s.broker(&declare_ok(CH, "q")).passes();
    s
}

/// A limit on channels was met.
pub(super) fn limited(mut s: Script) -> Script {
    s.broker(&connection_close(LIMIT)).passes();
    s
}

/// Whose it was is only what its client said.
#[test]
fn what_another_session_was_permitted_counts_for_nothing() {
    let mut s = taken_over().another();
    s.client(&declare_on(CH, "q2", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q2", 0, &if_there(&rewritten())),
        ]);
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q2", 0, &asking(&original())),
    ]);
    assert!(s.ensure.is_empty());
}

#[test]
fn a_probe_costs_a_user_one_connection() {
    let s = limited(asked(0));
    assert!(matches!(&s.events[..], [Event::ProbeOverLimit]));
    assert!(s.session.wants_read(Leg::Client, 0));
    let mut s = s.another();
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    assert_left(&s, Fallback::ChannelLimit);
    s.broker(&declare_ok(CH, "q")).passes();
}

#[test]
fn a_limit_that_the_client_met_itself_counts_too() {
    let s = limited(Script::open(settings(Mode::Full)));
    assert!(s.events.is_empty(), "{:?}", s.events);
    let mut s = s.another();
    s.client(&declare_on(CH, "q", 0, &original())).passes();
}

#[test]
fn the_limit_of_one_connection_says_nothing_of_the_next() {
    let mut s = Script::open(settings(Mode::Full));
    let text =
        "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)";
    s.broker(&connection_close(text)).passes();
    let mut s = s.another();
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
}

/// Of a session that cannot probe, which knows that `q` was taken over: what it declares, once the intake exchange is there, or is not.
fn unprobed(mut s: Script, bits: u8, there: bool) -> Script {
    s.client(&declare_on(CH, "q", bits, &original())).silent();
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.ensured(there)
        .broker_gets(&[&declare_on(CH, "q", 0, &if_there(&rewritten()))]);
    s
}

#[test]
fn without_a_probe_nothing_but_the_queue_itself_shows_that_it_is_there() {
    for there in [true, false] {
        let mut s = unprobed(limited(taken_over()).another(), 0, there);
        s.broker(&close(CH, 406, ABSENT)).client_gets(&[&close(
            CH,
            404,
            "NOT_FOUND - no queue 'q' in vhost '/'",
        )]);
        // That is known now.
        let mut s = s.another();
        s.client(&declare_on(CH, "q", 0, &original())).passes();
    }
}

#[test]
fn without_a_probe_a_queue_seen_with_another_exchange_is_declared_as_the_client_wrote_it() {
    let mut s = limited(taken_over()).another();
    let mut table = crate::amqp::table::TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"secret");
    s.client(&declare_on(CH, "q", 0, &table.finish())).passes();
    assert!(s.ensure.is_empty());
    assert_left(&s, Fallback::ChannelLimit);
}

#[test]
fn without_a_probe_and_without_an_answer_of_the_intake_it_goes_on() {
    let mut s = limited(taken_over()).another();
    s.client(&declare_on(CH, "q", 0, &original())).silent();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&declare_on(CH, "q", 0, &if_there(&rewritten()))]);
}

#[test]
fn without_a_probe_a_queue_that_was_taken_over_is_declared_so() {
    let mut s = unprobed(limited(taken_over()).another(), 0, true);
    s.broker(&declare_ok(CH, "q")).passes();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

/// Simulation seed 1293: the broker stood still, and another session took the queue over meanwhile.
#[test]
fn a_probe_without_an_answer_knows_what_another_session_has_seen_meanwhile() {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    let other = &s.another().session.registry;
    let intake = Told::Intake(Some(name("dlx-proxy/dlx")));
    other.tell(&name("q"), &intake, Source::Refusal, s.now.mono);
    s.wait(Duration::from_secs(5)).silent();
    s.ensured(true).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &if_there(&rewritten())),
    ]);
}

#[test]
fn without_a_probe_nothing_is_claimed_before_the_broker_says_so() {
    let mut s = unprobed(limited(taken_over()).another(), NO_WAIT, true);
    assert!(s.events.is_empty(), "{:?}", s.events);
    s.broker(&declare_ok(CH, "q")).silent();
    assert!(matches!(&s.events[..], [Event::QueueManaged { .. }]));
}

#[test]
fn without_a_probe_another_exchange_is_refused_in_the_clients_words() {
    let mut s = limited(taken_over()).another();
    let mut table = crate::amqp::table::TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"dlx");
    table.longstr(b"x-dead-letter-routing-key", b"k");
    s.client(&declare_on(CH, "q", 0, &table.finish())).passes();
    let text = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx' but current is 'dlx-proxy/dlx'";
    let said = text.replace("'dlx-proxy/dlx'", "'dlx', taken over by the proxy");
    s.broker(&close(CH, 406, text))
        .client_gets(&[&close(CH, 406, &said)]);
}

#[test]
fn a_queue_that_was_deleted_is_declared_as_the_client_wrote_it() {
    for bits in [0, 4] {
        let mut s = taken_over();
        let delete = |bits| {
            method(CH, MethodId::QUEUE_DELETE, |a| {
                a.short(0).shortstr(b"q").octet(bits).end()
            })
        };
        let delete_ok = method(CH, MethodId::QUEUE_DELETE_OK, |a| a.long(0).end());
        s.client(&delete(bits)).broker_gets(&[&delete(0)]);
        if bits == 0 {
            s.broker(&delete_ok).passes();
        } else {
            s.broker(&delete_ok).silent();
        }
        let mut s = limited(s).another();
        s.client(&declare_on(CH, "q", 0, &original())).passes();
    }
}

/// Each refusal shows what the queue is.
#[test]
fn a_refusal_teaches() {
    let text = |received, current| {
        format!(
            "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received '{received}' but current is '{current}'"
        )
    };
    let mut s = limited(Script::open(settings(Mode::Full))).another();
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    let _told = s.broker(&close(CH, 406, &text("dlx", "dlx-proxy/dlx")));
    let _ignored = s.sent_to_client();
    let mut s = unprobed(s.another(), 0, true);
    let _told = s.broker(&close(CH, 406, &text("dlx-proxy/dlx", "dlx")));
    let _ignored = s.sent_to_client();
    let mut s = s.another();
    s.client(&declare_on(CH, "q", 0, &original())).passes();
}

#[test]
fn a_client_with_all_its_channels_is_not_probed() {
    let mut s = Script::narrow(settings(Mode::Full), 1);
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    assert_left(&s, Fallback::NoChannel);
}

#[test]
fn a_client_that_uses_the_highest_number_is_probed_on_another() {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&channel_open(65_535)).passes();
    let probe = ChannelId(65_534);
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &channel_open(65_534),
            &declare_on(probe, "q", 0, &if_there(&rewritten())),
        ]);
}

/// The broker counts the probe's channel until it has closed it, and its number is nothing that the client has opened.
#[test]
fn what_would_meet_the_probes_channel_waits_until_that_is_closed() {
    let mut closing = Vec::new();
    reply::close(
        &mut closing,
        ChannelId::CONNECTION,
        200,
        b"",
        MethodId(0, 0),
    );
    for frames in [
        channel_open(2),
        channel_open(65_535),
        declare_on(PROBE, "other", 0, b""),
        closing,
    ] {
        let mut s = taken_over();
        s.client(&frames).silent();
        assert!(!s.session.wants_read(Leg::Client, 0));
        s.broker(&close_ok(PROBE)).silent();
        assert!(s.session.wants_read(Leg::Client, 0));
        s.resume().broker_gets(&[&frames]);
    }
}

/// The broker answers our close though its own was on its way.
#[test]
fn a_refusal_that_crosses_the_close_of_a_probe_is_not_its_end() {
    let mut s = asked(0);
    s.broker(&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'"))
        .broker_and_client(
            &[&probe_closed()],
            &[&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'")],
        );
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.client(&channel_open(65_535)).silent();
    s.broker(&close_ok(PROBE)).silent();
    s.resume().broker_gets(&[&channel_open(65_535)]);
}

/// The client went on when the probe had failed.
#[test]
fn its_answer_does_not_cut_a_frame_of_the_client_in_two() {
    let mut s = fitting();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
    let content = [publish("x", 0), header(6), body(b"abcdef")].concat();
    let (begun, rest) = content.split_at(content.len() - 4);
    s.client(begun).passes();
    s.broker(&close(PROBE, 406, GRANTED)).silent();
    s.client(rest).broker_gets(&[rest, &close_ok(PROBE)]);
}

/// The process ends while a declare is examined: what the client has begun on another channel ends first.
#[test]
fn a_probe_goes_on_between_the_frames_of_a_client_that_is_being_closed() {
    let two = ChannelId(2);
    let mut s = Script::open(settings(Mode::Full));
    s.client(&channel_open(2)).passes();
    s.broker(&method(two, MethodId::CHANNEL_OPEN_OK, |a| {
        a.longstr(b"").end()
    }))
    .passes();
    s.client(&[publish("x", 0), header(6)].concat()).passes();
    s.client(&declare_on(two, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    let forced = method(ChannelId::CONNECTION, MethodId::CONNECTION_CLOSE, |a| {
        a.short(320)
            .shortstr(
                b"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
            )
            .short(0)
            .short(0)
            .end();
    });
    s.drain().client_gets(&[&forced]);
    let content = body(b"abcdef");
    let (begun, rest) = content.split_at(9);
    s.client(begun).passes();
    s.broker(&close(PROBE, 406, ABSENT)).silent();
    s.client(rest).broker_gets(&[
        rest,
        &close_ok(PROBE),
        &opened(),
        &declare_on(PROBE, "q", 0, &asking(&original())),
    ]);
}

/// The broker would have carried it out.
#[test]
fn a_declare_may_be_the_last_word_of_a_client_that_vanishes() {
    let mut s = fitting();
    s.gone(Leg::Client).silent();
    let goodbye = method(ChannelId::CONNECTION, MethodId::CONNECTION_CLOSE, |a| {
        a.short(200).shortstr(b"").short(0).short(0).end();
    });
    s.broker(&declare_ok(PROBE, "q")).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &rewritten()),
        &goodbye,
    ]);
}

#[test]
fn a_channel_that_closes_behind_a_decided_declare_leaves_its_probe_to_end() {
    let mut s = taken_over();
    s.broker(&close(CH, 404, "NOT_FOUND - no exchange 'x' in vhost '/'"))
        .passes();
    s.client(&channel_open(65_535)).silent();
    s.broker(&close_ok(PROBE)).silent();
    s.resume().broker_gets(&[&channel_open(65_535)]);
}

#[test]
fn open_channels_do_not_wait_for_the_end_of_a_probe() {
    let mut s = taken_over();
    s.client(&ack(1, false)).passes();
}

#[test]
fn a_probe_that_may_have_made_the_queue_is_followed_by_the_same_form() {
    let mut s = fitting();
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &rewritten())]);
}

#[test]
fn a_native_queue_that_cannot_be_probed_in_time_stays_native() {
    let native = "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx-proxy/dlx' but current is 'dlx'";
    let mut s = comparing(0);
    s.broker(&close(PROBE, 406, native))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    s.broker(&declare_ok(CH, "q")).passes();
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    s.wait(Duration::from_secs(5))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &original())]);
}

#[test]
fn a_queue_that_was_taken_over_is_declared_so_however_slow_the_broker_is() {
    let mut s = taken_over();
    s.broker(&close_ok(PROBE)).silent();
    s.wait(Duration::from_secs(61)).silent();
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    s.wait(Duration::from_secs(5)).silent();
    s.ensured(true).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &if_there(&rewritten())),
    ]);
}

#[test]
fn who_may_not_write_to_the_intake_exchange_gets_a_native_queue() {
    let mut s = comparing(0);
    let text = "ACCESS_REFUSED - write access to exchange 'dlx-proxy/dlx' in vhost '/' refused for user 'guest'";
    s.broker(&close(PROBE, 403, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    assert_left(&s, Fallback::NoPermission);
    assert!(s.ensure.is_empty(), "nothing is left behind");
}

#[test]
fn who_may_not_make_the_queue_hears_it_from_the_broker() {
    let mut s = taken_over().another();
    s.client(&declare_on(CH, "q2", 0, &original()))
        .broker_gets(&[
            &opened(),
            &declare_on(PROBE, "q2", 0, &if_there(&rewritten())),
        ]);
    let text =
        "ACCESS_REFUSED - configure access to queue 'q2' in vhost '/' refused for user 'guest'";
    s.broker(&close(PROBE, 403, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q2", 0, &original())]);
    assert_left(&s, Fallback::Forbidden);
}

#[test]
fn an_exclusive_queue_is_known_to_its_own_session_alone() {
    const EXCLUSIVE: u8 = 4;
    let declares = |channel, table: &[u8]| declare_on(channel, "q", EXCLUSIVE, table);
    let mut s = Script::narrow(settings(Mode::Full), 2);
    s.client(&declares(CH, &original()))
        .broker_gets(&[&opened(), &declares(PROBE, &if_there(&rewritten()))]);
    s.broker(&close(PROBE, 406, ABSENT)).broker_gets(&[
        &close_ok(PROBE),
        &opened(),
        &declares(PROBE, &asking(&original())),
    ]);
    s.broker(&close(PROBE, 406, GRANTED))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&opened(), &declares(PROBE, &rewritten())]);
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declares(CH, &rewritten())]);
    s.broker(&declare_ok(CH, "q")).passes();
    s.broker(&close_ok(PROBE)).silent();
    s.client(&channel_open(2)).passes();
    s.client(&declares(CH, &original())).silent();
    s.ensured(true)
        .broker_gets(&[&declares(CH, &if_there(&rewritten()))]);
    let mut s = limited(s).another();
    s.client(&declares(CH, &original())).passes();
}
