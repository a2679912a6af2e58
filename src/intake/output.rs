//! What an intake has for other machines.

use crate::machine::{Ensured, Owner, Publication, Ticket};

/// For the publisher and the sessions of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the publisher: dead letters. Their signals stay unsettled until its outcome names the ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// For the publisher: what it was handed goes back to its queue, or is there again. Behind this comes nothing until it has answered.
    pub hand_over: bool,
    /// For the sessions that asked for an intake exchange.
    pub ensured: Vec<(Owner, Ensured)>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;
