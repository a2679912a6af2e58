//! Ack timeouts beside a broker and a client that are sets of tags. The scripts of `testdata/scripts/ack_timeout.txt` show each case.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::script::*;
use super::transcripts::after;
use super::words::{frames, shown};
use crate::machine::*;
use crate::session::Input;

/// The end of a timeout is a monotonic instant, so the clock on the wall may be set at will meanwhile.
#[test]
fn a_step_of_the_clock_takes_nothing_back_and_keeps_nothing() {
    for wall in [0, 10_000_000] {
        let mut s = after(
            r#"session rejects-only
            policy ^orders$ ack-timeout=1000
            consumes orders
            broker deliver orders 1 "" key ; content hi"#,
        );
        s.now.wall = Wall::of_seconds(wall);
        s.wait(Duration::from_millis(999)).silent();
        s.now.wall = Wall::of_seconds(1000);
        s.wait(Duration::from_millis(1))
            .broker_gets(&[&frames("reject 1 +requeue")]);
    }
}

/// A client that never settles anything gets, and loses, one message after the other.
#[test]
fn what_a_client_does_not_settle_is_bounded() {
    let mut s = after("session rejects-only\npolicy ^orders$ ack-timeout=1000\nconsumes orders");
    for at in 0..=1024 {
        let tag = 1 + 64 * at;
        let delivery = frames(&format!("deliver orders {tag} \"\" key ; content hi"));
        s.broker(&delivery).passes();
        let expected = match at < 1024 {
            true => frames(&format!("reject {tag} +requeue")),
            false => Vec::new(),
        };
        s.wait(Duration::from_secs(1)).broker_gets(&[&expected]);
    }
    assert!(s.events.contains(&Event::LimitMet(Limit::TakenBack)));
    s.client(&frames("ack 1")).silent();
    s.wait(Duration::from_secs(1))
        .broker_gets(&[&frames("reject 65537 +requeue")]);
}

/// The question has to go behind the frame that the broker has the beginning of.
#[test]
fn a_question_in_the_middle_of_a_frame_lets_that_end() {
    let mut s = after(
        r#"session rejects-only
        manages orders ack-timeout=1000 {x-dead-letter-exchange=dlx}
        doubts
        consumes orders
        broker deliver orders 1 "" key ; content hi"#,
    );
    let publish = frames(r#"publish "" key ; content hello"#);
    let (first, rest) = publish.split_at(publish.len() - 3);
    s.client(first).passes();
    s.wait(Duration::from_secs(1)).silent();
    assert!(s.session.wants_read(Leg::Client, 0));
    let more = frames("ack 1");
    let question =
        frames("probe open ; probe declare orders {x-dead-letter-exchange=dlx x-max-age=never}");
    s.client(&[rest, &more].concat())
        .broker_gets(&[rest, &question]);
    assert!(!s.session.wants_read(Leg::Client, 0));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver {
        timed: bool,
    },
    Wait(u64),
    /// Of the tags that the client has, which one; how.
    Settle {
        which: usize,
        verb: &'static str,
    },
    Extend(usize),
    Outcome {
        which: usize,
        refused: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let verbs = prop::sample::select(vec![
        "ack",
        "ack +multiple",
        "nack",
        "nack +multiple",
        "nack +requeue",
        "nack +multiple +requeue",
        "reject",
        "reject +requeue",
    ]);
    prop_oneof![
        4 => any::<bool>().prop_map(|timed| Step::Deliver { timed }),
        2 => (1..900u64).prop_map(Step::Wait),
        3 => (any::<usize>(), verbs).prop_map(|(which, verb)| Step::Settle { which, verb }),
        1 => any::<usize>().prop_map(Step::Extend),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, refused)| Step::Outcome { which, refused }),
    ]
}

/// What a RabbitMQ and a client think of the same channel.
#[derive(Default)]
struct World {
    broker: BTreeSet<u64>,
    client: BTreeSet<u64>,
    last: u64,
    /// The client has settled all, and that is not read yet.
    all: bool,
}

/// The tags of a set that a settlement means. None: it is refused (S9.1).
fn meant(tags: &BTreeSet<u64>, tag: u64, multiple: bool) -> Option<Vec<u64>> {
    let is_known = tags.contains(&tag) || multiple && tag == 0;
    let most = if tag == 0 { u64::MAX } else { tag };
    let of = |of: &u64| if multiple { *of <= most } else { *of == tag };
    is_known.then(|| tags.iter().copied().filter(of).collect())
}

impl World {
    /// The broker gets what the session sent.
    fn heard(&mut self, s: &mut Script) {
        for words in shown(&s.sent_to_broker()) {
            let mut parts = words.split(' ');
            let verb = parts.next().unwrap_or_default();
            if !["ack", "nack", "reject"].contains(&verb) {
                continue;
            }
            let tag = parts
                .next()
                .and_then(|tag| tag.parse().ok())
                .expect("a tag");
            let settled = meant(&self.broker, tag, words.contains("+multiple"));
            for tag in settled.unwrap_or_else(|| panic!("unknown delivery tag: {words}")) {
                self.broker.remove(&tag);
            }
        }
        drop(s.sent_to_client());
    }

    fn takes(&mut self, step: Step, s: &mut Script) {
        let nth =
            |which: usize, of: &BTreeSet<u64>| of.iter().nth(which % of.len().max(1)).copied();
        match step {
            // Whether "all" means what comes before it is read is left open, as by RabbitMQ.
            Step::Deliver { .. } if self.all && !s.session.wants_read(Leg::Client, 0) => {}
            Step::Deliver { timed } => {
                self.last += 1;
                let queue = if timed { "timed" } else { "other" };
                let tag = self.last;
                self.broker.insert(tag);
                self.client.insert(tag);
                let delivery = format!("deliver {queue} {tag} \"\" key ; content hi");
                drop(s.broker(&frames(&delivery)));
            }
            Step::Wait(millis) => drop(s.wait(Duration::from_millis(millis))),
            Step::Settle { which, verb } => {
                // At a hold the client's method waits: it says no more until that is over.
                let is_read = s.session.wants_read(Leg::Client, 0);
                if let Some(tag) = nth(which, &self.client).filter(|_| is_read) {
                    let (verb, bits) = verb.split_once(' ').unwrap_or((verb, ""));
                    let all = bits.contains("multiple") && which % 5 == 0;
                    let tag = if all { 0 } else { tag };
                    let settled = meant(&self.client, tag, bits.contains("multiple"));
                    for tag in settled.expect("a tag of the client") {
                        self.client.remove(&tag);
                    }
                    drop(s.client(&frames(format!("{verb} {tag} {bits}").trim_end())));
                    self.all = all;
                }
            }
            Step::Extend(which) => {
                let is_read = s.session.wants_read(Leg::Client, 0);
                if let Some(tag) = nth(which, &self.client).filter(|_| is_read) {
                    let words = format!("unbind q dlx-proxy.verdict {tag} {{extend-ms=700}}");
                    drop(s.client(&frames(&words)));
                    drop(s.broker(&frames("flow-ok +active")));
                }
            }
            Step::Outcome { which, refused } if !s.dead.is_empty() => {
                let at = which % s.dead.len();
                let ticket = s.dead.remove(at).0;
                let outcome = match refused {
                    true => Outcome::Refused(Cause::QueueFull),
                    false => Outcome::Confirmed,
                };
                drop(s.input(Input::Settled(vec![(ticket, outcome)])));
            }
            Step::Outcome { .. } => {}
        }
        self.heard(s);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever they do: the broker never gets a tag that it does not know, and in the end neither waits for anything.
    #[test]
    fn a_tag_is_settled_once(min in prop::option::of(500..600u32), steps in prop::collection::vec(step(), 1..120)) {
        let delays = min.map_or(String::new(), |min| format!("min={min} limit=1"));
        let mut s = after(&format!(
            "session rejects-only tickets=3 close-wait=5s
            manages timed ack-timeout=1000 {delays} {{x-dead-letter-exchange=dlx}}
            consumes timed
            consumes other"
        ));
        let mut world = World::default();
        for step in steps {
            world.takes(step, &mut s);
        }
        for _ in 0..120 {
            world.takes(Step::Outcome { which: 0, refused: false }, &mut s);
            world.takes(Step::Settle { which: 0, verb: "ack" }, &mut s);
            world.takes(Step::Wait(200), &mut s);
        }
        prop_assert_eq!((&world.client, &world.broker), (&BTreeSet::new(), &BTreeSet::new()));
        prop_assert_eq!((s.session.withheld(), s.session.retained()), (0, 0));
    }
}
