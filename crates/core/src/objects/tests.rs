//! Names are one to one. (`registry/testdata/intake_name.txt` has examples.)

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::Target;

use super::kind::Kind;
use super::{DeclaredTarget, Names, OwnObject, QueueType};

#[derive(Clone, Debug, PartialEq)]
struct Parts {
    kind: Kind,
    millis: u64,
    other: ShortStr,
    target: Option<(ShortStr, Option<ShortStr>)>,
}

impl Parts {
    fn object(&self) -> OwnObject<'_> {
        match self.kind {
            Kind::IntakeQueue => OwnObject::IntakeQueue,
            Kind::Parking => OwnObject::Parking,
            Kind::Lock => OwnObject::Lock,
            Kind::Redeclared => OwnObject::Redeclared,
            Kind::UserMark => OwnObject::UserMark,
            Kind::DelayExchange => OwnObject::DelayExchange,
            Kind::DueExchange => OwnObject::DueExchange,
            Kind::DelayQueue => OwnObject::DelayQueue(self.millis),
            Kind::ReturnExchange => OwnObject::ReturnExchange(&self.other),
            Kind::Order => OwnObject::Order(&self.other),
            Kind::Trial => OwnObject::Trial(&self.other),
            Kind::Aside => OwnObject::Aside(&self.other),
            Kind::Claim => OwnObject::Claim(&self.other),
            Kind::Follower => OwnObject::Follower(&self.other),
            Kind::Bridge => OwnObject::Bridge(&self.other),
            Kind::Intake => OwnObject::intake_exchange(&self.said(false), QueueType::Classic),
            Kind::QuorumIntake => OwnObject::intake_exchange(&self.said(false), QueueType::Quorum),
            Kind::AtLeastOnceIntake => {
                OwnObject::intake_exchange(&self.said(true), QueueType::Quorum)
            }
        }
    }

    fn said(&self, at_least_once: bool) -> DeclaredTarget {
        match self.target.clone() {
            None => DeclaredTarget::Policy { at_least_once },
            Some((exchange, routing_key)) => DeclaredTarget::Target(Target {
                exchange,
                routing_key,
                at_least_once,
            }),
        }
    }
}

fn short(longest: usize) -> impl Strategy<Value = ShortStr> {
    vec(any::<u8>(), 0..=longest).prop_map(|bytes| ShortStr::new(bytes).unwrap())
}

fn parts() -> impl Strategy<Value = Parts> {
    let target = proptest::option::of((short(40), proptest::option::of(short(40))));
    let millis = prop_oneof![0..20u64, any::<u64>()];
    (select(Kind::ALL), millis, short(255), target).prop_map(|(kind, millis, other, target)| {
        Parts {
            kind,
            millis,
            other,
            target,
        }
    })
}

fn near() -> impl Strategy<Value = Vec<u8>> {
    let like_ours = prop_oneof![
        "dlx-proxy\\+?(/([a-z%/+ ']|%[0-9A-Fa-f]{2}){0,8}){0,3}",
        "dlx-proxy\\.(intake|parked|parked.lock|redeclared|due|delay|bridge|return)[./+a0]{0,3}",
    ];
    prop_oneof![
        like_ours.prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
        vec(any::<u8>(), 0..300).prop_map(|name| [b"dlx-proxy", &*name].concat()),
    ]
}

proptest! {
    /// So no two objects have one name. People can read those of intake exchanges.
    #[test]
    fn a_name_says_what_it_was_made_of(parts in parts()) {
        let (names, object) = (Names::default(), parts.object());
        if let Some(name) = names.name(&object) {
            let is_plain = name.iter().all(u8::is_ascii_graphic);
            prop_assert!(is_plain || !matches!(object, OwnObject::IntakeExchange(..)));
            prop_assert!(names.is_ours(&name));
            prop_assert_eq!(names.parse(&name), Some(object));
        }
    }

    #[test]
    fn only_names_that_we_would_write_are_read(name in near()) {
        let ours = Names::default();
        if let Some(object) = ours.parse(&name) {
            prop_assert_eq!(ours.name(&object), ShortStr::copy(&name));
            prop_assert!(ours.is_ours(&name));
        }
    }

    #[test]
    fn the_name_of_a_delay_queue_says_its_delay(millis in any::<u64>()) {
        let names = Names::default();
        let delay_queue = Some(OwnObject::DelayQueue(millis));
        for other in ["", "0", "+", "-", "x"] {
            let name = format!("dlx-proxy.delay.{other}{millis}");
            prop_assert_eq!(names.parse(name.as_bytes()) == delay_queue, other.is_empty());
        }
    }
}
