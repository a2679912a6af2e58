//! What an ack of several messages takes with it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::amqp::ids::DeliveryTag;
use crate::amqp::method::Settle;

const MESSAGES: u64 = 20;

/// The acks among what it sent since the last call: tag, and whether all before it are meant.
fn acks(rig: &mut WalkRig) -> Vec<(u64, bool)> {
    let sent = rig.sent().into_iter();
    let acks = sent.filter(|sent| sent.method() == Some(MethodId::BASIC_ACK));
    let parsed = acks.map(|sent| {
        let ack = Settle::parse(&sent.payload).expect("an ack");
        let DeliveryTag(tag) = ack.delivery_tag;
        (tag, ack.multiple)
    });
    parsed.collect()
}

/// What becomes of each message, in which order, and how many at once.
fn outcomes() -> impl Strategy<Value = Vec<Vec<(u64, Outcome)>>> {
    let tickets = Just((1..=MESSAGES).collect::<Vec<_>>()).prop_shuffle();
    let outcome = prop_oneof![
        4 => Just(Outcome::Confirmed),
        1 => Just(Outcome::Refused(Cause::Unroutable)),
        1 => Just(Outcome::Refused(Cause::PublisherAway)),
    ];
    let outcomes = prop::collection::vec(outcome, MESSAGES as usize);
    (tickets, outcomes, 1..=MESSAGES as usize).prop_map(|(tickets, outcomes, together)| {
        let all: Vec<_> = tickets.into_iter().zip(outcomes).collect();
        all.chunks(together).map(<[_]>::to_vec).collect()
    })
}

proptest! {
    #[test]
    fn all_that_is_confirmed_is_acked_and_nothing_else(rounds in outcomes()) {
        let mut rig = walking("redrive ready=1000", MESSAGES);
        let (mut unacked, mut confirmed) = ((1..=MESSAGES).collect::<BTreeSet<_>>(), BTreeSet::new());
        for round in rounds {
            let is_confirmed = |(ticket, outcome): &(u64, Outcome)| (*outcome == Outcome::Confirmed).then_some(*ticket);
            confirmed.extend(round.iter().filter_map(is_confirmed));
            let told = round.into_iter().map(|(ticket, outcome)| (Ticket(ticket), outcome));
            rig.input(Input::Settled(told.collect()));
            for (tag, multiple) in acks(&mut rig) {
                unacked.retain(|left| *left != tag && !(multiple && *left < tag));
            }
            let kept: BTreeSet<_> = (1..=MESSAGES).filter(|tag| !confirmed.contains(tag)).collect();
            prop_assert_eq!(&unacked, &kept);
        }
    }
}
