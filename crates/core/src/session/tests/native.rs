//! Mode `off`: nothing is rewritten, unless the queue was taken over before.

use super::doubt::limited;
use super::probes::*;
use super::script::*;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Leg, Machine};
use crate::registry::policy::Mode;

/// As the broker refuses a declare of a queue with another dead-letter exchange.
fn current(exchange: &str) -> String {
    format!(
        "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'dlx' but current is '{exchange}'"
    )
}

/// The original was tried.
fn trying() -> Script {
    let mut s = Script::open(settings(Mode::Off));
    s.client(&declare_on(CH, "q", NO_WAIT, &original()))
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &original())]);
    assert!(s.ensure.is_empty(), "nothing is made for it");
    assert!(!s.session.wants_read(Leg::Client, 0));
    s.broker(&open_ok()).silent();
    s
}

/// It met a queue with another exchange.
fn met(exchange: &str) -> Script {
    let mut s = trying();
    s.broker(&close(PROBE, 406, &current(exchange)))
        .broker_gets(&[
            &close_ok(PROBE),
            &opened(),
            &declare_on(PROBE, "q", 0, &if_there(&rewritten())),
        ]);
    assert!(s.ensure.is_empty(), "nothing is made for it");
    s.broker(&open_ok()).silent();
    s
}

#[track_caller]
fn assert_native(mut s: Script) {
    s.broker(&declare_ok(CH, "q")).silent();
    assert!(s.events.is_empty(), "{:?}", s.events);
    let mut s = s.consume("q");
    s.broker(&deliver("q", 1, b"hi")).passes();
    s.client(&reject(1, false)).passes();
}

#[test]
fn a_declare_that_fits_goes_on_as_it_is_and_its_rejects_are_the_brokers() {
    let mut s = trying();
    s.broker(&declare_ok(PROBE, "q"))
        .broker_gets(&[&probe_closed(), &declare_on(CH, "q", 0, &original())]);
    s.broker(&close_ok(PROBE)).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
    assert_native(s);
}

#[test]
fn a_queue_that_was_taken_over_stays_so() {
    let mut s = met("dlx-proxy/dlx");
    s.broker(&declare_ok(PROBE, "q")).silent();
    s.ensured(true).broker_gets(&[
        &probe_closed(),
        &declare_on(CH, "q", 0, &if_there(&rewritten())),
    ]);
    s.broker(&declare_ok(CH, "q")).silent();
    assert!(matches!(
        &s.events[..],
        [Event::QueueManaged {
            taken_over: true,
            ..
        }]
    ));
}

/// Under another policy, say.
#[test]
fn with_the_exchange_that_it_has() {
    let mut s = met("dlx-proxy++/dlx");
    let text = current("dlx-proxy++/dlx").replace("received 'dlx'", "received 'dlx-proxy/dlx'");
    let mut table = TableBuilder::default();
    table.longstr(b"x-dead-letter-exchange", b"dlx-proxy++/dlx");
    s.broker(&close(PROBE, 406, &text))
        .broker_gets(&[&close_ok(PROBE)]);
    s.ensured(true)
        .broker_gets(&[&declare_on(CH, "q", 0, &if_there(&table.finish()))]);
}

#[test]
fn of_a_queue_with_an_exchange_of_the_clients_the_broker_says_so() {
    let mut s = met("other");
    let text = current("other").replace("received 'dlx'", "received 'dlx-proxy/dlx'");
    s.broker(&close(PROBE, 406, &text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    s.broker(&close(CH, 406, &current("other"))).passes();
    assert!(s.events.is_empty(), "{:?}", s.events);
}

#[test]
fn what_the_broker_refuses_it_refuses_in_its_own_words() {
    let text =
        "ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'lim'";
    let mut s = trying();
    s.broker(&close(PROBE, 403, text))
        .broker_gets(&[&close_ok(PROBE), &declare_on(CH, "q", 0, &original())]);
    assert!(s.events.is_empty(), "{:?}", s.events);
}

/// The queue that comes of it must not be there if something before it fails.
#[test]
fn the_channel_is_quiet_before() {
    let mut s = Script::open(settings(Mode::Off));
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(b"missing").shortstr(b"").octet(0).end();
    });
    let before = [publish, header(0)].concat();
    s.client(&before).passes();
    let mut flow = Vec::new();
    reply::channel_flow(&mut flow, CH);
    s.client(&declare_on(CH, "q", 0, &original()))
        .broker_gets(&[&flow]);
    let flow_ok = method(CH, MethodId::CHANNEL_FLOW_OK, |a| a.octet(1).end());
    s.broker(&flow_ok)
        .broker_gets(&[&opened(), &declare_on(PROBE, "q", 0, &original())]);
}

#[test]
fn without_a_probe_it_goes_on_as_it_is() {
    let mut s = limited(Script::open(settings(Mode::Off))).another();
    s.client(&declare_on(CH, "q", 0, &original())).passes();
    assert!(s.events.is_empty(), "{:?}", s.events);
}

#[test]
fn a_name_that_the_broker_makes_is_of_no_queue_that_is_there() {
    let mut s = Script::open(settings(Mode::Off));
    s.client(&declare_on(CH, "", 0, &original())).passes();
}

#[test]
fn passive_declares_pass() {
    let mut s = Script::open(settings(Mode::Off));
    s.client(&declare_on(CH, "q", 1, &original())).passes();
}
