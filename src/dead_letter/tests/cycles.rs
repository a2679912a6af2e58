//! Which messages end: by the proxy exactly those that a broker would have ended that does all the hops itself, one lap later at most; and at
//! once, when it knows where they go.

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::cycle::Lap;
use crate::dead_letter::{
    Death, Dialect, Disposal, Target, TargetQueues, closes, plan, private, signal,
};
use crate::machine::Reason;

use super::away::BROKERS;
use super::broker::{Broker, Event, Known, Stored, is_cycle, record};
use super::property::rules;

const REASONS: [Reason; 3] = [Reason::Expired, Reason::Maxlen, Reason::DeliveryLimit];

/// What happens next to the message.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It dies in a queue that was taken over.
    Signal(Reason),
    /// A client of the proxy rejects it.
    Reject,
    /// It dies in a queue whose declare was left alone.
    Native(Reason),
    /// A client takes it and publishes it anew, headers and all.
    Republish,
    /// The same by a client of the broker, which sees and copies the private headers too.
    Copy,
}

/// One step, the queue that it happens in, and whether its dead letter goes to the next one by the default exchange.
type Hop = (Step, usize, bool);

fn steps() -> impl Strategy<Value = Vec<Hop>> {
    let reason = || prop::sample::select(REASONS.to_vec());
    let step = prop_oneof![
        8 => reason().prop_map(Step::Signal),
        2 => Just(Step::Reject),
        2 => reason().prop_map(Step::Native),
        1 => Just(Step::Native(Reason::Rejected)),
        1 => Just(Step::Republish),
        1 => Just(Step::Copy),
    ];
    prop::collection::vec((step, 0..4usize, any::<bool>()), 1..24)
}

/// A message on its way into a queue.
struct Walk {
    broker: Broker,
    stored: Stored,
    /// What a broker would know of it that had done all the hops.
    native: Vec<Known>,
    /// The death that it comes from, and whether the proxy published it; none: a client did.
    comes: Option<(Reason, bool)>,
    now: u64,
    /// The proxy knows which queue is behind an exchange.
    knows: bool,
}

/// Where a message goes.
#[derive(Clone, Copy)]
struct Next<'a> {
    exchange: &'a str,
    key: &'a str,
    /// Behind a named exchange.
    queue: &'a str,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes on.
    On,
    /// The proxy ended it, as RabbitMQ would have.
    Dropped,
    /// It could not happen: the broker, which did the hop before, did not let the message in.
    Barred,
}

/// What the proxy makes of a death.
enum Planned {
    Letter(Content),
    Dropped,
    /// Parked.
    Doubt,
}

impl Walk {
    fn new(broker: Broker) -> Walk {
        let none = Properties::parse(&[0, 0]).unwrap();
        let content = Content {
            properties: none.edit(&Edit {
                headers: Change::Set(Vec::new()),
                ..Edit::default()
            }),
            body: Bytes::from_static(b"body"),
        };
        Walk {
            stored: broker.publish(&content, "x", "k"),
            broker,
            native: Vec::new(),
            comes: None,
            now: 1000,
            knows: false,
        }
    }

    /// The queue that it is in, if the hop before says so.
    fn queue(&self) -> Option<String> {
        self.stored
            .exchange
            .is_empty()
            .then(|| self.stored.key.clone())
    }

    /// The message dies, or is taken, in `queue`, and goes to `next`. A cycle leaves it where it was.
    fn step(&mut self, step: Step, queue: &str, next: Next<'_>) -> Fate {
        let barred = |deaths: &[Known]| {
            self.comes
                .is_some_and(|(reason, _)| is_cycle(reason, deaths, queue))
        };
        let by_broker = self.comes.is_some_and(|(_, by_proxy)| !by_proxy);
        if by_broker && barred(&self.broker.knows(&self.stored)) {
            return Fate::Barred;
        }
        let reason = match step {
            Step::Signal(reason) | Step::Native(reason) => reason,
            Step::Reject => Reason::Rejected,
            Step::Republish | Step::Copy => return self.republish(step, next),
        };
        let event = Event {
            queue: queue.to_owned(),
            reason,
            exchange: self.stored.exchange.clone(),
            key: self.stored.key.clone(),
            time: self.now,
        };
        let died = record(self.broker.dialect, &self.native, &event);
        let mut stored = self.stored.clone();
        match step {
            Step::Native(_) => {
                self.broker.kill(&mut stored, &event);
                (stored.exchange, stored.key) = (next.exchange.to_owned(), next.key.to_owned());
            }
            _ => {
                let ends = barred(&self.native) && reason != Reason::Rejected
                    || next.exchange.is_empty() && is_cycle(reason, &died, next.key)
                    || self.knows && is_cycle(reason, &died, next.queue);
                let planned = self.plan(&mut stored, &event, next);
                if matches!(planned, Planned::Doubt) {
                    return Fate::Dropped;
                }
                assert_eq!(
                    matches!(planned, Planned::Dropped),
                    ends,
                    "dropped, and would be: {step:?} in {queue}"
                );
                let Planned::Letter(content) = planned else {
                    return Fate::Dropped;
                };
                stored = self.broker.publish(&content, next.exchange, next.key);
            }
        }
        self.comes = Some((reason, !matches!(step, Step::Native(_))));
        self.native = died;
        self.stored = stored;
        Fate::On
    }

    fn plan(&self, stored: &mut Stored, event: &Event, next: Next<'_>) -> Planned {
        let rules = rules(self.broker.dialect);
        let target = Target {
            exchange: ShortStr::copy(next.exchange.as_bytes()).unwrap(),
            routing_key: ShortStr::copy(next.key.as_bytes()),
            at_least_once: false,
        };
        let rejected = event.reason == Reason::Rejected;
        if !rejected {
            self.broker.kill(stored, event);
        }
        let content = self.broker.deliver(stored);
        let queue = ShortStr::copy(event.queue.as_bytes()).unwrap();
        let known;
        let death = if rejected {
            Death {
                queue: &queue,
                reason: event.reason,
                exchange: event.exchange.as_bytes(),
                routing_key: event.key.as_bytes(),
                content: &content,
                recorded: false,
                failed: false,
                by: None,
            }
        } else {
            known = signal(event.key.as_bytes(), &content).unwrap();
            known.death()
        };
        match plan(&death, &target, &rules, self.now).unwrap() {
            Disposal::Publish(publication) => {
                let known = TargetQueues::Known(vec![name(next.queue)]);
                let asked = self.knows && !next.exchange.is_empty();
                match asked.then(|| closes(&publication, |_, _| known)).flatten() {
                    None => Planned::Letter(publication.content),
                    Some(lap) => ended(&lap),
                }
            }
            Disposal::Drop(lap) => ended(&lap),
            // It may have gone round, or not: 3.x does not tell.
            Disposal::Park(..) => {
                assert_eq!(self.broker.dialect, Dialect::V3, "parked");
                Planned::Doubt
            }
            other => panic!("{other:?}"),
        }
    }

    fn republish(&mut self, step: Step, next: Next<'_>) -> Fate {
        let mut content = self.broker.deliver(&self.stored);
        if matches!(step, Step::Republish) {
            let rules = rules(self.broker.dialect);
            let seen = private::on_delivery(&content.properties, b"dlx-proxy")
                .unwrap_or(content.properties);
            content.properties = private::on_publish(&seen, b"", &rules).unwrap_or(seen);
        }
        if !self.broker.takes_over {
            self.native.clear();
        }
        self.stored = self.broker.publish(&content, next.exchange, next.key);
        self.comes = None;
        Fate::On
    }
}

fn name(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).unwrap()
}

fn ended(lap: &[ShortStr]) -> Planned {
    assert_eq!(lap.first(), lap.last(), "a lap ends where it began");
    Planned::Dropped
}

fn walk(broker: Broker, hops: &[Hop], second: u64, knows: bool) {
    let mut walk = Walk {
        knows,
        ..Walk::new(broker)
    };
    for (n, (step, queue, default)) in hops.iter().enumerate() {
        walk.now += second;
        let queue = walk.queue().unwrap_or_else(|| format!("q{queue}"));
        let following = hops.get(n + 1).map_or(9, |(_, queue, _)| *queue);
        let following = format!("q{following}");
        let (exchange, key) = match (step, default) {
            (Step::Republish, _) => (format!("own{n}"), format!("own{n}")),
            // With the key of the dead letter, as a shovel does.
            (Step::Copy, _) => (format!("own{n}"), "k".to_owned()),
            (_, true) => (String::new(), following.clone()),
            (_, false) => (format!("x{}", queue), "k".to_owned()),
        };
        let next = Next {
            exchange: &exchange,
            key: &key,
            queue: &following,
        };
        let fate = walk.step(*step, &queue, next);
        if fate == Fate::Barred && walk.queue().is_some() {
            return; // It is nowhere now.
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// S6.1, 6.4: never where RabbitMQ would have let it pass, always where it would not; with a second, and with none, between deaths.
    #[test]
    fn ends_where_the_broker_would_end_it(way in steps(), second in 0..2u64) {
        for broker in BROKERS {
            walk(broker, &way, second, false);
        }
    }

    /// S6.1: not a lap later, when the queues are known.
    #[test]
    fn ends_at_once_where_the_queues_are_known(way in steps(), second in 0..2u64) {
        for broker in BROKERS {
            walk(broker, &way, second, true);
        }
    }

    /// S6.2: whatever queues, exchanges and reasons, a message that nobody rejects or publishes is in no queue three times.
    #[test]
    fn an_automatic_loop_ends_within_two_laps(
        lap in prop::collection::vec((any::<bool>(), any::<bool>(), 0..REASONS.len()), 1..5),
        second in 0..2u64,
    ) {
        for broker in BROKERS {
            let mut walk = Walk::new(broker);
            let queues = lap.len();
            let ended = (0..2 * queues).any(|n| {
                let (native, default, reason) = lap[n % queues];
                let reason = REASONS[reason];
                let queue = format!("q{}", (n + 1) % queues);
                walk.now += second;
                let step = if native { Step::Native(reason) } else { Step::Signal(reason) };
                let (exchange, key) = if default { ("", &*queue) } else { ("x", "k") };
                let to = Next { exchange, key, queue: &queue };
                walk.step(step, &format!("q{}", n % queues), to) != Fate::On
            });
            prop_assert!(ended, "{broker:?}");
        }
    }
}

/// S6.2: work -> (rejected) -> wait -> (automatic) -> work is never dropped, whatever the wait ends by.
#[test]
fn retries_go_on_for_ever() {
    for broker in BROKERS {
        for reason in REASONS {
            let mut walk = Walk {
                knows: true,
                ..Walk::new(broker)
            };
            let to = |exchange, queue| Next {
                exchange,
                key: "k",
                queue,
            };
            for lap in 0..100 {
                walk.now += 1;
                assert_eq!(
                    walk.step(Step::Reject, "work", to("w", "wait")),
                    Fate::On,
                    "{broker:?} {lap}"
                );
                let waited = walk.step(Step::Signal(reason), "wait", to("x", "work"));
                assert_eq!(waited, Fate::On, "{broker:?} {lap}");
            }
        }
    }
}

/// Somebody has written it who knows the name of the header, but not what stands in it.
#[test]
fn half_a_lap_is_none() {
    let mut lap = TableBuilder::default();
    for (name, value) in [("exchange", "x"), ("routing-key", "k"), ("deaths", "many")] {
        let mut headers = TableBuilder::default();
        headers.table(private::LAP, &lap);
        assert!(Lap::read(Table(&headers.finish())).unwrap().is_none());
        lap.longstr(name.as_bytes(), value.as_bytes());
    }
}
