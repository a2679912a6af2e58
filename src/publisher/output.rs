//! What a publisher has for other machines.

use crate::machine::{Outcome, Owner, Ticket};

/// For the sessions and the intake of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the machines that handed the dead letters over.
    pub settled: Vec<(Owner, Ticket, Outcome)>,
    /// For the intake: whether the publisher takes dead letters. False: it has forgotten those that it had.
    pub takes: Vec<(Owner, bool)>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;
