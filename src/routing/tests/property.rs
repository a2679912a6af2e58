//! Routing and the model agree on everything that a vhost may look like.

use proptest::prelude::*;

use crate::amqp::ids::name;
use crate::amqp::table::Table;
use crate::dead_letter::TargetQueues;
use crate::machine::{Binding, Change, Destination, Mono};
use crate::routing::Routing;

use super::model::{Model, binding, exchange, headers};

const EXCHANGES: [&str; 5] = ["x0", "x1", "x2", "x3", "x4"];
const KEYS: [&str; 8] = ["", "a", "b", "a.b", "*", "#", "a.#", "#.b.*"];
const KINDS: [&str; 4] = ["direct", "fanout", "topic", "headers"];
const ARGUMENTS: [&[(&str, &str)]; 6] = [
    &[],
    &[("h", "1")],
    &[("x-match", "any"), ("h", "1"), ("i", "1")],
    &[("x-match", "all"), ("h", "1"), ("i", "2")],
    &[("x-match", "all-with-x"), ("x-h", "1")],
    &[("x-match", "any-with-x"), ("x-h", "2"), ("i", "1")],
];

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn bindings() -> impl Strategy<Value = Binding> {
    let destination = prop_oneof![
        2 => (0..4u8).prop_map(|n| Destination::Queue(name(&format!("q{n}")))),
        1 => one_of(&EXCHANGES).prop_map(|x| Destination::Exchange(name(x))),
    ];
    (
        one_of(&EXCHANGES),
        destination,
        one_of(&KEYS),
        one_of(&ARGUMENTS),
    )
        .prop_map(|(source, to, key, arguments)| binding(source, to, key, arguments))
}

/// What clients do; exchanges are mostly there.
pub(crate) fn changes() -> impl Strategy<Value = Change> {
    let alternate = prop::option::weighted(0.3, one_of(&EXCHANGES));
    let exchanges = (one_of(&EXCHANGES), one_of(&KINDS), alternate)
        .prop_map(|(name, kind, alternate)| Change::Declared(exchange(name, kind, alternate)));
    prop_oneof![
        4 => exchanges,
        12 => bindings().prop_map(Change::Bound),
        2 => bindings().prop_map(Change::Unbound),
        1 => one_of(&EXCHANGES).prop_map(|x| Change::ExchangeDeleted(name(x))),
        1 => (0..4u8).prop_map(|n| Change::QueueDeleted(name(&format!("q{n}")))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// As seen pass, and as a survey finds it.
    #[test]
    fn routes_as_the_broker(
        changes in prop::collection::vec(changes(), 1..60),
        from in one_of(&EXCHANGES),
        keys in prop::collection::vec(one_of(&["", "a", "b", "a.b", "a.b.c", "c.b.a"]), 1..3),
        sent in prop::sample::subsequence(vec![("h", "1"), ("i", "1"), ("x-h", "1"), ("j", "0")], 0..4),
    ) {
        let (mut model, mut seen) = (Model::default(), Routing::default());
        for change in &changes {
            model.apply(change);
            prop_assert!(seen.apply(change.clone()));
        }
        let sent = headers(&sent);
        let expected = match model.route(from, &keys, &sent) {
            None => TargetQueues::Unknown,
            Some(queues) => TargetQueues::Known(queues.into_iter().collect()),
        };
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let targets = |routing: &Routing| routing.targets(from.as_bytes(), &keys, Table(&sent));
        prop_assert_eq!(targets(&seen), expected.clone());
        prop_assert_eq!(targets(&Routing::of(model.survey(Mono(0)))), expected);
    }
}
