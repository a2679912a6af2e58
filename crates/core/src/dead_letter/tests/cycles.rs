//! Which messages end: by the proxy exactly those that a broker would have ended that does all the hops itself, one lap later at most.

use proptest::prelude::*;

use crate::amqp::table::{Table, TableBuilder};
use crate::dead_letter::cycle::Lap;
use crate::dead_letter::private;
use crate::machine::Reason;

use super::away::BROKERS;
use super::broker::Broker;

use self::walk::{Fate, Next, Step, Walk};

mod walk;

const REASONS: [Reason; 3] = [Reason::Expired, Reason::Maxlen, Reason::DeliveryLimit];

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

fn walk(broker: Broker, hops: &[Hop], second: u64) {
    let mut walk = Walk::new(broker);
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
            walk(broker, &way, second);
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
                let to = Next { exchange, key };
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
            let mut walk = Walk::new(broker);
            let to = |exchange| Next { exchange, key: "k" };
            for lap in 0..100 {
                walk.now += 1;
                assert_eq!(
                    walk.step(Step::Reject, "work", to("w")),
                    Fate::On,
                    "{broker:?} {lap}"
                );
                let waited = walk.step(Step::Signal(reason), "wait", to("x"));
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
