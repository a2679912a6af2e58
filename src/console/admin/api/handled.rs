//! How the queues of a vhost are handled: `GET /api/v1/vhosts/{vhost}/queues`. A user sees those that the user may read; the proxy's own user, who
//! works for all clients, sees all.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::parameters::bad;
use super::super::problem::Problem;
use super::super::wanted::Which;
use super::rights::not_asked;
use super::{Answered, Api, Asked, json};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::{Known, Standing, Target};
use crate::machine::DeadLettersTo;
use crate::registry::catalogue::fact::Source;
use crate::registry::handling::{Handling, State as Handled, Why};
use crate::registry::lenient::Kept;
use crate::registry::redeclared::Existing;

/// Rows of an answer: the default and the maximum.
const ROWS: usize = 300;
const MOST_ROWS: usize = 1_000;

/// The answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct HandledQueues {
    /// Those first that need attention: whose target leads nowhere, then by state.
    pub queues: Vec<HandledQueue>,
    /// The causes that they have.
    pub causes: BTreeMap<&'static str, Cause>,
    /// Queues that are not shown.
    pub left_out: usize,
    pub notes: Vec<String>,
}

/// A queue with a dead-letter target or retries, or of which that is not known.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct HandledQueue {
    /// Its name.
    #[schema(value_type = String)]
    pub queue: ShortStr,
    /// `full`: the proxy handles all its dead letters; `rejects-only`: expiry and overflow are the broker's; `off`: all are; `unknown`.
    pub state: &'static str,
    /// Why: see `causes`.
    pub cause: &'static str,
    /// Where its dead letters go; none: that is not known.
    pub target: Option<Target>,
    /// Whether the target leads to a queue.
    leads_to: Option<Standing>,
    /// The proxy delays or counts what clients return.
    pub retries: bool,
    /// After this time an unsettled delivery counts as returned; none: it may stay unsettled.
    pub ack_timeout_seconds: Option<u64>,
    /// Who reported the queue: `declare`, `refusal` or `management-api`; none: nobody.
    reported_by: Option<&'static str>,
    /// How long ago that was, or the queue was asked for in vain.
    reported_seconds: Option<u64>,
    /// Where its own arguments send dead letters, if its last declare said something else (the setting `lenient`).
    own_arguments: Option<String>,
    /// What else its last declare said otherwise, and the queue keeps.
    pub differs: Vec<Differs>,
    #[serde(skip)]
    why: Why,
}

/// An argument of a declare that differs from its queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct Differs {
    /// Its name, or `durable` or `auto-delete`.
    #[schema(value_type = String)]
    pub argument: ShortStr,
    /// What the declare said; none: nothing.
    pub wanted: Option<String>,
    /// What the queue has; none: nothing.
    pub has: Option<String>,
}

/// Why a queue is handled so.
#[derive(Serialize, ToSchema)]
pub(in crate::console::admin) struct Cause {
    pub says: &'static str,
    /// What to do about it; empty: nothing.
    pub advice: &'static str,
}

/// Lists the queues with a dead-letter target or retries, and how the proxy handles them.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues", tag = "queues", params(("vhost" = String, Path, description = "The vhost"), Which), responses((status = OK, body = HandledQueues)))]
pub(super) async fn list_handled(State(api): State<Api>, asked: Asked) -> Answered {
    json(&handled(&api, asked).await?)
}

pub(in crate::console::admin) async fn handled(
    api: &Api,
    mut asked: Asked,
) -> Result<HandledQueues, Problem> {
    let parameters = &mut asked.parameters;
    let limit = parameters.number("limit", 1..=MOST_ROWS)?.unwrap_or(ROWS);
    let is_meant = parameters.pattern("name")?;
    let states = parameters.all("state");
    let states = states.iter().map(|state| state_of(state));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    asked.end()?;
    let (looks, vhost) = (&api.looks, &asked.place.vhost);
    looks.enter(&asked).await?;
    let handlings = &api.known.handlings;
    let mut listed = handlings.of(vhost);
    let mut redeclared = handlings.redeclared(vhost);
    listed.retain(|(queue, handling)| {
        is_meant(queue) && (states.is_empty() || states.contains(&handling.state))
    });
    let mut unasked = 0;
    if *asked.who.user() != handlings.user {
        let names = listed.iter().map(|(queue, _)| queue);
        let readable = looks.readable(&asked, names);
        let (readable, more) = readable.await?;
        listed.retain(|(queue, _)| readable.contains(queue));
        unasked = more;
    }
    let listed = listed.into_iter().map(|(queue, handling)| {
        let existing = redeclared.remove(&queue);
        HandledQueue::of(&api.known, vhost, (queue, handling), existing)
    });
    let mut rows: Vec<_> = listed.collect();
    rows.sort_by_key(|row| !row.leads_nowhere());
    let left_out = unasked + rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let targets = rows.iter().filter_map(HandledQueue::asks_for).cloned();
    let there = looks.are_there(&asked, targets.collect()).await?;
    for row in &mut rows {
        let is_there = row.asks_for().and_then(|queue| there.get(queue));
        row.leads_to = is_there.map_or(row.leads_to, |is_there| match is_there {
            true => Some(Standing::Queue),
            false => Some(Standing::NoQueue),
        });
    }
    rows.sort_by_key(|row| !row.leads_nowhere());
    let causes = rows.iter().map(|row| row.why);
    Ok(HandledQueues {
        causes: causes
            .map(|Why { name, says, advice }| (name, Cause { says, advice }))
            .collect(),
        queues: rows,
        left_out,
        notes: not_asked(unasked),
    })
}

fn state_of(state: &[u8]) -> Result<Handled, Problem> {
    let state = String::from_utf8_lossy(state);
    Handled::parse(&state).map_err(|problem| bad(format_args!("state={state}: {problem}")))
}

impl From<Kept> for Differs {
    fn from(kept: Kept) -> Differs {
        let Kept {
            argument,
            wanted,
            has,
        } = kept;
        Differs {
            argument,
            wanted,
            has,
        }
    }
}

// === impl HandledQueue ===

impl HandledQueue {
    /// `existing`: what it was made with, if its last declare said something else.
    fn of(
        known: &Known,
        vhost: &Vhost,
        (queue, handling): (ShortStr, Handling),
        existing: Option<Existing>,
    ) -> HandledQueue {
        let (source, at) = handling.told.unzip();
        let said = existing.map(|existing| existing.said(&known.handlings.names));
        let target = handling.target.map(Target::from);
        let now = known.handlings.now();
        HandledQueue {
            queue,
            state: handling.state.as_str(),
            cause: handling.why.name,
            leads_to: target.as_ref().map(|target| known.standing(vhost, target)),
            target,
            retries: handling.retries,
            ack_timeout_seconds: handling.ack_timeout.map(|of| of.as_secs()),
            reported_by: source.map(|source| match source {
                Source::Refusal => "refusal",
                Source::Management => "management-api",
                Source::Declare => "declare",
            }),
            reported_seconds: at.or(handling.asked).map(|at| at.until(now).as_secs()),
            own_arguments: said.map(|said| DeadLettersTo::from(&said).to_string()),
            differs: handling.kept.into_iter().map(Differs::from).collect(),
            why: handling.why,
        }
    }

    pub(in crate::console::admin) fn leads_nowhere(&self) -> bool {
        matches!(
            self.leads_to,
            Some(Standing::NoQueue | Standing::NoExchange)
        )
    }

    /// The target queue that the broker is asked for: unknown, behind the default exchange.
    fn asks_for(&self) -> Option<&ShortStr> {
        let target = self.target.as_ref()?;
        let asks = target.exchange.is_empty() && self.leads_to == Some(Standing::Unknown);
        target.routing_key.as_ref().filter(|_| asks)
    }
}
