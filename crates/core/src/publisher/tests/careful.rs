//! Targets that close the connection, against a small broker that answers: whatever they do, the dead letters of others arrive soon.

use super::peer::{Does, Peer};
use super::*;

/// The queue `bad` of the default exchange cannot be published to, nor can what is bound to the exchange `bad`.
fn bad_stream(published: &Published) -> Does {
    match (published.1.as_str(), published.2.as_str()) {
        ("", "bad") | ("bad", _) => Does::Close(506),
        ("", "mute") => Does::Nothing,
        _ => Does::Confirm,
    }
}

fn many(exchange: &str, key: &str) -> Vec<(u64, Publication)> {
    (1_000..1_200)
        .map(|n| (n, message(exchange, key, &n.to_string())))
        .collect()
}

#[test]
fn beside_a_target_that_closes_the_connection_others_go_on() {
    for exchange in ["", "bad"] {
        let mut peer = Peer::new(bad_stream);
        let mut batch = many(exchange, "bad");
        batch.insert(100, (1, message("", "good", "1")));
        let began = peer.now();
        peer.publish_all(batch);
        // One a quarter of a second, all the time.
        for n in 2..=600 {
            peer.publish(n, "", "good");
            peer.pass(250);
        }
        let confirmed = (1..=600).filter(|n| peer.outcome(*n) == Some(Outcome::Confirmed));
        assert_eq!(confirmed.count(), 600);
        for (at, (body, when)) in peer
            .arrived
            .iter()
            .enumerate()
            .filter(|(_, (body, _))| body.len() < 4)
        {
            let n: u64 = body.parse().unwrap();
            let given = began + 250 * n.saturating_sub(2);
            assert!(
                when.saturating_sub(given) < 1_000,
                "{n}, given at {given}, came at {when} as {at}"
            );
        }
        // Seldom and more seldom: one to learn that there is something, one to learn what; then after 1, 2, 4, 8, 16 s.
        let faults: Vec<u64> = peer
            .faults
            .iter()
            .map(|(_, when, _)| when - began)
            .collect();
        assert!(faults.len() <= 10, "{faults:?}");
        for n in 1_000..1_200 {
            assert_eq!(peer.outcome(n), Some(Outcome::Parked(Cause::Poison)), "{n}");
        }
        assert!(
            peer.events
                .iter()
                .any(|event| matches!(event, Event::TargetClosesConnection { .. }))
        );
        assert_eq!(peer.side.rig.machine.held(), 0);
    }
}

#[test]
fn what_a_careful_one_tries_disturbs_nobody() {
    let mut peer = Peer::new(|published| match published.2.as_str() {
        "bad" => Does::Close(506),
        _ => Does::ConfirmLater,
    });
    peer.publish(1, "", "bad");
    for n in 2..=1_500 {
        peer.publish(n, "", "good");
        peer.pass(10);
    }
    peer.pass(1_000);
    assert!(peer.faults.len() >= 4);
    assert_eq!(peer.arrived.len(), 1_499);
}

#[test]
fn what_is_given_up_says_where_it_should_have_gone() {
    let mut peer = Peer::new(bad_stream);
    peer.publish(1, "bad", "k");
    peer.pass(70_000);
    let told = headers(&peer.header.take().into_iter().collect::<Vec<_>>());
    assert_eq!(
        told,
        [
            ("x-parked-exchange".into(), b"bad".to_vec()),
            ("x-parked-cause".into(), b"poison".to_vec()),
            ("x-dlx-proxy-user-id".into(), Vec::new())
        ]
    );
}

#[test]
fn a_target_that_is_well_again_gets_all_in_order() {
    static WELL: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut peer = Peer::new(|published| {
        match published.2 == "bad" && !WELL.load(std::sync::atomic::Ordering::Relaxed) {
            true => Does::Close(541),
            false => Does::Confirm,
        }
    });
    peer.publish_all(many("", "bad"));
    peer.pass(2_000);
    WELL.store(true, std::sync::atomic::Ordering::Relaxed);
    peer.publish(9_999, "", "bad");
    peer.pass(10_000);
    assert_eq!(peer.settled.len(), 201);
    assert!(
        peer.settled
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::Confirmed)
    );
    let mut arrived: Vec<u64> = peer
        .arrived
        .iter()
        .map(|(body, _)| body.parse().unwrap())
        .collect();
    // But those that were tried alone: another one goes first each time.
    assert_eq!(arrived.len(), 201);
    arrived.retain(|n| ![1_000, 1_001].contains(n));
    assert!(arrived.is_sorted(), "{arrived:?}");
}

#[test]
fn a_mute_suspect_holds_up_nobody() {
    let mut peer = Peer::new(bad_stream);
    let mut batch = vec![(1, message("", "mute", "1")), (2, message("", "good", "2"))];
    batch.extend(many("bad", "k"));
    batch.extend([(3, message("", "mute", "3")), (4, message("x", "k", "4"))]);
    peer.publish_all(batch);
    peer.pass(2_000);
    for n in [2, 4] {
        assert_eq!(peer.outcome(n), Some(Outcome::Confirmed), "{n}");
    }
    assert_eq!(peer.outcome(1), None);
}

#[test]
fn one_bad_target_among_many_is_found() {
    let mut peer = Peer::new(bad_stream);
    let mut batch: Vec<_> = (1..=200)
        .map(|n| (n, message("", &format!("q{n}"), &n.to_string())))
        .collect();
    batch.insert(150, (999, message("", "bad", "999")));
    peer.publish_all(batch);
    peer.pass(2_000);
    let late = (1..=200).filter(|n| peer.outcome(*n) != Some(Outcome::Confirmed));
    assert_eq!(late.count(), 0);
    assert!(peer.faults.len() <= 10, "{}", peer.faults.len());
}

#[test]
fn one_that_is_wrong_by_itself_is_found_among_its_neighbours_and_parked_at_once() {
    let mut peer = Peer::new(|published| match published.3.as_str() {
        "1117" if !published.1.starts_with("dlx-proxy") => Does::Close(501),
        _ => Does::Confirm,
    });
    peer.publish_all(many("", "k"));
    peer.pass(5_000);
    for n in 1_000..1_200 {
        let expected = match n {
            1_117 => Outcome::Parked(Cause::Poison),
            _ => Outcome::Confirmed,
        };
        assert_eq!(peer.outcome(n), Some(expected), "{n}");
    }
    assert!(peer.faults.len() <= 12, "{}", peer.faults.len());
}

#[test]
fn if_it_cannot_be_parked_either_its_owner_gets_it_back() {
    let mut peer = Peer::new(|published| match published.3.as_str() {
        "7" => Does::Close(501),
        _ => Does::Confirm,
    });
    peer.publish(7, "", "k");
    peer.pass(3_000);
    assert_eq!(peer.outcome(7), Some(Outcome::Refused(Cause::Poison)));
    peer.publish(8, "", "k");
    peer.pass(1_000);
    assert_eq!(peer.outcome(8), Some(Outcome::Confirmed));
}

#[test]
fn links_that_are_cut_meanwhile_are_no_fault() {
    let mut peer = Peer::new(bad_stream);
    peer.publish(1, "bad", "k");
    for _ in 0..10 {
        peer.pass(500);
        peer.side.cut();
        if let Some(careful) = &mut peer.careful {
            careful.cut();
        }
        // All in all less than what a session waits for a link.
        peer.pass(1_000);
        peer.publish(2, "", "good");
    }
    peer.pass(1_000);
    assert_eq!(peer.outcome(2), Some(Outcome::Confirmed));
    assert_eq!(peer.outcome(1), None);
}

#[test]
fn what_is_still_tried_when_the_process_ends_is_back_with_its_owner() {
    let mut peer = Peer::new(bad_stream);
    peer.publish(1, "bad", "k");
    peer.publish(2, "", "mute");
    peer.pass(5_000);
    peer.side.rig.drain();
    peer.serve();
    let away = Outcome::Refused(Cause::PublisherAway);
    assert_eq!(peer.outcome(1), Some(away));
    assert_eq!(peer.outcome(2), None);
}

#[test]
fn the_careful_one_is_there_while_something_is_tried() {
    let mut peer = Peer::new(
        |published| match (published.1.as_str(), published.2.as_str()) {
            ("", "bad") => Does::Close(501),
            _ => Does::Confirm,
        },
    );
    peer.publish(1, "", "good");
    assert_eq!(peer.opened, 0);
    let bad = (3, message("", "bad", "3"));
    peer.publish_all(vec![(2, message("", "good", "2")), bad]);
    assert!(peer.careful.is_some());
    peer.pass(1_000);
    assert_eq!(peer.outcome(2), Some(Outcome::Confirmed));
    assert_eq!(peer.outcome(3), Some(Outcome::Parked(Cause::Poison)));
    assert!(peer.careful.is_none());
    assert_eq!(peer.opened, 1);
}

/// A limit on connections keeps the careful one out: what it has is tried without it, now and then, and others go on.
#[test]
fn without_a_careful_one_others_go_on() {
    let mut peer = Peer::new(bad_stream);
    peer.has_room = false;
    let batch = vec![(1, message("", "bad", "1")), (2, message("", "good", "2"))];
    peer.publish_all(batch);
    for n in 3..=200 {
        peer.publish(n, "", "good");
        peer.pass(100);
    }
    let confirmed = (2..=200).filter(|n| peer.outcome(*n) == Some(Outcome::Confirmed));
    assert!(confirmed.count() >= 190);
    let faults = peer.faults.len();
    assert!((2..=5).contains(&faults), "{:?}", peer.faults);
    peer.has_room = true;
    peer.pass(20_000);
    assert_eq!(peer.outcome(200), Some(Outcome::Confirmed));
    peer.pass(60_000);
    assert_eq!(peer.outcome(1), Some(Outcome::Parked(Cause::Poison)));
}

/// What comes for a target that is held waits for it, and then is published in order.
#[test]
fn the_order_of_a_target_is_kept() {
    let mut peer = Peer::new(|published| match published.3.as_str() {
        "1100" if !published.1.starts_with("dlx-proxy") => Does::Close(541),
        _ => Does::Confirm,
    });
    peer.publish_all(many("", "k"));
    for n in 2_000..2_100 {
        peer.publish(n, "", "k");
        peer.pass(10);
    }
    peer.pass(1_000);
    let well = "the target is known to be well by the last of those that were in flight";
    assert_eq!(peer.outcome(2_099), Some(Outcome::Confirmed), "{well}");
    peer.pass(70_000);
    let arrived = peer.arrived.iter().map(|(body, _)| body.parse().unwrap());
    let arrived: Vec<u64> = arrived.filter(|n: &u64| *n != 1_100).collect();
    assert_eq!(arrived.len(), 299);
    assert!(arrived.is_sorted(), "{arrived:?}");
    assert_eq!(peer.outcome(1_100), Some(Outcome::Parked(Cause::Poison)));
}

/// It arrives where it was to go, with the cause of something else.
#[test]
fn what_is_parked_well_by_the_careful_one_frees_the_parking_queue() {
    let mut peer = Peer::new(
        |published| match (published.1.as_str(), published.3.as_str()) {
            ("dlx-proxy.parked", "3") => Does::Close(541),
            _ => Does::Confirm,
        },
    );
    let parked = |n: u64| Publication {
        purpose: Purpose::Park(Cause::Poison),
        ..message("x", "k", &n.to_string())
    };
    peer.publish_all((1..=5).map(|n| (n, parked(n))).collect());
    peer.publish_all((6..=20).map(|n| (n, parked(n))).collect());
    peer.pass(10_000);
    for n in (1..=20).filter(|n| *n != 3) {
        assert_eq!(peer.outcome(n), Some(Outcome::Parked(Cause::Poison)), "{n}");
    }
    assert_eq!(peer.outcome(3), None);
    peer.pass(60_000);
    assert!(peer.outcome(3).is_some());
}

#[test]
fn one_that_is_wrong_by_itself_holds_up_its_target_for_seconds() {
    let mut peer = Peer::new(|published| match published.3.as_str() {
        "1" if !published.1.starts_with("dlx-proxy") => Does::Close(541),
        _ => Does::Confirm,
    });
    for n in 1..=10 {
        peer.publish(n, "", "k");
    }
    peer.pass(10_000);
    for n in 2..=10 {
        assert_eq!(peer.outcome(n), Some(Outcome::Confirmed), "{n}");
    }
    assert_eq!(peer.outcome(1), None);
    peer.pass(60_000);
    assert_eq!(peer.outcome(1), Some(Outcome::Parked(Cause::Poison)));
}
