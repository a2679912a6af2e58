//! A message that was handed to the publisher.

use crate::amqp::ids::DeliveryTag;
use crate::letter::Letter;
use crate::machine::{Cause, Publication};

/// Published, or about to be, and not acked.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) tag: DeliveryTag,
    pub(super) publication: Publication,
    /// What was taken, if it is to go by an exchange of ours that leads to its queue alone: should there be no such exchange.
    pub(super) taken: Option<Letter>,
    /// It has to be handed over again.
    pub(super) again: bool,
    /// It has been published without an outcome: it may have arrived.
    pub(super) in_doubt: bool,
}

// === impl Away ===

impl Away {
    /// Why it stays, if it was refused for that: whoever reads it should know that it may have arrived.
    pub(super) fn stays_for(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::PublisherAway | Cause::TargetBusy if self.in_doubt => {
                Cause::Unconfirmed.as_str()
            }
            cause => cause.as_str(),
        }
    }
}
