//! What goes over a bridge beside usual dead letters, and by which channel.

use super::bridges::{BRIDGE, BUILT, INTERNAL, bind_fails, bridged, methods};
use super::peer::{Does, Peer};
use super::*;

#[test]
fn retries_go_over_the_bridge() {
    let mut rig = bridged();
    rig.nack(4, 1);
    rig.pass(100);
    assert_eq!(rig.published(), [row(4, BRIDGE, "k", "1")]);
    rig.live(12_000);
    assert_eq!(
        methods(&mut rig),
        [(4, MethodId::BASIC_PUBLISH)],
        "no confirm came"
    );
    rig.cut();
    rig.up("4.3.6");
    assert_eq!(
        methods(&mut rig),
        BUILT.map(|id| (3, id)),
        "the broker may have lost it"
    );
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn draining_ends_when_all_are_across() {
    let mut rig = rig();
    rig.publish(1, message("int-x", "k", "1"));
    rig.published();
    rig.drain();
    rig.close(3, 403, INTERNAL);
    assert_eq!(rig.published(), [row(4, BRIDGE, "k", "1")]);
    rig.ack(4, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
}

#[test]
fn a_foreign_user_id_goes_over_a_bridge_alone() {
    let mut rig = rig();
    rig.publish_as(SESSION, vec![(1, foreign("int-x")), (2, foreign("x"))]);
    rig.published();
    rig.close(3, 403, INTERNAL);
    assert_eq!(methods(&mut rig), BUILT.map(|id| (5, id)));
    rig.ack(4, 1, false);
    rig.ack(5, 1, false);
    // From then on at once; and if it may not be built, no neighbour is disturbed.
    rig.publish_as(SESSION, vec![(3, foreign("int-x")), (4, foreign("x"))]);
    let mut sent = methods(&mut rig);
    sent.sort_by_key(|sent| sent.0);
    assert_eq!(
        sent,
        [4, 5].map(|channel| (channel, MethodId::BASIC_PUBLISH))
    );
    bind_fails(&mut rig, 5, 403);
    rig.ack(4, 2, false);
    // It has our own user-id now, as the proof.
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "f")]);
    let ended: Vec<u64> = rig.settled().into_iter().map(|(n, _)| n).collect();
    assert_eq!(ended, [2, 1, 4]);
}

#[test]
fn a_careful_publisher_finds_the_bridge_by_itself() {
    let mut peer = Peer::new(
        |published| match (published.1.as_str(), published.3.as_str()) {
            ("int-x", _) => Does::CloseChannel(403, INTERNAL),
            (BRIDGE, "2") => Does::CloseChannel(406, "PRECONDITION_FAILED - this one"),
            _ => Does::Confirm,
        },
    );
    let batch = (1..=3).map(|n| (n, message("int-x", "k", &n.to_string())));
    peer.publish_all(batch.collect());
    peer.pass(1_000);
    for n in [1, 3] {
        assert_eq!(peer.outcome(n), Some(Outcome::Confirmed));
    }
    assert_eq!(peer.outcome(2), Some(Outcome::Parked(Cause::Poison)));
}

#[test]
fn a_channel_that_served_another_exchange_builds_the_bridge_again() {
    let mut rig = bridged();
    rig.ack(4, 1, false);
    // Until it is the turn of that very channel again.
    for n in 0..127 {
        rig.publish(2, message(&format!("x{n}"), "k", "1"));
        for (channel, ..) in rig.published() {
            rig.ack(channel, 0, true);
        }
    }
    rig.settled();
    rig.publish(3, message("int-x", "k", "3"));
    assert_eq!(methods(&mut rig), BUILT.map(|id| (4, id)));
}
