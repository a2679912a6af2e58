//! What people want to know of a dead letter: no headers, no body.

use crate::amqp::ids::ShortStr;

use super::{Outcome, Publication, Reason, Rejecter};

/// A dead letter that has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue that the message died in.
    pub queue: ShortStr,
    pub reason: Reason,
    /// Where the dead letter should have gone.
    pub exchange: ShortStr,
    /// The key with which it was published.
    pub routing_key: ShortStr,
    /// Octets of its body.
    pub octets: usize,
    pub outcome: Outcome,
    /// Who rejected the message, where this proxy withheld the reject.
    pub by: Option<Box<Rejecter>>,
}

// === impl DeadLetter ===

impl DeadLetter {
    /// Of a publication, which has come to its end so.
    pub fn of(publication: Publication, outcome: Outcome) -> DeadLetter {
        let Publication {
            exchange,
            routing_key,
            content,
            queue,
            reason,
            by,
            ..
        } = publication;
        DeadLetter {
            queue,
            reason,
            exchange,
            routing_key,
            octets: content.body.len(),
            outcome,
            by,
        }
    }
}
