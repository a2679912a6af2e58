//! What a client may have of the proxy's memory beside what it retains.

use super::script::*;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::machine::{Bound, Event, Leg, Machine};
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
    let settings = settings(Mode::Keep);
    let most = settings.limits.now().max_replies;
    let mut s = Script::open(settings);
    for _ in 0..most {
        s.client(&passive()).passes();
    }
    s.client(&passive()).silent();
    assert_eq!(s.events, [Event::BoundMet(Bound::Replies)]);
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
fn a_queue_too_many_is_not_managed() {
    let mut s = Script::open(limited(Mode::Keep, |limits| limits.max_queues = 1))
        .managed("first", target("dlx"))
        .managed("second", target("dlx"));
    assert!(s.events.contains(&Event::BoundMet(Bound::Queues)));
    s.broker(&deliver("first", 1, b"hi")).passes();
    s.broker(&deliver("second", 2, b"hi")).passes();
    s.client(&reject(2, false)).passes();
    s.client(&reject(1, false)).silent();
}

#[test]
fn channels_that_the_broker_will_refuse_are_not_kept() {
    let mut s = Script::narrow(settings(Mode::Keep), 10);
    for channel in 2..=65_535 {
        let open = method(ChannelId(channel), MethodId::CHANNEL_OPEN, |a| {
            a.shortstr(b"").end()
        });
        s.client(&open).passes();
    }
    assert_eq!(s.session.channels(), 20);
}
