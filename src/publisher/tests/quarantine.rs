//! Targets that close the connection, against a small broker that answers: whatever they do, the dead letters of others arrive soon.

use std::collections::BTreeMap;

use super::*;

/// What a target does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Confirm,
    /// Takes it, and confirms it 50 ms later.
    ConfirmLater,
    /// Takes it, and says nothing.
    Nothing,
    /// Closes the connection with that code.
    Close(u16),
}

type Does1 = fn(&Published) -> Does;

/// A broker; see the module.
struct Peer {
    rig: PublisherRig,
    does: Does1,
    published: BTreeMap<u16, u64>,
    coming: Option<(u16, String, String)>,
    /// Bodies that arrived, and when; those that closed the connection, and when.
    arrived: Vec<(String, u64)>,
    faults: Vec<(String, u64)>,
    settled: Vec<(u64, Outcome)>,
    /// Confirms: when, channel, number.
    later: Vec<(u64, u16, u64)>,
}

impl Peer {
    fn new(does: Does1) -> Peer {
        Peer {
            rig: rig(),
            does,
            published: BTreeMap::new(),
            coming: None,
            arrived: Vec::new(),
            faults: Vec::new(),
            settled: Vec::new(),
            later: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.rig.now.mono.0 / 1_000
    }

    /// Answers all that was sent.
    fn serve(&mut self) {
        loop {
            let sent = self.rig.sent();
            if sent.is_empty() {
                self.settled.extend(self.rig.settled());
                return;
            }
            for sent in sent {
                if !self.answer(sent) {
                    break;
                }
            }
        }
    }

    /// False if it closed the connection: then nothing of the rest was read.
    fn answer(&mut self, sent: Sent) -> bool {
        let channel = sent.channel;
        match (sent.kind, sent.method()) {
            (_, Some(MethodId::CHANNEL_OPEN)) => {
                self.published.insert(channel, 0);
                let opened = method(channel, MethodId::CHANNEL_OPEN_OK, |a| a.longstr(b"").end());
                self.rig.broker(&opened);
            }
            (_, Some(MethodId::CONFIRM_SELECT)) => {
                self.rig
                    .broker(&method(channel, MethodId::CONFIRM_SELECT_OK, |_| {}));
            }
            (_, Some(MethodId::BASIC_PUBLISH)) => {
                let (channel, exchange, routing_key, _) = publishes(&[sent]).remove(0);
                *self.published.get_mut(&channel).unwrap() += 1;
                self.coming = Some((channel, exchange, routing_key));
            }
            (Kind::Body, _) => {
                let (channel, exchange, routing_key) = self.coming.take().unwrap();
                let body = String::from_utf8(sent.payload).unwrap();
                let tag = self.published[&channel];
                match (self.does)(&(channel, exchange, routing_key, body.clone())) {
                    Does::Confirm => {
                        self.arrived.push((body, self.now()));
                        self.rig.ack(channel, tag, false);
                    }
                    Does::ConfirmLater => {
                        self.arrived.push((body, self.now()));
                        self.later.push((self.now() + 50, channel, tag));
                    }
                    Does::Nothing => {}
                    Does::Close(code) => {
                        self.faults.push((body, self.now()));
                        self.rig.close(0, code, "closed");
                        self.rig.fx.broker.finish().0.clear();
                        self.published.clear();
                        self.later.clear();
                        let Flow::Reconnect(at) = self.rig.machine.flow() else {
                            panic!("no way back");
                        };
                        self.rig
                            .pass(self.rig.now.mono.until(at).as_millis() as u64 + 10);
                        self.rig.up("4.3.6");
                        return false;
                    }
                }
            }
            _ => {}
        }
        true
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.rig.pass(10);
            let now = self.now();
            for (_, channel, tag) in self.later.extract_if(.., |(at, ..)| *at <= now) {
                self.rig.ack(channel, tag, false);
            }
            self.serve();
        }
        self.rig.broker(&crate::amqp::frame::HEARTBEAT);
    }

    fn publish(&mut self, ticket: u64, exchange: &str, key: &str) {
        self.rig
            .publish(ticket, message(exchange, key, &format!("{ticket}")));
        self.serve();
    }

    fn outcome(&self, ticket: u64) -> Option<Outcome> {
        let mut found = self.settled.iter().filter(|(of, _)| *of == ticket);
        found.next().map(|(_, outcome)| *outcome)
    }
}

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
