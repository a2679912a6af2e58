//! With TLS on the way to the broker nobody logs in by EXTERNAL, however the frames come.

use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::{Event, Flow, Machine};
use crate::registry::policy::Mode;
use crate::session::External;

const ZERO: ChannelId = ChannelId::CONNECTION;
const WORDS: &[u8] = b"ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. For details see the broker logfile.";

fn with(external: External) -> Script {
    Script::behind(external, settings(Mode::RejectsOnly))
}

fn start(mechanisms: &[u8]) -> Vec<u8> {
    method(ZERO, MethodId::CONNECTION_START, |a| {
        a.short(9)
            .longstr(b"")
            .longstr(mechanisms)
            .longstr(b"en_US")
            .end();
    })
}

fn start_ok(mechanism: &[u8]) -> Vec<u8> {
    method(ZERO, MethodId::CONNECTION_START_OK, |a| {
        a.longstr(b"")
            .shortstr(mechanism)
            .longstr(b"\0guest\0guest")
            .shortstr(b"en_US")
            .end();
    })
}

fn refusal() -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(&mut out, ZERO, 403, WORDS, MethodId::CONNECTION_START_OK);
    out
}

fn greeted(external: External) -> Script {
    let mut script = with(external);
    script.client(&frame::PROTOCOL).passes();
    script
}

#[test]
fn external_passes_only_where_the_way_to_the_broker_is_without_tls() {
    assert_eq!(External::of(None), External::Passes);
    assert_eq!(External::of(Some(false)), External::NotOffered);
    assert_eq!(External::of(Some(true)), External::Guarded);
}

#[test]
fn it_is_left_out_of_what_the_broker_offers() {
    for (offered, left) in [
        ("PLAIN AMQPLAIN EXTERNAL", "PLAIN AMQPLAIN"),
        ("EXTERNAL PLAIN", "PLAIN"),
        ("PLAIN External AMQPLAIN", "PLAIN AMQPLAIN"),
        ("EXTERNAL", ""),
        ("PLAIN AMQPLAIN", "PLAIN AMQPLAIN"),
        ("PLAIN EXTERNALLY", "PLAIN EXTERNALLY"),
    ] {
        for external in [External::NotOffered, External::Guarded] {
            let mut script = greeted(external);
            script
                .broker(&start(offered.as_bytes()))
                .client_gets(&[&start(left.as_bytes())]);
        }
        greeted(External::Passes)
            .broker(&start(offered.as_bytes()))
            .passes();
    }
}

#[test]
fn who_chooses_it_is_refused_before_the_broker_hears_of_it() {
    for external in [External::NotOffered, External::Guarded] {
        for mechanism in ["EXTERNAL", "external", "ExTeRnAl"] {
            let mut script = greeted(external);
            script.broker(&start(b"PLAIN")).passes();
            script
                .client(&start_ok(mechanism.as_bytes()))
                .client_gets(&[&refusal()]);
            assert_eq!(script.events, [Event::ExternalRefused]);
            assert_eq!(script.session.flow(), Flow::Open, "it may read that");
            let close_ok = method(ZERO, MethodId::CONNECTION_CLOSE_OK, |_| {});
            script.client(&close_ok).silent();
            assert_eq!(script.session.flow(), Flow::Finish);
        }
    }
    greeted(External::Passes)
        .client(&start_ok(b"EXTERNAL"))
        .passes();
}

#[test]
fn who_chooses_another_one_is_let_through() {
    for external in [External::NotOffered, External::Guarded] {
        let mut script = greeted(external);
        script.broker(&start(b"PLAIN")).passes();
        script.client(&start_ok(b"PLAIN")).passes();
        // From here on a fault is for the broker to answer.
        script.client(&[b'X'; 40]).passes();
    }
}

#[test]
fn it_makes_no_difference_in_which_pieces_it_comes() {
    // All at once, before the broker has said anything, and with what would follow.
    let mut all = frame::PROTOCOL.to_vec();
    all.extend(start_ok(b"EXTERNAL"));
    all.extend(method(ZERO, MethodId::CONNECTION_TUNE_OK, |a| {
        a.short(0).long(0).short(0).end();
    }));
    all.extend(method(ZERO, MethodId::CONNECTION_OPEN, |a| {
        a.shortstr(b"/").shortstr(b"").octet(0).end();
    }));
    for cut in 1..=all.len() {
        let mut script = with(External::Guarded);
        let (mut broker, mut client) = (Vec::new(), Vec::new());
        for piece in all.chunks(cut) {
            let _ = script.client(piece);
            broker.extend(script.sent_to_broker());
            client.extend(script.sent_to_client());
        }
        assert_eq!(broker, frame::PROTOCOL, "pieces of {cut}");
        assert_eq!(client, refusal(), "pieces of {cut}");
        // What the broker offers comes too late.
        script.broker(&start(b"PLAIN EXTERNAL")).silent();
    }
}

#[test]
fn nothing_passes_unseen_where_the_proxy_has_a_certificate() {
    let other: [&[u8]; 4] = [
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x01\x01\x00\x09",
        b"GET / HT",
        b"\x16\x03\x01",
    ];
    for header in other {
        let mut script = with(External::Guarded);
        script.client(header).client_gets(&[&frame::PROTOCOL]);
        assert_eq!(script.session.flow(), Flow::Finish);
        with(External::NotOffered).client(header).passes();
    }
    // Frames that the proxy would leave to the broker to judge.
    let mut large = vec![1, 0, 0];
    large.extend(200_000u32.to_be_bytes());
    let mut unterminated = start_ok(b"PLAIN");
    *unterminated.last_mut().expect("an end") = 0;
    let malformed = method(ZERO, MethodId::CONNECTION_START_OK, |a| a.octet(9).end());
    let mut heartbeat = frame::HEARTBEAT.to_vec();
    *heartbeat.last_mut().expect("an end") = 0;
    for broken in [large, unterminated, malformed] {
        let mut script = greeted(External::Guarded);
        let _ = script.client(&broken);
        assert_eq!(script.sent_to_broker(), b"");
        let _ = script.client(&start_ok(b"EXTERNAL"));
        assert_eq!(script.sent_to_broker(), b"");
        assert!(script.events.contains(&Event::ExternalRefused));
    }
    heartbeat.extend(start_ok(b"EXTERNAL"));
    let mut script = greeted(External::Guarded);
    let _ = script.client(&heartbeat);
    assert_eq!(script.session.flow(), Flow::Finish);
    assert!(!script.sent_to_broker().ends_with(&start_ok(b"EXTERNAL")));
}
