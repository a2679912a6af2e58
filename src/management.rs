//! Reads RabbitMQ's management API, for what AMQP does not show: the broker's own policies, exchanges and bindings. Apart from `net`, since
//! it is another protocol on another port, and since nothing depends on it: without an answer the proxy does what it does without a
//! `management-url`, or with what it knows.
//!
//! **Policies** are read every 5 s, as often as one open page of the management UI does; while the API is away, after longer and
//! longer pauses. Those that were read are kept until they are read again, however long that takes: they change seldom, and to forget them
//! would send dead letters elsewhere only because a port is closed.
//!
//! **Alarms** are asked for with them: AMQP tells of an alarm only on a connection that publishes. While the API is away, those that were seen last
//! stay, with the time at which they were seen.
//!
//! **The proxy's own queues** are looked at every 20 s, in each vhost that is open: the watchdog says when one cannot work or loses messages, and
//! when a delay queue holds what should be out. The publisher has to know how many of these there are.
//!
//! **All queues** of each vhost that is open come into the catalogue, whoever declared them: at start and every hour; and a single one when a
//! session meets it and nobody knows it.
//!
//! **Policies of ours** follow those of the user that they were made from, after each reading.
//!
//! **Delayed exchanges** are asked for with the policies, where `delayed-publish` has `x-delay`.
//!
//! **A survey** of the exchanges that dead letters go to, with their bindings, tells which queues these lead to.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tracing::{debug, info, warn};

use crate::objects::Names;
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::delayed_exchanges::DelayedPublish;
use crate::registry::live::LivePolicies;
use crate::telemetry::Metrics;

use adoption::Follower;
use policies::Listed;

pub use crate::registry::adoption::ListedPolicy;
pub use adoption::{Adoption, NotAdopted};
pub use alteration::{Alterations, NotAltered, intake_of};
pub use examined::ListedPermission;
pub use harm::{HARMFUL, Harm};
pub use http::{Api, NoAnswer};
pub use queues::DelayQueue;

mod adoption;
mod alarms;
mod alteration;
mod condition;
mod dead_letter_queues;
mod delayed;
mod examined;
mod harm;
mod http;
mod leads;
mod listing;
mod overdue;
mod policies;
mod queues;
#[cfg(test)]
mod tests;
mod topic;
mod watchdog;

const EVERY: Duration = Duration::from_secs(5);
/// After a failure; doubles up to a bound.
const AT_FIRST: Duration = Duration::from_secs(10);
const AT_MOST: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Management {
    pub api: Api,
    pub policies: LivePolicies,
    names: Names,
    pub metrics: Metrics,
    delays: DelayedPublish,
    /// Limits the memory for answers.
    turn: Arc<Semaphore>,
    listing: Arc<Semaphore>,
    /// Finishes what was left behind.
    pub alterations: Arc<OnceLock<Alterations>>,
}

/// The time until the next questions: longer and longer while there is no answer.
struct Pause {
    usual: Duration,
    most: Duration,
    next: Duration,
}

#[derive(Debug, Default, PartialEq)]
struct Reported {
    listed: Option<Listed>,
    error: Option<String>,
    unreadable: Vec<String>,
}

// === impl Management ===

impl Management {
    /// `policies`: receives the broker's policies. Until then they are unknown, so no message is
    /// published by its own key where a policy may set one.
    pub fn new(api: Api, policies: LivePolicies, names: Names, metrics: Metrics) -> Management {
        policies.set_brokers(BrokerPolicies::unread());
        Management {
            api,
            policies,
            names,
            metrics,
            delays: DelayedPublish::default(),
            turn: Arc::new(Semaphore::new(1)),
            listing: Arc::new(Semaphore::new(1)),
            alterations: Arc::default(),
        }
    }

    pub async fn run(
        self,
        adoption: Adoption,
        first: oneshot::Sender<()>,
        stopped: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = self.read_on(Follower::new(adoption), first) => {}
            () = stopped => {}
        }
    }

    async fn read_on(self, mut follower: Follower, first: oneshot::Sender<()>) {
        let (mut reported, mut pause) = (Reported::default(), Pause::new(EVERY, AT_MOST));
        let mut read = self.read(&mut reported).await;
        let _ = first.send(());
        loop {
            if let Some(listed) = reported.listed.as_ref().filter(|_| read) {
                follower.follow(listed).await;
            }
            pause.sleep(read).await;
            let before = Arc::clone(&self.policies.brokers());
            read = self.read(&mut reported).await;
            let now = Arc::clone(&self.policies.brokers());
            if !Arc::ptr_eq(&before, &now) {
                follower.ended(&before, &now);
            }
        }
    }

    /// False: no answer; what was read last stays.
    async fn read(&self, reported: &mut Reported) -> bool {
        let read = self
            .api
            .ask(async |mut api| {
                let policies = api.get("policies".to_owned()).await?;
                let operator_policies = api.get("operator-policies".to_owned()).await?;
                // The policies count without it.
                match api.check(alarms::PATH, alarms::read).await {
                    Ok(alarms) => self.metrics.alarms(alarms),
                    Err(error) => debug!(%error, "the broker's alarms cannot be read"),
                }
                if self.delays.x_delay
                    && let Err(error) = self.read_delayed(&mut api).await
                {
                    debug!(%error, "the delayed exchanges cannot be read");
                }
                Ok(Listed {
                    policies,
                    operator_policies,
                })
            })
            .await;
        let answered = read.is_ok();
        self.metrics.management(answered);
        self.policies.set_hears_broker(answered);
        match read {
            Ok(listed) => {
                if reported.error.take().is_some() {
                    info!("the management API answers again");
                }
                if reported.listed.as_ref() == Some(&listed) {
                    return true;
                }
                let (policies, unreadable) = listed.read(&self.names);
                self.policies.set_brokers(policies);
                reported.listed = Some(listed);
                if !unreadable.is_empty() && unreadable != reported.unreadable {
                    let policies = unreadable.join(", ");
                    warn!(%policies, "the proxy cannot read the patterns of some broker policies: where such a policy could decide where a dead letter goes, the reject is left to the broker");
                }
                reported.unreadable = unreadable;
            }
            Err(error) => {
                let error = error.to_string();
                if reported.error.as_ref() == Some(&error) {
                    debug!(%error, "the management API still cannot be read");
                } else {
                    warn!(%error, "the management API cannot be read: the policies that were read last stay in force; if none were read yet, rejects are left to the broker wherever a policy could set their routing key");
                }
                reported.error = Some(error);
            }
        }
        answered
    }
}

// === impl Pause ===

impl Pause {
    fn new(usual: Duration, most: Duration) -> Pause {
        let next = AT_FIRST;
        Pause { usual, most, next }
    }

    fn after(&mut self, answered: bool) -> Duration {
        if answered {
            self.next = AT_FIRST;
            return self.usual;
        }
        let doubled = (self.next * 2).min(self.most);
        std::mem::replace(&mut self.next, doubled)
    }

    /// A quarter more or less, so that many proxies do not ask all at once.
    async fn sleep(&mut self, answered: bool) {
        let part = RandomState::new().hash_one(0) % 512;
        tokio::time::sleep(self.after(answered) * (768 + part as u32) / 1024).await;
    }
}
