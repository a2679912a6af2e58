//! What a client may have of the proxy's memory beside what it retains.

use super::probes::declare_on;
use super::script::*;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Leg, Limit, Machine};
use crate::registry::Form;
use crate::registry::policy::Mode;

fn passive() -> Vec<u8> {
    method(CH, MethodId::QUEUE_DECLARE, |a| {
        a.short(0).shortstr(b"q").octet(1).longstr(b"").end();
    })
}

fn declare_ok() -> Vec<u8> {
    method(CH, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"q").long(0).long(0).end();
    })
}

#[test]
fn a_client_that_asks_without_end_is_not_read_until_half_of_its_replies_came() {
    let settings = settings(Mode::RejectsOnly);
    let most = settings.limits.now().fixed.replies;
    let mut s = Script::open(settings);
    for _ in 0..most {
        s.client(&passive()).passes();
    }
    s.client(&passive()).silent();
    assert_eq!(s.events, [Event::LimitMet(Limit::Replies)]);
    assert!(!s.session.wants_read(Leg::Client, 0));
    assert!(
        s.session.wants_read(Leg::Broker, 1),
        "it may be slow to read"
    );
    for _ in 0..most / 2 {
        assert!(!s.session.wants_read(Leg::Client, 0));
        s.broker(&declare_ok()).passes();
    }
    assert!(s.session.wants_read(Leg::Client, 0));
    s.resume().broker_gets(&[&passive()]);
}

#[test]
fn a_reply_counts_for_what_is_kept_of_its_request() {
    let declare = |name: usize, junk: usize| {
        let mut table = TableBuilder::default();
        let name = vec![b'n'; name];
        table.longstr(b"x-dead-letter-exchange", &name);
        table.longstr(b"x-dead-letter-routing-key", &name);
        table.longstr(b"x-junk", &vec![b'v'; junk]);
        declare_on(CH, "q", 0, &table.finish())
    };
    for (request, kept) in [
        (passive(), 1),
        (declare(3, 100_000), 1),
        (declare(250, 10), 3),
    ] {
        let settings = limited(Mode::RejectsOnly, |limits| limits.fixed.replies = 60);
        let mut s = Script::open(settings);
        for _ in 0..60 / kept {
            s.client(&request).passes();
        }
        s.client(&request).silent();
        assert!(!s.session.wants_read(Leg::Client, 0));
    }
}

#[test]
fn of_a_channel_that_the_broker_closes_no_reply_is_awaited() {
    let settings = limited(Mode::RejectsOnly, |limits| limits.fixed.replies = 60);
    let mut s = Script::open(settings);
    for _ in 0..60 {
        s.client(&passive()).passes();
    }
    s.client(&passive()).silent();
    s.broker(&channel_close()).passes();
    assert!(s.session.wants_read(Leg::Client, 0));
    s.resume().broker_gets(&[&passive()]);
}

#[test]
fn of_the_arguments_of_a_known_queue_only_short_ones_are_kept() {
    let mut table = TableBuilder::default();
    table.longstr(b"junk", b"not compared");
    table.longstr(b"x-dead-letter-exchange", b"dlx");
    table.longstr(b"x-junk", &[b'v'; 100_000]);
    table.long(b"x-max-length", 7);
    let mut kept = TableBuilder::default();
    kept.longstr(b"x-dead-letter-exchange", b"dlx");
    kept.long(b"x-max-length", 7);
    let form = Form::of(QueueDeclare::NO_WAIT | 2, &table.finish());
    assert_eq!((form.bits, form.arguments), (2, kept.finish()));

    let mut many = TableBuilder::default();
    for n in 0..100 {
        many.longstr(format!("x-{n}").as_bytes(), &[b'v'; 100]);
    }
    let octets = Form::of(0, &many.finish()).arguments.len();
    assert!((650..=768).contains(&octets), "{octets}");
}

#[test]
fn a_queue_too_many_is_not_managed() {
    let mut s = Script::open(limited(Mode::RejectsOnly, |limits| limits.fixed.queues = 1))
        .managed("first", target("dlx"))
        .managed("second", target("dlx"));
    assert!(s.events.contains(&Event::LimitMet(Limit::Queues)));
    s.broker(&deliver("first", 1, b"hi")).passes();
    s.broker(&deliver("second", 2, b"hi")).passes();
    s.client(&reject(2, false)).passes();
    s.client(&reject(1, false)).silent();
}

#[test]
fn channels_that_the_broker_will_refuse_are_not_kept() {
    let mut s = Script::narrow(settings(Mode::RejectsOnly), 10);
    for channel in 2..=65_535 {
        let open = method(ChannelId(channel), MethodId::CHANNEL_OPEN, |a| {
            a.shortstr(b"").end()
        });
        s.client(&open).passes();
    }
    assert_eq!(s.session.channels(), 20);
}
