//! Messages that come back into the queues that clients returned them to: by the default exchange, or by one that leads there alone.

use std::time::Duration;

use super::delays::{BIND, EXCHANGE, PUBLISH, methods, sent};
use super::*;
use crate::amqp::ids::name;
use crate::amqp::method::QueueBind;
use crate::amqp::properties::{Change, Edit};
use crate::dead_letter::retries::{Attempts, Counts, OnCrash, Retries, Returned};
use crate::dead_letter::unparked::unparked;
use crate::dead_letter::{
    Death, Dialect, Disposal, Lookup, Return, RuleSettings, come_back, give_back, retry,
};
use crate::machine::Wall;

const RETURN: &str = "dlx-proxy.return/work";

/// When the messages of these tests are delivered, and everything else happens.
const NOW: Wall = Wall(1_700_000_000_000);

/// A message with a minute to live that was published to `x`, comes back at once to its queue `work`, and has a user-id.
pub(super) fn returned(by_exchange: Option<&str>) -> Publication {
    returned_to(by_exchange, false)
}

fn returned_to(by_exchange: Option<&str>, dies_when_full: bool) -> Publication {
    let none = Properties::parse(&[0, 0]).expect("none");
    let edit = Edit {
        expiration: Change::Set(b"60000".to_vec()),
        user_id: Change::Set(b"app".to_vec()),
        ..Edit::default()
    };
    let content = Content {
        properties: none.edit(&edit),
        body: Bytes::from_static(b"hi"),
    };
    let by_exchange = by_exchange.map(name);
    let of = Return {
        death: Death {
            queue: &name("work"),
            reason: Reason::DeliveryLimit,
            exchange: b"x",
            routing_key: b"k",
            content: &content,
            recorded: false,
            by: None,
        },
        returned: Returned::ByNack,
        attempts: Attempts::default(),
        deadline: None,
        queue_ttl: None,
        knows_all: true,
        dies_when_full,
        fits: true,
        delivered: NOW,
        by_exchange: by_exchange.as_ref(),
    };
    let retries = Retries {
        back_off: None,
        limit: Some(3),
        counts: Counts::All,
        on_crash: OnCrash::Requeue,
    };
    let rules = RuleSettings {
        continue_history: true,
    };
    let rules = rules.at(Dialect::V4, 100, Default::default());
    match give_back(&of, &retries, &Lookup::NoExchange, &rules, b"proxy", NOW) {
        Some(Disposal::Retry(publication)) => publication,
        other => panic!("{other:?}"),
    }
}

/// The properties of the only message that was published to the parking queue; the broker confirms it.
fn parked(rig: &mut PublisherRig, key: &str, cause: Cause) -> Bytes {
    let sent = sent(rig);
    assert_eq!(publishes(&sent), [row(2, "dlx-proxy.parked", key, "hi")]);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(cause))]);
    let header = sent.iter().find(|sent| sent.kind == Kind::Header).unwrap();
    Bytes::copy_from_slice(&header.payload[12..])
}

/// Parked, it does not expire; later it is again what it was, with what is left of its time.
fn is_itself_again(parked: &[u8], exchange: &str) -> Publication {
    let properties = Properties::parse(parked).unwrap();
    assert_eq!(properties.get(Property::Expiration), None);
    let later = NOW.after(Duration::from_secs(20));
    let (to, properties) = unparked(parked, b"proxy", later, |_| Lookup::Unknown).unwrap();
    assert_eq!(to.exchange, name(exchange));
    let parsed = Properties::parse(&properties).unwrap();
    assert_eq!(parsed.get(Property::Expiration), Some(&b"40000"[..]));
    let (retry, original) = retry::read(&parsed, b"proxy").expect("a proven table");
    assert_eq!(
        (retry.queue, retry.exchange, retry.routing_key),
        (name("work"), name("x"), name("k"))
    );
    assert_eq!((retry.attempts.all, original.0), (1, Some(&b"app"[..])));
    let table = Table(parsed.headers().unwrap());
    let names = table.fields().map(|field| field.unwrap().name.to_vec());
    assert!(!names.into_iter().any(|name| name.starts_with(b"x-parked-")));
    Publication {
        content: Content {
            properties,
            body: Bytes::from_static(b"hi"),
        },
        queue: name("dlx-proxy.parked"),
        purpose: Purpose::Unpark,
        ..returned(Some(exchange))
    }
}

#[test]
fn what_finds_its_queue_gone_is_parked_as_what_it_is() {
    let mut rig = rig();
    let back = returned(None);
    rig.publish(1, back.clone());
    assert_eq!(rig.published(), [row(1, "", "work", "hi")]);
    rig.give_back(1, "", "work", &back.content);
    rig.ack(1, 1, false);
    let parked = parked(&mut rig, "work", Cause::Unroutable);
    is_itself_again(&parked, "");
}

#[test]
fn an_exchange_that_leads_to_its_queue_is_built_in_front_of_the_first() {
    let mut rig = rig();
    rig.publish(1, returned(Some(RETURN)));
    let sent = sent(&mut rig);
    let on_its_own: Vec<&Sent> = sent.iter().filter(|sent| sent.channel == 3).collect();
    let built = on_its_own.iter().filter_map(|sent| sent.method()).skip(2);
    assert_eq!(built.collect::<Vec<_>>(), [EXCHANGE, BIND, PUBLISH]);
    let declare = [
        b"\x00\x28\x00\x0a\x00\x00\x15dlx-proxy.return/work\x06fanout".as_slice(),
        &[4 | 16, 0, 0, 0, 0], // auto_delete, no_wait
    ];
    assert_eq!(on_its_own[2].payload, declare.concat());
    let bind = QueueBind::parse(&on_its_own[3].payload).unwrap();
    assert_eq!(
        (bind.queue, bind.exchange, bind.routing_key, bind.bits),
        (&b"work"[..], RETURN.as_bytes(), &b""[..], 1)
    );
    assert_eq!(publishes(&sent), [row(3, RETURN, "k", "hi")]);
    rig.events();
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    let queue = name("work");
    assert_eq!(rig.events(), [Event::CameBack { queue }]);
    rig.publish(2, returned(Some(RETURN)));
    assert_eq!(methods(&mut rig), [(3, PUBLISH)]);
}

#[test]
fn where_its_queue_is_gone_that_exchange_tells() {
    for (code, failed, cause) in [
        (404, BIND, Cause::NoExchange),
        (405, BIND, Cause::Forbidden),
        (403, EXCHANGE, Cause::Forbidden),
    ] {
        let mut rig = rig();
        rig.publish(1, returned(Some(RETURN)));
        methods(&mut rig);
        rig.broker(&close(3, code, "no queue", failed));
        let parked = parked(&mut rig, "k", cause);
        // Its queue may be there again: its exchange has gone in any case.
        rig.publish(2, is_itself_again(&parked, RETURN));
        assert_eq!(
            methods(&mut rig),
            [EXCHANGE, BIND, PUBLISH].map(|id| (3, id))
        );
        rig.ack(3, 1, false);
        assert_eq!(rig.settled(), [(2, Outcome::Confirmed)]);
    }
}

/// Its queue was deleted and made anew since the exchange was built.
#[test]
fn an_exchange_that_went_with_its_queue_is_built_again_once() {
    for again in [false, true] {
        let mut rig = rig();
        rig.publish(9, returned(Some(RETURN)));
        methods(&mut rig);
        rig.ack(3, 1, false);
        rig.settled();
        rig.publish(1, returned(Some(RETURN)));
        assert_eq!(methods(&mut rig), [(3, PUBLISH)]);
        rig.close(3, 404, "NOT_FOUND - no exchange");
        assert_eq!(
            methods(&mut rig),
            [EXCHANGE, BIND, PUBLISH].map(|id| (3, id))
        );
        if again {
            rig.close(3, 404, "NOT_FOUND - no exchange");
            parked(&mut rig, "k", Cause::NoExchange);
        } else {
            rig.ack(3, 1, false);
            assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
        }
    }
}

const FULL: Outcome = Outcome::Refused(Cause::QueueFull);

fn waits_for_room(millis: u64) -> Event {
    Event::Retried {
        queue: name("work"),
        delay: Duration::from_millis(millis),
        outcome: FULL,
    }
}

/// A queue that is full refuses what is published into it. A session has the original, which the broker can requeue.
#[test]
fn what_a_full_queue_refuses_is_back_with_its_session() {
    for (by_exchange, channel) in [(None, 1), (Some(RETURN), 3)] {
        let mut rig = rig();
        rig.publish(1, returned(by_exchange));
        methods(&mut rig);
        rig.events();
        rig.nack(channel, 1);
        assert_eq!(rig.settled(), [(1, FULL)], "at once");
        assert_eq!(rig.events(), [waits_for_room(0)], "no dead letter");
    }
}

#[test]
fn what_was_away_waits_for_room_as_often_as_it_has_to_and_that_counts_for_nothing() {
    for (by_exchange, channel, delays) in [(None, 1, 3), (Some(RETURN), 3, 4)] {
        let mut rig = rig();
        rig.now.wall = NOW;
        let back = returned(by_exchange);
        rig.publish_as(INTAKE, vec![(1, back.clone())]);
        methods(&mut rig);
        rig.events();
        rig.nack(channel, 1);
        assert_eq!(
            (rig.settled(), rig.events()),
            (vec![], vec![waits_for_room(1000)])
        );
        let sent = sent(&mut rig);
        assert_eq!(
            publishes(&sent),
            [row(delays, "dlx-proxy.delay", "1000", "hi")]
        );
        let header = sent.iter().find(|sent| sent.kind == Kind::Header).unwrap();
        let away = Content {
            properties: Bytes::copy_from_slice(&header.payload[12..]),
            body: Bytes::from_static(b"hi"),
        };
        rig.ack(delays, 1, false);
        assert_eq!(
            (rig.settled(), rig.events()),
            (vec![(1, Outcome::Confirmed)], vec![])
        );
        // Once more it is what it was.
        let rules = RuleSettings {
            continue_history: true,
        };
        let rules = rules.at(Dialect::V4, 100, Default::default());
        let leads = |_: &[u8]| Some(name(RETURN));
        let unknown = |_: &[u8]| Lookup::Unknown;
        let came = come_back(&away, &rules, b"proxy", |_| false, leads, unknown, NOW);
        assert_eq!(came.map(|came| came.disposal), Some(Disposal::Retry(back)));
    }
}

/// While nothing moves, it is tried the more seldom; all that waits for the same queue waits as long.
#[test]
fn what_waits_for_room_is_tried_after_growing_pauses() {
    let mut rig = rig();
    let mut refused = |tag: u64, millis: u64| {
        rig.publish_as(INTAKE, vec![(tag, returned(None))]);
        rig.published();
        rig.events();
        rig.nack(1, tag);
        assert_eq!(rig.events(), [waits_for_room(millis)]);
        rig.now.mono = rig.now.mono.after(Duration::from_millis(millis / 2));
    };
    for (tag, millis) in (1..).zip([1000, 1000, 2000, 2000, 4000, 4000, 8000, 8000, 8000]) {
        refused(tag, millis);
    }
    rig.publish_as(INTAKE, vec![(10, returned(None))]);
    rig.ack(1, 10, false);
    rig.publish_as(INTAKE, vec![(11, returned(None))]);
    rig.events();
    rig.nack(1, 11);
    assert_eq!(rig.events(), [waits_for_room(1000)], "there was room");
}

/// By an overflow of `reject-publish-dlx` a copy of it is dead-lettered each time: once is enough.
#[test]
fn what_would_die_each_time_is_parked() {
    for owner in [SESSION, INTAKE] {
        let mut rig = rig();
        rig.publish_as(owner, vec![(1, returned_to(None, true))]);
        rig.published();
        rig.nack(1, 1);
        parked(&mut rig, "work", Cause::Nacked);
    }
}

/// What left, is or will be in its delay queue: the session keeps its original anyway.
#[test]
fn in_an_alarm_it_is_waited_for() {
    let mut rig = rig();
    rig.publish(1, returned(None));
    rig.published();
    rig.alarm(true);
    rig.pass(20_000);
    assert_eq!(rig.settled(), []);
    rig.alarm(false);
    rig.ack(1, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}
