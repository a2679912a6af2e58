//! The kinds of own objects, as their names tell them apart.

use super::{OwnObject, QueueType, intake_name};

/// Makes list and type from the same lines, so that no kind can be missing in the list.
macro_rules! kinds {
    ($($kind:ident $start:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub(super) const ALL: &[Kind] = &[$(Kind::$kind,)*];

            pub(super) fn start(self) -> &'static [u8] {
                match self {
                    $(Kind::$kind => $start,)*
                }
            }
        }
    };
}

kinds! {
    IntakeQueue b".intake",
    Parking b".parked",
    Lock b".parked.lock",
    Redeclared b".redeclared",
    UserMark b".user",
    DelayExchange b".delay",
    DueExchange b".due",
    DelayQueue b".delay.",
    ReturnExchange b".return/",
    Bridge b".bridge/",
    Order b".altering/",
    Trial b".trial/",
    Aside b".aside/",
    Claim b".claim/",
    Follower b".follower/",
    Intake b"",
    QuorumIntake b"+",
    AtLeastOnceIntake b"++",
}

impl Kind {
    /// The kind of an object with that name, existing or not, and the rest of the name.
    pub(super) fn of(behind_prefix: &[u8]) -> Option<(Kind, &[u8])> {
        let mut all = Kind::ALL.iter();
        all.find_map(|kind| {
            let rest = behind_prefix.strip_prefix(kind.start())?;
            kind.may_end_with(rest).then_some((*kind, rest))
        })
    }

    /// Whether names of this kind may end like this, now or in later versions.
    fn may_end_with(self, rest: &[u8]) -> bool {
        match self {
            Kind::IntakeQueue
            | Kind::Parking
            | Kind::Lock
            | Kind::Redeclared
            | Kind::UserMark
            | Kind::DelayExchange
            | Kind::DueExchange => rest.is_empty(),
            Kind::DelayQueue
            | Kind::ReturnExchange
            | Kind::Bridge
            | Kind::Order
            | Kind::Trial
            | Kind::Aside
            | Kind::Claim
            | Kind::Follower => true,
            Kind::Intake | Kind::QuorumIntake | Kind::AtLeastOnceIntake => {
                matches!(rest.first(), None | Some(b'/'))
            }
        }
    }

    /// The object with that name. Its canonical name may differ.
    pub(super) fn read(self, rest: &[u8]) -> Option<OwnObject<'_>> {
        let intake = |at_least_once, queue_type| {
            let said = intake_name::decode(rest, at_least_once)?;
            Some(OwnObject::IntakeExchange(said, queue_type))
        };
        match self {
            Kind::IntakeQueue => Some(OwnObject::IntakeQueue),
            Kind::Parking => Some(OwnObject::Parking),
            Kind::Lock => Some(OwnObject::Lock),
            Kind::Redeclared => Some(OwnObject::Redeclared),
            Kind::UserMark => Some(OwnObject::UserMark),
            Kind::DelayExchange => Some(OwnObject::DelayExchange),
            Kind::DueExchange => Some(OwnObject::DueExchange),
            Kind::DelayQueue => {
                let millis = std::str::from_utf8(rest).ok()?.parse().ok()?;
                Some(OwnObject::DelayQueue(millis))
            }
            Kind::ReturnExchange => Some(OwnObject::ReturnExchange(rest)),
            Kind::Bridge => Some(OwnObject::Bridge(rest)),
            Kind::Order => Some(OwnObject::Order(rest)),
            Kind::Trial => Some(OwnObject::Trial(rest)),
            Kind::Aside => Some(OwnObject::Aside(rest)),
            Kind::Claim => Some(OwnObject::Claim(rest)),
            Kind::Follower => Some(OwnObject::Follower(rest)),
            Kind::Intake => intake(false, QueueType::Default),
            Kind::QuorumIntake => intake(false, QueueType::Quorum),
            Kind::AtLeastOnceIntake => intake(true, QueueType::Quorum),
        }
    }
}
