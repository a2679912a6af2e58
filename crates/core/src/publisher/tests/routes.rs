//! Returned, 404, 403: parked or dropped, and nobody else disturbed.

use super::peer::{Does, Peer};
use super::*;

pub(super) fn parked(cause: Cause) -> Outcome {
    Outcome::Parked(cause)
}

#[test]
fn what_nothing_routes_is_parked_with_its_story() {
    let mut rig = rig();
    let publication = message("", "nowhere", "hi");
    rig.publish(1, publication.clone());
    rig.published();
    rig.give_back(1, "", "nowhere", &publication.content);
    assert_eq!(rig.methods(), [], "nothing before the confirm");
    rig.ack(1, 1, false);
    assert_eq!(rig.methods().len(), 2, "the parking channel is opened");
    rig.ready(2);
    let sent = rig.sent();
    assert_eq!(
        publishes(&sent),
        [row(2, "dlx-proxy.parked", "nowhere", "hi")]
    );
    assert_eq!(
        headers(&sent),
        [
            ("x-parked-exchange".into(), b"".to_vec()),
            ("x-parked-cause".into(), b"unroutable".to_vec()),
            ("x-dlx-proxy-user-id".into(), Vec::new())
        ]
    );
    assert_eq!(user_id(&sent).as_deref(), Some("proxy"));
    assert_eq!(rig.settled(), []);
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, parked(Cause::Unroutable))]);
}

#[test]
fn or_dropped_if_that_is_wanted_but_never_from_at_least_once() {
    let mut rig = rig_with(Settings {
        on_unroutable: OnUnroutable::Drop,
        ..settings()
    });
    let careless = message("", "nowhere", "1");
    let careful = Publication {
        at_least_once: true,
        ..message("", "nowhere", "2")
    };
    rig.publish_as(SESSION, vec![(1, careless.clone()), (2, careful.clone())]);
    rig.published();
    rig.give_back(1, "", "nowhere", &careless.content);
    rig.give_back(1, "", "nowhere", &careful.content);
    rig.ack(1, 2, true);
    assert_eq!(rig.settled(), [(1, Outcome::Dropped(Cause::Unroutable))]);
    assert_eq!(
        rig.published(),
        [row(2, "dlx-proxy.parked", "nowhere", "2")]
    );
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(2, parked(Cause::Unroutable))]);
}

#[test]
fn a_missing_exchange_parks_its_own_and_disturbs_nobody() {
    let mut rig = rig();
    rig.publish_as(
        SESSION,
        vec![
            (1, message("gone", "k", "1")),
            (2, message("fine", "k", "2")),
            (3, message("gone", "k", "3")),
        ],
    );
    rig.published();
    rig.close(3, 404, "NOT_FOUND - no exchange 'gone' in vhost '/'");
    let parked_now = [
        row(2, "dlx-proxy.parked", "k", "1"),
        row(2, "dlx-proxy.parked", "k", "3"),
    ];
    assert_eq!(rig.published(), parked_now);
    rig.ack(4, 1, false);
    rig.ack(2, 2, true);
    assert_eq!(
        rig.settled(),
        [
            (2, Outcome::Confirmed),
            (1, parked(Cause::NoExchange)),
            (3, parked(Cause::NoExchange)),
        ]
    );
    let closed = rig.events().into_iter().next();
    assert!(matches!(closed, Some(Event::ChannelClosed { .. })));
    // Declared since: nothing is remembered against it.
    rig.publish(4, message("gone", "k", "4"));
    assert_eq!(rig.published(), [row(3, "gone", "k", "4")]);
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(4, Outcome::Confirmed)]);
}

#[test]
fn a_forbidden_exchange_parks() {
    let mut rig = rig();
    rig.publish(1, message("theirs", "k", "1"));
    rig.published();
    rig.close(
        3,
        403,
        "ACCESS_REFUSED - access to exchange 'theirs' in vhost '/' refused for user 'proxy'",
    );
    rig.published();
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, parked(Cause::Forbidden))]);
}

#[test]
fn a_forbidden_topic_is_found_among_its_neighbours() {
    let mut peer = Peer::new(
        |published| match (published.1.as_str(), published.2.as_str()) {
            ("t", "no") => Does::CloseChannel(
                403,
                "ACCESS_REFUSED - access to topic 'no' in exchange 't' in vhost '/' refused",
            ),
            _ => Does::Confirm,
        },
    );
    peer.publish_all(vec![
        (1, message("t", "ok", "1")),
        (2, message("t", "no", "2")),
    ]);
    peer.pass(1_000);
    assert_eq!(peer.outcome(1), Some(Outcome::Confirmed));
    assert_eq!(peer.outcome(2), Some(parked(Cause::Forbidden)));
}

/// A dead letter of the missing exchange `gone` that is on its way to parking, on channel 2.
fn parking() -> PublisherRig {
    let mut rig = rig();
    rig.publish(1, message("gone", "k", "1"));
    rig.published();
    rig.close(3, 404, "NOT_FOUND - no exchange 'gone' in vhost '/'");
    rig.published();
    rig
}

const NO_PARKING: &str = "NOT_FOUND - no exchange 'dlx-proxy.parked' in vhost '/'";

#[test]
fn what_may_not_be_parked_goes_back_to_its_owner() {
    let mut rig = parking();
    rig.close(2, 403, "ACCESS_REFUSED - access refused");
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::NoExchange))]);
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn a_parking_exchange_that_is_not_there_yet_is_tried_again() {
    let mut rig = parking();
    rig.close(2, 404, NO_PARKING);
    assert_eq!(rig.settled(), []);
    rig.pass(100);
    rig.published();
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::NoExchange))]);
}

#[test]
fn a_parking_exchange_without_a_queue_is_tried_again_and_given_up_after_six_seconds() {
    let mut rig = parking();
    let mut headers = TableBuilder::default();
    headers
        .longstr(b"x-parked-exchange", b"gone")
        .longstr(b"x-parked-cause", b"no_exchange");
    let content = with_headers(headers, "1");
    for tag in 1..=6 {
        rig.give_back(2, "dlx-proxy.parked", "k", &content);
        rig.ack(2, tag, false);
        assert_eq!(rig.settled(), []);
        rig.pass(100 << (tag - 1));
        rig.published();
    }
    rig.give_back(2, "dlx-proxy.parked", "k", &content);
    rig.ack(2, 7, false);
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::NoExchange))]);
    assert_eq!(rig.machine.held(), 0);
}

#[test]
fn parked_twice_tells_the_latest_story_only() {
    let mut rig = rig();
    let mut before = TableBuilder::default();
    before
        .longstr(b"x-parked-cause", b"nacked")
        .longstr(b"mine", b"1");
    let publication = Publication {
        content: with_headers(before, "hi"),
        ..message("gone", "k", "hi")
    };
    rig.publish(1, publication);
    rig.published();
    rig.close(3, 404, "NOT_FOUND");
    rig.ready(2);
    let names: Vec<String> = headers(&rig.sent()).into_iter().map(|(n, _)| n).collect();
    let told = ["x-parked-cause", "mine", "x-parked-exchange"];
    assert_eq!(names, [&told[..], &["x-dlx-proxy-user-id"]].concat());
}
