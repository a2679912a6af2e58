//! What a session is told besides the bytes of its legs.

use crate::amqp::ids::ShortStr;
use crate::machine::{Ensured, Outcome, Ticket};

/// From the links of its vhost.
#[derive(Debug)]
pub enum Input {
    /// Dead letters of this session have an outcome.
    Settled(Vec<(Ticket, Outcome)>),
    /// An intake exchange was asked for.
    Ensured(Ensured),
    /// What counts for this queue is in the record, or cannot be now.
    Recorded(ShortStr, bool),
    /// What the management API tells of this queue is in the catalogue; or it tells nothing.
    LookedUp(ShortStr),
}
