//! A message that is handed to the publisher, or is about to be.

use crate::dead_letter::redrive::Route;
use crate::letter::Letter;
use crate::machine::{Cause, Publication};

/// A message to be published, unacked.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) publication: Publication,
    /// The message, if it goes over an exchange for its queue alone, in case that exchange cannot
    /// exist.
    pub(super) taken: Option<Letter>,
    pub(super) stage: Stage,
    /// Published without an outcome: may have arrived.
    pub(super) in_doubt: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Awaits the broker's permission.
    Asks(Route),
    /// Permitted, but behind one that waits.
    May,
    Published,
    Again,
}

// === impl Away ===

impl Away {
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Asks(_) | Stage::May)
    }

    /// The reason for staying; says if it may have arrived.
    pub(super) fn stays_for(&self, cause: Cause) -> String {
        let cause = match cause {
            Cause::PublisherAway | Cause::TargetBusy if self.in_doubt => Cause::Unconfirmed,
            cause => cause,
        };
        cause.as_str().to_owned()
    }
}
