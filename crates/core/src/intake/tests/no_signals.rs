//! What comes to the intake queue and is no signal.

use super::*;

#[test]
fn what_is_no_signal_is_parked() {
    let mut rig = rig();
    rig.deliver(1, "amq.fanout", &died_in("work", "hi"));
    // Neither its exchange nor a death says where it was meant to go; and headers that cannot be walked.
    let nothing = with_headers(TableBuilder::default(), "hi");
    rig.deliver(2, "dlx-proxy", &nothing);
    let mut broken = TableBuilder::default();
    broken.members(b"\x05x");
    rig.deliver(3, "dlx-proxy/x", &with_headers(broken, "hi"));
    assert_eq!(rig.dead(), []);
    let rejects = [1, 2, 3].map(|tag| (MethodId::BASIC_REJECT, tag, false));
    assert_eq!(rig.settlements(), rejects);
    let events = rig.events();
    let parked = Outcome::Parked(Cause::Implausible);
    assert_eq!(events.len(), 3);
    assert!(
        events
            .iter()
            .all(|e| matches!(e, Event::DeadLetter(dead) if dead.outcome == parked))
    );
}

/// The name of the intake exchange says it; but the message does not go there by itself, as anybody may have put it here.
#[test]
fn what_is_no_signal_is_parked_with_the_exchange_that_it_was_meant_for() {
    let mut rig = rig();
    let mut counted = TableBuilder::default();
    counted.longstr(b"a", b"1").long(b"x-delivery-count", 3);
    let mut content = with_headers(counted, "hi");
    let mut properties = content.properties.to_vec();
    properties[0] |= 1; // expiration
    properties.extend_from_slice(b"\x0260");
    content.properties = properties.into();
    rig.deliver(1, "dlx-proxy/x", &content);
    let bored = with_headers(died("work", "bored"), "hi");
    rig.deliver(2, "dlx-proxy+//work", &bored);
    let dead = rig.dead();
    let told: Vec<_> = dead
        .iter()
        .map(|(_, it)| (&*it.exchange, &*it.routing_key, it.purpose))
        .collect();
    let purpose = Purpose::Park(Cause::Implausible);
    assert_eq!(
        told,
        [
            (&b"x"[..], &b"k"[..], purpose),
            (&b""[..], &b"work"[..], purpose)
        ]
    );
    let mut kept = TableBuilder::default();
    kept.longstr(b"a", b"1");
    assert_eq!(dead[0].1.content, with_headers(kept, "hi"));
    assert_eq!(rig.settlements(), []);
    rig.settle(&[
        (dead[0].0, Outcome::Parked(Cause::Implausible)),
        (dead[1].0, Outcome::Refused(Cause::Poison)),
    ]);
    let settled = [
        (MethodId::BASIC_ACK, 1, false),
        (MethodId::BASIC_REJECT, 2, false),
    ];
    let mut settlements = rig.settlements();
    settlements.sort_by_key(|(_, tag, _)| *tag);
    assert_eq!(settlements, settled);
    assert_eq!(rig.events(), []);
}
