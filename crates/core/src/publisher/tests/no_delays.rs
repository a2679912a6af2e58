//! Messages that clients returned, and that no delay queue takes: they go back to their owner.

use super::comes_back::returned;
use super::delays::{BIND, DECLARE, PUBLISH, delayed, in_flight, methods};
use super::*;
use crate::dead_letter::proof::prove;

#[test]
fn what_cannot_be_built_goes_back_to_its_owner_and_is_never_parked() {
    for (code, failed, cause) in [
        (406, DECLARE, Cause::Forbidden),
        (403, DECLARE, Cause::Forbidden),
        (403, BIND, Cause::Forbidden),
        (404, BIND, Cause::NoExchange),
        (404, PUBLISH, Cause::NoExchange),
        (403, PUBLISH, Cause::Forbidden),
    ] {
        let mut rig = in_flight();
        rig.publish(2, delayed(1000, "2"));
        methods(&mut rig);
        rig.broker(&close(3, code, "no", failed));
        let refused = [1, 2].map(|ticket| (ticket, Outcome::Refused(cause)));
        assert_eq!(rig.settled(), refused, "{code} {failed:?}");
        assert_eq!(methods(&mut rig), []);
        // It may be there by now.
        rig.publish(3, delayed(1000, "3"));
        assert_eq!(
            methods(&mut rig),
            [DECLARE, BIND, PUBLISH].map(|id| (3, id))
        );
    }
}

/// By OAuth 2 the broker knows our user by another name: then nothing can come back, and one message tells it for all.
#[test]
fn where_nothing_can_be_proven_all_goes_back_to_its_owner() {
    let text =
        "PRECONDITION_FAILED - user_id property set to 'proxy' but authenticated user was 'x'";
    let proven = |n: u64| {
        let publication = delayed(1000, "1");
        let properties = prove(&publication.content.properties, b"proxy", None);
        let content = Content {
            properties: properties.unwrap(),
            ..publication.content.clone()
        };
        let publication = Publication {
            content,
            ..publication
        };
        (n, publication)
    };
    let refused = Outcome::Refused(Cause::UserId);
    let mut rig = rig();
    rig.publish_as(SESSION, (1..=3).map(proven).collect());
    methods(&mut rig);
    rig.close(3, 406, text);
    methods(&mut rig);
    assert_eq!(rig.settled(), [(1, refused), (2, refused), (3, refused)]);
    rig.publish_as(SESSION, vec![proven(4), (5, returned(None))]);
    assert_eq!(methods(&mut rig), []);
    assert_eq!(rig.settled(), [(5, refused), (4, refused)]);
    rig.cut();
    rig.up("4.3.6");
    rig.publish_as(SESSION, vec![proven(6)]);
    assert_eq!(
        methods(&mut rig),
        [DECLARE, BIND, PUBLISH].map(|id| (3, id))
    );
}

#[test]
fn what_is_nacked_too_often_goes_back_to_its_owner() {
    let mut rig = in_flight();
    for tag in 1.. {
        rig.nack(3, tag);
        if let [settled] = rig.settled()[..] {
            assert!(tag > 1);
            assert_eq!(settled, (1, Outcome::Refused(Cause::Nacked)));
            break;
        }
        rig.live(7_000);
        assert_eq!(methods(&mut rig), [(3, PUBLISH)]);
    }
    assert_eq!(methods(&mut rig), []);
}

#[test]
fn a_link_that_is_lost_may_have_lost_the_queue() {
    let mut rig = in_flight();
    rig.cut();
    rig.up("4.3.6");
    assert_eq!(
        methods(&mut rig),
        [DECLARE, BIND, PUBLISH].map(|id| (3, id))
    );
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}

#[test]
fn what_finds_the_delay_queues_too_busy_goes_back_to_its_owner() {
    let mut rig = rig();
    let batch = [1, 2].map(|n| (n, delayed(1000 * n, "1")));
    rig.publish_as(INTAKE, batch.to_vec());
    methods(&mut rig);
    rig.nack(3, 1);
    rig.nack(3, 2);
    rig.publish_as(INTAKE, vec![(3, delayed(3000, "3"))]);
    assert_eq!(rig.settled(), [(3, Outcome::Refused(Cause::TargetBusy))]);
    assert_eq!(methods(&mut rig), []);
}
