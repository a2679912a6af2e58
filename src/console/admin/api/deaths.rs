//! The last dead letters of a vhost, from the proxy's own memory. Of a queue they are shown to those who may read it.
//!
//! - `GET /api/v1/vhosts/{vhost}/deaths` lists them, the newest last; with `Accept: text/event-stream` it goes on live
//! - `GET …/deaths/rates` counts them by minute

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::response::sse::Sse;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::super::problem::Problem;
use super::super::rooms::Live;
use super::rights::not_asked;
use super::{Answered, Api, Asked, json};
use crate::amqp::ids::ShortStr;
use crate::known::{Listed, MOST_DEATHS, Rate, RecentDeath, Told};
use crate::letter::rfc_3339_millis;
use crate::machine::Wall;

mod live;

const LIMIT: usize = 100;
const LAST_EVENT_ID: &str = "last-event-id";

/// The last dead letters of a vhost.
#[derive(Serialize, ToSchema)]
struct LastDeaths {
    /// The newest last.
    deaths: Vec<Shown>,
    /// The number to go on with.
    next: u64,
    /// There were more between `after` and the first of these.
    missed: bool,
    /// What somebody should know.
    notes: Vec<String>,
}

/// A dead letter.
#[derive(Serialize, ToSchema)]
#[schema(as = Death)]
struct Shown {
    /// Greater than that of all before it.
    number: u64,
    #[serde(flatten)]
    told: Told,
}

/// How many died.
#[derive(Serialize, ToSchema)]
struct Rates {
    /// The last minute of each rate is that of now.
    now: String,
    rates: Vec<Rate>,
    /// What somebody should know.
    notes: Vec<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
#[expect(dead_code, reason = "it is only described; `list` and `rates` read it")]
struct Of {
    /// Only of this queue.
    queue: Option<String>,
}

/// Which ones.
#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
#[expect(dead_code, reason = "it is only described; `list` reads it")]
struct From {
    /// Only those with a greater number.
    after: Option<u64>,
    /// How many to list at most: the first ones behind `after`, else the last ones.
    limit: Option<u64>,
}

/// Lists the last dead letters of a vhost, the newest last; or tells of them as they come.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/deaths", tag = "deaths", params(("vhost" = String, Path, description = "The vhost"), Of, From), responses((status = OK, content((LastDeaths = "application/json"), (String = "text/event-stream")))))]
pub(super) async fn list(State(api): State<Api>, mut asked: Asked, headers: HeaderMap) -> Answered {
    let queue = asked.parameters.name("queue")?;
    let after = asked.parameters.number("after", 0..=u64::MAX)?;
    let is_live = accepts_events(&headers);
    let limit = match is_live {
        true => None,
        false => asked.parameters.number("limit", 1..=MOST_DEATHS)?,
    };
    asked.end()?;
    // Who is no user must not learn that there is nothing to see, and holds up nobody.
    api.looks.enter(&asked).await?;
    if is_live {
        let permit = api.rooms.live().await?;
        let after = last_event(&headers).or(after);
        let live = live::Live::new(api, asked, queue, after, permit);
        return Ok(as_they_come(live));
    }
    let vhost = &asked.place.vhost;
    let limit = limit.unwrap_or(LIMIT);
    let Listed {
        deaths,
        mut next,
        missed,
    } = match after {
        Some(after) => api.known.recent().list(vhost, after, MOST_DEATHS),
        None => api.known.recent().newest(vhost, MOST_DEATHS),
    };
    let queues = deaths.iter().map(|death| &death.dead.queue);
    let queues = queues.filter(|of| is_meant(&queue, of));
    let (readable, unasked) = api.looks.readable(&asked, queues).await?;
    let seen = |death: &&RecentDeath| readable.contains(&death.dead.queue);
    let seen: Vec<_> = deaths.iter().filter(seen).collect();
    let shown = match after {
        Some(_) => &seen[..seen.len().min(limit)],
        None => &seen[seen.len().saturating_sub(limit)..],
    };
    // Behind the last one that fits there may be more.
    let is_full = after.is_some() && shown.len() == limit;
    if let Some(last) = shown.last().filter(|_| is_full) {
        next = last.number;
    }
    let shown = shown.iter().map(|death| Shown::of(death)).collect();
    json(&LastDeaths {
        deaths: shown,
        next,
        missed,
        notes: not_asked(unasked),
    })
}

fn as_they_come(live: live::Live) -> axum::response::Response {
    let mut answer = Sse::new(live.events()).into_response();
    answer.extensions_mut().insert(Live);
    answer
}

fn is_meant(queue: &Option<ShortStr>, other: &ShortStr) -> bool {
    queue.as_ref().is_none_or(|queue| queue == other)
}

/// Counts the dead letters of a vhost by minute, queue and reason.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/deaths/rates", tag = "deaths", params(("vhost" = String, Path, description = "The vhost"), Of), responses((status = OK, body = Rates)))]
pub(super) async fn rates(State(api): State<Api>, mut asked: Asked) -> Answered {
    let queue = asked.parameters.name("queue")?;
    asked.end()?;
    api.looks.enter(&asked).await?;
    let (now, rates, unasked) = api.rates(&asked, &queue).await?;
    json(&Rates {
        now: rfc_3339_millis(now),
        rates,
        notes: not_asked(unasked),
    })
}

// === impl Api ===

impl Api {
    /// Rates of queues that the user may read, and the number of queues not checked for that. The
    /// broker has already admitted the user.
    pub(in crate::console::admin) async fn rates(
        &self,
        asked: &Asked,
        queue: &Option<ShortStr>,
    ) -> Result<(Wall, Vec<Rate>, usize), Problem> {
        let now = self.looks.now();
        let mut counted = self.known.recent().rates(&asked.place.vhost, now);
        let queues = counted.iter().filter_map(|rate| rate.queue.as_ref());
        let queues = queues.filter(|of| is_meant(queue, of));
        let readable = self.looks.readable(asked, queues);
        let (readable, unasked) = readable.await?;
        counted.retain(|rate| match &rate.queue {
            Some(of) => readable.contains(of),
            // It is of no queue that anybody could name.
            None => queue.is_none(),
        });
        Ok((now, counted, unasked))
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/event-stream"))
}

fn last_event(headers: &HeaderMap) -> Option<u64> {
    headers.get(LAST_EVENT_ID)?.to_str().ok()?.parse().ok()
}

// === impl Shown ===

impl Shown {
    fn of(death: &RecentDeath) -> Shown {
        Shown {
            number: death.number,
            told: Told::of(death.at, &death.dead),
        }
    }
}
