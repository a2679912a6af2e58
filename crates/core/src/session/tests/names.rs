//! The proxy's own names are refused.

use super::probes::declare_on;
use super::script::*;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::registry::policy::Mode;

#[test]
fn a_client_may_not_name_an_object_of_ours() {
    let requests = [
        (
            "queue",
            "dlx-proxy.intake",
            declare_on(CH, "dlx-proxy.intake", 0, b""),
        ),
        (
            "queue",
            "dlx-proxy.parked",
            method(CH, MethodId::BASIC_GET, |a| {
                a.short(0).shortstr(b"dlx-proxy.parked").octet(0).end();
            }),
        ),
        (
            "exchange",
            "dlx-proxy/dlx",
            method(CH, MethodId::EXCHANGE_DELETE, |a| {
                a.short(0).shortstr(b"dlx-proxy/dlx").octet(0).end();
            }),
        ),
        (
            "exchange",
            "dlx-proxy.bridge/int-x",
            method(CH, MethodId::EXCHANGE_UNBIND, |a| {
                a.short(0)
                    .shortstr(b"int-x")
                    .shortstr(b"dlx-proxy.bridge/int-x")
                    .shortstr(b"")
                    .octet(0)
                    .longstr(b"")
                    .end();
            }),
        ),
    ];
    for (kind, name, request) in requests {
        let mut s = Script::open(settings(Mode::Full));
        s.client(&request).broker_gets(&[&ack(u64::MAX, false)]);
        let mut broker = Vec::new();
        let unknown = format!("PRECONDITION_FAILED - unknown delivery tag {}", u64::MAX);
        reply::close(
            &mut broker,
            CH,
            406,
            unknown.as_bytes(),
            MethodId::BASIC_ACK,
        );
        let culprit = MethodId::peek(&request[7..]).expect("a method");
        let text = format!(
            "ACCESS_REFUSED - access to {kind} '{name}' in vhost '/' refused for user 'guest'"
        );
        let mut said = Vec::new();
        reply::close(&mut said, CH, 403, text.as_bytes(), culprit);
        s.broker(&broker).client_gets(&[&said]);
    }
}

#[test]
fn a_publish_to_an_exchange_of_ours_goes_nowhere() {
    let mut s = Script::open(settings(Mode::Full));
    let publish = method(CH, MethodId::BASIC_PUBLISH, |a| {
        a.short(0)
            .shortstr(b"dlx-proxy.parked")
            .shortstr(b"k")
            .octet(0)
            .end();
    });
    s.client(&publish).broker_gets(&[&ack(u64::MAX, false)]);
    s.client(&header(2)).silent();
    s.client(&body(b"hi")).silent();
    s.client(&ack(1, false)).passes();
}
