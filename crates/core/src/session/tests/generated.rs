//! Queues whose name the broker generates: which policy of ours counts is decided by how it begins, or when it is known.

use super::probes::{PROBE, declare_ok, declare_on, if_there, opened};
use super::script::*;
use crate::amqp::frame;
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback};
use crate::registry::policy::{Definition, Mode, Pattern, Policies, Policy};

fn prefixed(prefix: &str) -> Vec<u8> {
    let mut table = TableBuilder::default();
    table.longstr(b"x-name-prefix", prefix.as_bytes());
    table.finish()
}

/// At a broker of that version, where a policy with that pattern names a target.
fn script(version: &str, pattern: &str) -> Script {
    let settings = settings(Mode::Full);
    settings.policies.set_ours(Policies::new(vec![Policy {
        pattern: Pattern::new(pattern).expect("a good pattern"),
        definition: Definition {
            dead_letter_exchange: Some(name("dlx")),
            ..Definition::default()
        },
        ..Policy::default()
    }]));
    let mut s = Script::fresh(settings);
    s.client(&frame::PROTOCOL).passes();
    s.handshake(version.as_bytes());
    s.open_channel();
    s.events.clear();
    s
}

/// The declare that goes to the broker to ask.
fn takes_over(s: &mut Script, arguments: &[u8]) {
    let mut table = arguments.to_vec();
    let mut exchange = TableBuilder::default();
    exchange.longstr(b"x-dead-letter-exchange", b"dlx-proxy");
    table.extend(exchange.finish());
    s.client(&declare_on(CH, "", 0, arguments))
        .broker_gets(&[&opened(), &declare_on(PROBE, "", 0, &if_there(&table))]);
}

#[test]
fn its_prefix_decides_from_4_4_on() {
    for pattern in ["^orders-", "^orders-[A-Za-z0-9_-]{22}$", "rs-"] {
        takes_over(&mut script("4.4.0", pattern), &prefixed("orders"));
    }
    takes_over(&mut script("4.4.0", r"^amq\.gen-"), &[]);
    let mut s = script("4.4.0", r"^amq\.gen-");
    s.client(&declare_on(CH, "", 0, &prefixed("orders")))
        .passes();
    assert_eq!(s.events, []);
}

#[test]
fn before_4_4_nobody_looks_at_it() {
    let mut s = script("4.3.6", "^orders-");
    s.client(&declare_on(CH, "", 0, &prefixed("orders")))
        .passes();
    assert_eq!(s.events, []);
    takes_over(
        &mut script("4.3.6", r"^amq\.gen-"),
        &prefixed("dlx-proxy.delay."),
    );
}

#[test]
fn what_the_rest_of_the_name_decides_is_decided_when_that_is_known() {
    for (version, start) in [("4.4.0", "orders-"), ("4.3.6", "amq.gen-")] {
        for (rest, managed) in [("Abc", true), ("Nop", false)] {
            let mut s = script(version, "-[A-M]");
            s.client(&declare_on(CH, "", 0, &prefixed("orders")))
                .passes();
            let left = Event::DeclareLeft {
                queue: name(start),
                cause: Fallback::GeneratedName,
            };
            assert_eq!(s.events, [left]);
            s.events.clear();
            let queue = name(&format!("{start}{rest}"));
            s.broker(&declare_ok(CH, &queue.to_string())).passes();
            let expected = Event::QueueManaged {
                queue,
                taken_over: false,
            };
            assert_eq!(s.events.contains(&expected), managed);
        }
    }
}

#[test]
fn a_word_that_the_random_characters_spell_counts_when_it_is_there() {
    for (rest, managed) in [("dlq1", true), ("else", false)] {
        let mut s = script("4.3.6", "dlq");
        s.client(&declare_on(CH, "", 0, b"")).passes();
        assert_eq!(s.events, []);
        let queue = format!("amq.gen-{rest}");
        s.broker(&declare_ok(CH, &queue)).passes();
        assert_eq!(!s.events.is_empty(), managed);
    }
}

#[test]
fn a_name_that_begins_like_ours_is_refused() {
    for prefix in ["dlx-proxy.delay.", "dlx-proxy.return/", "dlx-proxy/"] {
        for queue in ["", "\r\n"] {
            let declare = declare_on(CH, queue, 0, &prefixed(prefix));
            let mut s = script("4.4.0", "^no$");
            s.client(&declare).broker_gets(&[&ack(u64::MAX, false)]);
            let refused = Event::NameRefused { name: name(prefix) };
            assert_eq!(s.events, [refused]);
            script("4.3.6", "^no$").client(&declare).passes();
        }
    }
}
