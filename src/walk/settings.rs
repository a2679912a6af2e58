//! What a walk is asked to do.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::link::Login;

use super::Move;

/// Where to go, and how far.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The vhost, and in whose name.
    pub login: Login,
    /// Along which queue.
    pub queue: ShortStr,
    /// How far.
    pub bounds: Bounds,
    /// What becomes of the messages.
    pub task: Task,
}

/// What becomes of the messages on a walk.
#[derive(Clone, Debug)]
pub enum Task {
    /// All stay; of each body, so many octets are shown.
    Look(usize),
    /// Some go. How many there are has to be known: a walk that sends messages back could meet the same ones for ever.
    Move(Box<Move>),
}

/// How far a walk goes. Whatever is met first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many messages it passes at most.
    pub messages: u64,
    /// How many octets of messages it passes at most.
    pub octets: u64,
    /// So long, from the first call on.
    pub time: Duration,
}
