//! Dead letters that go: back to where they came from, to another place, or away.
//!
//! - `POST …/queues/{queue}/redrives` sends back, `POST …/queues/{queue}/purges` removes; `dry-run=true` only counts
//! - `GET /api/v1/vhosts/{vhost}/redrives` lists both, the newest first; `GET …/redrives/{id}` shows one
//! - `POST …/redrives/{id}/pause`, `…/resume` and `…/cancel`
//!
//! Whoever may read a queue sees what goes out of it, and may hold that up.

use std::num::NonZeroU32;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::listing::{Answer, Grouped};
use super::super::parameters::{Parameters, bad};
use super::super::problem::Problem;
use super::super::wanted::{Filters, Pace, To};
use super::description::OfQueue;
use super::rights::not_asked;
use super::{Answered, Api, Asked, count, json, wanted};
use crate::console::redrives::{NotBegun, Order, Redrives, Shown};
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::walk::MOST_HELD;

/// All redrives of a vhost that the user may see.
#[derive(Serialize, ToSchema)]
struct Listed {
    redrives: Vec<Shown>,
    /// What somebody should know.
    notes: Vec<String>,
}

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(redrive))
        .routes(routes!(purge))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// Sends messages back to the queues that they died in, or to another place.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/{queue}/redrives", tag = "redrives", params(OfQueue, Filters, Pace, To), responses((status = ACCEPTED, body = Shown, description = "It has begun"), (status = OK, body = Answer<Grouped>, description = "Of a dry run")))]
async fn redrive(State(api): State<Api>, mut asked: Asked) -> Answered {
    let to = sent(&mut asked)?;
    api.begin(asked, Some(to)).await
}

pub(super) fn sent(asked: &mut Asked) -> Result<Redrive, Problem> {
    let parameters = &mut asked.parameters;
    Ok(Redrive {
        to: destination(parameters)?,
        keep_history: parameters
            .read("history", |text| match text {
                "keep" => Ok(true),
                "new" => Ok(false),
                _ => Err("write keep or new"),
            })?
            .unwrap_or(true),
        by: asked.who.user().clone(),
        edit: None,
    })
}

/// Removes messages for good.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/{queue}/purges", tag = "redrives", params(OfQueue, Filters, Pace), responses((status = ACCEPTED, body = Shown, description = "It has begun"), (status = OK, body = Answer<Grouped>, description = "Of a dry run")))]
async fn purge(State(api): State<Api>, asked: Asked) -> Answered {
    api.begin(asked, None).await
}

fn destination(parameters: &mut Parameters) -> Result<Destination, Problem> {
    let queue = parameters.name("to-queue")?;
    let exchange = parameters.key("to-exchange")?;
    let routing_key = parameters.key("to-routing-key")?;
    match (queue, exchange, routing_key) {
        (None, None, None) => Ok(Destination::Source),
        (Some(queue), None, None) => Ok(Destination::Queue(queue)),
        // The default exchange leads to the queue that its key names, so the key is judged as one: it must be none of the proxy's own.
        (None, Some(exchange), Some(queue)) if exchange.is_empty() && !queue.is_empty() => {
            Ok(Destination::Queue(queue))
        }
        (None, Some(exchange), _) if exchange.is_empty() => Err(bad(
            "to-exchange: the default exchange takes a to-routing-key, the name of a queue",
        )),
        (None, Some(exchange), routing_key) => Ok(Destination::Exchange {
            exchange,
            routing_key,
        }),
        _ => Err(bad(
            "write to-queue, or to-exchange with or without to-routing-key, or none of them",
        )),
    }
}

/// Lists the redrives and purges of a vhost, the newest first.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/redrives", tag = "redrives", params(("vhost" = String, Path, description = "The vhost")), responses((status = OK, body = Listed)))]
async fn list(State(api): State<Api>, asked: Asked) -> Answered {
    asked.end()?;
    api.looks.enter(&asked).await?;
    let (redrives, unasked) = api.moves(&asked).await?;
    let notes = not_asked(unasked);
    json(&Listed { redrives, notes })
}

/// Shows one redrive or purge.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/redrives/{id}", tag = "redrives", params(("vhost" = String, Path, description = "The vhost"), ("id" = u64, Path, description = "The number of the redrive")), responses((status = OK, body = Shown)))]
async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    json(&api.seen(&asked).await?)
}

/// Holds it up.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/redrives/{id}/pause", tag = "redrives", params(("vhost" = String, Path, description = "The vhost"), ("id" = u64, Path, description = "The number of the redrive")), responses((status = OK, body = Shown)))]
async fn pause(api: State<Api>, asked: Asked) -> Answered {
    api.change(asked, |all, id| all.pause(id, true)).await
}

/// Lets it go on.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/redrives/{id}/resume", tag = "redrives", params(("vhost" = String, Path, description = "The vhost"), ("id" = u64, Path, description = "The number of the redrive")), responses((status = OK, body = Shown)))]
async fn resume(api: State<Api>, asked: Asked) -> Answered {
    api.change(asked, |all, id| all.pause(id, false)).await
}

/// Ends it. What is on its way arrives.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/redrives/{id}/cancel", tag = "redrives", params(("vhost" = String, Path, description = "The vhost"), ("id" = u64, Path, description = "The number of the redrive")), responses((status = OK, body = Shown)))]
async fn cancel(api: State<Api>, asked: Asked) -> Answered {
    api.change(asked, Redrives::cancel).await
}

pub(super) fn there_is_none() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such redrive")
}

// === impl Api ===

impl Api {
    async fn change(&self, asked: Asked, tell: fn(&Redrives, u64) -> bool) -> Answered {
        let id = self.seen(&asked).await?.id;
        match (tell(&self.redrives, id), self.redrives.show(id)) {
            (true, Some(shown)) => json(&shown),
            _ => Err(Problem::new(StatusCode::CONFLICT, "it has ended")),
        }
    }

    async fn begin(&self, mut asked: Asked, to: Option<Redrive>) -> Answered {
        let parameters = &mut asked.parameters;
        let wanted = wanted(&self.looks, parameters)?;
        let most = parameters.number("limit", 1..=u64::MAX)?;
        let rate = parameters.number("rate", 1..=1_000_000)?;
        let dry_run = parameters.is_true("dry-run")?;
        asked.end()?;
        if dry_run {
            let mut counted = count(&self.looks, asked, wanted).await?;
            counted.matched = counted.matched.min(most.unwrap_or(u64::MAX));
            return json(&counted);
        }
        let order = Order {
            login: asked.who.clone().login(asked.place.vhost.clone()),
            queue: asked.place.queue.clone(),
            filter: wanted.filter,
            most: most.unwrap_or(u64::MAX),
            per_second: rate.and_then(NonZeroU32::new),
            held: MOST_HELD,
            to,
        };
        let begun = json(&self.start(&asked, order).await?)?;
        Ok((StatusCode::ACCEPTED, begun).into_response())
    }

    /// Done when the broker has let the user in.
    pub(super) async fn start(&self, asked: &Asked, order: Order) -> Result<Shown, Problem> {
        // Before anything is said of what is at work there: only those hear of it who may read the queue. It also keeps those from the list of
        // redrives, and from the log, whom the broker does not let in.
        self.looks.must_read(asked).await?;
        // What a look holds would be left out.
        let _turn = self.looks.turn_at(&asked.place).await?;
        let attempt = self.looks.attempt(asked);
        let begun = self.redrives.begin(order);
        let id = begun.map_err(|why| match &why {
            NotBegun::Busy(_) | NotBegun::Altered(_) => {
                Problem::new(StatusCode::CONFLICT, why.to_string())
            }
            NotBegun::Ours(_) => Problem::new(StatusCode::FORBIDDEN, why.to_string()),
            NotBegun::TooMany => Problem::busy(why.to_string()),
        })?;
        let under_way = self.redrives.under_way(id).await;
        let under_way = under_way.ok_or_else(there_is_none)?;
        self.looks.came(attempt, under_way.as_ref().err());
        Ok(under_way?)
    }

    /// Redrives of the vhost that the user may see, and the number of queues not checked for that.
    /// The broker has already admitted the user.
    pub(in crate::console::admin) async fn moves(
        &self,
        asked: &Asked,
    ) -> Result<(Vec<Shown>, usize), Problem> {
        let name = asked.place.vhost.to_string();
        let mut redrives = self.redrives.list();
        redrives.retain(|shown| shown.vhost == name);
        let queues = redrives.iter().map(|shown| &shown.of);
        let (readable, unasked) = self.looks.readable(asked, queues).await?;
        redrives.retain(|shown| readable.contains(&shown.of));
        Ok((redrives, unasked))
    }

    /// Only if the user may read its queue.
    pub(in crate::console::admin) async fn seen(&self, asked: &Asked) -> Result<Shown, Problem> {
        asked.end()?;
        let (vhost, id) = (&asked.place.vhost, &asked.place.queue);
        let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
        let shown = id.and_then(|id| self.redrives.show(id));
        let shown = shown.filter(|shown| shown.vhost == vhost.to_string());
        let queue = shown.as_ref().map(|shown| shown.of.clone());
        let place = asked.of(queue.unwrap_or_default());
        let may = self.looks.may_read(&place).await?;
        shown.filter(|_| may).ok_or_else(there_is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    /// What is none is in `testdata/requests.txt`.
    #[test]
    fn an_empty_routing_key_is_one() {
        let exchange = |routing_key| Destination::Exchange {
            exchange: name("x"),
            routing_key,
        };
        for (query, expected) in [
            ("", Destination::Source),
            ("to-exchange=x", exchange(None)),
            ("to-exchange=x&to-routing-key=", exchange(Some(name("")))),
            (
                "to-exchange=&to-routing-key=q",
                Destination::Queue(name("q")),
            ),
        ] {
            let uri = format!("/api/v1/x?{query}").parse().expect("a URI");
            assert_eq!(destination(&mut Parameters::of(&uri)), Ok(expected));
        }
    }
}
