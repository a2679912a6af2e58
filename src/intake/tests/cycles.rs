//! Cycles through named exchanges: dropped at once if that is certain, and only then.

use crate::amqp::ids::name;
use crate::machine::{Change, Survey};
use crate::routing::tests::model::{Model, binding, exchange, queue};
use crate::routing::tests::property::changes;

use super::*;

fn surveyed() -> IntakeRig {
    let settings = Settings {
        surveyed: true,
        ..settings()
    };
    let mut rig = rig_of(settings);
    assert!(rig.asked(), "when the link is up");
    rig.survey(&Model::default());
    rig.pass(1000);
    rig
}

impl IntakeRig {
    /// Whether a survey was asked for since the last call.
    fn asked(&mut self) -> bool {
        std::mem::take(&mut self.fx.out.survey)
    }

    /// The vhost is surveyed now.
    fn survey(&mut self, model: &Model) {
        let survey = model.survey(self.now.mono);
        self.surveyed(Some(survey));
    }

    fn surveyed(&mut self, survey: Option<Survey>) {
        self.input(Input::Surveyed(survey));
    }

    fn changed(&mut self, changes: &[Change]) {
        self.input(Input::Changed(changes.to_vec()));
    }

    /// The outcomes of signals that ended here.
    fn ended(&mut self) -> Vec<Outcome> {
        let events = self.events().into_iter();
        let outcomes = events.filter_map(|event| match event {
            Event::DeadLetter(dead) => Some(dead.outcome),
            _ => None,
        });
        outcomes.collect()
    }
}

/// A fanout exchange `x` that leads to `work` and to these.
fn round(others: &[&str]) -> Vec<Change> {
    let bound = |name: &&str| Change::Bound(binding("x", queue(name), "", &[]));
    let mut changes = vec![Change::Declared(exchange("x", "fanout", None))];
    changes.extend(["work"].iter().chain(others).map(bound));
    changes
}

fn model(changes: &[Change]) -> Model {
    let mut model = Model::default();
    changes.iter().for_each(|change| model.apply(change));
    model
}

const ACK: MethodId = MethodId::BASIC_ACK;

#[test]
fn dropped_when_a_survey_says_the_same() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.deliver(2, "dlx-proxy/x/key", &died_in("work", "hi"));
    assert!(rig.asked());
    assert_eq!((rig.dead(), rig.settlements()), (vec![], vec![]));
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.dead(), []);
    assert_eq!(rig.settlements(), [(ACK, 2, true)]);
    assert_eq!(rig.ended(), [Outcome::Dropped(Cause::Cycle); 2]);
    assert_eq!((rig.asked(), rig.machine.held()), (false, 0));
}

#[test]
fn published_when_somebody_bound_another_queue_past_this_proxy() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.survey(&model(&round(&["other"])));
    let dead = rig.dead();
    assert_eq!(dead[0].1.exchange, name("x"));
    rig.settle(&[(dead[0].0, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(ACK, 1, false)]);
    // Now that is known: nobody asks again.
    rig.pass(1000);
    rig.asked();
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
}

#[test]
fn published_when_not_all_copies_would_go_round() {
    let mut rig = surveyed();
    rig.changed(&round(&["other"]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
}

#[test]
fn a_reject_goes_round() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    let rejected = with_headers(died("work", "rejected"), "hi");
    rig.deliver(1, "dlx-proxy/x", &rejected);
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
}

#[test]
fn a_survey_that_was_begun_before_the_signal_came_decides_nothing() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    let too_old = model(&round(&[])).survey(rig.now.mono);
    rig.pass(1);
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert!(rig.asked());
    rig.pass(200);
    rig.surveyed(Some(too_old));
    assert_eq!((rig.dead(), rig.settlements()), (vec![], vec![]));
    // Another survey is needed, but reading surveys must not be all that the broker does.
    assert!(!rig.asked());
    rig.pass(799);
    assert!(!rig.asked());
    rig.pass(1);
    assert!(rig.asked());
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.settlements(), [(ACK, 1, false)]);
    rig.pass(10_000);
    assert!(!rig.asked(), "nobody wants to know");
}

#[test]
fn nobody_is_held_for_a_survey_that_is_far_away() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert!(rig.asked());
    rig.pass(4000);
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.settlements(), [(ACK, 1, false)]);
    // The next is not before 16 seconds.
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
    rig.pass(15_000);
    rig.deliver(3, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (0, false));
    rig.pass(1000);
    assert!(rig.asked());
}

#[test]
fn published_when_there_is_no_survey_in_time() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.pass(4999);
    assert_eq!(rig.dead(), []);
    rig.pass(1);
    assert_eq!(rig.dead().len(), 1);
    // Nobody waits for the next one, as there is none for a while.
    rig.asked();
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
    rig.pass(10_000);
    rig.deliver(3, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (0, true));
    rig.surveyed(None);
    assert_eq!(rig.dead().len(), 1, "at once when it failed");
    rig.deliver(4, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
}

#[test]
fn parked_from_at_least_once() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy++/x", &died_in("work", "hi"));
    rig.survey(&model(&round(&[])));
    let dead = rig.dead();
    assert_eq!(dead[0].1.purpose, Purpose::Park(Cause::Cycle));
    assert_eq!(dead[0].1.exchange, name("x"));
    assert_eq!((rig.settlements(), rig.ended()), (vec![], vec![]));
}

#[test]
fn without_surveys_nothing_is_held() {
    let mut rig = rig();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!((rig.dead().len(), rig.asked()), (1, false));
}

#[test]
fn no_more_than_a_quarter_of_the_prefetch_is_held() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    for tag in 1..=251 {
        rig.deliver(tag, "dlx-proxy/x", &died_in("work", "hi"));
    }
    let dead = rig.dead();
    assert_eq!(dead.len(), 1);
    rig.settle(&[(dead[0].0, Outcome::Confirmed)]);
    assert_eq!(rig.settlements(), [(ACK, 251, false)]);
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.settlements(), [(ACK, 250, true)]);
}

#[test]
fn nothing_is_held_while_one_signal_is_taken_at_a_time() {
    let mut rig = surveyed();
    rig.cut();
    rig.up("4.3.6");
    rig.objects();
    assert_eq!(rig.consuming(), 1);
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.dead().len(), 1);
}

#[test]
fn what_was_held_when_the_link_was_lost_comes_again() {
    let mut rig = surveyed();
    rig.deliver(1, "dlx-proxy/y", &died_in("other", "hi"));
    let ticket = rig.dead()[0].0;
    rig.settle(&[(ticket, Outcome::Confirmed)]);
    rig.changed(&round(&[]));
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    rig.cut();
    rig.answered();
    rig.up("4.3.6");
    rig.objects();
    rig.consuming();
    rig.sent();
    rig.survey(&model(&round(&[])));
    assert_eq!((rig.dead(), rig.settlements()), (vec![], vec![]));
    rig.pass(1000);
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.settlements(), [(ACK, 1, false)]);
}

#[test]
fn what_changes_during_a_survey_is_known_after_it() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    let found = model(&round(&[])).survey(rig.now.mono);
    rig.changed(&[Change::Bound(binding("x", queue("other"), "", &[]))]);
    rig.surveyed(Some(found));
    assert_eq!(rig.settlements(), [(ACK, 1, false)]);
    rig.deliver(2, "dlx-proxy/x", &died_in("work", "hi"));
    assert_eq!(rig.dead().len(), 1);
}

/// A dead letter that carries a lap through `x`, dead in that lap's queue.
fn died_late(second: u64) -> Content {
    let mut keys = ArrayBuilder::default();
    keys.longstr(b"k");
    let mut entry = TableBuilder::default();
    entry
        .long(b"count", 1)
        .longstr(b"reason", b"expired")
        .longstr(b"queue", b"work")
        .timestamp(b"time", second)
        .longstr(b"exchange", b"x")
        .array(b"routing-keys", &keys);
    let mut deaths = ArrayBuilder::default();
    deaths.table(&entry);
    let mut queues = ArrayBuilder::default();
    queues.longstr(b"work");
    let mut lap = TableBuilder::default();
    lap.array(b"queues", &queues)
        .longstr(b"exchange", b"x")
        .longstr(b"routing-key", b"k")
        .long(b"deaths", 0);
    let mut headers = TableBuilder::default();
    headers
        .array(b"x-death", &deaths)
        .table(b"x-dlx-proxy-lap", &lap);
    with_headers(headers, "hi")
}

#[test]
fn a_cycle_that_ends_late_asks_for_a_survey_once_a_minute_and_exchange() {
    let mut rig = surveyed();
    for (tag, exchange, asks) in [
        (1, "dlx-proxy/x", true),
        (2, "dlx-proxy/x", false),
        (3, "dlx-proxy/y", true),
        (4, "dlx-proxy/x", true),
    ] {
        rig.deliver(tag, exchange, &died_late(1_700_000_000));
        assert_eq!(rig.ended(), [Outcome::Dropped(Cause::Cycle)]);
        assert_eq!(rig.asked(), asks, "{tag}");
        if asks {
            rig.surveyed(None);
        }
        rig.pass(20_000);
    }
}

#[test]
fn a_survey_that_must_not_be_yet_is_asked_for_later() {
    let mut rig = surveyed();
    rig.deliver(1, "dlx-proxy/x", &died_late(1_700_000_000));
    assert!(rig.asked());
    rig.surveyed(None);
    rig.deliver(2, "dlx-proxy/y", &died_late(1_700_000_000));
    rig.pass(9999);
    assert!(!rig.asked());
    rig.pass(1);
    assert!(rig.asked());
}

#[test]
fn a_drain_waits_for_those_that_are_held() {
    let mut rig = surveyed();
    rig.changed(&round(&[]));
    rig.deliver(1, "dlx-proxy/x", &died_in("work", "hi"));
    rig.drain();
    assert_eq!(rig.methods(), [(2, MethodId::BASIC_CANCEL)]);
    rig.survey(&model(&round(&[])));
    assert_eq!(rig.methods(), [(2, ACK), (0, MethodId::CONNECTION_CLOSE)]);
}

mod property;
