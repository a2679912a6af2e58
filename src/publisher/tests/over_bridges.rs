//! What goes over a bridge beside usual dead letters, and by which channel.

use super::bridges::{BRIDGE, BUILT, INTERNAL, bind_fails, bridged, methods};
use super::*;

#[test]
fn retries_go_over_the_bridge() {
    let mut rig = bridged();
    rig.nack(6, 1);
    rig.pass(100);
    assert_eq!(rig.published(), [row(6, BRIDGE, "k", "1")]);
    rig.live(12_000);
    assert_eq!(
        methods(&mut rig),
        [(6, MethodId::BASIC_PUBLISH)],
        "no confirm came"
    );
    rig.cut();
    rig.up("4.3.6");
    assert_eq!(
        methods(&mut rig),
        BUILT.map(|id| (5, id)),
        "the broker may have lost it"
    );
    rig.ack(5, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn draining_ends_when_all_are_across() {
    let mut rig = rig();
    rig.publish(1, message("int-x", "k", "1"));
    rig.published();
    rig.drain();
    rig.close(5, 403, INTERNAL);
    assert_eq!(rig.published(), [row(6, BRIDGE, "k", "1")]);
    rig.ack(6, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
    assert_eq!(rig.methods(), [(0, MethodId::CONNECTION_CLOSE)]);
}

#[test]
fn a_foreign_user_id_goes_over_a_bridge_alone() {
    let mut rig = rig();
    rig.publish_as(SESSION, vec![(1, foreign("int-x")), (2, foreign("x"))]);
    rig.published();
    // Whose exchange that is, the channel of all foreign user-ids cannot tell.
    rig.close(3, 403, INTERNAL);
    assert_eq!(rig.published().len(), 1);
    rig.close(4, 403, INTERNAL);
    assert_eq!(
        rig.published(),
        [row(4, "x", "k", "f")],
        "suspected with it"
    );
    rig.ack(4, 1, false);
    assert_eq!(methods(&mut rig), BUILT.map(|id| (4, id)));
    rig.ack(4, 2, false);
    // From then on at once; and if it may not be built, no neighbour is disturbed.
    rig.publish_as(SESSION, vec![(3, foreign("int-x")), (4, foreign("x"))]);
    let built = BUILT.map(|id| (4, id));
    let mut sent = methods(&mut rig);
    sent.sort_by_key(|sent| sent.0);
    assert_eq!(sent[0], (3, MethodId::BASIC_PUBLISH));
    assert_eq!(sent[1..], built);
    bind_fails(&mut rig, 4, 403);
    rig.ack(3, 1, false);
    // It has our own user-id now, as the proof.
    assert_eq!(rig.published(), [row(2, "dlx-proxy.parked", "k", "f")]);
    let ended: Vec<u64> = rig.settled().into_iter().map(|(n, _)| n).collect();
    assert_eq!(ended, [2, 1, 4]);
}

#[test]
fn a_suspect_builds_its_own_bridge() {
    let mut rig = bridged();
    rig.publish(2, message("int-x", "k", "2"));
    rig.published();
    rig.close(6, 406, "PRECONDITION_FAILED - one of them");
    assert_eq!(methods(&mut rig), BUILT.map(|id| (4, id)));
    rig.ack(4, 1, false);
    assert_eq!(methods(&mut rig), BUILT.map(|id| (4, id)));
    rig.close(4, 406, "PRECONDITION_FAILED - this one");
    assert_eq!(rig.published(), [row(4, "dlx-proxy.parked", "k", "2")]);
    rig.ack(4, 1, false);
    let outcomes = [(1, Outcome::Confirmed), (2, Outcome::Parked(Cause::Poison))];
    assert_eq!(rig.settled(), outcomes);
}

#[test]
fn a_channel_that_served_another_exchange_builds_the_bridge_again() {
    let mut rig = bridged();
    rig.ack(6, 1, false);
    // Until it is the turn of that very channel again.
    for n in 0..127 {
        rig.publish(2, message(&format!("x{n}"), "k", "1"));
        for (channel, ..) in rig.published() {
            rig.ack(channel, 0, true);
        }
    }
    rig.settled();
    rig.publish(3, message("int-x", "k", "3"));
    assert_eq!(methods(&mut rig), BUILT.map(|id| (6, id)));
}
