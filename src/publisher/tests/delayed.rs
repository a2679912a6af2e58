//! Exchanges of the type `x-delayed-message` return what they deliver later.

use super::*;

fn delayed(exchange: &str, delay: i64) -> Publication {
    let mut headers = TableBuilder::default();
    headers.long(b"x-delay", delay);
    Publication {
        content: with_headers(headers, "later"),
        ..message(exchange, "k", "later")
    }
}

fn returned(rig: &mut PublisherRig, ticket: u64, publication: Publication, tag: u64) {
    rig.publish(ticket, publication.clone());
    assert_eq!(rig.published().len(), 1);
    rig.give_back(5, "delayed", "k", &publication.content);
    rig.ack(5, tag, false);
}

/// The channel of the suspects is opened, and the question comes.
fn asked(rig: &mut PublisherRig) -> bool {
    let sent = rig.sent();
    if sent.iter().any(|sent| sent.is(4, MethodId::CHANNEL_OPEN)) {
        rig.ready(4);
        return asked(rig);
    }
    sent.iter()
        .any(|sent| sent.is(4, MethodId::EXCHANGE_DECLARE))
}

fn says(rig: &mut PublisherRig, text: &str) {
    rig.broker(&close(4, 406, text, MethodId::EXCHANGE_DECLARE));
}

const DELAYS: &str = "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'delayed' in vhost '/': \
                      received 'fanout' but current is ''x-delayed-message''";

#[test]
fn what_is_only_delayed_is_not_parked() {
    let mut rig = rig();
    returned(&mut rig, 1, delayed("delayed", 5_000), 1);
    assert!(asked(&mut rig));
    // Meanwhile others go on, and wait for the same answer.
    returned(&mut rig, 2, delayed("delayed", 7_000), 2);
    assert_eq!(rig.settled(), []);
    says(&mut rig, DELAYS);
    let confirmed = [1, 2].map(|ticket| (ticket, Outcome::Confirmed));
    assert_eq!(rig.settled(), confirmed);
    returned(&mut rig, 3, delayed("delayed", 1), 3);
    assert_eq!(
        rig.settled(),
        [(3, Outcome::Confirmed)],
        "known for a second"
    );
    rig.pass(1_000);
    returned(&mut rig, 4, delayed("delayed", 1), 4);
    assert!(asked(&mut rig));
    says(&mut rig, DELAYS);
    assert_eq!(rig.settled(), [(4, Outcome::Confirmed)]);
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn a_return_of_any_other_exchange_is_one() {
    for text in [
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x-delayed-message' in vhost '/': received 'fanout' but current is 'direct'",
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'delayed' in vhost '/': received the value '0' of type 'signedint' but current is none",
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'delayed' in vhost '/'",
        "ACCESS_REFUSED - configure access to exchange 'delayed' in vhost '/' refused for user 'proxy'",
    ] {
        let mut rig = rig();
        returned(&mut rig, 1, delayed("delayed", 5_000), 1);
        assert!(asked(&mut rig));
        says(&mut rig, text);
        assert_eq!(rig.published().len(), 1);
        rig.ack(2, 1, false);
        assert_eq!(
            rig.settled(),
            [(1, Outcome::Parked(Cause::Unroutable))],
            "{text}"
        );
    }
}

#[test]
fn nobody_is_asked_about_what_the_plugin_would_not_delay() {
    for publication in [
        delayed("delayed", 0),
        delayed("delayed", -5_000),
        delayed("delayed", 4_294_967_296),
        message("delayed", "k", "later"),
    ] {
        let mut rig = rig();
        returned(&mut rig, 1, publication, 1);
        assert_eq!(rig.published().len(), 1);
        rig.ack(2, 1, false);
        assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Unroutable))]);
    }
}

#[test]
fn a_broker_that_does_not_say_leaves_it_unroutable() {
    let mut rig = rig();
    returned(&mut rig, 1, delayed("delayed", 5_000), 1);
    assert!(asked(&mut rig));
    rig.live(10_000);
    assert_eq!(rig.published().len(), 1);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Unroutable))]);
    says(&mut rig, DELAYS);
    assert_eq!(rig.settled(), []);
}

#[test]
fn if_the_link_is_lost_it_is_asked_again() {
    let mut rig = rig();
    returned(&mut rig, 1, delayed("delayed", 5_000), 1);
    assert!(asked(&mut rig));
    rig.cut();
    rig.up("4.3.6");
    assert!(asked(&mut rig));
    says(&mut rig, DELAYS);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}
