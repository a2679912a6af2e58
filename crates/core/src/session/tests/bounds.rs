//! What a client may have of the proxy's memory beside what it retains.

use super::script::*;
use super::transcripts::after;
use super::words::frames;
use crate::amqp::ids::name;
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback, Leg, Limit, Machine};
use crate::registry::Form;

#[test]
fn a_client_that_asks_without_end_is_not_read_until_half_of_its_replies_came() {
    let (passive, ok) = (frames("declare q +passive"), frames("declare-ok q"));
    let mut s = after("session rejects-only replies=60");
    for _ in 0..60 {
        s.client(&passive).passes();
    }
    s.client(&passive).silent();
    assert_eq!(s.events, [Event::LimitMet(Limit::Replies)]);
    assert!(
        s.session.wants_read(Leg::Broker, 1),
        "it may be slow to read"
    );
    for _ in 0..30 {
        assert!(!s.session.wants_read(Leg::Client, 0));
        s.broker(&ok).passes();
    }
    assert!(s.session.wants_read(Leg::Client, 0));
    s.resume().broker_gets(&[&passive]);
    // Of a channel that the broker closes no reply is awaited.
    for _ in 1..30 {
        s.client(&passive).passes();
    }
    s.client(&passive).silent();
    s.broker(&frames("close 200 bye")).passes();
    assert!(s.session.wants_read(Leg::Client, 0));
}

#[test]
fn a_reply_counts_for_what_is_kept_of_its_request() {
    let declare = |name: usize, junk: usize| {
        let (name, junk) = ("n".repeat(name), "v".repeat(junk));
        let target = format!("x-dead-letter-exchange={name} x-dead-letter-routing-key={name}");
        frames(&format!("declare q {{{target} x-junk={junk}}}"))
    };
    for (request, kept) in [
        (frames("declare q +passive"), 1),
        (declare(1, 100_000), 1),
        (declare(250, 10), 3),
    ] {
        let mut s = after("session rejects-only replies=60");
        for _ in 0..60 / kept {
            s.client(&request).passes();
        }
        s.client(&request).silent();
        assert!(!s.session.wants_read(Leg::Client, 0));
    }
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
    let bytes = Form::of(0, &many.finish()).arguments.len();
    assert!((650..=768).contains(&bytes), "{bytes}");
}

#[test]
fn channels_that_the_broker_will_refuse_are_not_kept() {
    let mut s = after("session rejects-only channels=10");
    for channel in 2..=65_535 {
        s.client(&frames(&format!("@{channel} open"))).passes();
    }
    assert_eq!(s.session.channels(), 20);
}

/// What could make the broker close the channel waits for withheld rejects: so does a publish to an exchange of which nothing is known any more.
#[test]
fn so_many_exchanges_are_believed_to_be_there() {
    let mut s = after(
        "session rejects-only
        manages orders {x-dead-letter-exchange=dlx}
        consumes orders",
    );
    for n in 0..=1000 {
        let declare = frames(&format!("exchange.declare {n} fanout"));
        s.client(&declare).passes();
        s.broker(&frames("exchange.declare-ok")).passes();
    }
    s.broker(&deliver("orders", 1, b"hi")).passes();
    s.client(&reject(1, false)).silent();
    s.client(&frames("publish 1000 k ; header 0")).passes();
    s.client(&frames("publish 0 k ; header 0")).silent();
}

#[test]
fn a_declare_that_would_grow_over_the_frame_stays_as_it_is() {
    let declare = |exchange: &str, rest: &str| {
        let filler = "x".repeat(4000);
        format!("declare q {{x-dead-letter-exchange={exchange} x={filler}{rest}}}")
    };
    let asked = frames(&declare("dlx", ""));
    let grown = declare("dlx-proxy/dlx", " x-max-age=never");
    // 10 bytes for the prefix, 2 for that of another type, 20 for the argument that makes no queue.
    for (room, fits) in [(0, false), (31, false), (32, true)] {
        let frame_max = asked.len() - 8 + room;
        let mut s = after(&format!("session full frame-max={frame_max}"));
        if fits {
            let grown = frames(&format!("probe open ; probe {grown}"));
            s.client(&asked).broker_gets(&[&grown]);
        } else {
            s.client(&asked).passes();
            let (queue, cause) = (name("q"), Fallback::FrameMax);
            assert_eq!(s.events, [Event::DeclareLeft { queue, cause }]);
        }
    }
}
