//! What a session is told besides the bytes of its legs.

use crate::amqp::ids::ShortStr;
use crate::machine::{Ensured, Outcome, Recalled, Ticket};

/// From the links of its vhost, and from what other sessions know.
#[derive(Debug)]
pub enum Input {
    /// Dead letters of this session have an outcome.
    Settled(Vec<(Ticket, Outcome)>),
    /// An intake exchange was asked for.
    Ensured(Ensured),
    /// What was learned before, by whichever session.
    Recalled(Recalled),
    /// What counts for this queue is in the record, or cannot be now.
    Recorded(ShortStr, bool),
}
