//! What somebody wants moved, and why it does not begin.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use crate::amqp::ids::ShortStr;
use crate::dead_letter::HistoryForm;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::letter::Filter;
use crate::link::Login;
use crate::objects::Names;
use crate::walk::{Bounds, Move, Settings, Task};

#[derive(Clone, Debug)]
pub struct Order {
    pub login: Login,
    pub queue: ShortStr,
    pub filter: Filter,
    pub most: u64,
    pub per_second: Option<NonZeroU32>,
    /// Bound on messages that it passes over and holds.
    pub held: u64,
    /// `None` removes them.
    pub to: Option<Redrive>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotBegun {
    /// One per queue; its id.
    #[error("Redrive {0} is running in this queue. Wait for its end, or cancel it.")]
    Busy(u64),
    /// All, or the user's half.
    #[error(
        "Too many redrives are running, or half of them are yours. Wait for the end of one, or cancel it."
    )]
    TooMany,
    #[error("{0} is being altered. Begin again when that has ended.")]
    Altered(ShortStr),
    /// Publishing there would forge what the proxy trusts.
    #[error("{0} belongs to the proxy: no message can be sent there.")]
    Ours(ShortStr),
}

// === impl Order ===

impl Order {
    pub fn walk(&self, own_user: &ShortStr, names: &Names) -> Settings {
        Settings {
            login: self.login.clone(),
            queue: self.queue.clone(),
            bounds: Bounds {
                messages: u64::MAX,
                held: self.held,
                bytes: u64::MAX,
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
                history_form: HistoryForm::WRITTEN,
            })),
        }
    }

    pub(super) fn goes_to(&self) -> Option<&ShortStr> {
        match &self.to.as_ref()?.to {
            Destination::Source => None,
            Destination::Queue(name) | Destination::Exchange { exchange: name, .. } => Some(name),
        }
    }

    pub(super) fn to(&self) -> String {
        match self.to.as_ref().map(|redrive| &redrive.to) {
            None => "nowhere".to_owned(),
            Some(Destination::Source) => "source".to_owned(),
            Some(Destination::Queue(queue)) => format!("queue {queue}"),
            Some(Destination::Exchange { exchange, .. }) => format!("exchange {exchange}"),
        }
    }
}
