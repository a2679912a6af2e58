//! What a walk is asked to do.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::dead_letter::Dialect;
use crate::dead_letter::redrive::{Here, Redrive, Sent, Standing, Stays};
use crate::letter::{Filter, Letter};
use crate::link::Login;
use crate::machine::{Now, Publication};
use crate::objects::{Names, OwnObject};

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
    /// How many messages it passes at most. Of none it learns only how many there are.
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
    /// Where they go; `None`: nowhere, they are removed, ...
    pub to: Option<Redrive>,
    /// ... or rejected: the broker dead-letters them.
    pub rejects: bool,
    /// The user of the publisher's link.
    pub own_user: ShortStr,
    /// The names of the proxy's own queues.
    pub names: Names,
}

// === impl Move ===

impl Move {
    /// It is published to an exchange of ours that leads to its queue alone.
    pub(super) fn leads_to_one(&self, publication: &Publication) -> bool {
        let object = self.names.parse(&publication.exchange);
        matches!(object, Some(OwnObject::ReturnExchange(_)))
    }

    /// What is published for it. `with_key`: back in its queue, its key has to be its own, as the broker may route it by that when it kills it
    /// again. Whether it does is not known here: that depends on who declared the queue, and how. So it goes by an exchange that leads to that queue
    /// alone; else by the default exchange.
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
