//! What a publisher is told besides the bytes of its link.

use crate::machine::{Owner, Publication, Ticket};

/// From those who hand it dead letters.
#[derive(Debug)]
pub enum Input {
    /// Dead letters of one owner, in the order of their deaths.
    Publish(Owner, Vec<(Ticket, Publication)>),
    /// The intake's: what it handed over goes back to its queue, or is there again. It is told when that is forgotten, and when more is taken.
    HandOver,
}
