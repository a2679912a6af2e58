//! Returns that cannot be published: they stay unsettled and are tried again, as rejects that the broker must not see (`kept.rs`).

use std::time::Duration;

use super::order::{consume, consume_ok};
use super::retries::{AWAY, CONFIRMED, declared, of, said, with};
use super::script::*;
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::amqp::version::Version;
use crate::machine::*;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::policy::Mode;
use crate::registry::{Declared, Form};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn kept(queue: &str, cause: Fallback) -> Event {
    Event::Kept {
        queue: name(queue),
        returned: true,
        cause,
    }
}

fn refused(cause: Cause) -> Outcome {
    Outcome::Refused(cause)
}

/// The queue of `with`, as a quorum queue with these arguments at that version.
fn quorum(settings: crate::session::Settings, arguments: Vec<u8>, version: Version) -> Script {
    let form = Form { bits: 0, arguments };
    let quorum = Declared {
        queue_type: QueueType::Quorum,
        form,
        ..declared(said(Some(1000), None))
    };
    let mut s = of(settings, quorum);
    s.session.peer.version = Some(version);
    s
}

#[test]
fn what_is_refused_stays_and_is_sent_away_after_growing_pauses() {
    for word in [nack(1, false, true), reject(1, true)] {
        let mut s = with(1);
        s.client(&word).silent();
        for pause in [1, 2, 4] {
            let ticket = s.ticket();
            s.settled(&[(ticket, AWAY)]).silent();
            assert_eq!((s.session.withheld(), s.dead.len()), (1, 0));
            s.wait(pause * SECOND).silent();
        }
        let away = Fallback::Refused(Cause::PublisherAway);
        assert_eq!(s.events, [kept("orders", away)], "said once");
        let again = &s.dead[0].1;
        assert_eq!(again.purpose, Purpose::Delay(SECOND), "no attempt counted");
        let ticket = s.ticket();
        s.settled(&[(ticket, CONFIRMED)])
            .broker_gets(&[&ack(1, false)]);
        assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
    }
}

/// A `multiple` that has waited for too long passes over it, and not as the client's words.
#[test]
fn what_is_kept_is_settled_by_no_later_word_of_an_impatient_client() {
    let mut s = with(3);
    s.client(&nack(1, false, true)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, AWAY)]).silent();
    s.client(&get("other")).passes();
    s.client(&nack(4, true, false)).silent();
    s.wait(5 * SECOND)
        .broker_gets(&[&nack(2, false, false), &nack(3, false, false)]);
    assert_eq!(s.session.withheld(), 1);
}

/// A cancel that waited before it has used up its patience.
#[test]
fn a_single_word_of_an_impatient_client_settles_no_other_delivery() {
    const NO_WAIT: u8 = 8;
    let mut s = with(3);
    s.client(&nack(1, false, true)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, AWAY)]).silent();
    s.client(&consume("other", "c", NO_WAIT))
        .broker_gets(&[&consume("other", "c", 0)]);
    s.client(&get("other")).passes();
    s.client(&cancel("c", 0)).silent();
    s.wait(5 * SECOND).silent();
    s.broker(&consume_ok("c")).silent();
    s.wait(5 * SECOND).broker_gets(&[&cancel("c", 0)]);
    s.client(&ack(3, false)).passes();
}

#[test]
fn what_is_on_its_way_when_close_wait_is_over_stays_so() {
    let mut s = with(2);
    s.client(&nack(1, false, true)).silent();
    let ticket = s.ticket();
    s.client(&cancel("orders", 0)).silent();
    s.wait(5 * SECOND).broker_gets(&[&cancel("orders", 0)]);
    let met = Event::LimitMet(Limit::CloseWait);
    assert_eq!(s.events, [met, kept("orders", Fallback::CloseWait)]);
    s.settled(&[(ticket, CONFIRMED)])
        .broker_gets(&[&ack(1, false)]);
    // With its channel the broker returns it.
    s.client(&nack(2, false, true)).silent();
    let ticket = s.ticket();
    s.client(&channel_close()).silent();
    s.wait(5 * SECOND).broker_gets(&[&channel_close()]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
    s.settled(&[(ticket, AWAY)]).silent();
}

#[test]
fn retries_that_end_meanwhile_leave_it_to_the_broker() {
    let settings = settings(Mode::RejectsOnly);
    let policies = settings.policies.clone();
    policies.set_ours(super::retries::policy(said(Some(1000), None)));
    let mut s = Script::open(settings).consume("orders");
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, true)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, AWAY)]).silent();
    policies.set_ours(Default::default());
    s.wait(SECOND).broker_gets(&[&nack(1, false, true)]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
}

#[test]
fn without_a_copy_it_is_returned_after_growing_pauses_while_that_does_no_harm() {
    let small = || {
        limited(Mode::RejectsOnly, |limits| {
            limits.retained_bytes_per_connection = 100
        })
    };
    let counted = |count| {
        let headers = super::retries::table(|headers| {
            headers.long(b"x-delivery-count", count);
        });
        let mut message = super::message::published();
        message.properties = [
            &[0x20, 0][..],
            &(headers.len() as u32).to_be_bytes(),
            &headers,
        ]
        .concat();
        message.delivered(1).concat()
    };
    for (version, count, returned) in [
        (Version(4, 2, 9), 4, true),
        (Version(4, 2, 9), 5, false),
        (Version(4, 3, 6), 19, true),
    ] {
        let mut s = quorum(small(), Vec::new(), version);
        s.broker(&counted(count)).passes();
        s.events.clear();
        s.client(&reject(1, true)).silent();
        assert_eq!(s.events, [kept("orders", Fallback::Budget)]);
        match returned {
            true => s.wait(SECOND).broker_gets(&[&nack(1, false, true)]),
            false => s.wait(1000 * SECOND).silent(),
        }
        s.client(&channel_close()).passes();
    }
    // Its rejects are the broker's, as there is nothing that only we know.
    let mut s = quorum(small(), Vec::new(), Version(4, 2, 9));
    s.broker(&counted(0)).passes();
    s.client(&reject(1, false)).passes();
}

#[test]
fn a_queue_that_is_full_takes_back_what_would_have_come_back_at_once() {
    let full = refused(Cause::QueueFull);
    let mut s = of(settings(Mode::RejectsOnly), declared(said(None, Some(2))));
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, true)).silent();
    let ticket = s.ticket();
    s.settled(&[(ticket, full)])
        .broker_gets(&[&nack(1, false, true)]);
    let (queue, cause) = (name("orders"), Fallback::Refused(Cause::QueueFull));
    assert_eq!(s.events, [Event::ReturnForwarded { queue, cause }]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
}

#[test]
fn what_is_too_large_to_be_away_dies() {
    for (dlx, purpose) in [
        (true, Purpose::Death),
        (false, Purpose::Park(Cause::TargetUnknown)),
    ] {
        let mut s = with(0);
        if dlx {
            let form = Form::of(0, &{
                let mut arguments = TableBuilder::default();
                arguments.longstr(b"x-dead-letter-exchange", b"dlx");
                arguments.finish()
            });
            let dying = Declared {
                said: DeclaredTarget::Target(target("dlx")),
                form,
                ..declared(said(Some(1000), None))
            };
            s = of(settings(Mode::RejectsOnly), dying);
        }
        s.broker(&deliver("orders", 1, b"hi")).passes();
        s.client(&nack(1, false, true)).silent();
        let ticket = s.ticket();
        s.settled(&[(ticket, refused(Cause::TooBig))]).silent();
        let too_big = Fallback::Refused(Cause::TooBig);
        assert_eq!(s.events, [kept("orders", too_big)]);
        s.wait(SECOND).silent();
        let dead = &s.dead[0].1;
        assert_eq!(
            (dead.purpose, dead.reason),
            (purpose, Reason::DeliveryLimit)
        );
        // Too large for that, too.
        let ticket = s.ticket();
        match dlx {
            true => s
                .settled(&[(ticket, refused(Cause::TooBig))])
                .broker_gets(&[&nack(1, false, false)]),
            false => {
                s.settled(&[(ticket, refused(Cause::TooBig))]).silent();
                s.wait(2 * SECOND).broker_gets(&[&nack(1, false, true)]);
            }
        }
        assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
    }
}

#[test]
fn it_goes_back_in_half_of_the_time_in_which_the_broker_waits() {
    let mut arguments = TableBuilder::default();
    arguments.long(b"x-consumer-timeout", 60_000);
    let mut s = quorum(
        settings(Mode::RejectsOnly),
        arguments.finish(),
        Version(4, 3, 6),
    );
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&nack(1, false, true)).silent();
    for pause in [1, 2, 4, 8, 16] {
        let ticket = s.ticket();
        s.settled(&[(ticket, AWAY)]).silent();
        if pause == 16 {
            break;
        }
        s.wait(pause * SECOND).silent();
    }
    s.wait(16 * SECOND).broker_gets(&[&nack(1, false, true)]);
    assert_eq!((s.session.retained(), s.session.withheld()), (0, 0));
}
