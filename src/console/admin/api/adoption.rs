//! Queues whose dead-letter exchange comes from a policy of the broker, handed to the proxy and back:
//!
//! - `POST /api/v1/vhosts/{vhost}/queues/adopt` puts policies of the proxy's at the broker
//! - `POST …/queues/release` deletes them
//!
//! `dry-run=true` answers with the plan alone. Both need the right to set policies, of the user and of the proxy.

use std::fmt::{self, Display};

use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use regex::bytes::Regex;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::parameters::bad;
use super::super::problem::Problem;
use super::super::wanted::Adopting;
use super::{Answered, Api, Asked, json};
use crate::console::count::count;
use crate::management::{Adoption, NotAdopted};
use crate::plain;
use crate::registry::adoption::{self, Change, Here, Meant, Plan};

pub(super) const NO_API: &str = "this takes a `management-url` in the settings of the proxy";
const NAMED: usize = 10;
const TAG: &str =
    "needs the tag `policymaker` at the broker: `rabbitmqctl set_user_tags USER policymaker`";
const AFTER_ADOPTING: [&str; 3] = [
    "What expires, overflows or reaches a limit from now on goes through the proxy. Messages that are in the queues stay there, and no client notices.",
    "A change of your policy is followed within seconds, while a proxy runs. Until then dead letters go by the policy as it was.",
    "`dlx-proxy queues release` goes back. Do that before you remove the proxies: without one, dead letters wait in its intake queue, and without its exchanges the broker discards them.",
];
const AFTER_RELEASING: [&str; 2] = [
    "What expires, overflows or reaches a limit from now on is the broker's, by your policy. What is in the intake queue is still delivered.",
    "The intake exchange stays. `dlx-proxy doctor` names those that nothing uses.",
];

/// What is changed, or will be.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Adopted {
    /// False: this is the plan.
    done: bool,
    /// What has to be so before, and is not.
    missing: Vec<String>,
    /// Policies at the broker.
    policies: Vec<OurPolicy>,
    /// Queues that stay as they are.
    left: Vec<LeftQueues>,
    notes: Vec<&'static str>,
    /// All of it in sentences.
    says: Vec<String>,
}

/// A policy of the proxy's at the broker.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct OurPolicy {
    /// Its name.
    policy: String,
    /// The name of the policy that it was made from.
    made_from: String,
    pattern: String,
    apply_to: String,
    priority: i64,
    /// The intake exchange that it names.
    exchange: Option<String>,
    #[serde(flatten)]
    queues: SomeQueues,
}

/// Queues with the same reason.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct LeftQueues {
    why: String,
    #[serde(flatten)]
    queues: SomeQueues,
}

/// How many, and the first ten of them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct SomeQueues {
    queues: usize,
    first: Vec<String>,
}

/// Hands over queues whose dead-letter exchange comes from a policy: the proxy then handles all of their dead letters.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/adopt", tag = "queues", params(("vhost" = String, Path, description = "The vhost"), Adopting), responses((status = OK, body = Adopted)))]
pub(super) async fn adopt(State(api): State<Api>, asked: Asked) -> Answered {
    json(&api.adopted(asked, true).await?)
}

/// Gives adopted queues back to the broker.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/release", tag = "queues", params(("vhost" = String, Path, description = "The vhost"), Adopting), responses((status = OK, body = Adopted)))]
pub(super) async fn release(State(api): State<Api>, asked: Asked) -> Answered {
    json(&api.adopted(asked, false).await?)
}

fn meant(asked: &mut Asked) -> Result<Meant, Problem> {
    let parameters = &mut asked.parameters;
    let queue = parameters.read("queue", |text| Ok::<_, &str>(text.to_owned()))?;
    let all = parameters.read("all", Regex::new)?;
    let is_empty = |text: &str| text.is_empty();
    match (queue, all) {
        (Some(queue), None) if !is_empty(&queue) => Ok(Meant::Queue(queue)),
        (None, Some(all)) if !is_empty(all.as_str()) => Ok(Meant::All(all)),
        _ => Err(bad(
            "write queue, the name of one; or all, a regular expression",
        )),
    }
}

// === impl Api ===

impl Api {
    async fn adopted(&self, mut asked: Asked, adopts: bool) -> Result<Adopted, Problem> {
        let dry_run = asked.parameters.is_true("dry-run")?;
        let meant = meant(&mut asked);
        asked.end()?;
        let meant = meant?;
        self.looks.enter(&asked).await?;
        let adoption = self.adoption.as_ref();
        let adoption = adoption.ok_or_else(|| Problem::new(StatusCode::CONFLICT, NO_API))?;
        let missing = missing(adoption, &asked, true).await?;
        let vhost = &asked.place.vhost;
        let (policies, queues) = adoption.listed(vhost).await.map_err(NotAdopted::from)?;
        if let Meant::Queue(name) = &meant
            && queues.iter().all(|queue| queue.name != *name)
        {
            let detail = format!("there is no queue {name} in vhost {vhost}");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
        let names = &adoption.names;
        let plan = match adopts {
            true => {
                let policies_of_file = adoption.policies.ours();
                let here = Here {
                    vhost,
                    policies: &policies_of_file,
                };
                adoption::adopt(&policies, &queues, &meant, names, here)
            }
            false => adoption::release(&policies, &queues, &meant, names),
        };
        if !dry_run {
            if !missing.is_empty() {
                return Err(Problem::new(StatusCode::FORBIDDEN, missing.join("; ")));
            }
            match adopts {
                true => adoption.adopt(vhost, &plan).await?,
                false => adoption.release(&plan).await.map_err(NotAdopted::from)?,
            }
        }
        Ok(Adopted::of(plan, !dry_run, missing, adopts))
    }
}

/// Rights that are missing. `of_proxy`: the proxy needs them, too.
pub(super) async fn missing(
    adoption: &Adoption,
    asked: &Asked,
    of_proxy: bool,
) -> Result<Vec<String>, Problem> {
    let login = asked.who.clone().login(asked.place.vhost.clone());
    let user = Bytes::copy_from_slice(&login.user);
    let own = String::from_utf8_lossy(&adoption.api.login.0).into_owned();
    let users = [
        (format!("the user {own} of `management-url`"), None),
        (
            format!("your user {}", login.user),
            Some((user, login.password)),
        ),
    ];
    let mut missing = Vec::new();
    for (who, login) in users.into_iter().skip(usize::from(!of_proxy)) {
        if !adoption.may_set(login).await.map_err(NotAdopted::from)? {
            missing.push(format!("{who} {TAG}"));
        }
    }
    Ok(missing)
}

impl From<NotAdopted> for Problem {
    fn from(why: NotAdopted) -> Problem {
        let status = match &why {
            NotAdopted::NoIntake(_) => StatusCode::SERVICE_UNAVAILABLE,
            NotAdopted::NoAnswer(_) | NotAdopted::Left { .. } => StatusCode::BAD_GATEWAY,
        };
        Problem::new(status, why.to_string())
    }
}

// === impl Adopted ===

impl Adopted {
    fn of(plan: Plan, done: bool, missing: Vec<String>, adopts: bool) -> Adopted {
        let notes = match adopts {
            _ if plan.changes.is_empty() => Vec::new(),
            true => AFTER_ADOPTING.to_vec(),
            false => AFTER_RELEASING.to_vec(),
        };
        let left = plan.left.into_iter();
        let mut adopted = Adopted {
            done: done && !plan.changes.is_empty(),
            missing,
            policies: plan.changes.into_iter().map(OurPolicy::from).collect(),
            left: left
                .map(|(why, queues)| LeftQueues {
                    why: why.to_string(),
                    queues: SomeQueues::of(queues),
                })
                .collect(),
            notes,
            says: Vec::new(),
        };
        adopted.says = adopted.sentences();
        adopted
    }

    fn sentences(&self) -> Vec<String> {
        let verb = if self.done { "Done" } else { "Plan" };
        let missing = self.missing.iter().map(|what| format!("Missing: {what}."));
        let nothing = self
            .policies
            .is_empty()
            .then(|| "Nothing to change.".to_owned());
        let policies = self.policies.iter().map(|of| format!("{verb}: {of}"));
        let left = self.left.iter();
        let left = left.map(|of| format!("Unchanged: {}: {}.", of.queues, of.why));
        let notes = self.notes.iter().map(|&note| note.to_owned());
        let says = missing.chain(nothing).chain(policies);
        let says = says.chain(left).chain(notes);
        says.map(|sentence| plain::line(&sentence)).collect()
    }
}

// === impl OurPolicy ===

impl Display for OurPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OurPolicy {
            policy,
            made_from,
            pattern,
            apply_to,
            priority,
            exchange,
            queues,
        } = self;
        let exchange = exchange.as_deref().unwrap_or_default();
        write!(
            f,
            "policy {policy} for {queues} (from {made_from}: pattern {pattern}, {apply_to}, priority {priority}), exchange {exchange}"
        )
    }
}

impl From<Change> for OurPolicy {
    fn from(change: Change) -> OurPolicy {
        let ours = change.ours;
        let exchange = ours.definition.get("dead-letter-exchange");
        OurPolicy {
            exchange: exchange.and_then(|name| Some(name.as_str()?.to_owned())),
            policy: ours.name,
            made_from: change.source,
            pattern: ours.pattern,
            apply_to: ours.apply_to,
            priority: ours.priority as i64,
            queues: SomeQueues::of(change.queues),
        }
    }
}

// === impl SomeQueues ===

impl SomeQueues {
    fn of(mut names: Vec<String>) -> SomeQueues {
        let queues = names.len();
        names.truncate(NAMED);
        SomeQueues {
            queues,
            first: names,
        }
    }
}

impl Display for SomeQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SomeQueues { queues, first } = self;
        let more = if *queues > first.len() { ", …" } else { "" };
        match queues {
            0 => f.write_str("no queue yet"),
            _ => write!(
                f,
                "{} ({}{more})",
                count(*queues as u64, "queue"),
                first.join(", ")
            ),
        }
    }
}
