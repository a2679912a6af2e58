//! A message's way through native queues, rejects, signals and clients, in each generation, against a history kept by hand.

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, Value};
use crate::dead_letter::headers::{HeaderEdit, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use crate::dead_letter::{
    Death, Dialect, Disposal, Rules, Target, plan, private, retry, signal, signalled,
};
use crate::machine::Reason;

use super::away::{BROKERS, OWN, returned, round};
use super::broker::{Broker, Event, Known, Stored, record};

const REASONS: [Reason; 4] = [
    Reason::Rejected,
    Reason::Expired,
    Reason::Maxlen,
    Reason::DeliveryLimit,
];

/// What happens next to the message.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It dies in a queue whose declare was left alone.
    Native,
    /// A client of the proxy rejects it.
    Reject,
    /// It dies in a queue that was taken over.
    Signal,
    /// A client takes it and publishes it anew, headers and all.
    Republish,
}

/// What happens, in which queue, for which reason; and how often it is returned there before.
fn steps() -> impl Strategy<Value = Vec<(Step, usize, usize, usize)>> {
    let step = prop_oneof![
        3 => Just(Step::Native),
        3 => Just(Step::Reject),
        3 => Just(Step::Signal),
        1 => Just(Step::Republish)
    ];
    prop::collection::vec((step, 0..4usize, 0..4usize, 0..3usize), 1..24)
}

pub(super) fn rules(dialect: Dialect) -> Rules {
    Rules {
        dialect,
        max_history: 256,
        continue_history: true,
        stamp: Default::default(),
    }
}

/// The death of a message that a client of the proxy rejects, as the proxy sees it.
pub(super) fn rejected<'a>(
    event: &'a Event,
    queue: &'a ShortStr,
    content: &'a Content,
) -> Death<'a> {
    Death {
        queue,
        reason: event.reason,
        exchange: event.exchange.as_bytes(),
        routing_key: event.key.as_bytes(),
        content,
        recorded: false,
        by: None,
    }
}

/// What a client that consumes through the proxy gets.
fn seen(content: &Content) -> Bytes {
    private::on_delivery(&content.properties, OWN).unwrap_or_else(|| content.properties.clone())
}

fn known(properties: &[u8]) -> (Vec<Known>, [Option<Vec<u8>>; 6]) {
    let properties = Properties::parse(properties).unwrap();
    let headers = Table(properties.headers().unwrap_or_default());
    let array = headers.get(X_DEATH).unwrap().and_then(Value::as_array);
    let entries = array.map_or(Vec::new(), |array| {
        array
            .values()
            .map(|entry| Known::read(entry.unwrap().as_table().unwrap()))
            .collect()
    });
    let [a, b, c] = X_FIRST_DEATH;
    let [d, e, f] = X_LAST_DEATH;
    let words = [a, b, c, d, e, f].map(|name| {
        headers
            .get(name)
            .unwrap()
            .map(|value| value.as_longstr().unwrap().to_vec())
    });
    (entries, words)
}

fn words(event: Option<&Event>) -> [Option<Vec<u8>>; 3] {
    let Some(event) = event else {
        return [None, None, None];
    };
    [event.reason.as_str(), &event.queue, &event.exchange].map(|word| Some(word.into()))
}

fn walk(broker: Broker, steps: &[(Step, usize, usize, usize)]) -> Result<(), TestCaseError> {
    let rules = rules(broker.dialect);
    let empty = Content {
        properties: Properties::parse(&[0, 0]).unwrap().edit(&Edit {
            headers: Change::Set(Vec::new()),
            ..Edit::default()
        }),
        body: Bytes::from_static(b"body"),
    };
    let mut stored: Stored = broker.publish(&empty, "x0", "k0");
    let mut came_by = ("x0".to_owned(), "k0".to_owned());
    let mut truth: Vec<Known> = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    for (n, (step, queue, reason, returns)) in steps.iter().enumerate() {
        // A second for each step: what happens within one second is in the tables.
        let now = 1000 + n as u64;
        let next = (format!("x{}", n + 1), format!("k{}", n + 1));
        let reason = match step {
            Step::Reject => Reason::Rejected,
            _ => REASONS[*reason],
        };
        let event = Event {
            queue: format!("q{queue}"),
            reason,
            exchange: came_by.0,
            key: came_by.1,
            time: now,
        };
        came_by = next.clone();
        let queue = ShortStr::copy(event.queue.as_bytes()).unwrap();
        let target = Target {
            exchange: ShortStr::copy(next.0.as_bytes()).unwrap(),
            routing_key: ShortStr::copy(next.1.as_bytes()),
            at_least_once: false,
        };
        if !matches!(step, Step::Republish) {
            truth = record(broker.dialect, &truth, &event);
            events.push(event.clone());
        }
        let returns = match step {
            // It comes back over an exchange of the proxy's then, and the broker writes down that one.
            Step::Native => 0,
            _ => *returns,
        };
        for _ in 0..returns {
            stored = retried(broker, &stored, &queue, &rules);
        }
        match step {
            Step::Native => {
                broker.kill(&mut stored, &event);
                (stored.exchange, stored.key) = next;
            }
            Step::Reject => {
                let content = of_before(&broker.deliver(&stored));
                let death = rejected(&event, &queue, &content);
                stored = broker.publish(&planned(&death, &target, &rules, now), &next.0, &next.1);
            }
            Step::Signal => {
                let as_it_is = Event {
                    exchange: stored.exchange.clone(),
                    key: stored.key.clone(),
                    ..event.clone()
                };
                broker.kill(&mut stored, &as_it_is);
                let (content, key) = (broker.deliver(&stored), stored.key.as_bytes());
                let before = signalled(&content, key, OWN);
                prop_assert_eq!(before.is_some(), returns > 0);
                let (mut content, key) =
                    before.unwrap_or_else(|| (content, ShortStr::copy(key).unwrap()));
                prop_assert_eq!(&*key, event.key.as_bytes());
                // Where cycles end is another property: here they go on.
                content.properties = without(&content.properties, private::LAP);
                let signal = signal(&key, &content).unwrap();
                prop_assert_eq!((&signal.queue, signal.reason), (&queue, reason));
                let planned = planned(&signal.death(), &target, &rules, now);
                stored = broker.publish(&planned, &next.0, &next.1);
            }
            Step::Republish => {
                let properties = seen(&of_before(&broker.deliver(&stored)));
                let properties =
                    private::on_publish(&properties, b"", &rules).unwrap_or(properties);
                let content = Content {
                    properties,
                    body: empty.body.clone(),
                };
                stored = broker.publish(&content, &next.0, &next.1);
            }
        }
        let (entries, headers) = known(&seen(&broker.deliver(&stored)));
        prop_assert_eq!(&entries, &truth, "after step {}", n);
        prop_assert_eq!(
            &headers[..3],
            &words(events.first())[..],
            "first, after step {}",
            n
        );
        let last = if broker.dialect == Dialect::V3 {
            None
        } else {
            events.last()
        };
        prop_assert_eq!(&headers[3..], &words(last)[..], "last, after step {}", n);
    }
    Ok(())
}

/// A client returns it to that queue, and it has come back there.
fn retried(broker: Broker, stored: &Stored, queue: &ShortStr, rules: &Rules) -> Stored {
    let content = broker.deliver(stored);
    let properties = Properties::parse(&content.properties).unwrap();
    let (exchange, key) = match retry::read(&properties, OWN) {
        None => (stored.exchange.clone(), stored.key.clone()),
        Some((retry, _)) => (retry.exchange.to_string(), retry.routing_key.to_string()),
    };
    let content = of_before(&content);
    let came_back = round(broker, &returned(queue, (&exchange, &key), &content), rules);
    broker.publish(&came_back.content, "", &queue.to_string())
}

/// As it was before it was returned, if it was.
fn of_before(content: &Content) -> Content {
    let properties = Properties::parse(&content.properties).unwrap();
    match retry::read(&properties, OWN) {
        None => content.clone(),
        Some((retry, original)) => retry.before(content, original).unwrap(),
    }
}

fn without(properties: &[u8], name: &[u8]) -> Bytes {
    let parsed = Properties::parse(properties).unwrap();
    let mut edit = HeaderEdit::default();
    edit.remove(name);
    let headers = Table(parsed.headers().unwrap_or_default());
    parsed.edit(&Edit {
        headers: Change::Set(edit.apply(headers, |_| true).unwrap()),
        ..Edit::default()
    })
}

fn planned(death: &Death<'_>, target: &Target, rules: &Rules, now: u64) -> Content {
    let verdict = plan(death, target, rules, now).unwrap();
    let again = plan(death, target, rules, now).unwrap();
    assert_eq!(verdict, again, "the same input, another plan");
    match verdict {
        Disposal::Publish(publication) => publication.content,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Invariant 9, and more: whatever way a message goes, a client of the proxy sees each death once, in the broker's order; and no retry.
    #[test]
    fn each_death_is_counted_once(way in steps()) {
        for broker in BROKERS {
            walk(broker, &way)?;
        }
    }
}
