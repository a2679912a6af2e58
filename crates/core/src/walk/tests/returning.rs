//! What was put back is in the queue again only a little after the broker has said so.

use super::*;

/// Of two messages both are put back, and nobody else takes any; the broker has closed the channel.
fn put_back_alone() -> WalkRig {
    let mut rig = rig(FAR);
    rig.up("4.3.6");
    rig.counted_with(1, 2, 0);
    rig.is_of_type("quorum");
    for key in ["a", "b"] {
        rig.comes(key, "");
    }
    rig.puts_back();
    rig
}

#[test]
fn it_ends_when_the_queue_counts_all_again() {
    let mut rig = put_back_alone();
    let channel = rig.channel();
    assert!(channel > 2, "a channel of its own");
    rig.counted_with(channel, 0, 0);
    assert_eq!(rig.fx.out.ended, None, "the next walk would miss them");
    rig.pass(20);
    rig.counted_with(channel, 3, 0);
    assert_eq!(rig.summary().seen, 2);
}

#[test]
fn a_queue_that_does_not_get_all_back_is_not_waited_for_long() {
    let mut rig = put_back_alone();
    rig.counted_with(rig.channel(), 1, 0);
    rig.pass(1_900);
    assert_eq!(rig.fx.out.ended, None);
    rig.pass(200);
    assert_eq!(rig.summary().seen, 2);

    let mut gone = put_back_alone();
    let text = "NOT_FOUND - no queue 'dead' in vhost '/'";
    gone.broker(&close(gone.channel(), 404, text, MethodId::QUEUE_DECLARE));
    assert_eq!(gone.summary().seen, 2);
}
