//! What people want to know of a dead letter: no headers, no body.

use crate::amqp::ids::ShortStr;

use super::{Outcome, Publication, Reason, Rejecter};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub queue: ShortStr,
    pub reason: Reason,
    pub exchange: ShortStr,
    pub routing_key: ShortStr,
    pub bytes: usize,
    pub outcome: Outcome,
    /// Set when this proxy withheld the reject.
    pub by: Option<Box<Rejecter>>,
}

// === impl DeadLetter ===

impl DeadLetter {
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
            bytes: content.body.len(),
            outcome,
            by,
        }
    }
}
