//! The ledger beside a slow and obvious one: a set of tags.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::DeliveryTag;
use crate::amqp::method::Settle;
use crate::session::unacked::{Retained, Unacked};

#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver {
        skip: u64,
        retain: bool,
    },
    Settle(u64),
    SettleUpTo(u64),
    Withhold(u64),
    /// Withheld after an ack timeout.
    TakeBack(u64),
    /// The client settles tags, of which some may have been taken back.
    Late(u64, bool),
    Done(u64),
    GiveUp(u64),
    Acks,
}

fn step() -> impl Strategy<Value = Step> {
    let tag = 1..300u64;
    prop_oneof![
        6 => (0..3u64, any::<bool>()).prop_map(|(skip, retain)| Step::Deliver { skip, retain }),
        2 => tag.clone().prop_map(Step::Settle),
        1 => tag.clone().prop_map(Step::SettleUpTo),
        3 => tag.clone().prop_map(Step::Withhold),
        2 => tag.clone().prop_map(Step::TakeBack),
        2 => (0..300u64, any::<bool>()).prop_map(|(tag, multiple)| Step::Late(tag, multiple)),
        3 => tag.clone().prop_map(Step::Done),
        1 => tag.prop_map(Step::GiveUp),
        1 => Just(Step::Acks),
    ]
}

fn retained() -> Retained {
    let content = Content {
        properties: Bytes::from_static(&[0, 0]),
        body: Bytes::from_static(b"x"),
    };
    Retained {
        content,
        ..Default::default()
    }
}

#[derive(Default)]
struct Model {
    outstanding: BTreeSet<u64>,
    retained: BTreeSet<u64>,
    withheld: BTreeSet<u64>,
    late: BTreeSet<u64>,
    done: BTreeSet<u64>,
}

impl Model {
    fn open(&self) -> BTreeSet<u64> {
        let taken: BTreeSet<u64> = self.withheld.union(&self.done).copied().collect();
        self.outstanding.difference(&taken).copied().collect()
    }

    /// What the broker makes of an ack: all up to the tag, which must be outstanding.
    fn acked(&mut self, tag: u64, multiple: bool) {
        assert!(self.outstanding.contains(&tag), "{tag} is not outstanding");
        let settled: Vec<u64> = self
            .outstanding
            .iter()
            .copied()
            .filter(|t| *t == tag || multiple && *t < tag)
            .collect();
        for tag in settled {
            assert!(
                self.done.remove(&tag),
                "{tag} was acked, but its dead letter is not confirmed"
            );
            self.outstanding.remove(&tag);
        }
    }
}

proptest! {
    #[test]
    fn the_ledger_says_what_a_set_would_say(steps in prop::collection::vec(step(), 1..400)) {
        let (mut ledger, mut model, mut last) = (Unacked::default(), Model::default(), 0);
        for step in steps {
            match step {
                Step::Deliver { skip, retain } => {
                    last += 1 + skip;
                    ledger.deliver(DeliveryTag(last));
                    model.outstanding.insert(last);
                    if retain {
                        prop_assert!(ledger.retain(DeliveryTag(last), Box::new(retained())));
                        model.retained.insert(last);
                    }
                }
                Step::Settle(tag) if model.open().contains(&tag) => {
                    let bytes = ledger.settle(DeliveryTag(tag));
                    model.outstanding.remove(&tag);
                    prop_assert_eq!(bytes > 0, model.retained.remove(&tag));
                }
                Step::SettleUpTo(tag) if !ledger.withheld_up_to(DeliveryTag(tag)) => {
                    ledger.settle_up_to(DeliveryTag(tag));
                    model.outstanding.retain(|t| *t > tag);
                    model.retained.retain(|t| *t > tag);
                }
                Step::Withhold(tag) if model.retained.remove(&tag) => {
                    ledger.withhold(DeliveryTag(tag));
                    model.withheld.insert(tag);
                }
                Step::TakeBack(tag) if model.retained.remove(&tag) => {
                    ledger.withhold(DeliveryTag(tag));
                    ledger.take_back(DeliveryTag(tag));
                    model.withheld.insert(tag);
                    model.late.insert(tag);
                }
                Step::Late(tag, multiple) => {
                    let before = model.late.len();
                    let most = if tag == 0 { u64::MAX } else { tag };
                    model.late.retain(|late| if multiple { *late > most } else { *late != tag });
                    let settle = Settle { delivery_tag: DeliveryTag(tag), multiple, requeue: false };
                    prop_assert_eq!(ledger.settled_late(settle), model.late.len() < before);
                }
                Step::Done(tag) if model.withheld.remove(&tag) => {
                    prop_assert!(ledger.done(DeliveryTag(tag)).is_some());
                    model.done.insert(tag);
                }
                Step::GiveUp(tag) if model.withheld.remove(&tag) => {
                    prop_assert!(ledger.give_up(DeliveryTag(tag)).is_some());
                    model.outstanding.remove(&tag);
                }
                Step::Acks => {
                    ledger.take_acks(|tag, multiple| model.acked(tag.0, multiple));
                    prop_assert!(model.done.is_empty());
                }
                _ => {}
            }
            let open = model.open();
            let mut found = BTreeSet::new();
            let mut from = DeliveryTag(0);
            while let Some(tag) = ledger.next_open(from, DeliveryTag(u64::MAX)) {
                found.insert(tag.0);
                from = DeliveryTag(tag.0 + 1);
            }
            prop_assert_eq!(&found, &open);
            let taken = model.withheld.union(&model.done).min().copied();
            prop_assert_eq!(ledger.first_withheld(), taken.map(DeliveryTag));
            prop_assert_eq!(ledger.bytes(), (model.retained.len() + model.withheld.len()) * retained().bytes());
            for tag in 0..=last + 1 {
                prop_assert_eq!(ledger.is_taken_back(DeliveryTag(tag)), model.late.contains(&tag));
                prop_assert_eq!(ledger.may_settle(DeliveryTag(tag)), open.contains(&tag));
                let above = open.range(tag + 1..).next().filter(|t| **t <= tag + 70).copied();
                prop_assert_eq!(ledger.next_open(DeliveryTag(tag + 1), DeliveryTag(tag + 70)), above.map(DeliveryTag));
                prop_assert_eq!(ledger.next_open(DeliveryTag(tag + 1), DeliveryTag(tag)), None);
            }
        }
    }
}
