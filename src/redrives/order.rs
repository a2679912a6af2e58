//! What somebody wants moved, and why it does not begin.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::letter::Filter;
use crate::link::Login;
use crate::objects::Names;
use crate::walk::{Bounds, Move, Settings, Task};

/// What somebody wants moved.
#[derive(Clone, Debug)]
pub struct Order {
    /// In whose name, and in which vhost.
    pub login: Login,
    pub queue: ShortStr,
    /// Which messages are moved.
    pub filter: Filter,
    /// How many messages it moves at most.
    pub most: u64,
    /// How many messages it moves in a second at most.
    pub per_second: Option<NonZeroU32>,
    /// How many messages that stay in the queue it holds at most.
    pub held: u64,
    /// Where they go; `None`: nowhere, they are removed.
    pub to: Option<Redrive>,
}

/// Why one does not begin.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotBegun {
    /// One at a time in a queue.
    #[error("redrive {0} is at work in this queue")]
    Busy(u64),
    /// As many as there may be, or half of them by that user.
    #[error(
        "as many redrives as there may be are at work, or half of them are this user's: wait for the end of one, or cancel it"
    )]
    TooMany,
    /// Whoever may publish there decides what the proxy believes.
    #[error("{0} is one of the proxy's own: nothing is sent there")]
    Ours(ShortStr),
}

// === impl Order ===

impl Order {
    /// The walk that does it. `own_user`: that of the publisher's link, which publishes what goes.
    pub fn walk(&self, own_user: &ShortStr, names: &Names) -> Settings {
        Settings {
            login: self.login.clone(),
            queue: self.queue.clone(),
            bounds: Bounds {
                messages: u64::MAX,
                held: self.held,
                octets: u64::MAX,
                time: Duration::MAX,
            },
            task: Task::Move(Box::new(Move {
                filter: self.filter.clone(),
                most: self.most,
                per_second: self.per_second,
                to: self.to.clone(),
                rejects: false,
                own_user: own_user.clone(),
                names: names.clone(),
            })),
        }
    }

    /// The queue or the exchange that was named.
    pub(super) fn goes_to(&self) -> Option<&ShortStr> {
        match &self.to.as_ref()?.to {
            Destination::Source => None,
            Destination::Queue(name) | Destination::Exchange { exchange: name, .. } => Some(name),
        }
    }

    /// Where messages go, in words.
    pub(super) fn to(&self) -> String {
        match self.to.as_ref().map(|redrive| &redrive.to) {
            None => "nowhere".to_owned(),
            Some(Destination::Source) => "source".to_owned(),
            Some(Destination::Queue(queue)) => format!("queue {queue}"),
            Some(Destination::Exchange { exchange, .. }) => format!("exchange {exchange}"),
        }
    }
}
