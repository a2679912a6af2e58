//! Queues that are made anew ([`crate::alteration`]): what the plan needs to know, and who carries it out.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Mutex;
use tracing::{debug, info};

use crate::alteration::plan::{ListedConnection, Plan, Refusal, Seen, Wish, left_behind, plan};
use crate::alteration::{Altered, Failure, Order, Settings, Task};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::link::Login;
use crate::net::walks::Walks;
use crate::objects::QueueType;
use crate::registry::arguments::{Aim, DeclareArguments, Wanted};
use crate::registry::policy::Queue;
use crate::session;

use super::http::{Connection, NoAnswer};
use super::{Adoption, listing};

const PATIENCE: Duration = Duration::from_secs(60);
const MORE: &str = ",policy,members,online";
const BACKLOG: &str = "columns=messages_ready,message_bytes_ready,consumers";

/// How often, and after which pauses, a claim is tried: who looks after an order that has just ended holds one for a moment.
const CLAIMS: u32 = 15;
const CLAIM_PAUSE: Duration = Duration::from_millis(200);

/// Makes queues anew.
#[derive(Clone)]
pub struct Alterations {
    pub adoption: Adoption,
    pub walks: Walks,
    /// Of the proxy's links; the vhost is added.
    pub login: Login,
    pub sessions: Arc<session::Settings>,
    /// One at a time: the watchdog and the list of all queues find the same ones.
    pub attending: Arc<Mutex<()>>,
}

#[derive(Debug, Error)]
pub enum NotAltered {
    #[error("the management API: {0}")]
    NoAnswer(#[from] NoAnswer),
    #[error(
        "the intake exchange {0} cannot be declared or bound: see the log of the proxy, and `max-intake-exchanges`"
    )]
    NoIntake(ShortStr),
    #[error(transparent)]
    Failed(#[from] Failure),
}

// === impl Alterations ===

impl Alterations {
    /// What altering would do, or all reasons against it.
    ///
    /// # Errors
    /// No answer of the management API.
    pub async fn plan(
        &self,
        vhost: &Vhost,
        queue: &str,
        wish: &Wish,
    ) -> Result<Result<Plan, Vec<Refusal>>, NoAnswer> {
        let of = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
        let name = percent_encode(queue.as_bytes(), NON_ALPHANUMERIC).to_string();
        let asking = self.adoption.api.ask_within(PATIENCE, async |mut api| {
            Ok(Seen {
                policies: api.get(format!("policies/{of}")).await?,
                queues: api
                    .get(format!("queues/{of}?{}{MORE}", listing::COLUMNS))
                    .await?,
                bindings: api.get(format!("bindings/{of}")).await?,
                exchanges: api.get(format!("exchanges/{of}")).await?,
                backlog: api
                    .find(format!("queues/{of}/{name}?{BACKLOG}"))
                    .await?
                    .unwrap_or_default(),
                connections: connections(&mut api, &of).await?,
                mark: self.login.mark(),
                global_prefetches: match wish.queue_type() {
                    Some(_) => global_prefetches(&mut api, &of).await?,
                    None => 0,
                },
            })
        });
        let seen = asking.await?;
        if let Some(order) = left_behind(queue, &seen, &self.sessions.names) {
            self.attend(vhost, order).await;
        }
        let sessions = &*self.sessions;
        let intake =
            |arguments: &DeclareArguments<'_>| intake_of(sessions, vhost, queue, arguments);
        let names = &sessions.names;
        Ok(plan(queue, &seen, wish, names, intake))
    }

    /// Carries a plan out, as soon as the queue is quiet.
    ///
    /// # Errors
    /// Why it did not come to that. The queue is as it was, if nothing else is said.
    pub async fn alter(
        &self,
        vhost: &Vhost,
        plan: Plan,
        wait: Duration,
    ) -> Result<Altered, NotAltered> {
        let Plan {
            order,
            others,
            backlog,
            intake,
            ..
        } = plan;
        if let Some(intake) = intake
            && !self.adoption.hub.ensure(vhost, intake.clone()).await
        {
            return Err(NotAltered::NoIntake(intake));
        }
        let (queue, catalogue) = (order.name(), &self.adoption.catalogue);
        let task = Task::Alter {
            wait,
            others,
            backlog,
        };
        let settings = self.settings(vhost, order, task);
        let mut altered = Err(Failure::Claimed);
        for _ in 0..CLAIMS {
            altered = self.walks.alter(settings.clone(), catalogue).await;
            match &altered {
                Err(Failure::Claimed | Failure::Walked) => tokio::time::sleep(CLAIM_PAUSE).await,
                _ => break,
            }
        }
        self.relearn(vhost, &queue).await;
        let altered = altered?;
        info!(%vhost, %queue, pause = ?altered.pause, attempts = altered.attempts, lost = altered.lost, moved = altered.moved, "a queue is made anew with other arguments");
        Ok(altered)
    }

    /// Another proxy makes a queue anew, or has left that behind: takes part in it, or finishes it.
    pub(super) async fn attend(&self, vhost: &Vhost, order: Order) {
        let _one = self.attending.lock().await;
        let queue = order.name();
        let settings = self.settings(vhost, order, Task::Follow);
        if self.walks.attend(settings, &self.adoption.catalogue).await {
            self.relearn(vhost, &queue).await;
        }
    }

    /// What the broker has says it for certain.
    async fn relearn(&self, vhost: &Vhost, queue: &ShortStr) {
        if let Err(error) = self.adoption.learn(vhost, queue).await {
            debug!(%vhost, %queue, %error, "the queue cannot be listed now");
        }
    }

    fn settings(&self, vhost: &Vhost, order: Order, task: Task) -> Settings {
        Settings {
            login: Login {
                vhost: vhost.clone(),
                ..self.login.clone()
            },
            names: self.sessions.names.clone(),
            order,
            task,
            rules: self.sessions.rules,
        }
    }
}

/// As a session would rewrite a declare with these arguments.
pub fn intake_of(
    sessions: &session::Settings,
    vhost: &Vhost,
    queue: &str,
    arguments: &DeclareArguments<'_>,
) -> Option<ShortStr> {
    let ours = sessions.policies.ours();
    let policy = ours.matching(Queue {
        vhost,
        name: queue.as_bytes(),
        queue_type: match arguments.queue_type() {
            QueueType::Quorum => QueueType::Quorum,
            _ => QueueType::Classic,
        },
    });
    match arguments.wanted(policy, sessions.mode, &sessions.names) {
        Wanted::Probe(Aim::Full, _, intake) => Some(intake),
        _ => None,
    }
}

async fn global_prefetches(api: &mut Connection, of: &str) -> Result<usize, NoAnswer> {
    let path = format!("vhosts/{of}/channels?columns=global_prefetch_count");
    let listed: Vec<Value> = api.get(path).await?;
    let count = |channel: &Value| channel["global_prefetch_count"].as_u64();
    let has_one = |channel: &&Value| count(channel).is_some_and(|count| count > 0);
    Ok(listed.iter().filter(has_one).count())
}

/// One without both is listed as `[]`.
async fn connections(api: &mut Connection, of: &str) -> Result<Vec<ListedConnection>, NoAnswer> {
    let path = format!("vhosts/{of}/connections?columns=protocol,user_provided_name");
    let listed: Vec<Value> = api.get(path).await?;
    let listed = listed.into_iter();
    Ok(listed
        .filter_map(|one| serde_json::from_value(one).ok())
        .collect())
}
