//! What a session is told besides the bytes of its legs.

use crate::amqp::ids::ShortStr;
use crate::machine::{Ensured, Outcome, Ticket};

use super::Swap;

/// From the links of the vhost.
#[derive(Debug)]
pub enum Input {
    Settled(Vec<(Ticket, Outcome)>),
    Ensured(Ensured),
    /// The entry of this queue is recorded, or cannot be now.
    Recorded(ShortStr, bool),
    /// The management API has answered; facts are in the catalogue.
    LookedUp(ShortStr),
    Swap(Swap),
}
