//! A message's way through native queues, rejects, signals, retries and clients, on each generation, beside what a broker would know of it that
//! had done all the hops itself: it ends exactly where that broker would end it, and each death is counted once, in the broker's order.

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::name;
use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, Value};
use crate::dead_letter::headers::{X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use crate::dead_letter::{
    Death, Dialect, Disposal, HistoryForm, Rules, Target, plan, private, retry, signal, signalled,
};
use crate::machine::Reason;

use super::away::{BROKERS, OWN, returned, round};
use super::broker::{Broker, Event, Known, Stored, is_cycle, record};

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

/// A step, the queue that it happens in, whether its dead letter goes to the next one by the default exchange, and how often it is returned
/// to its queue before.
type Hop = (Step, usize, bool, usize);

/// A message on its way into a queue.
struct Walk {
    broker: Broker,
    rules: Rules,
    stored: Stored,
    /// The exchange and the key that it was last published with, by dead-lettering or by a client.
    came_by: (String, String),
    /// What a broker would know of it that had done all the hops.
    native: Vec<Known>,
    /// The same, with those that it forgets.
    all: Vec<Known>,
    first: Option<Event>,
    last: Option<Event>,
    /// The death that it comes from, and whether the proxy published it; none: a client did.
    comes: Option<(Reason, bool)>,
    /// Once at least, by a client.
    returned: bool,
    now: u64,
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

pub(super) fn rules(dialect: Dialect) -> Rules {
    Rules {
        dialect,
        max_history: 256,
        continue_history: true,
        history_form: HistoryForm::WRITTEN,
        stamp: false,
    }
}

fn hops() -> impl Strategy<Value = Vec<Hop>> {
    let reason = || prop::sample::select(REASONS.to_vec());
    let step = prop_oneof![
        8 => reason().prop_map(Step::Signal),
        3 => Just(Step::Reject),
        2 => reason().prop_map(Step::Native),
        1 => Just(Step::Native(Reason::Rejected)),
        1 => Just(Step::Republish),
        1 => Just(Step::Copy),
    ];
    let returns = prop_oneof![9 => Just(0), 1 => 1..3usize];
    prop::collection::vec((step, 0..4usize, any::<bool>(), returns), 1..24)
}

impl Walk {
    fn new(broker: Broker) -> Walk {
        let none = Properties::parse(&[0, 0]).unwrap();
        let content = Content {
            properties: none.with_headers(Vec::new()),
            body: Bytes::from_static(b"body"),
        };
        Walk {
            stored: broker.publish(&content, "x", "k"),
            rules: rules(broker.dialect),
            broker,
            came_by: ("x".to_owned(), "k".to_owned()),
            native: Vec::new(),
            all: Vec::new(),
            first: None,
            last: None,
            comes: None,
            returned: false,
            now: 1000,
        }
    }

    /// The queue that it is in, if the hop before says so.
    fn queue(&self) -> Option<String> {
        let (exchange, key) = &self.came_by;
        exchange.is_empty().then(|| key.clone())
    }

    /// The message dies, or is taken, in `queue`, and goes to `next`. A cycle leaves it where it was.
    fn step(&mut self, step: Step, queue: &str, returns: usize, next: (&str, &str)) -> Fate {
        let barred = |deaths: &[Known]| {
            self.comes
                .is_some_and(|(reason, _)| is_cycle(reason, deaths, queue))
        };
        let by_broker = self.comes.is_some_and(|(_, by_proxy)| !by_proxy);
        if by_broker && barred(&self.broker.knows(&self.stored)) {
            return Fate::Barred;
        }
        let mut stored = self.stored.clone();
        // Else it would come back over an exchange of the proxy's, and the broker would write down that one.
        if matches!(step, Step::Signal(_) | Step::Reject | Step::Republish) {
            for _ in 0..returns {
                stored = self.retried(&stored, queue);
                self.returned = true;
            }
        }
        let reason = match step {
            Step::Signal(reason) | Step::Native(reason) => reason,
            Step::Reject => Reason::Rejected,
            Step::Republish | Step::Copy => return self.republish(step, &stored, next),
        };
        let event = Event {
            queue: queue.to_owned(),
            reason,
            exchange: self.came_by.0.clone(),
            key: self.came_by.1.clone(),
            time: self.now,
            expiration: None,
        };
        let died = record(self.broker.dialect, &self.native, &event);
        if let Step::Native(_) = step {
            self.broker.kill(&mut stored, &event);
            (stored.exchange, stored.key) = (next.0.to_owned(), next.1.to_owned());
        } else {
            let ends = barred(&self.native) && reason != Reason::Rejected
                || next.0.is_empty() && is_cycle(reason, &died, next.1);
            match self.plan(stored, &event, returns > 0, next) {
                Disposal::Publish(publication) => {
                    // What was returned is published anew: the broker forgets, and the cycle ends a lap later.
                    assert!(!ends || self.returned, "not dropped: {step:?} in {queue}");
                    stored = self.broker.publish(&publication.content, next.0, next.1);
                }
                Disposal::Drop(lap) => {
                    assert!(ends, "dropped: {step:?} in {queue}");
                    assert_eq!(lap.first(), lap.last(), "a lap ends where it began");
                    return Fate::Dropped;
                }
                // It may have gone round, or not: 3.x does not tell.
                Disposal::Park(..) if self.broker.dialect == Dialect::V3 => return Fate::Dropped,
                other => panic!("{other:?}"),
            }
        }
        self.all = record(self.broker.dialect, &self.all, &event);
        self.first.get_or_insert(event.clone());
        self.last = Some(event);
        self.comes = Some((reason, !matches!(step, Step::Native(_))));
        self.native = died;
        self.goes(stored, next)
    }

    fn goes(&mut self, stored: Stored, next: (&str, &str)) -> Fate {
        self.stored = stored;
        self.came_by = (next.0.to_owned(), next.1.to_owned());
        Fate::On
    }

    fn plan(
        &self,
        mut stored: Stored,
        event: &Event,
        came_back: bool,
        next: (&str, &str),
    ) -> Disposal {
        let target = Target {
            exchange: name(next.0),
            routing_key: Some(name(next.1)),
            at_least_once: false,
        };
        let decided = |death: &Death<'_>| plan(death, &target, &self.rules, self.now).unwrap();
        let queue = name(&event.queue);
        if event.reason == Reason::Rejected {
            let content = of_before(&self.broker.deliver(&stored));
            let came_by = (&*event.exchange, &*event.key);
            let mut death = returned(&queue, came_by, &content).death;
            death.reason = event.reason;
            return decided(&death);
        }
        let as_it_is = Event {
            exchange: stored.exchange.clone(),
            key: stored.key.clone(),
            ..event.clone()
        };
        self.broker.kill(&mut stored, &as_it_is);
        let content = self.broker.deliver(&stored);
        let before = signalled(&content, stored.key.as_bytes(), OWN);
        assert_eq!(before.is_some(), came_back);
        let (content, key) = before.unwrap_or_else(|| (content, name(&stored.key)));
        assert_eq!(key, name(&event.key));
        let signal = signal(&key, &content).unwrap();
        assert_eq!((&signal.queue, signal.reason), (&queue, event.reason));
        decided(&signal.death())
    }

    /// A client returns it to that queue, and it has come back there.
    fn retried(&self, stored: &Stored, queue: &str) -> Stored {
        let content = of_before(&self.broker.deliver(stored));
        let own = name(queue);
        let of = returned(&own, (&self.came_by.0, &self.came_by.1), &content);
        let came_back = round(self.broker, &of, &self.rules);
        self.broker.publish(&came_back.content, "", queue)
    }

    fn republish(&mut self, step: Step, stored: &Stored, next: (&str, &str)) -> Fate {
        let mut content = self.broker.deliver(stored);
        if matches!(step, Step::Republish) {
            let seen = seen(&of_before(&content));
            let published = private::on_publish(&seen, b"", &self.rules);
            content.properties = published.unwrap_or(seen);
        }
        if !self.broker.takes_over {
            self.native.clear();
        }
        self.comes = None;
        self.goes(self.broker.publish(&content, next.0, next.1), next)
    }

    /// Whatever way it went, a client of the proxy sees each death once; and no retry.
    fn check_history(&self) {
        let seen = seen(&self.broker.deliver(&self.stored));
        let properties = Properties::parse(&seen).unwrap();
        let headers = Table(properties.headers().unwrap_or_default());
        let header = |name: &[u8]| headers.get(name).unwrap();
        let deaths = header(X_DEATH).and_then(Value::as_array);
        let deaths = deaths.into_iter().flat_map(|deaths| deaths.values());
        let deaths = deaths.map(|death| Known::read(death.unwrap().as_table().unwrap()));
        assert_eq!(deaths.collect::<Vec<_>>(), self.all);
        let has_last = self.broker.dialect != Dialect::V3;
        let last = self.last.as_ref().filter(|_| has_last);
        for (names, event) in [(X_FIRST_DEATH, self.first.as_ref()), (X_LAST_DEATH, last)] {
            let words = event.map(|of| [of.reason.as_str(), &of.queue, &of.exchange]);
            for (at, name) in names.into_iter().enumerate() {
                let word = words.map(|words| words[at].as_bytes());
                assert_eq!(header(name).map(|it| it.as_longstr().unwrap()), word);
            }
        }
    }
}

/// What a client that consumes through the proxy gets.
fn seen(content: &Content) -> Bytes {
    private::on_delivery(&content.properties, OWN).unwrap_or_else(|| content.properties.clone())
}

/// As it was before it was returned, if it was.
fn of_before(content: &Content) -> Content {
    let properties = Properties::parse(&content.properties).unwrap();
    match retry::read(&properties, OWN) {
        None => content.clone(),
        Some((retry, original)) => retry.before(content, original).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// S6.1, 6.4, invariant 9: with a second between deaths, and with none, which histories do not tell apart.
    #[test]
    fn ends_where_the_broker_would_end_it_and_counts_each_death_once(
        hops in hops(),
        second in 0..2u64,
        forms in prop::collection::vec(prop::sample::select(vec![HistoryForm::Table, HistoryForm::Compact]), 24),
    ) {
        for broker in BROKERS {
            let mut walk = Walk::new(broker);
            // What a client of the broker copies may say less than the broker knew.
            let mut is_whole = second == 1;
            for (n, (step, queue, default, returns)) in hops.iter().enumerate() {
                walk.now += second;
                // Another proxy each time, of this version or of one that writes the other form.
                walk.rules.history_form = forms[n];
                let queue = walk.queue().unwrap_or_else(|| format!("q{queue}"));
                let following = hops.get(n + 1).map_or(9, |(_, queue, ..)| *queue);
                let (exchange, key) = match (step, default) {
                    (Step::Republish, _) => (format!("own{n}"), format!("own{n}")),
                    // With the key of the dead letter, as a shovel does.
                    (Step::Copy, _) => (format!("own{n}"), "k".to_owned()),
                    (_, true) => (String::new(), format!("q{following}")),
                    (_, false) => (format!("x{queue}"), "k".to_owned()),
                };
                let fate = walk.step(*step, &queue, *returns, (&exchange, &key));
                if fate == Fate::Barred && walk.queue().is_some() {
                    break; // It is nowhere now.
                }
                is_whole &= !matches!(step, Step::Copy);
                if is_whole {
                    walk.check_history();
                }
            }
        }
    }
}

/// S6.2: work -> (rejected) -> wait -> (automatic) -> work is never dropped, whatever the wait ends by.
#[test]
fn retries_go_on_for_ever() {
    for broker in BROKERS {
        for reason in REASONS {
            let mut walk = Walk::new(broker);
            for lap in 0..100 {
                walk.now += 1;
                let rejected = walk.step(Step::Reject, "work", 0, ("w", "k"));
                assert_eq!(rejected, Fate::On, "{broker:?} {lap}");
                let waited = walk.step(Step::Signal(reason), "wait", 0, ("x", "k"));
                assert_eq!(waited, Fate::On, "{broker:?} {lap}");
            }
        }
    }
}
