//! Whatever happens in whatever order: nothing is dropped that the broker would deliver.

use proptest::prelude::*;

use super::*;
use crate::amqp::ids::name;

/// What happens around an intake.
#[derive(Clone, Debug)]
enum Step {
    /// A client changes something; the intake hears of it, or not: it was not our client, or it came later.
    Change(Change, bool),
    /// A message expires in the first of these queues, having been in the others; it would go on by that exchange and key.
    Dies(Vec<u8>, u8, &'static str),
    /// Somebody begins to read the topology; gets to its end.
    Begin,
    Finish,
    Fail,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(&["a", "a.b", ""][..]);
    let queues = Just((0..4u8).collect::<Vec<u8>>()).prop_shuffle();
    let dies = (queues, 1..5usize, 0..5u8, key).prop_map(|(mut queues, most, exchange, key)| {
        queues.truncate(most);
        Step::Dies(queues, exchange, key)
    });
    prop_oneof![
        4 => (changes(), any::<bool>()).prop_map(|(change, told)| Step::Change(change, told)),
        4 => dies,
        2 => Just(Step::Begin),
        2 => Just(Step::Finish),
        1 => Just(Step::Fail),
        2 => (0..2500u64).prop_map(Step::Pass),
    ]
}

/// It expired in all of these, newest first.
fn died_in_all(queues: &[u8]) -> Content {
    let mut keys = ArrayBuilder::default();
    keys.longstr(b"k");
    let mut deaths = ArrayBuilder::default();
    for queue in queues {
        let mut entry = TableBuilder::default();
        entry
            .long(b"count", 1)
            .longstr(b"reason", b"expired")
            .longstr(b"queue", format!("q{queue}").as_bytes())
            .timestamp(b"time", 1_700_000_000)
            .longstr(b"exchange", b"")
            .array(b"routing-keys", &keys);
        deaths.table(&entry);
    }
    let mut headers = TableBuilder::default();
    headers.array(b"x-death", &deaths);
    with_headers(headers, "hi")
}

/// The intake, and the broker that it knows only in part.
struct World {
    rig: IntakeRig,
    /// How the vhost was, after each change.
    past: Vec<Model>,
    /// By tag: how many changes there had been when it came, its queues, exchange and key.
    signals: Vec<(usize, Vec<u8>, u8, &'static str)>,
    /// Which of them were acked. Nobody confirms what is published, so those were dropped.
    dropped: Vec<bool>,
    reading: Option<Survey>,
}

impl World {
    /// All exchanges are there, and lead to something, as the intake knows.
    fn new() -> World {
        let mut world = World {
            rig: surveyed(),
            past: vec![Model::default()],
            signals: Vec::new(),
            dropped: Vec::new(),
            reading: None,
        };
        for n in 0..5u8 {
            let (x, to) = (format!("x{n}"), queue(&format!("q{}", n % 4)));
            let declared = Change::Declared(exchange(&x, "fanout", None));
            world.step(Step::Change(declared, true));
            world.step(Step::Change(Change::Bound(binding(&x, to, "", &[])), true));
        }
        world
    }

    fn step(&mut self, step: Step) {
        let now = self.past.last().unwrap().clone();
        match step {
            Step::Change(change, told) => {
                let mut model = now;
                model.apply(&change);
                self.past.push(model);
                if told {
                    self.rig.changed(&[change]);
                }
            }
            Step::Dies(queues, exchange, key) => {
                let intake = format!("dlx-proxy/x{exchange}/{key}");
                let content = died_in_all(&queues);
                let since = self.past.len() - 1;
                self.signals.push((since, queues, exchange, key));
                self.dropped.push(false);
                self.rig
                    .deliver(self.signals.len() as u64, &intake, &content);
            }
            Step::Begin => {
                let begun = self.rig.now.mono;
                self.reading.get_or_insert_with(|| now.survey(begun));
            }
            Step::Finish => {
                if let Some(survey) = self.reading.take() {
                    self.rig.surveyed(Some(survey));
                }
            }
            Step::Fail => {
                self.reading = None;
                self.rig.surveyed(None);
            }
            Step::Pass(millis) => self.rig.pass(millis),
        }
        self.rig.pass(1); // no two steps are in one moment
        for (id, tag, multiple) in self.rig.settlements() {
            assert_eq!(id, ACK, "nothing is parked");
            let first = if multiple { 1 } else { tag };
            for tag in first..=tag {
                self.check_dropped(tag as usize - 1);
            }
        }
    }

    /// At some moment since it came, the broker would have dropped each of its copies, and there was one.
    fn check_dropped(&mut self, signal: usize) {
        let (since, queues, exchange, key) = &self.signals[signal];
        if std::mem::replace(&mut self.dropped[signal], true) {
            return;
        }
        let from = format!("x{exchange}");
        let before: Vec<_> = queues.iter().map(|n| name(&format!("q{n}"))).collect();
        let all_cycles = self.past[*since..].iter().any(|model| {
            let targets = model.route(&from, &[key], b"");
            targets.is_some_and(|to| !to.is_empty() && to.iter().all(|to| before.contains(to)))
        });
        assert!(all_cycles, "a copy for somebody was dropped: {signal}");
    }
}

/// S6.1: whatever others do past this proxy, and however late surveys are.
#[test]
fn never_drops_what_the_broker_would_deliver() {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let dropped = std::cell::Cell::new(0);
    let steps = prop::collection::vec(steps(), 1..80);
    runner
        .run(&steps, |steps| {
            let mut world = World::new();
            steps.into_iter().for_each(|step| world.step(step));
            dropped.set(dropped.get() + world.dropped.iter().filter(|d| **d).count());
            Ok(())
        })
        .unwrap();
    assert!(dropped.get() > 50, "only {} were dropped", dropped.get());
}
