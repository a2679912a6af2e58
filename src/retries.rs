//! `dlx-proxy retries`: shows what waits for a retry, lets it go now, or removes it. Apart from the proxy, which it neither needs nor disturbs: all that waits
//! is in delay queues of the broker, and whoever may read these can do the same by hand.
//!
//! ```text
//! a delay queue ─ basic.deliver ─▶ looked at ─ its channel is closed ─▶ in its place in the delay queue
//!                                      ├────── basic.reject, without requeue ─▶ due ─▶ intake ─▶ a proxy: back in its queue
//!                                      └────── basic.ack (purge) ─▶ removed
//! ```
//! Nothing is published, and only `purge` acks, so that nothing can be lost: it is the broker that moves a message, and the broker that puts one
//! back when this program is killed.

use std::time::Duration;

use thiserror::Error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::connection::Access;
use crate::management::{Api, DelayQueue, NoAnswer};
use crate::net::nodes::Node;
use crate::objects::Names;

mod broker;
mod list;
mod release;
mod sources;
mod waiting;

pub use list::{Listing, list};
pub use release::{Releases, Wanted, release};

/// For each answer of the broker.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Place {
    /// The broker: the first that lets us in.
    pub nodes: Vec<Node>,
    /// As who may read the delay queues.
    pub access: Access,
    /// The vhosts to look into.
    pub vhosts: Vec<Vhost>,
    /// The names of the proxy's own queues.
    pub names: Names,
    /// Knows which delay queues there are.
    pub management: Option<Api>,
}

/// Why there is no result, or only a part of one.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "which delay queues there are is not known: set `management-url`, or name each delay in milliseconds, as in `--delay 1000`"
    )]
    DelaysUnknown,
    /// The management API says nothing.
    #[error("the management API does not say which delay queues there are: {0}")]
    Management(#[from] NoAnswer),
    /// Nobody there, or refused.
    #[error("cannot connect to {node}, vhost {vhost}: {source}")]
    Connect {
        /// The last that was tried.
        node: Node,
        vhost: Vhost,
        /// What the broker, or the system, says.
        source: lapin::Error,
    },
    /// Somebody is there, but says nothing.
    #[error("no answer of the broker within {} seconds", PATIENCE.as_secs())]
    Silent,
    /// Something was refused, or the connection was lost.
    #[error("the broker was asked about {queue}: {source}")]
    Refused { queue: String, source: lapin::Error },
}

fn not_there(vhost: &Vhost, queue: &ShortStr) -> String {
    format!("there is no queue {queue} in vhost {vhost}")
}

// === impl Place ===

impl Place {
    /// The delay queues of a vhost; `wanted`: only these, unless it is empty. Without a management API those are taken for granted.
    async fn delays(&self, vhost: &Vhost, wanted: &[u64]) -> Result<Vec<DelayQueue>, Error> {
        let Some(management) = &self.management else {
            let of = |millis: &u64| DelayQueue {
                millis: *millis,
                messages: None,
                leaving: None,
                has_delivery_limit: false,
            };
            return match wanted {
                [] => Err(Error::DelaysUnknown),
                wanted => Ok(wanted.iter().map(of).collect()),
            };
        };
        let mut found = management.delay_queues(vhost, &self.names).await?;
        found.retain(|queue| wanted.is_empty() || wanted.contains(&queue.millis));
        Ok(found)
    }
}
