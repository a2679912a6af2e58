//! What nobody here has to touch passes as it came.

use super::script::*;
use super::words::shown;
use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::machine::{Event, Leg};
use crate::registry::policy::Mode;

fn keep() -> Script {
    Script::open(settings(Mode::RejectsOnly))
}

#[test]
fn frames_pass_in_whatever_pieces_they_come() {
    let mut all = deliver("c", 1, b"hello");
    all.extend(method(CH, MethodId(60, 999), |a| a.longlong(7).end()));
    all.extend(frame::HEARTBEAT);
    all.extend(deliver("c", 2, b""));
    for cut in 1..all.len() {
        let mut script = keep();
        let mut out = Vec::new();
        for piece in all.chunks(cut) {
            let mut offered = std::mem::take(&mut out);
            let _ = script.broker(piece);
            offered.extend(script.sent_to_client());
            out = offered;
        }
        assert_eq!(shown(&out), shown(&all), "pieces of {cut}");
    }
}

#[test]
fn another_protocol_is_none_of_our_business() {
    let mut script = Script::fresh(settings(Mode::RejectsOnly));
    script.client(b"AMQP\x00\x01\x00\x00").passes();
    script.broker(b"AMQP\x03\x01\x00\x00").passes();
    script.client(b"\x00\x00\x00").passes();
}

#[test]
fn a_protocol_header_may_come_in_pieces() {
    let mut script = Script::fresh(settings(Mode::RejectsOnly));
    script.client(b"AMQ").silent();
    script
        .client(b"P\x00\x00\x09\x01")
        .broker_gets(&[&frame::PROTOCOL]);
}

/// RabbitMQ counts the payload alone, so it takes a frame that is 8 bytes larger.
#[test]
fn a_frame_is_awaited_up_to_the_largest_that_the_broker_takes() {
    for (bytes, awaited) in [(131_072u32, true), (131_073, false)] {
        let mut script = keep();
        let mut head = vec![1, 0, 1];
        head.extend(bytes.to_be_bytes());
        let given = script.client(&head);
        if awaited {
            given.silent();
        } else {
            given.passes();
        }
    }
    // Whole it is no other.
    let mut script = keep();
    let mut frame = Vec::new();
    frame::put(&mut frame, 1, CH, |out| out.extend([0; 131_073]));
    script.client(&frame).passes();
    assert!(matches!(
        script.events[..],
        [Event::ProtocolFault {
            leg: Leg::Client,
            ..
        }]
    ));
}

/// The header frame of a content without a body.
fn empty_with(headers: TableBuilder) -> Vec<u8> {
    let edit = Edit {
        headers: Change::Set(headers.finish()),
        ..Edit::default()
    };
    let none = Properties::parse(&[0, 0]).expect("none");
    let mut out = Vec::new();
    frame::put(&mut out, 2, CH, |out| {
        out.extend([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&none.edit(&edit));
    });
    out
}

#[test]
fn the_keys_of_a_bcc_are_kept_with_the_routing_key() {
    let content = |kept: &[&[u8]]| {
        let mut headers = TableBuilder::default();
        for (name, keys) in [(&b"BCC"[..], &[&b"b"[..]][..]), (b"x-dlx-proxy-bcc", kept)] {
            let mut array = ArrayBuilder::default();
            for key in keys {
                array.longstr(key);
            }
            if !keys.is_empty() {
                headers.array(name, &array);
            }
        }
        empty_with(headers)
    };
    let mut script = keep();
    for key in [&b"other"[..], b"k"] {
        let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
            a.short(0).shortstr(b"x").shortstr(key).octet(0).end()
        });
        script.client(&publish).passes();
        script
            .client(&content(&[]))
            .broker_gets(&[&content(&[key, b"b"])]);
    }
}

/// Nobody's publish is refused for what we add to it; and nobody gets a private name past us by that.
#[test]
fn a_header_that_would_not_fit_into_a_frame_any_more_passes_without_an_addition() {
    let content = |bytes: usize, kept: &[&[u8]], forged: bool| {
        let mut headers = TableBuilder::default();
        let array = |keys: &[&[u8]]| {
            let mut array = ArrayBuilder::default();
            for key in keys {
                array.longstr(key);
            }
            array
        };
        headers.array(b"BCC", &array(&[b"b"]));
        headers.longstr(b"pad", &vec![b'x'; bytes]);
        if !kept.is_empty() {
            headers.array(b"x-dlx-proxy-bcc", &array(kept));
        }
        if forged {
            headers.longstr(b"x-dlx-proxy-user-id", b"root");
        }
        empty_with(headers)
    };
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"x").shortstr(b"k").octet(0).end()
    });
    let kept: &[&[u8]] = &[b"k", b"b"];
    let fits = 131_072 + 8 - content(0, kept, false).len();
    let cases = [
        (fits, kept, false),
        (fits + 1, &[], false),
        (fits + 1, &[], true),
    ];
    for (bytes, kept, forged) in cases {
        let mut script = keep();
        script.client(&publish).passes();
        script
            .client(&content(bytes, &[], forged))
            .broker_gets(&[&content(bytes, kept, false)]);
        let dropped = |event: &Event| matches!(event, Event::EditDropped);
        assert_eq!(script.events.iter().any(dropped), kept.is_empty());
    }
}

#[test]
fn a_broker_that_is_too_old_gets_everything() {
    let mut script = Script::fresh(settings(Mode::Full));
    script.client(&frame::PROTOCOL).passes();
    script.handshake(b"3.9.29");
    script.client(&nack(1, false, false)).passes();
}

#[test]
fn another_protocol_may_be_half_closed_too() {
    let mut script = Script::fresh(settings(Mode::RejectsOnly));
    script.client(b"AMQP\x00\x01\x00\x00").passes();
    script.gone(Leg::Client).silent();
    script.broker(b"AMQP\x00\x00\x09\x01").passes();
}

/// The broker speaks another version of it, says which, and hangs up.
#[test]
fn a_protocol_that_the_broker_refuses_is_answered_by_its_own() {
    let mut script = Script::fresh(settings(Mode::RejectsOnly));
    script.client(&frame::PROTOCOL).passes();
    script.broker(b"AMQP\x03\x01\x00\x00").passes();
}

#[test]
fn who_says_what_cannot_be_read_as_a_login_is_the_brokers() {
    let mut script = Script::fresh(settings(Mode::RejectsOnly));
    script.client(&frame::PROTOCOL).passes();
    let zero = ChannelId::CONNECTION;
    script
        .client(&method(zero, MethodId::CONNECTION_START_OK, |a| {
            a.octet(9).end()
        }))
        .passes();
}
