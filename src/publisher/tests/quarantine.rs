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
        peer.rig.publish_as(SESSION, batch);
        peer.serve();
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
        let faults: Vec<u64> = peer.faults.iter().map(|(_, when)| when - began).collect();
        assert!(faults.len() <= 10, "{faults:?}");
        for n in 1_000..1_200 {
            assert_eq!(peer.outcome(n), Some(Outcome::Parked(Cause::Poison)), "{n}");
        }
        assert!(
            peer.rig
                .events()
                .iter()
                .any(|event| matches!(event, Event::TargetConvicted { .. }))
        );
        assert_eq!(peer.rig.machine.held(), 0);
    }
}

#[test]
fn what_is_on_its_way_when_a_turn_begins_is_not_published_twice() {
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
    let mut told = Vec::new();
    for _ in 0..7_000 {
        peer.rig.pass(10);
        for sent in peer.rig.sent() {
            if sent.kind == Kind::Header {
                told = headers(std::slice::from_ref(&sent));
            }
            if !peer.answer(sent) {
                break;
            }
        }
    }
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
    peer.rig.publish_as(SESSION, many("", "bad"));
    peer.serve();
    peer.pass(2_000);
    WELL.store(true, std::sync::atomic::Ordering::Relaxed);
    peer.rig
        .publish_as(SESSION, vec![(9_999, message("", "bad", "9999"))]);
    peer.serve();
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
    peer.rig.publish_as(SESSION, batch);
    peer.serve();
    peer.pass(2_000);
    for n in [2, 4] {
        assert_eq!(peer.outcome(n), Some(Outcome::Confirmed), "{n}");
    }
    assert_eq!(peer.outcome(1), None);
}

#[test]
fn one_bad_target_among_many_is_found_in_halves() {
    let mut peer = Peer::new(bad_stream);
    let mut batch: Vec<_> = (1..=200)
        .map(|n| (n, message("", &format!("q{n}"), &n.to_string())))
        .collect();
    batch.insert(150, (999, message("", "bad", "999")));
    peer.rig.publish_as(SESSION, batch);
    peer.serve();
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
    peer.rig.publish_as(SESSION, many("", "k"));
    peer.serve();
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
fn what_ends_while_it_is_tried_ends_nothing_else() {
    let mut peer = Peer::new(bad_stream);
    peer.publish(1, "bad", "k");
    for _ in 0..10 {
        peer.pass(500);
        peer.rig.cut();
        peer.published.clear();
        // All in all less than what a session waits for a link.
        peer.rig.pass(1_000);
        peer.rig.up("4.3.6");
        peer.publish(2, "", "good");
    }
    assert_eq!(peer.outcome(2), Some(Outcome::Confirmed));
    peer.rig.drain();
    peer.pass(2_000);
    assert_eq!(peer.outcome(1), Some(Outcome::Parked(Cause::Poison)));
}
