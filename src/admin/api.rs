//! The API below `/api/v1`: dead letters, for users of the broker. Each request logs in by HTTP Basic, and is done in the name of that user, so
//! that the broker decides what may be seen.
//!
//! - `GET /api/v1/vhosts/{vhost}/queues/{queue}/dead-letters` lists messages, the oldest first
//! - `GET …/dead-letters/groups` counts them by what they have in common
//! - `GET …/dead-letters/{id}` shows one
//! - [`redrives`] has what moves them
//!
//! Names in the path are percent-encoded octets: the vhost `/` is `%2F`. What is no answer is a problem as of RFC 9457.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use serde::Serialize;

use super::OWN_HEADER;
use super::listing::{self, Counted, Found, Page, Wanted};
use super::login::Credentials;
use super::looks::{Looks, Wish};
use super::parameters::{Parameters, Place};
use super::problem::Problem;
use crate::redrives::Redrives;

mod redrives;

use self::redrives::Moves;

/// Who asks, as far as the connection tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// What each answer carries: it is nobody else's, it is what it says it is, and a browser runs nothing of it.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// Says from where in a browser a request comes.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The routes.
pub(super) fn router(looks: Looks, redrives: Redrives) -> Router {
    let moves = Moves {
        looks: looks.clone(),
        redrives,
    };
    let queue = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters";
    let there_is_none = || async { Problem::new(StatusCode::NOT_FOUND, "there is no such page") };
    Router::new()
        .route(queue, get(list))
        .route(&format!("{queue}/groups"), get(groups))
        .route(&format!("{queue}/{{id}}"), get(show))
        .route("/api/{*rest}", any(there_is_none))
        .with_state(looks)
        .merge(redrives::router(moves))
        .method_not_allowed_fallback(|| async {
            let detail = "this page does not take that method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .layer(middleware::from_fn(guarded))
}

/// A look is felt by the queue, so that no page of somebody else's may make a browser ask for one with a password that it remembers.
async fn guarded(request: Request, next: Next) -> Response {
    let site = request.headers().get(SEC_FETCH_SITE);
    let foreign = site.is_some_and(|site| site != "same-origin" && site != "none");
    let changes = request.method() != Method::GET && request.method() != Method::HEAD;
    let refuse = |detail| Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    let mut answer = if foreign {
        refuse("a page from elsewhere asked for this")
    } else if changes && !request.headers().contains_key(OWN_HEADER) {
        refuse("what changes something needs the header `X-Dlx-Proxy-Request`, with any value")
    } else {
        next.run(request).await
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

type Answered = Result<Response, Problem>;

async fn list(
    State(looks): State<Looks>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, place, mut parameters) = read(&request, peer)?;
    let wanted = wanted(&looks, &mut parameters)?;
    let page = Page::new(wanted, &mut parameters)?;
    parameters.end()?;
    let wish = Wish {
        messages: page.messages(),
        body: page.body(),
        ..wish(credentials, peer, &place)
    };
    let (walked, page) = looks.look(wish, page, Page::see).await?;
    json(&page.answer(place, walked))
}

async fn groups(
    State(looks): State<Looks>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, place, mut parameters) = read(&request, peer)?;
    let wanted = wanted(&looks, &mut parameters)?;
    parameters.end()?;
    count(&looks, credentials, peer, place, wanted).await
}

/// Counts the messages that are wanted, by what they have in common.
async fn count(
    looks: &Looks,
    credentials: Credentials,
    peer: Peer,
    place: Place,
    wanted: Wanted,
) -> Answered {
    let wish = Wish {
        body: wanted.body(),
        ..wish(credentials, peer, &place)
    };
    let counted = Counted::new(wanted);
    let (walked, counted) = looks.look(wish, counted, Counted::see).await?;
    json(&counted.answer(place, walked))
}

async fn show(
    State(looks): State<Looks>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let (credentials, place, parameters) = read(&request, peer)?;
    parameters.end()?;
    let found = Found::new(&place.last, looks.error_headers(), looks.now())?;
    let wish = Wish {
        body: found.body(),
        ..wish(credentials, peer, &place)
    };
    let (walked, found) = looks.look(wish, found, Found::see).await?;
    json(&found.answer(walked)?)
}

/// Who asks, and for what.
fn read(request: &Request, Peer(peer): Peer) -> Result<(Credentials, Place, Parameters), Problem> {
    let credentials = Credentials::of(request.headers(), peer)?;
    let place = Place::of(request.uri())?;
    Ok((credentials, place, Parameters::of(request.uri())))
}

fn wanted(looks: &Looks, parameters: &mut Parameters) -> Result<Wanted, Problem> {
    Ok(Wanted {
        filter: listing::filter(parameters)?,
        errors: looks.error_headers(),
        now: looks.now(),
    })
}

fn wish(credentials: Credentials, Peer(peer): Peer, place: &Place) -> Wish {
    Wish {
        credentials,
        peer,
        vhost: place.vhost.clone(),
        queue: place.queue.clone(),
        messages: None,
        body: 0,
    }
}

fn json(answer: &impl Serialize) -> Answered {
    let json = serde_json::to_vec(answer);
    let json =
        json.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

#[cfg(test)]
mod tests;
