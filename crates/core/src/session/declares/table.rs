//! The table of declares: what is there × what is wanted → what comes next. `testdata/declares.txt` shows all rows.

use crate::machine::Fallback;
use crate::registry::arguments::Aim;
use crate::registry::refusal::There;

/// Comparisons with a queue that comes and goes.
const MOST_COMPARED: u8 = 2;

/// Facts about a pending declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Case {
    pub(in crate::session) aim: Aim,
    /// The broker generates the name: each try would make another queue.
    pub(in crate::session) to_be_named: bool,
    /// The declare names an exchange, which requires write permission. A target that only a policy
    /// of the proxy names does not.
    pub(in crate::session) names_exchange: bool,
    /// This connection may write to that and to the intake exchange.
    pub(in crate::session) permitted: bool,
    /// Whether the intake exchange exists.
    pub(in crate::session) ensured: Option<bool>,
    pub(in crate::session) compared: u8,
    /// The queue has an intake exchange, but for another target.
    pub(in crate::session) is_ours: bool,
}

/// Forms of a declare, sent on the probe's or on its own channel. Only two of them can make a
/// queue: the client's own, and the rewritten one where that [is safe](Case::may_make).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Form {
    /// As the client wrote it.
    AsItIs,
    /// Passive: if the arguments are unknown, only an existing queue can be ours.
    Passive,
    /// With the intake exchange, in a form that makes no queue (S7.3).
    IfThere,
    /// With `x-expires` -1: always refused, but after the check of write permission (S7.6).
    Never,
    /// With the intake exchange.
    Rewritten,
    /// With the queue's probable dead-letter arguments, in a form that makes none
    /// ([`lenient`](super::lenient)).
    AsTheQueue,
    /// An impossible binding, which tests the write permission.
    MayWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Stage {
    /// Answers to earlier requests on its channel: these may fail, and then it must not make a
    /// queue.
    Quieting,
    Asked(Form),
    Ensuring(Then),
    /// The record: other proxies of the vhost must know the declare.
    Recording,
}

/// Why the intake exchange is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Then {
    Make,
    /// To redeclare a queue that exists or existed.
    Forward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Step {
    Ask(Form),
    Ensure(Then),
    Record,
    /// In doubt: as the queue was last seen, else unchanged.
    InDoubt(Fallback),
    /// Go on unchanged, for this reason.
    AsItIs(Fallback),
    Forward(Form),
}

// === impl Case ===

impl Case {
    /// Whether the rewritten form may make the queue.
    pub(in crate::session) fn may_make(&self) -> bool {
        self.permitted && self.ensured == Some(true)
    }

    /// The client's channel is quiet.
    pub(in crate::session) fn begin(&self) -> Step {
        match self.aim {
            Aim::Full if self.permitted => Step::Ensure(Then::Make),
            Aim::Full => Step::Ask(Form::IfThere),
            Aim::Compare => Step::Ask(Form::Passive),
            Aim::Off | Aim::Lenient => Step::Ask(Form::AsItIs),
        }
    }

    pub(in crate::session) fn told(&self, form: Form, there: &There) -> Step {
        use Form::{AsItIs, AsTheQueue, IfThere, MayWrite, Never, Passive, Rewritten};
        match (form, there) {
            // Only a declare of which all was asked may count where it differs.
            (AsItIs | Passive | IfThere | Never | AsTheQueue, There::Unanswered) => {
                Step::InDoubt(Fallback::ProbeTimeout)
            }
            (AsItIs, There::Ours(_) | There::OursOtherwise | There::OtherExchange)
                if self.aim == Aim::Off =>
            {
                Step::Ask(IfThere)
            }
            (AsItIs, _) => Step::AsItIs(Fallback::NativeQueue),
            (Passive, There::Fits) => Step::Ask(IfThere),
            (Passive, _) => Step::AsItIs(Fallback::NotSupported),
            (IfThere, There::Fits) => Step::Ensure(Then::Forward),
            (IfThere, There::Absent) => self.absent(),
            // So is the original, and it is for the broker to say why; or the queue has gone.
            (IfThere, There::Granted | There::Invalid | There::InvalidTarget) => {
                Step::AsItIs(Fallback::NotSupported)
            }
            // It may have made the queue.
            (Rewritten, There::Unanswered)
            | (Rewritten, There::Fits | There::Absent | There::Granted | There::Invalid)
            // What the broker finds fault with is in both, and only this form has it said.
            | (IfThere | Rewritten, There::OursOtherwise | There::Otherwise) => {
                Step::Forward(Rewritten)
            }
            (IfThere | Rewritten, There::Ours(_)) => Step::Ensure(Then::Forward),
            (IfThere | Rewritten, There::Forbidden { intake: true }) => {
                Step::AsItIs(Fallback::NoPermission)
            }
            (IfThere | Rewritten | Never | AsTheQueue, There::Forbidden { .. }) => {
                Step::AsItIs(Fallback::Forbidden)
            }
            (IfThere | Rewritten, _) => Step::AsItIs(Fallback::NativeQueue),
            (Never, There::Granted) => Step::Ensure(Then::Make),
            // Somebody has made the queue meanwhile.
            (Never, _) if self.compared < MOST_COMPARED => Step::Ask(IfThere),
            (Never, _) => Step::AsItIs(Fallback::NativeQueue),
            (AsTheQueue, There::Fits) if self.names_exchange => Step::Ask(MayWrite),
            (AsTheQueue, There::Fits) | (MayWrite, There::MayWrite) => Step::Record,
            // What else differs is for the broker to say.
            (AsTheQueue, _) => Step::Forward(AsTheQueue),
            (MayWrite, _) => Step::AsItIs(Fallback::Forbidden),
        }
    }

    fn absent(&self) -> Step {
        match (self.aim, self.ensured) {
            (Aim::Off | Aim::Lenient | Aim::Compare, _) => Step::AsItIs(Fallback::NotSupported),
            (Aim::Full, Some(false)) => Step::AsItIs(Fallback::NoIntake),
            (Aim::Full, _) if self.names_exchange => Step::Ask(Form::Never),
            // The queue could have been made with the intake exchange, so the user may write to that.
            (Aim::Full, _) => Step::Ensure(Then::Make),
        }
    }

    pub(in crate::session) fn ready(&self, then: Then) -> Step {
        match then {
            // The queue is there all the same, if it is.
            Then::Forward => Step::Forward(Form::Rewritten),
            Then::Make if self.may_make() && self.to_be_named => Step::Forward(Form::Rewritten),
            Then::Make if self.may_make() => Step::Ask(Form::Rewritten),
            // Only one that is there already is taken over without it.
            Then::Make if self.compared == 0 && !self.to_be_named => Step::Ask(Form::IfThere),
            Then::Make => Step::AsItIs(Fallback::NoIntake),
        }
    }

    /// The declare counts, and is or will be recorded.
    pub(in crate::session) fn recorded(&self) -> Step {
        match self.is_ours {
            true => Step::Ensure(Then::Forward),
            false => Step::Forward(Form::AsTheQueue),
        }
    }

    pub(in crate::session) fn too_late(&self, stage: Stage) -> Step {
        match stage {
            Stage::Ensuring(then) => self.ready(then),
            Stage::Recording => self.recorded(),
            Stage::Asked(Form::Rewritten) => Step::Forward(Form::Rewritten),
            Stage::Quieting | Stage::Asked(_) => Step::InDoubt(Fallback::ProbeTimeout),
        }
    }
}
