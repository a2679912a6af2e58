//! A message that is handed to the publisher, or is about to be.

use crate::dead_letter::redrive::Route;
use crate::letter::Letter;
use crate::machine::{Cause, Publication};

/// A message that is to be published, and not acked.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) publication: Publication,
    /// What was taken, if it is to go by an exchange of ours that leads to its queue alone: should there be no such exchange.
    pub(super) taken: Option<Letter>,
    pub(super) stage: Stage,
    /// It has been published without an outcome: it may have arrived.
    pub(super) in_doubt: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker has to say first whether the user may publish so.
    Asks(Route),
    /// The user may, but one before it asks.
    May,
    /// The publisher has it.
    Published,
    /// It has to be handed over again.
    Again,
}

// === impl Away ===

impl Away {
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Asks(_) | Stage::May)
    }

    /// Why it stays, if it was refused for that: whoever reads it should know that it may have arrived.
    pub(super) fn stays_for(&self, cause: Cause) -> String {
        let cause = match cause {
            Cause::PublisherAway | Cause::TargetBusy if self.in_doubt => Cause::Unconfirmed,
            cause => cause,
        };
        cause.as_str().to_owned()
    }
}
