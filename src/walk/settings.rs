//! What a walk is asked to do.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::redrive::Redrive;
use crate::letter::Filter;
use crate::link::Login;
use crate::objects::Names;

/// Where to go, and how far.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The vhost, and in whose name.
    pub login: Login,
    pub queue: ShortStr,
    pub bounds: Bounds,
    /// What becomes of the messages.
    pub task: Task,
}

/// What becomes of the messages on a walk.
#[derive(Clone, Debug)]
pub enum Task {
    Look(Bodies),
    /// Some go. How many there are has to be known: a walk that sends messages back could meet the same ones for ever.
    Move(Box<Move>),
}

/// How much is kept of a body that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// As much as filters search.
    Begin,
    Whole,
}

/// How far a walk goes. Whatever is met first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many messages it passes at most.
    pub messages: u64,
    /// How many messages that stay in the queue it holds at most: until the end of the walk nobody else sees them.
    pub held: u64,
    /// How many octets of messages it passes at most.
    pub octets: u64,
    /// So long, from the first call on.
    pub time: Duration,
}

/// Which messages go, where, and how fast.
#[derive(Clone, Debug)]
pub struct Move {
    pub filter: Filter,
    /// How many messages it moves at most.
    pub most: u64,
    /// How many messages it moves in a second at most.
    pub per_second: Option<NonZeroU32>,
    /// Where they go; `None`: nowhere, they are removed.
    pub to: Option<Redrive>,
    /// The user of the publisher's link.
    pub own_user: ShortStr,
    /// The names of the proxy's own queues.
    pub names: Names,
}
