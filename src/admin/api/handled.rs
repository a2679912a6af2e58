//! How the queues of a vhost are handled: `GET /api/v1/vhosts/{vhost}/queues`. A user sees those that the user may read; the proxy's own user, who
//! works for all clients, sees all.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::login::Credentials;
use super::super::parameters::{OfVhost, Parameters, bad};
use super::queues::ListedTarget;
use super::rights::not_asked;
use super::{Answered, Peer, Queues, json};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::{KnownQueues, Standing, Target};
use crate::machine::{DeadLettersTo, Mono};
use crate::registry::catalogue::fact::Source;
use crate::registry::handling::{Handling, State as Handled, Why};

/// Rows of an answer, if nobody asks for more or fewer; and the most that may be asked for.
const ROWS: usize = 300;
const MOST_ROWS: usize = 1_000;

/// Which queues.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is only described; `list_handled` reads it")]
struct Which {
    /// Only queues in this state: `unknown`, `rejects-only`, `off` or `full`; may be repeated.
    state: Option<Vec<String>>,
    /// How many queues at most; 300 if it is not given.
    limit: Option<usize>,
}

/// The answer.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct HandledQueues {
    /// Those first that need attention: whose target leads nowhere, then by state.
    queues: Vec<HandledQueue>,
    /// The causes that they have.
    causes: BTreeMap<&'static str, Cause>,
    /// Queues that are not shown.
    left_out: usize,
    notes: Vec<String>,
}

/// A queue with a dead-letter target or retries, or of which that is not known.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct HandledQueue {
    /// Its name.
    #[schema(value_type = String)]
    queue: ShortStr,
    /// `full`: the proxy handles all its dead letters; `rejects-only`: expiry and overflow are the broker's; `off`: all are; `unknown`.
    state: &'static str,
    /// Why: see `causes`.
    cause: &'static str,
    /// Where its dead letters go; none: that is not known.
    target: Option<ListedTarget>,
    /// Whether the target leads to a queue.
    leads_to: Option<Standing>,
    /// The proxy delays or counts what clients return.
    retries: bool,
    /// Who reported the queue: `declare`, `refusal` or `management-api`; none: nobody.
    told_by: Option<&'static str>,
    /// How long ago that was, or the queue was asked for in vain.
    told_seconds: Option<u64>,
    /// Where its own arguments send dead letters, if its last declare said something else (`declares = "lenient"`).
    own_arguments: Option<String>,
}

/// Why a queue is handled so.
#[derive(Serialize, ToSchema)]
struct Cause {
    says: &'static str,
    /// What to do about it; empty: nothing.
    advice: &'static str,
}

pub(super) fn router(queues: Queues) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list_handled))
        .with_state(queues)
}

/// Lists the queues with a dead-letter target or retries, and how the proxy handles them.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues", tag = "queues", params(("vhost" = String, Path, description = "The vhost"), Which), responses((status = OK, body = HandledQueues)))]
async fn list_handled(
    State(queues): State<Queues>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let mut parameters = Parameters::of(request.uri());
    let limit = parameters.number("limit", 1..=MOST_ROWS)?.unwrap_or(ROWS);
    let states = parameters.all("state").into_iter().map(|state| {
        let state = String::from_utf8_lossy(&state).into_owned();
        Handled::parse(&state).map_err(|problem| bad(format_args!("state={state}: {problem}")))
    });
    let states = states.collect::<Result<Vec<_>, _>>()?;
    parameters.end()?;
    let credentials = Credentials::of(request.headers(), peer.0)?;
    let OfVhost { vhost, .. } = OfVhost::of(request.uri())?;
    let rights = &queues.rights;
    rights.enter(credentials.clone(), peer, &vhost).await?;
    let handlings = &queues.known.handlings;
    let mut listed = handlings.of(&vhost);
    let mut redeclared = handlings.redeclared(&vhost);
    listed.retain(|(_, handling)| states.is_empty() || states.contains(&handling.state));
    let mut unasked = 0;
    if *credentials.user() != handlings.user {
        let names = listed.iter().map(|(queue, _)| queue);
        let readable = rights.readable(&credentials, peer, &vhost, names);
        let (readable, more) = readable.await?;
        listed.retain(|(queue, _)| readable.contains(queue));
        unasked = more;
    }
    let listed = listed.into_iter();
    let mut rows: Vec<_> = listed
        .map(|one| Row::new(one, &queues.known, &vhost))
        .collect();
    rows.sort_by_key(|row| !row.leads_nowhere());
    let left_out = unasked + rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let asked = rows.iter().filter_map(Row::asks_for).cloned().collect();
    let there = rights.are_there(credentials, peer, vhost, asked).await?;
    for row in &mut rows {
        let is_there = row.asks_for().and_then(|queue| there.get(queue));
        row.standing = is_there.map_or(row.standing, |is_there| match is_there {
            true => Standing::Queue,
            false => Standing::NoQueue,
        });
    }
    rows.sort_by_key(|row| !row.leads_nowhere());
    let causes = rows.iter().map(|row| row.handling.why);
    json(&HandledQueues {
        causes: causes
            .map(|Why { name, says, advice }| (name, Cause { says, advice }))
            .collect(),
        queues: rows
            .into_iter()
            .map(|row| {
                let existing = redeclared.remove(&row.queue);
                let said = existing.map(|existing| existing.said(&handlings.names));
                let own_arguments = said.map(|said| DeadLettersTo::from(&said).to_string());
                row.shown(handlings.now(), own_arguments)
            })
            .collect(),
        left_out,
        notes: not_asked(unasked),
    })
}

/// What is to be shown of a queue.
struct Row {
    queue: ShortStr,
    handling: Handling,
    target: Option<Target>,
    standing: Standing,
}

// === impl Row ===

impl Row {
    fn new((queue, handling): (ShortStr, Handling), known: &KnownQueues, vhost: &Vhost) -> Row {
        let target = handling.target.clone().map(Target::from);
        let standing = target.as_ref().map(|target| known.standing(vhost, target));
        Row {
            queue,
            handling,
            target,
            standing: standing.unwrap_or(Standing::Unknown),
        }
    }

    fn leads_nowhere(&self) -> bool {
        matches!(self.standing, Standing::NoQueue | Standing::NoExchange)
    }

    /// The queue that the broker is asked for: the target by the default exchange, of which nobody told.
    fn asks_for(&self) -> Option<&ShortStr> {
        let target = self.target.as_ref()?;
        let asks = target.exchange.is_empty() && self.standing == Standing::Unknown;
        target.routing_key.as_ref().filter(|_| asks)
    }

    fn shown(self, now: Mono, own_arguments: Option<String>) -> HandledQueue {
        let Handling {
            state,
            why,
            retries,
            told,
            asked,
            ..
        } = self.handling;
        HandledQueue {
            queue: self.queue,
            state: state.as_str(),
            cause: why.name,
            leads_to: self.target.as_ref().map(|_| self.standing),
            target: self.target.map(ListedTarget::from),
            retries,
            told_by: told.map(|(source, _)| match source {
                Source::Refusal => "refusal",
                Source::Management => "management-api",
                Source::Declare => "declare",
            }),
            told_seconds: told
                .map(|(_, at)| at)
                .or(asked)
                .map(|at| at.until(now).as_secs()),
            own_arguments,
        }
    }
}
