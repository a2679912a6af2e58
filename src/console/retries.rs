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

use std::future::pending;
use std::time::Duration;

use thiserror::Error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::letter::Letter;
use crate::link::Login;
use crate::management::{Api, DelayQueue, NoAnswer};
use crate::net::walks::Walker;
use crate::objects::Names;
use crate::registry::refusal::is_of_a_missing_queue;
use crate::walk::{Bodies, Bounds, Failure, Settings, Summary, Task};

mod list;
mod release;
mod sources;

pub use list::{Listing, list};
pub use release::{Releases, Wanted, release};

/// Messages of other queues held while a delay queue is searched: until then they can neither
/// return nor be seen by others.
const MOST_ASIDE: u64 = u16::MAX as u64;

#[derive(Clone)]
pub struct Place {
    pub walker: Walker,
    /// The user needs to read the delay queues. Each walk sets its vhost.
    pub login: Login,
    pub vhosts: Vec<Vhost>,
    pub names: Names,
    pub management: Option<Api>,
}

#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "which delay queues there are is not known: set `management-url`, or name each delay in milliseconds, as in `--delay 1000`"
    )]
    DelaysUnknown,
    #[error("the management API does not say which delay queues there are: {0}")]
    Management(#[from] NoAnswer),
    #[error("the broker was asked about {queue} in vhost {vhost}: {failure}")]
    Broker {
        vhost: Vhost,
        queue: ShortStr,
        failure: Failure,
    },
}

fn not_there(vhost: &Vhost, queue: &ShortStr) -> String {
    format!("there is no queue {queue} in vhost {vhost}")
}

// === impl Place ===

impl Place {
    /// `wanted`: only these delays, unless empty. Without a management API they are assumed to
    /// exist.
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

    /// Browses the first `messages` of a queue. `None`: no such queue.
    async fn walk(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        (messages, task): (u64, Task),
        mut see: impl FnMut(Letter) + Send,
    ) -> Result<Option<Summary>, Error> {
        let settings = Settings {
            login: Login {
                vhost: vhost.clone(),
                ..self.login.clone()
            },
            queue: queue.clone(),
            bounds: Bounds {
                messages,
                held: MOST_ASIDE,
                bytes: u64::MAX,
                time: Duration::MAX,
            },
            task,
        };
        let sees = |letter| {
            see(letter);
            true
        };
        match self.walker.walk(settings, pending(), sees).await {
            Ok(summary) => Ok(Some(summary)),
            Err(Failure::Refused { code, text })
                if is_of_a_missing_queue(code, text.as_bytes()) =>
            {
                Ok(None)
            }
            Err(failure) => Err(Error::Broker {
                vhost: vhost.clone(),
                queue: queue.clone(),
                failure,
            }),
        }
    }

    /// Numbers of messages and consumers.
    async fn count(&self, vhost: &Vhost, queue: &ShortStr) -> Result<Option<Summary>, Error> {
        let task = Task::Look(Bodies::Begin);
        self.walk(vhost, queue, (0, task), |_| ()).await
    }
}
