//! What a walk is asked to do.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::dead_letter::redrive::{Here, Redrive, Sent, Standing, Stays};
use crate::dead_letter::{Dialect, HistoryForm};
use crate::letter::{Filter, Letter};
use crate::link::Login;
use crate::machine::{Now, Publication};
use crate::objects::{Names, OwnObject};

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub queue: ShortStr,
    pub bounds: Bounds,
    pub task: Task,
}

#[derive(Clone, Debug)]
pub enum Task {
    Look(Bodies),
    /// Moves some. Requires the number of messages: otherwise a walk that sends messages back could
    /// meet them again forever.
    Move(Box<Move>),
}

/// How much of a body is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// As much as filters search.
    Begin,
    Whole,
}

/// The first limit reached ends the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages passed. 0: only counts them.
    pub messages: u64,
    /// Messages passed over and held: hidden from others until the end.
    pub held: u64,
    pub bytes: u64,
    pub time: Duration,
}

/// Selection, destination and rate.
#[derive(Clone, Debug)]
pub struct Move {
    pub filter: Filter,
    pub most: u64,
    pub per_second: Option<NonZeroU32>,
    /// `None`: removed, ...
    pub to: Option<Redrive>,
    /// ... or rejected, so that the broker dead-letters them.
    pub rejects: bool,
    pub own_user: ShortStr,
    pub names: Names,
    pub history_form: HistoryForm,
}

// === impl Bounds ===

impl Bounds {
    pub(super) fn only_count(&self) -> bool {
        self.messages == 0
    }
}

// === impl Move ===

impl Move {
    /// Published over an exchange for its queue alone.
    pub(super) fn leads_to_one(&self, publication: &Publication) -> bool {
        let object = self.names.parse(&publication.exchange);
        matches!(object, Some(OwnObject::ReturnExchange(_)))
    }

    /// The publication. `with_key`: back to its queue with its own key, which the broker may route
    /// by at the next death. Whether it does depends on the declare of the queue, so the message
    /// goes over an exchange for that queue alone; else over the default exchange.
    pub(super) fn sent(
        &self,
        redrive: &Redrive,
        letter: &Letter,
        with_key: bool,
        dialect: Dialect,
        now: Now,
    ) -> Result<Sent, Stays> {
        let names = &self.names;
        let content = Content {
            properties: letter.properties.clone(),
            body: letter.body.clone(),
        };
        let standing = Standing {
            exchange: &letter.exchange,
            routing_key: &letter.routing_key,
            content: &content,
        };
        let here = Here {
            own_user: &self.own_user,
            dialect,
            history_form: self.history_form,
            is_own_queue: &|queue| names.is_ours(queue),
            return_exchange: &|queue| match with_key {
                true => names.name(&OwnObject::ReturnExchange(queue)),
                false => None,
            },
            bridges: names.bridges(),
        };
        redrive.publication(&standing, &here, now.wall)
    }
}
