//! What clients read as `redelivered` of dead letters that the proxy published.

use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::{DeliveryTag, name};
use crate::amqp::method::{Deliver, GetOk, MethodId};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::amqp::version::Version;
use crate::dead_letter::redelivered::published;
use crate::objects::QueueType;
use crate::registry::catalogue::Told;
use crate::registry::catalogue::fact::Source;
use crate::registry::policy::Mode;

/// The wall clock of a script.
const NOW: u64 = 1000;

/// A delivery to the consumer `q`, in frames.
fn delivery(tag: u64, redelivered: bool, properties: &[u8]) -> [Vec<u8>; 2] {
    let mut method = Vec::new();
    let deliver = Deliver {
        consumer_tag: b"q",
        delivery_tag: DeliveryTag(tag),
        redelivered,
        exchange: b"x",
        routing_key: b"k",
    };
    reply::deliver(&mut method, CH, &deliver);
    [method, content(properties)]
}

fn fetched(redelivered: bool, properties: &[u8]) -> [Vec<u8>; 2] {
    let mut method = Vec::new();
    let got = GetOk {
        delivery_tag: DeliveryTag(1),
        redelivered,
        exchange: b"x",
        routing_key: b"k",
        message_count: 7,
    };
    reply::get_ok(&mut method, CH, &got);
    [method, content(properties)]
}

fn content(properties: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, 2, CH, |out| {
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&2u64.to_be_bytes());
        out.extend_from_slice(properties);
    });
    out.extend(body(b"hi"));
    out
}

fn with(headers: TableBuilder) -> Vec<u8> {
    let edit = Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    };
    let none = Properties::parse(&[0, 0]).expect("none");
    none.edit(&edit).to_vec()
}

/// Properties of what the proxy has published then.
fn failed(at: u64) -> Vec<u8> {
    let mut headers = TableBuilder::default();
    headers.timestamp(b"x-dlx-proxy-redelivered", at);
    with(headers)
}

fn shown() -> Vec<u8> {
    with(TableBuilder::default())
}

fn version(mut script: Script, version: Version) -> Script {
    script.session.peer.version = Some(version);
    script
}

/// A session in which `q` is a quorum queue.
fn of_quorum_queue() -> Script {
    of(true)
}

/// A session in which `q` is a classic queue.
fn of_classic_queue() -> Script {
    of(false)
}

fn of(quorum: bool) -> Script {
    let settings = settings(Mode::Keep);
    let catalogue = settings.catalogue.clone();
    let script = Script::open(settings);
    let queue_type = match quorum {
        true => QueueType::Quorum,
        false => QueueType::Classic,
    };
    let vhost = &script.session.peer.vhost;
    let told = Told::Type(queue_type);
    catalogue.learn(vhost, &name("q"), &told, Source::Declare, script.now.mono);
    script
}

#[test]
fn a_quorum_queue_shows_it_since_4_0() {
    for (numbers, shows) in [
        (Version(3, 13, 7), false),
        (Version(4, 0, 5), true),
        (Version(4, 3, 6), true),
    ] {
        let mut s = version(of_quorum_queue().consume("q"), numbers);
        s.broker(&delivery(1, false, &failed(NOW)).concat())
            .client_gets(&[&delivery(1, shows, &shown()).concat()]);
    }
}

#[test]
fn a_classic_queue_shows_it_since_4_3_to_those_who_came_later() {
    for (numbers, at, shows) in [
        (Version(4, 2, 9), NOW - 1, false),
        (Version(4, 3, 0), NOW - 1, true),
        (Version(4, 3, 0), NOW, false),
    ] {
        let mut s = version(of_classic_queue().consume("q"), numbers);
        s.broker(&delivery(1, false, &failed(at)).concat())
            .client_gets(&[&delivery(1, shows, &shown()).concat()]);
    }
}

#[test]
fn what_is_fetched_was_in_its_queue() {
    let unknown = || Script::open(settings(Mode::Keep));
    for (numbers, s, shows) in [
        (Version(4, 2, 9), of_classic_queue(), false),
        (Version(4, 2, 9), of_quorum_queue(), true),
        (Version(4, 2, 9), unknown(), true),
        (Version(4, 3, 0), of_classic_queue(), true),
        (Version(4, 3, 0), unknown(), true),
    ] {
        let mut s = version(s, numbers);
        s.client(&get("q")).passes();
        s.broker(&fetched(false, &failed(NOW + 1)).concat())
            .client_gets(&[&fetched(shows, &shown()).concat()]);
    }
}

#[test]
fn the_method_waits_for_its_header() {
    let mut s = of_quorum_queue().consume("q");
    let [method, content] = delivery(1, false, &failed(NOW));
    let (head, rest) = content.split_at(12);
    s.broker(&method).silent();
    s.broker(head).silent();
    s.broker(rest)
        .client_gets(&[&delivery(1, true, &shown()).concat()]);
    s.client(&get("q")).passes();
    let [method, content] = fetched(false, &shown());
    s.broker(&method).silent();
    s.broker(&content)
        .client_gets(&[&fetched(false, &shown()).concat()]);
}

#[test]
fn a_declare_tells_the_type() {
    let declare = |kind: &str| {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", kind.as_bytes());
        let arguments = arguments.finish();
        method(CH, MethodId::QUEUE_DECLARE, |a| {
            a.short(0).shortstr(b"q").octet(2).longstr(&arguments).end();
        })
    };
    let declared = method(CH, MethodId::QUEUE_DECLARE_OK, |a| {
        a.shortstr(b"q").long(0).long(0).end();
    });
    let mut s = Script::open(settings(Mode::Keep)).consume("q");
    for (kind, shows) in [("quorum", true), ("classic", false)] {
        s.client(&declare(kind)).passes();
        s.broker(&declared).passes();
        s.broker(&delivery(1, false, &failed(NOW)).concat())
            .client_gets(&[&delivery(1, shows, &shown()).concat()]);
    }
}

#[test]
fn the_dead_letter_of_a_failed_delivery_says_so() {
    let counts = |failed: i64| {
        let mut headers = TableBuilder::default();
        headers.long(b"x-acquired-count", 2);
        headers.long(b"x-delivery-count", failed);
        with(headers)
    };
    let rejected = |s: &mut Script, tag, redelivered, properties: &[u8], nacked| {
        let _delivered = s.broker(&delivery(tag, redelivered, properties).concat());
        let _ignored = s.sent_to_client();
        let word = match nacked {
            true => nack(tag, false, false),
            false => reject(tag, false),
        };
        s.client(&word).silent();
        let dead = s.dead.pop().expect("a dead letter");
        published(&dead.1.content.properties) == Some(NOW)
    };
    let mut s = Script::open(settings(Mode::Keep)).managed("q", target("dlx"));
    assert!(rejected(&mut s, 1, false, &[0, 0], false));
    assert!(!rejected(&mut s, 2, false, &[0, 0], true));
    // Classic: it may have come back by a failure.
    assert!(rejected(&mut s, 3, true, &[0, 0], true));
    // Said at an earlier death.
    assert!(rejected(&mut s, 4, false, &failed(NOW - 5), true));
    let mut s = Script::open(settings(Mode::Keep)).managed("q", target("dlx"));
    assert!(!rejected(&mut s, 1, true, &counts(0), true));
    assert!(rejected(&mut s, 2, true, &counts(1), true));
    let s = Script::open(settings(Mode::Keep)).managed("q", target("dlx"));
    let mut s = version(s, Version(4, 2, 9));
    assert!(!rejected(&mut s, 1, true, &[0, 0], false));
}
