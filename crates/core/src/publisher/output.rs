//! What a publisher is told besides the bytes of its link, and what it has for other machines.

use crate::machine::{Outcome, Owner, Publication, Ticket};

#[derive(Debug)]
pub enum Input {
    /// In the order of their deaths.
    Publish(Owner, Vec<(Ticket, Publication)>),
    /// From the intake: what it handed over is back in its queue. The publisher reports when it has
    /// forgotten that, and when it takes more.
    HandOver,
    Careful(Vec<(Owner, Ticket, Outcome)>),
    /// Publish nothing for a moment, or go on.
    Pause(bool),
}

#[derive(Debug, Default)]
pub struct Output {
    pub settled: Vec<(Owner, Ticket, Outcome)>,
    /// For the intake: whether the publisher accepts dead letters. False: it has forgotten the
    /// previous ones.
    pub takes: Vec<(Owner, bool)>,
    pub careful: Vec<Input>,
    /// It pauses, and the broker has confirmed all.
    pub paused: bool,
}

pub type Effects = crate::machine::Effects<Output>;
