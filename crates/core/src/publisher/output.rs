//! What a publisher is told besides the bytes of its link, and what it has for other machines.

use crate::machine::{Outcome, Owner, Publication, Ticket};

/// From those who hand it dead letters, and from the careful publisher.
#[derive(Debug)]
pub enum Input {
    /// Dead letters of one owner, in the order of their deaths.
    Publish(Owner, Vec<(Ticket, Publication)>),
    /// The intake's: what it handed over goes back to its queue, or is there again. It is told when that is forgotten, and when more is taken.
    HandOver,
    /// What became of those that the careful publisher was handed.
    Careful(Vec<(Owner, Ticket, Outcome)>),
}

/// For the sessions and the intake of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the machines that handed the dead letters over.
    pub settled: Vec<(Owner, Ticket, Outcome)>,
    /// For the intake: whether the publisher takes dead letters. False: it has forgotten those that it had.
    pub takes: Vec<(Owner, bool)>,
    /// For the careful publisher.
    pub careful: Vec<Input>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;
