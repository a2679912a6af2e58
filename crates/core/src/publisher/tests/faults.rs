//! Publications that close channels and connections.

use super::peer::{Does, Peer};
use super::*;
use crate::amqp::ids::name;

/// The headers of what was parked last.
fn parked(peer: &Peer) -> Vec<(String, Vec<u8>)> {
    headers(&peer.header.clone().into_iter().collect::<Vec<_>>())
}

#[test]
fn an_unnamed_culprit_is_found_and_parked() {
    let mut peer = Peer::new(|published| match published.3.as_str() {
        "2" if published.1.is_empty() => {
            Does::CloseChannel(406, "PRECONDITION_FAILED - invalid expiration 'x'")
        }
        _ => Does::Confirm,
    });
    let batch = (1..=3).map(|n| (n, message("", "k", &n.to_string())));
    peer.publish_all(batch.collect());
    peer.pass(1_000);
    let said = [
        ("x-parked-exchange".into(), Vec::new()),
        ("x-parked-cause".into(), b"poison".to_vec()),
        ("x-dlx-proxy-user-id".into(), Vec::new()),
    ];
    assert_eq!(parked(&peer), said);
    peer.settled.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(
        peer.settled,
        [
            (1, Outcome::Confirmed),
            (2, Outcome::Parked(Cause::Poison)),
            (3, Outcome::Confirmed),
        ]
    );
}

/// The proof is no more than the broker believes of our user.
#[test]
fn a_culprit_is_parked_without_the_proof_where_that_is_refused() {
    static REFUSED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut peer = Peer::new(|published| {
        let said = std::sync::atomic::Ordering::Relaxed;
        if published.1 == "x" {
            Does::CloseChannel(406, "PRECONDITION_FAILED - this one")
        } else if !REFUSED.swap(true, said) {
            Does::CloseChannel(406, "PRECONDITION_FAILED - user_id property set to 'proxy'")
        } else {
            Does::Confirm
        }
    });
    peer.publish(1, "x", "k");
    peer.pass(1_000);
    let said = [
        ("x-parked-exchange".into(), b"x".to_vec()),
        ("x-parked-cause".into(), b"poison".to_vec()),
    ];
    assert_eq!(parked(&peer), said);
    assert_eq!(peer.settled, [(1, Outcome::Parked(Cause::Poison))]);
}

/// Where it should have gone is said, but it does not go there.
#[test]
fn what_is_to_be_parked_is_parked() {
    let mut rig = rig();
    let publication = Publication {
        purpose: Purpose::Park(Cause::Implausible),
        ..message("x", "k", "1")
    };
    rig.publish(1, publication);
    rig.sent();
    rig.ready(2);
    let sent = rig.sent();
    assert_eq!(publishes(&sent), [row(2, "dlx-proxy.parked", "k", "1")]);
    assert_eq!(
        headers(&sent)[0],
        ("x-parked-exchange".into(), b"x".to_vec())
    );
    rig.ack(2, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Parked(Cause::Implausible))]);
    assert!(rig.events().iter().any(|event| matches!(
        event,
        Event::DeadLetter(dead) if dead.outcome == Outcome::Parked(Cause::Implausible) && dead.exchange == name("x")
    )));
}

#[test]
fn if_that_closes_too_its_owner_gets_it_back() {
    let mut peer =
        Peer::new(|_| Does::CloseChannel(406, "PRECONDITION_FAILED - message size 20971520"));
    peer.publish(1, "", "k");
    peer.pass(1_000);
    assert_eq!(peer.settled, [(1, Outcome::Refused(Cause::Poison))]);
    assert_eq!(peer.faults.len(), 3);
}

#[test]
fn one_that_closes_the_connection_is_found_while_others_go_on() {
    let mut peer = Peer::new(|published| match published.1.as_str() {
        "x" => Does::Close(501),
        _ => Does::Confirm,
    });
    let batch = vec![(1, message("", "k", "1")), (2, message("x", "k", "2"))];
    peer.publish_all(batch);
    peer.publish(3, "", "other");
    peer.pass(1_000);
    for n in [1, 3] {
        assert_eq!(peer.outcome(n), Some(Outcome::Confirmed));
    }
    assert_eq!(peer.outcome(2), Some(Outcome::Parked(Cause::Poison)));
}

#[test]
fn links_that_die_without_a_word_raise_suspicion_too() {
    let mut rig = rig();
    rig.publish_as(
        SESSION,
        vec![(1, message("", "k", "1")), (2, message("", "k", "2"))],
    );
    for _ in 0..3 {
        assert_eq!(rig.published().len(), 2);
        rig.cut();
        rig.up("4.3.6");
    }
    rig.publish(3, message("", "other", "3"));
    assert_eq!(rig.published(), [row(1, "", "other", "3")]);
    assert_eq!(rig.fx.out.careful.len(), 2);
}

#[test]
fn a_user_that_may_open_few_channels_uses_few() {
    let mut rig = rig();
    let batch = (1..=8).map(|n| (n, message(&format!("x{n}"), "k", "1")));
    rig.publish_as(SESSION, batch.collect());
    let opened = rig.methods().len() / 2;
    assert_eq!(opened, 8);
    rig.broker(&close(
        0,
        530,
        "NOT_ALLOWED - number of channels opened for user 'proxy' has reached the maximum allowed limit of (6)",
        MethodId::CHANNEL_OPEN,
    ));
    rig.fx.broker.finish().0.clear();
    rig.up("4.3.6");
    let mut done = Vec::new();
    for _ in 0..8 {
        for (channel, ..) in rig.published() {
            assert!(channel <= 7, "{channel}");
        }
        for channel in 3..=7 {
            rig.ack(channel, 0, true);
        }
        done.extend(rig.settled());
    }
    assert_eq!(done.len(), 8);
}

#[test]
fn a_foreign_user_id_is_asked_for_once() {
    let mut rig = rig();
    rig.publish_as(
        SESSION,
        vec![
            (1, foreign("x")),
            (2, message("x", "k", "2")),
            (3, foreign("x")),
        ],
    );
    let mut published = rig.published();
    published.sort();
    let channels: Vec<u16> = published.into_iter().map(|row| row.0).collect();
    assert_eq!(channels, [3, 3, 4]);
    rig.close(
        3,
        406,
        "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'proxy'",
    );
    let refused = Outcome::Refused(Cause::UserId);
    assert_eq!(rig.settled(), [(1, refused), (3, refused)]);
    rig.publish(4, foreign("x"));
    assert_eq!(rig.settled(), [(4, refused)]);
    assert_eq!(rig.published(), []);
    rig.ack(4, 1, false);
    assert_eq!(rig.settled(), [(2, Outcome::Confirmed)]);
}

#[test]
fn the_intake_comes_again_with_the_user_id_hidden() {
    let mut rig = rig();
    rig.publish_as(INTAKE, vec![(1, foreign("x"))]);
    rig.published();
    rig.close(
        3,
        406,
        "PRECONDITION_FAILED - user_id property set to 'bob'",
    );
    assert_eq!(rig.settled(), [(1, Outcome::Refused(Cause::UserId))]);
    let events = rig.events();
    assert!(
        matches!(events[..], [Event::ChannelClosed { .. }]),
        "it has not ended"
    );
}

/// With OAuth 2 the broker's name of our user is not the one that we log in with.
#[test]
fn what_may_not_have_the_proof_is_parked_without() {
    let mut rig = rig();
    rig.publish_as(
        SESSION,
        vec![
            (1, message("gone", "k", "1")),
            (2, message("gone", "k", "2")),
        ],
    );
    rig.published();
    rig.close(3, 404, "NOT_FOUND");
    rig.ready(2);
    assert_eq!(publishes(&rig.sent()).len(), 2);
    rig.close(
        2,
        406,
        "PRECONDITION_FAILED - user_id property set to 'proxy' but authenticated user was 'p'",
    );
    assert_eq!(rig.settled(), []);
    rig.sent();
    rig.ready(2);
    let sent = rig.sent();
    assert_eq!(publishes(&sent).len(), 2);
    assert_eq!(user_id(&sent), None);
    let two = "where it was to go, and why it did not";
    assert_eq!(headers(&sent).len(), 2, "{two}");
    rig.ack(2, 2, true);
    let parked = Outcome::Parked(Cause::NoExchange);
    assert_eq!(rig.settled(), [(1, parked), (2, parked)]);
}

#[test]
fn our_own_user_id_is_nothing_special() {
    let mut rig = rig();
    let mut publication = message("", "k", "1");
    publication.content.properties = Bytes::from_static(b"\x00\x10\x05proxy");
    rig.publish(1, publication);
    assert_eq!(rig.published(), [row(1, "", "k", "1")]);
}

#[test]
fn an_impersonator_publishes_for_others() {
    let mut rig = rig();
    rig.publish(1, foreign("x"));
    rig.published();
    rig.ack(3, 1, false);
    assert_eq!(rig.settled(), [(1, Outcome::Confirmed)]);
}
