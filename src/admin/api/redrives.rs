//! Dead letters that go: back to where they came from, to another place, or away.
//!
//! - `POST …/queues/{queue}/redrives` sends back, `POST …/queues/{queue}/purges` removes; `dry-run=true` only counts
//! - `GET /api/v1/vhosts/{vhost}/redrives` lists both, the newest first; `GET …/redrives/{id}` shows one
//! - `POST …/redrives/{id}/pause`, `…/resume` and `…/cancel`
//!
//! Whoever may read a queue sees what goes out of it, and may hold that up.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Serialize;

use super::super::login::Credentials;
use super::super::looks::{Looks, Wish};
use super::super::parameters::{OfVhost, Parameters, Place};
use super::super::problem::Problem;
use super::{Answered, Peer, count, json, read, wanted, wish};
use crate::amqp::ids::ShortStr;
use crate::dead_letter::redrive::{Destination, Redrive};
use crate::redrives::{NotBegun, Order, Redrives, Shown};

/// What the handlers need.
#[derive(Clone)]
pub(super) struct Moves {
    pub(super) looks: Looks,
    pub(super) redrives: Redrives,
}

/// All redrives of a vhost that the user may see.
#[derive(Serialize)]
struct Listed {
    redrives: Vec<Shown>,
}

/// What is to be done with one.
#[derive(Clone, Copy)]
enum Verb {
    Pause,
    Resume,
    Cancel,
}

pub(super) fn router(moves: Moves) -> Router {
    let queue = "/api/v1/vhosts/{vhost}/queues/{queue}";
    let all = "/api/v1/vhosts/{vhost}/redrives";
    let tell = |verb| {
        post(move |state, peer, request| async move { change(state, peer, request, verb).await })
    };
    Router::new()
        .route(&format!("{queue}/redrives"), post(redrive))
        .route(&format!("{queue}/purges"), post(purge))
        .route(all, get(list))
        .route(&format!("{all}/{{id}}"), get(show))
        .route(&format!("{all}/{{id}}/pause"), tell(Verb::Pause))
        .route(&format!("{all}/{{id}}/resume"), tell(Verb::Resume))
        .route(&format!("{all}/{{id}}/cancel"), tell(Verb::Cancel))
        .with_state(moves)
}

async fn redrive(
    State(moves): State<Moves>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, place, mut parameters) = read(&request, peer)?;
    let to = Redrive {
        to: destination(&mut parameters)?,
        keep_history: parameters
            .read("history", |text| match text {
                "keep" => Ok(true),
                "new" => Ok(false),
                _ => Err("write keep or new"),
            })?
            .unwrap_or(true),
        by: credentials.user().clone(),
    };
    moves
        .begin(credentials, peer, place, parameters, Some(to))
        .await
}

async fn purge(
    State(moves): State<Moves>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, place, parameters) = read(&request, peer)?;
    moves
        .begin(credentials, peer, place, parameters, None)
        .await
}

/// Where messages are to go.
fn destination(parameters: &mut Parameters) -> Result<Destination, Problem> {
    let queue = parameters.name("to-queue")?;
    let exchange = parameters.name("to-exchange")?;
    let routing_key = parameters.name("to-routing-key")?;
    match (queue, exchange, routing_key) {
        (None, None, None) => Ok(Destination::Source),
        (Some(queue), None, None) => Ok(Destination::Queue(queue)),
        (None, Some(exchange), routing_key) => Ok(Destination::Exchange {
            exchange,
            routing_key,
        }),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "write to-queue, or to-exchange with or without to-routing-key, or none of them",
        )),
    }
}

async fn list(
    State(moves): State<Moves>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, of) = asked(&request, peer)?;
    let name = of.vhost.to_string();
    let mut redrives = moves.redrives.list();
    redrives.retain(|shown| shown.vhost == name);
    // Also of a vhost without any: who is no user shall not learn that there are none.
    let mut may: BTreeMap<ShortStr, bool> = BTreeMap::from([(ShortStr::EMPTY, false)]);
    may.extend(redrives.iter().map(|shown| (shown.of.clone(), false)));
    for (queue, may) in &mut may {
        let place = Place::new(of.vhost.clone(), queue.clone());
        *may = moves.may_read(credentials.clone(), peer, &place).await?;
    }
    redrives.retain(|shown| may.get(&shown.of) == Some(&true));
    json(&Listed { redrives })
}

async fn show(
    State(moves): State<Moves>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let asked = asked(&request, peer)?;
    json(&moves.seen(asked, peer).await?)
}

async fn change(
    State(moves): State<Moves>,
    Extension(peer): Extension<Peer>,
    request: Request,
    verb: Verb,
) -> Answered {
    let asked = asked(&request, peer)?;
    let id = moves.seen(asked, peer).await?.id;
    let told = match verb {
        Verb::Pause => moves.redrives.pause(id, true),
        Verb::Resume => moves.redrives.pause(id, false),
        Verb::Cancel => moves.redrives.cancel(id),
    };
    match (told, moves.redrives.show(id)) {
        (true, Some(shown)) => json(&shown),
        _ => Err(Problem::new(StatusCode::CONFLICT, "it has ended")),
    }
}

/// Who asks, and for which redrive.
fn asked(request: &Request, Peer(peer): Peer) -> Result<(Credentials, OfVhost), Problem> {
    Parameters::of(request.uri()).end()?;
    let credentials = Credentials::of(request.headers(), peer)?;
    Ok((credentials, OfVhost::of(request.uri())?))
}

fn there_is_none() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such redrive")
}

// === impl Moves ===

impl Moves {
    async fn begin(
        &self,
        credentials: Credentials,
        peer: Peer,
        place: Place,
        mut parameters: Parameters,
        to: Option<Redrive>,
    ) -> Answered {
        let wanted = wanted(&self.looks, &mut parameters)?;
        let most = parameters.number("limit", 1..=u64::MAX)?;
        let rate = parameters.number("rate", 1..=1_000_000)?;
        let dry_run = parameters.read("dry-run", |text| {
            text.parse::<bool>().map_err(|_| "write true or false")
        })?;
        parameters.end()?;
        if dry_run == Some(true) {
            return count(&self.looks, credentials, peer, place, wanted).await;
        }
        self.looks.turn(peer.0).await?;
        let order = Order {
            login: credentials.login(place.vhost),
            queue: place.queue,
            filter: wanted.filter,
            most: most.unwrap_or(u64::MAX),
            per_second: rate.and_then(NonZeroU32::new),
            held: self.looks.look_limit(),
            to,
        };
        let begun = self.redrives.begin(order);
        let id = begun.map_err(|why| {
            let status = match &why {
                NotBegun::Busy(_) => StatusCode::CONFLICT,
                NotBegun::Ours(_) => StatusCode::FORBIDDEN,
            };
            Problem::new(status, why.to_string())
        })?;
        let under_way = self.redrives.under_way(id).await;
        let under_way = under_way.ok_or_else(there_is_none)?;
        self.looks.came(peer.0, under_way.as_ref().err());
        let answer: Response = json(&under_way?)?;
        Ok((StatusCode::ACCEPTED, answer).into_response())
    }

    /// The redrive that a path names, if the user may read its queue.
    async fn seen(
        &self,
        (credentials, of): (Credentials, OfVhost),
        peer: Peer,
    ) -> Result<Shown, Problem> {
        let id = std::str::from_utf8(&of.last).ok();
        let id = id.and_then(|id| id.parse().ok());
        let shown = id.and_then(|id| self.redrives.show(id));
        let shown = shown.filter(|shown| shown.vhost == of.vhost.to_string());
        let queue = shown.as_ref().map(|shown| shown.of.clone());
        let place = Place::new(of.vhost, queue.unwrap_or_default());
        let may = self.may_read(credentials, peer, &place).await?;
        shown.filter(|_| may).ok_or_else(there_is_none)
    }

    /// Whether the broker lets the user read that queue.
    ///
    /// # Errors
    /// When it does not even let the user in.
    async fn may_read(
        &self,
        credentials: Credentials,
        peer: Peer,
        place: &Place,
    ) -> Result<bool, Problem> {
        let wish = Wish {
            messages: Some(0),
            ..wish(credentials, peer, place)
        };
        match self.looks.look(wish, (), |(), _| true).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.is_about_the_queue() => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}
