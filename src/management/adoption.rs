//! Policies of ours at the broker ([`crate::registry::adoption`]): put and deleted with the management API. Each intake exchange is there
//! before a policy names it, as the broker discards what dies into an exchange that is missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::{info, warn};

use crate::amqp::ids::{ShortStr, Vhost};
use crate::http::Login;
use crate::net::clock::{Clock, SystemClock};
use crate::net::vhosts::Hub;
use crate::objects::Names;
use crate::registry::adoption::{self, Change, ListedPolicy, ListedQueue, OfFile, Plan, Wanted};
use crate::registry::broker_policy::BrokerPolicies;
use crate::registry::catalogue::Catalogue;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Policies, Queue};

use super::http::{Api, Connection, NoAnswer};
use super::listing::{self, Learner};
use super::policies::Listed;

/// A changed policy is matched with every queue of its vhost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who may set policies.
const TAGS: [&str; 2] = ["policymaker", "administrator"];

/// Changes policies of the broker.
#[derive(Clone)]
pub struct Adoption {
    pub api: Api,
    pub hub: Hub,
    pub names: Names,
    pub policies: LivePolicies,
    pub catalogue: Catalogue,
    pub clock: SystemClock,
}

#[derive(Debug, Error)]
pub enum NotAdopted {
    #[error("the management API: {0}")]
    NoAnswer(#[from] NoAnswer),
    #[error(
        "the intake exchange {0} cannot be declared or bound: see the log of the proxy, and `max-intake-exchanges`"
    )]
    NoIntake(ShortStr),
    #[error("the management API: {cause}; these policies could not be taken back: {left}")]
    Left { cause: NoAnswer, left: String },
}

/// Makes ours follow the user's policies.
pub(super) struct Follower {
    pub(super) adoption: Adoption,
    /// Those of the file that ours were last made to follow.
    file: Arc<Policies>,
    /// What was carried out last. A broker that lists something else then gets it no second time.
    done: Vec<Wanted>,
    /// Failures of the last reading, and how often in a row. The second one is reported: a link may
    /// be down for a moment.
    failed: BTreeMap<String, u32>,
}

// === impl Adoption ===

impl Adoption {
    /// Whether the broker lets this user set policies. `None`: the proxy's own.
    ///
    /// # Errors
    /// No such answer.
    pub async fn may_set(&self, login: Option<Login>) -> Result<bool, NoAnswer> {
        let api = Api {
            login: login.unwrap_or(self.api.login.clone()),
            ..self.api.clone()
        };
        let who = api.ask(async |mut api| api.get::<Value>("whoami".to_owned()).await);
        match who.await {
            Ok(who) => Ok(has_tag(&who["tags"])),
            Err(error) if error.is_refusal() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The policies and the queues of a vhost. The catalogue learns these queues, too.
    ///
    /// # Errors
    /// No such answer.
    pub async fn listed(
        &self,
        vhost: &Vhost,
    ) -> Result<(Vec<ListedPolicy>, Vec<ListedQueue>), NoAnswer> {
        let at = self.clock.now().mono;
        let of = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
        let asking = self.api.ask_within(PATIENCE, async |mut api| {
            let policies = api.get(format!("policies/{of}")).await?;
            let path = format!("queues/{of}?{},policy", listing::COLUMNS);
            let queues: Vec<Value> = api.get(path).await?;
            Ok((policies, queues))
        });
        let (policies, queues) = asking.await?;
        let learner = self.learner(vhost);
        let read = queues.iter().filter_map(|queue| {
            learner.learn(&Deserialize::deserialize(queue).ok()?, at);
            ListedQueue::deserialize(queue).ok()
        });
        Ok((policies, read.collect()))
    }

    /// The catalogue learns this queue.
    ///
    /// # Errors
    /// No such answer.
    pub(super) async fn learn(&self, vhost: &Vhost, queue: &ShortStr) -> Result<(), NoAnswer> {
        let at = self.clock.now().mono;
        let [of, name] = [vhost, queue].map(|it| percent_encode(it, NON_ALPHANUMERIC));
        let path = format!("queues/{of}/{name}?{}", listing::COLUMNS);
        let listed = self.api.ask(async |mut api| api.find(path).await).await?;
        if let Some(listed) = listed {
            self.learner(vhost).learn(&listed, at);
        }
        Ok(())
    }

    fn learner(&self, vhost: &Vhost) -> Learner {
        Learner {
            vhost: vhost.clone(),
            names: self.names.clone(),
            catalogue: self.catalogue.clone(),
        }
    }

    /// Puts the policies of a plan, or none of them.
    ///
    /// # Errors
    /// Why not; and which of them stay, if that cannot be undone.
    pub async fn adopt(&self, vhost: &Vhost, plan: &Plan) -> Result<(), NotAdopted> {
        let ours = || plan.changes.iter().map(|change| &change.ours);
        if let Some(missing) = self.ensure(vhost, ours()).await {
            return Err(NotAdopted::NoIntake(missing));
        }
        let putting = self.api.ask_within(PATIENCE, async |mut api| {
            for ours in ours() {
                put(&mut api, ours).await?;
            }
            Ok(())
        });
        let Err(cause) = putting.await else {
            return Ok(());
        };
        match self.release(plan).await {
            Ok(()) => Err(cause.into()),
            Err(_) => {
                let names = ours().map(|ours| ours.name.as_str());
                let left = names.collect::<Vec<_>>().join(", ");
                Err(NotAdopted::Left { cause, left })
            }
        }
    }

    /// Deletes the policies of a plan.
    ///
    /// # Errors
    /// No such answer. The others are deleted.
    pub async fn release(&self, plan: &Plan) -> Result<(), NoAnswer> {
        let deleting = self.api.ask_within(PATIENCE, async |mut api| {
            let mut deleted = Ok(());
            for Change { ours, .. } in &plan.changes {
                deleted = deleted.and(api.delete(&path(ours)).await);
            }
            deleted
        });
        deleting.await
    }

    /// Makes sure of the intake exchanges that these name. Returns one that cannot be had.
    async fn ensure<'a>(
        &self,
        vhost: &Vhost,
        ours: impl Iterator<Item = &'a ListedPolicy>,
    ) -> Option<ShortStr> {
        let intakes = ours.filter_map(|ours| ours.intake(&self.names));
        let asked = intakes.map(async |intake| {
            let ready = self.hub.ensure(vhost, intake.clone()).await;
            (!ready).then_some(intake)
        });
        join_all(asked).await.into_iter().flatten().next()
    }
}

fn has_tag(tags: &Value) -> bool {
    let one = |tag: &str| TAGS.contains(&tag.trim());
    match tags {
        // Until 3.8.
        Value::String(tags) => tags.split(',').any(one),
        tags => tags
            .as_array()
            .into_iter()
            .flatten()
            .any(|tag| tag.as_str().is_some_and(one)),
    }
}

fn path(ours: &ListedPolicy) -> String {
    let [vhost, name] = [&ours.vhost, &ours.name];
    let [vhost, name] = [vhost, name].map(|it| percent_encode(it.as_bytes(), NON_ALPHANUMERIC));
    format!("policies/{vhost}/{name}")
}

async fn put(api: &mut Connection, ours: &ListedPolicy) -> Result<(), NoAnswer> {
    let body = json!({
        "pattern": ours.pattern,
        "apply-to": ours.apply_to,
        "priority": ours.priority as i64,
        "definition": ours.definition,
    });
    api.put(&path(ours), &body).await
}

// === impl Follower ===

impl Follower {
    pub(super) fn new(adoption: Adoption) -> Follower {
        Follower {
            file: Arc::clone(&adoption.policies.ours()),
            adoption,
            done: Vec::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Makes ours what they have to be, in vhosts that this proxy works in.
    pub(super) async fn follow(&mut self, listed: &Listed) {
        let now = Arc::clone(&self.adoption.policies.ours());
        let file = OfFile {
            now: &now,
            before: &self.file,
        };
        let wanted = adoption::wanted(&listed.policies, &self.adoption.names, file);
        let (mut done, mut failed) = (Vec::new(), BTreeMap::new());
        let mut is_behind = false;
        for wanted in wanted {
            let (Wanted::Keep { ours, .. } | Wanted::Delete(ours) | Wanted::Stuck(ours, _)) =
                &wanted;
            let Some(vhost) = ShortStr::copy(ours.vhost.as_bytes()) else {
                continue;
            };
            if !self.adoption.hub.is_open(&vhost) {
                continue;
            }
            let carried_out = self.carry_out(&vhost, &wanted, file).await;
            if let Err(why) = carried_out {
                let times = self
                    .failed
                    .get(&why)
                    .map_or(1, |times| times.saturating_add(1));
                // What is stuck was not tried.
                let was_tried = !matches!(wanted, Wanted::Stuck(..));
                is_behind |= was_tried && ours.is_of_file(&self.adoption.names);
                if times == 2 {
                    warn!(%vhost, policy = %ours.name, %why, "this policy of the proxy cannot be kept up to date with the one that it was made from");
                }
                failed.insert(why, times);
            } else if carried_out == Ok(true) {
                done.push(wanted);
            }
        }
        if !is_behind {
            self.file = now;
        }
        (self.done, self.failed) = (done, failed);
    }

    /// Whether something was changed.
    async fn carry_out(
        &self,
        vhost: &Vhost,
        wanted: &Wanted,
        file: OfFile<'_>,
    ) -> Result<bool, String> {
        let text = |error: NoAnswer| error.to_string();
        if let Wanted::Keep { ours, .. } | Wanted::Stuck(ours, _) = wanted
            && let Some(missing) = self.adoption.ensure(vhost, [ours].into_iter()).await
        {
            return Err(NotAdopted::NoIntake(missing).to_string());
        }
        match wanted {
            Wanted::Keep { is_new: false, .. } => Ok(false),
            wanted if self.done.contains(wanted) => Ok(true),
            Wanted::Keep { ours, .. } => {
                let changed = self.change(vhost, wanted, file).await.map_err(text)?;
                if changed {
                    info!(%vhost, policy = %ours.name, "a policy of the proxy follows the one that it was made from");
                }
                Ok(changed)
            }
            Wanted::Delete(ours) => {
                let changed = self.change(vhost, wanted, file).await.map_err(text)?;
                if changed {
                    info!(%vhost, policy = %ours.name, "a policy of the proxy is deleted: the one that it was made from is gone, or names no dead-letter exchange");
                }
                Ok(changed)
            }
            Wanted::Stuck(_, refusal) => Err(refusal.to_string()),
        }
    }

    /// False: not wanted any more. What was read may be old by now, since others were carried out,
    /// or an intake exchange took its time: a policy that was released meanwhile would come back.
    async fn change(
        &self,
        vhost: &Vhost,
        wanted: &Wanted,
        file: OfFile<'_>,
    ) -> Result<bool, NoAnswer> {
        let Adoption { api, names, .. } = &self.adoption;
        let of = percent_encode(vhost, NON_ALPHANUMERIC).to_string();
        let changing = api.ask(async |mut api| {
            let newer: Vec<ListedPolicy> = api.get(format!("policies/{of}")).await?;
            let is_still = adoption::is_still(wanted, &newer, names, file);
            match wanted {
                Wanted::Keep { ours, .. } if is_still => put(&mut api, ours).await?,
                Wanted::Delete(ours) if is_still => api.delete(&path(ours)).await?,
                _ => {}
            }
            Ok(is_still)
        });
        changing.await
    }

    /// Says which adoptions a change of policies has ended.
    pub(super) fn ended(&self, before: &BrokerPolicies, now: &BrokerPolicies) {
        let mut ended = BTreeMap::<_, (ShortStr, usize)>::new();
        self.adoption.catalogue.each(|vhost, name, known| {
            let declared = known.declared().map(|declared| declared.value.queue_type);
            let Some(queue_type) = declared.or(known.queue_type()) else {
                return;
            };
            let queue = Queue {
                vhost,
                name,
                queue_type,
            };
            let names = &self.adoption.names;
            if let Some((ours, other)) = adoption::ended(before, now, queue, names) {
                let place = (vhost.clone(), ours, other);
                ended.entry(place).or_insert((name.clone(), 0)).1 += 1;
            }
        });
        for ((vhost, ours, other), (queue, queues)) in ended {
            warn!(%vhost, policy = %ours, by = %other, queues, %queue, "another policy applies instead of one of the proxy's, so that the proxy handles only rejects of these queues: give it a lower priority, or adopt it (`dlx-proxy queues adopt`)");
        }
    }
}
