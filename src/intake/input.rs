//! What an intake is told besides the bytes of its link.

use crate::machine::{Ensure, Outcome, Owner, Ticket};

/// From the sessions and the publisher of its vhost.
#[derive(Debug)]
pub enum Input {
    /// Its dead letters have an outcome.
    Settled(Vec<(Ticket, Outcome)>),
    /// A session needs an intake exchange.
    Ensure(Owner, Ensure),
    /// Whether the publisher takes dead letters. False: its link is away, and it has forgotten all that it had of the intake's.
    Publisher(bool),
    /// Whether all counts that was recorded of redeclared queues. False: nothing is consumed anew until it does.
    Record(bool),
    /// An object of the vhost's is gone: all are made again.
    Missing,
}
