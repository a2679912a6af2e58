//! A queue that is made anew with other arguments: `POST /api/v1/vhosts/{vhost}/queues/alter`. `dry-run=true` answers with the plan alone.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use humantime_serde::re::humantime::parse_duration;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::super::parameters::bad;
use super::super::problem::Problem;
use super::super::wanted::Altering;
use super::{Answered, Api, Asked, adoption, json};
use crate::alteration::plan::{self, Change, Plan, Refusal, Wish};
use crate::alteration::{Altered as Done, Failure};
use crate::amqp::ids::Vhost;
use crate::console::count::count;
use crate::management::{Alterations, NotAltered};

const WAIT: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// What is changed, or will be.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Altered {
    /// False: this is the plan.
    done: bool,
    queue: String,
    /// What has to be so before, and is not.
    missing: Vec<String>,
    changes: Vec<ChangedArgument>,
    /// Bindings that are made anew, too.
    bindings: usize,
    notes: Vec<String>,
    /// How long clients waited at most, in milliseconds; once it is done.
    pause: Option<u64>,
    /// Messages that waited aside meanwhile.
    moved: u64,
    /// Messages that were lost: they came past the proxy in the last moment.
    lost: u32,
    /// All of it in sentences.
    says: Vec<String>,
}

/// An argument of the queue, as clients see it.
#[derive(Serialize, ToSchema)]
struct ChangedArgument {
    argument: String,
    /// None: it is not set.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
}

/// Makes a queue anew with other arguments, when it is empty and quiet. All its clients have to use this proxy.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/alter", tag = "queues", params(("vhost" = String, Path, description = "The vhost"), Altering), responses((status = OK, body = Altered)))]
pub(super) async fn alter(State(api): State<Api>, asked: Asked) -> Answered {
    json(&api.altered(asked).await?)
}

fn wish(asked: &mut Asked) -> Result<Wish, Problem> {
    let parameters = &mut asked.parameters;
    let set = parameters.read_all("set", plan::setting)?;
    let unset = parameters.read_all("unset", |name| Ok::<_, &str>(name.to_owned()))?;
    let queue_type = parameters.read("type", |text| Ok::<_, &str>(Value::from(text)))?;
    let queue_type = queue_type.map(|value| ("x-queue-type".to_owned(), value));
    let max_pause = parameters.read("max-pause", parse_duration)?;
    Ok(Wish {
        set: set.into_iter().chain(queue_type).collect(),
        unset: unset.into_iter().collect(),
        allow_direct: parameters.is_true("allow-direct")?,
        max_pause: max_pause.unwrap_or(MAX_PAUSE),
    })
}

impl Api {
    async fn altered(&self, mut asked: Asked) -> Result<Altered, Problem> {
        let dry_run = asked.parameters.is_true("dry-run")?;
        let wish = wish(&mut asked)?;
        let parameters = &mut asked.parameters;
        let wait = parameters.read("wait", parse_duration)?;
        let queue = parameters.read("queue", |text| Ok::<_, &str>(text.to_owned()))?;
        asked.end()?;
        let queue = queue.filter(|queue| !queue.is_empty());
        let queue = queue.ok_or_else(|| bad("write queue, its name"))?;
        self.looks.enter(&asked).await?;
        let alterations = self.alterations.as_ref();
        let alterations =
            alterations.ok_or_else(|| Problem::new(StatusCode::CONFLICT, adoption::NO_API))?;
        let mut missing = adoption::missing(&alterations.adoption, &asked, false).await?;
        let vhost = &asked.place.vhost;
        let planned = alterations.plan(vhost, &queue, &wish).await;
        match planned.map_err(NotAltered::from)? {
            Err(refusals) if refusals.contains(&Refusal::Missing) => {
                let detail = format!("there is no queue {queue} in vhost {vhost}");
                Err(Problem::new(StatusCode::NOT_FOUND, detail))
            }
            Err(refusals) => {
                missing.extend(refusals.iter().map(ToString::to_string));
                match dry_run {
                    true => Ok(Altered::nothing(queue, missing).said()),
                    false => Err(Problem::new(StatusCode::CONFLICT, missing.join("; "))),
                }
            }
            Ok(plan) if dry_run => Ok(Altered::planned(&plan, missing).said()),
            Ok(_) if !missing.is_empty() => {
                Err(Problem::new(StatusCode::FORBIDDEN, missing.join("; ")))
            }
            Ok(plan) => Altered::carry_out(alterations, vhost, plan, wait.unwrap_or(WAIT)).await,
        }
    }
}

impl From<NotAltered> for Problem {
    fn from(why: NotAltered) -> Problem {
        let status = match &why {
            NotAltered::NoIntake(_) => StatusCode::SERVICE_UNAVAILABLE,
            NotAltered::NoAnswer(_) | NotAltered::Failed(Failure::Link(_)) => {
                StatusCode::BAD_GATEWAY
            }
            NotAltered::Failed(_) => StatusCode::CONFLICT,
        };
        Problem::new(status, why.to_string())
    }
}

// === impl Altered ===

impl Altered {
    async fn carry_out(
        alterations: &Alterations,
        vhost: &Vhost,
        plan: Plan,
        wait: Duration,
    ) -> Result<Altered, Problem> {
        let mut altered = Altered::planned(&plan, Vec::new());
        let Done {
            pause,
            lost,
            moved,
            unbound,
            ..
        } = alterations.alter(vhost, plan, wait).await?;
        altered.done = true;
        altered.pause = Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        altered.lost = lost;
        altered.moved = moved;
        let unbound = unbound.iter();
        let words = |text| format!("A binding could not be made again: {text}");
        altered.notes = unbound.map(words).collect();
        Ok(altered.said())
    }

    fn planned(plan: &Plan, missing: Vec<String>) -> Altered {
        Altered {
            changes: plan.changes.iter().map(ChangedArgument::from).collect(),
            bindings: plan.order.bindings.len(),
            notes: plan.notes.clone(),
            ..Altered::nothing(plan.order.queue.clone(), missing)
        }
    }

    fn said(mut self) -> Altered {
        let missing = self.missing.iter();
        let mut says: Vec<_> = missing.map(|it| format!("Missing: {it}.")).collect();
        if !self.changes.is_empty() || self.bindings > 0 || self.missing.is_empty() {
            let verb = if self.done { "Done" } else { "Plan" };
            let bindings = count(self.bindings as u64, "binding");
            says.push(format!(
                "{verb}: make queue {} anew, with {bindings}",
                self.queue
            ));
        }
        let shown = |value: &Option<Value>| match value {
            Some(value) => value.to_string(),
            None => "not set".to_owned(),
        };
        says.extend(self.changes.iter().map(|change| {
            let (before, after) = (shown(&change.before), shown(&change.after));
            format!("  {}: {before} -> {after}", change.argument)
        }));
        let pause = self.pause.iter();
        says.extend(pause.map(|pause| format!("Clients waited for {pause} ms at most.")));
        if self.moved > 0 {
            let moved = count(self.moved, "message");
            says.push(format!("Moved aside and back: {moved}."));
        }
        if self.lost > 0 {
            let lost = count(self.lost.into(), "message");
            says.push(format!("Lost: {lost}, which came past the proxy."));
        }
        says.extend(self.notes.iter().cloned());
        self.says = says;
        self
    }

    fn nothing(queue: String, missing: Vec<String>) -> Altered {
        Altered {
            done: false,
            queue,
            missing,
            changes: Vec::new(),
            bindings: 0,
            notes: Vec::new(),
            pause: None,
            moved: 0,
            lost: 0,
            says: Vec::new(),
        }
    }
}

impl From<&Change> for ChangedArgument {
    fn from(change: &Change) -> ChangedArgument {
        ChangedArgument {
            argument: change.argument.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
        }
    }
}
