//! A declare that the broker will refuse: what is asked so that it is refused in the words that it would have had for the client's own.

use super::probes::*;
use super::script::*;
use crate::amqp::ids::{ChannelId, name};
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback};
use crate::registry::policy::Mode;

fn table(exchange: &str, queue_type: &str) -> Vec<u8> {
    let mut table = TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", exchange.as_bytes());
    table.longstr(b"x-queue-type", queue_type.as_bytes());
    table.finish()
}

fn inequivalent(argument: &str, received: &str, current: &str) -> String {
    format!(
        "PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'q' in vhost '/': received '{received}' but current is '{current}'"
    )
}

fn exchange(received: &str, current: &str) -> String {
    inequivalent("x-dead-letter-exchange", received, current)
}

fn declares(channel: ChannelId, table: &[u8]) -> Vec<u8> {
    declare_on(channel, "q", 0, table)
}

/// A type that we do not know: is there such a queue?
fn looking() -> Script {
    let mut s = Script::open(settings(Mode::Full));
    s.client(&declares(CH, &table("dlx", "heap")))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 1, b"")]);
    assert!(s.ensure.is_empty(), "nothing is made for it");
    s.broker(&open_ok()).silent();
    s
}

/// There is.
fn found() -> Script {
    let mut s = looking();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&declares(PROBE, &if_there(&table("dlx-proxy/dlx", "heap")))]);
    s
}

#[test]
fn what_is_not_understood_goes_on_as_it_is_where_there_is_no_such_queue() {
    let mut s = looking();
    s.broker(&close(PROBE, 404, "NOT_FOUND - no queue 'q' in vhost '/'"))
        .broker_gets(&[&close_ok(PROBE), &declares(CH, &table("dlx", "heap"))]);
    assert_left(&s, Fallback::NotSupported);
    // Should the broker know it: we do not.
    s.broker(&declare_ok(CH, "q")).passes();
    let managed = |event: &Event| matches!(event, Event::QueueManaged { .. });
    assert!(!s.events.iter().any(managed), "{:?}", s.events);
}

#[test]
fn of_a_queue_of_ours_the_broker_says_what_is_not_understood() {
    let mut s = found();
    s.broker(&close(
        PROBE,
        406,
        &exchange("dlx-proxy/dlx", "dlx-proxy+/dlx"),
    ))
    .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&declares(CH, &if_there(&table("dlx-proxy+/dlx", "heap")))]);
    let text = inequivalent("x-queue-type", "heap", "quorum");
    s.broker(&close(CH, 406, &text)).passes();
}

#[test]
fn or_what_comes_before_that() {
    let mut s = found();
    let text = exchange("dlx-proxy/dlx", "dlx-proxy+/other");
    s.broker(&close(PROBE, 406, &text)).broker_gets(&[
        &close_ok(PROBE),
        &declares(CH, &if_there(&table("dlx-proxy/dlx", "heap"))),
    ]);
    s.broker(&close(CH, 406, &text))
        .client_gets(&[&close(CH, 406, &exchange("dlx", "other"))]);
}

#[test]
fn of_a_native_queue_it_says_everything() {
    let mut s = found();
    s.broker(&close(PROBE, 406, &exchange("dlx-proxy/dlx", "other")))
        .broker_gets(&[&close_ok(PROBE), &declares(CH, &table("dlx", "heap"))]);
    s.broker(&close(CH, 406, &exchange("dlx", "other")))
        .passes();
}

/// The form that makes no queue was refused so; this one goes on, and what the broker says of that, the client reads so.
#[test]
fn what_goes_on_and_what_the_client_reads_of_it() {
    let there = if_there(&rewritten());
    let length = inequivalent("x-max-length", "6", "5");
    let invalid = "PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'q' in vhost '/': {value_negative,-5}";
    let another = exchange("dlx-proxy/dlx", "dlx-proxy/other");
    let with_key = exchange("dlx", "dlx-proxy/other/k");
    let cases = [
        // It has native arguments: what it was declared with fits.
        (exchange("dlx-proxy/dlx", "dlx"), original(), None),
        // Another target.
        (
            another.clone(),
            there.clone(),
            Some((another, exchange("dlx", "other"))),
        ),
        // What has nothing to do with dead letters is told in the broker's words.
        (length.clone(), there, Some((length.clone(), length))),
        // There is none, and the original is refused for the same; or the queue has gone.
        (
            invalid.to_owned(),
            original(),
            Some((invalid.to_owned(), invalid.to_owned())),
        ),
        // The text was cut: what was sent in the end is the client's own.
        (
            exchange("dlx-proxy/dlx", "dlx-proxy/d...").replace("...'", "..."),
            original(),
            Some((with_key, exchange("dlx", "other' with the key 'k"))),
        ),
    ];
    for (refused, form, told) in cases {
        let mut s = comparing(0);
        s.broker(&close(PROBE, 406, &refused))
            .broker_gets(&[&close_ok(PROBE), &declares(CH, &form)]);
        assert!(s.ensure.is_empty());
        match told {
            None => s.broker(&declare_ok(CH, "q")).passes(),
            Some((said, read)) => s
                .broker(&close(CH, 406, &said))
                .client_gets(&[&close(CH, 406, &read)]),
        }
    }
}

#[test]
fn another_type_than_the_queues_is_told_by_the_broker() {
    let mut s = comparing(0);
    let text = exchange("dlx-proxy/dlx", "dlx-proxy+/dlx");
    s.broker(&close(PROBE, 406, &text))
        .broker_gets(&[&close_ok(PROBE)]);
    assert_eq!(s.ensure[0].exchange, name("dlx-proxy+/dlx"));
    let mut table = TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"dlx-proxy+/dlx");
    s.ensured(true)
        .broker_gets(&[&declares(CH, &if_there(&table.finish()))]);
    let text = inequivalent("x-queue-type", "classic", "quorum");
    s.broker(&close(CH, 406, &text)).passes();
}

#[test]
fn a_name_that_the_broker_makes_is_native_while_the_intake_is_away() {
    let mut s = permitted_a_name();
    s.ensured(false)
        .broker_gets(&[&declare_on(CH, "", 0, &original())]);
    assert_left(&s, Fallback::NoIntake);
    s.broker(&declare_ok(CH, "amq.gen-1")).passes();
}

#[test]
fn and_where_its_user_may_not_write_to_the_intake_exchange() {
    let mut s = comparing_a_name();
    let text = "ACCESS_REFUSED - write access to exchange 'dlx-proxy/dlx' in vhost '/' refused for user 'guest'";
    s.broker(&close(PROBE, 403, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "", 0, &original())]);
    assert_left(&s, Fallback::NoPermission);
    assert!(s.ensure.is_empty());
}

/// It says so after all that a probe asks: an intake exchange would be made for nothing.
#[test]
fn a_quorum_queue_that_no_broker_makes_gets_no_intake_exchange() {
    const DURABLE: u8 = 2;
    const EXCLUSIVE: u8 = 4;
    let absent = "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue";
    for (bits, asked) in [(DURABLE, true), (0, false), (DURABLE | EXCLUSIVE, false)] {
        let mut s = comparing(bits);
        let unchanged = declare_on(CH, "q", bits, &original());
        let permission = declare_on(PROBE, "q", bits, &asking(&original()));
        let (closed, open) = (close_ok(PROBE), opened());
        let expected: &[&[u8]] = match asked {
            true => &[&closed, &open, &permission],
            false => &[&closed, &unchanged],
        };
        s.broker(&close(PROBE, 406, absent)).broker_gets(expected);
        assert!(s.ensure.is_empty());
    }
}
