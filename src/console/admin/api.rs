//! The API below `/api/v1`: dead letters, for users of the broker. Each request logs in by HTTP Basic, and is done in the name of that user, so
//! that the broker decides what may be seen.
//!
//! - `GET /api/v1/vhosts/{vhost}/queues/{queue}/dead-letters` lists messages, the oldest first
//! - `GET …/dead-letters/groups` counts them by what they have in common
//! - `GET …/dead-letters/{id}` shows one
//! - [`files`] has what writes them to files and reads them back
//! - `GET /api/v1/vhosts/{vhost}/dead-letter-queues` lists the queues that dead letters went to
//! - `GET /api/v1/vhosts/{vhost}/queues` lists the queues that the proxy handles, and how
//! - `POST …/queues/adopt` and `…/queues/release` change how the broker's policies lead to the proxy ([`adoption`])
//! - `GET /api/v1/vhosts/{vhost}/status` tells how the vhost stands
//! - [`redrives`] has what moves them, [`edits`] what changes one, [`deaths`] the last ones of a vhost
//!
//! Names in the path are percent-encoded bytes: the vhost `/` is `%2F`. What is no answer is a problem as of RFC 9457.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use serde::Serialize;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::OWN_HEADER;
use super::elsewhere::{self, Elsewhere, OverTls};
use super::files::Files;
use super::listing::{self, Answer, Counted, Found, Grouped, Letters, Page, Shown, Wanted};
use super::login::Credentials;
use super::looks::Looks;
use super::parameters::{Parameters, Place, is_empty};
use super::problem::Problem;
use super::rooms::Rooms;
use super::wanted::{Filters, Part};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::console::redrives::Redrives;
use crate::known::Known;
use crate::letter::{Filter, beginning};
use crate::management::{Adoption, Alterations};
use crate::readiness::Readiness;
use crate::walk::Bodies;

mod adoption;
mod alteration;
mod deaths;
mod description;
mod edits;
mod files;
pub(super) mod handled;
pub(super) mod queues;
pub(super) mod redrives;
mod remembered;
mod rights;
pub(super) mod status;

use self::description::{Description, OfQueue};
pub(super) use self::remembered::Remembered;

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// No active content.
const POLICY: &str =
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

#[derive(Clone)]
pub struct Api {
    pub looks: Looks,
    pub redrives: Redrives,
    pub files: Files,
    pub rooms: Rooms,
    pub known: Known,
    pub readiness: Readiness,
    pub vhosts: Arc<[Vhost]>,
    /// `admin-edit`.
    pub edits: bool,
    /// With a `management-url`.
    pub adoption: Option<Adoption>,
    pub alterations: Option<Alterations>,
}

pub(super) fn router(api: Api) -> Router {
    let looks = api.looks.clone();
    let (routes, api) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(list))
        .routes(routes!(groups))
        .routes(routes!(show))
        .merge(redrives::router())
        .routes(routes!(edits::edit))
        .routes(routes!(files::export))
        .routes(routes!(files::import))
        .routes(routes!(handled::list_handled))
        .routes(routes!(adoption::adopt))
        .routes(routes!(adoption::release))
        .routes(routes!(alteration::alter))
        .routes(routes!(queues::list_queues))
        .routes(routes!(deaths::list))
        .routes(routes!(deaths::rates))
        .routes(routes!(status::show))
        .with_state(api)
        .split_for_parts();
    let text = description::finished(api).to_json();
    let text = Bytes::from(text.unwrap_or_default());
    routes
        .route(
            "/api/v1/openapi.json",
            get(described).with_state((looks, text)),
        )
        .route("/api/{*rest}", any(no_page))
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn(guarded))
}

pub(super) async fn no_page() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such page")
}

pub(super) async fn no_method() -> Problem {
    let detail = "this page does not take that method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// A look disturbs the queue, so no foreign page may trigger one with a stored password.
async fn guarded(request: Request, next: Next) -> Response {
    let changes = request.method() != Method::GET && request.method() != Method::HEAD;
    let refuse = |detail: &str| Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    let mut answer = match judge(&request) {
        Err(elsewhere) => refuse(&elsewhere.to_string()),
        Ok(()) if changes && !request.headers().contains_key(OWN_HEADER) => {
            refuse("what changes something needs the header `X-Dlx-Proxy-Request`, with any value")
        }
        Ok(()) => next.run(request).await,
    };
    protect(&mut answer, "no-store", POLICY);
    answer
}

/// Whether a foreign page may have sent this from a browser.
///
/// # Errors
/// When it may.
pub(super) fn judge(request: &Request) -> Result<(), Elsewhere> {
    let peer = request.extensions().get::<Peer>();
    let peer = peer.filter(|_| request.extensions().get::<OverTls>().is_none());
    elsewhere::judge(request.headers(), peer.map(|Peer(peer)| *peer))
}

/// Whoever may keep it, what it may load and run, and that nobody guesses what it is.
pub(super) fn protect(answer: &mut Response, cache: &'static str, policy: &'static str) {
    for (name, value) in [
        (header::CACHE_CONTROL, cache),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
}

pub(super) type Answered = Result<Response, Problem>;

#[derive(Clone)]
pub(super) struct Asked {
    pub(super) who: Credentials,
    pub(super) peer: IpAddr,
    pub(super) place: Place,
    pub(super) parameters: Parameters,
}

// === impl Asked ===

impl Asked {
    pub(super) fn end(&self) -> Result<(), Problem> {
        self.parameters.clone().end()
    }

    pub(super) fn of(&self, queue: ShortStr) -> Asked {
        Asked {
            place: Place::new(self.place.vhost.clone(), queue),
            ..self.clone()
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked, Problem> {
        let peer = parts.extensions.get::<Peer>();
        let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(peer)| *peer);
        Ok(Asked {
            who: Credentials::of(&parts.headers, peer)?,
            peer,
            place: Place::of(&parts.uri)?,
            parameters: Parameters::of(&parts.uri),
        })
    }
}

/// Lists the messages of a queue, the oldest first.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters", tag = "dead letters", params(OfQueue, Filters, Part), responses((status = OK, body = Answer<Letters>)))]
async fn list(State(api): State<Api>, asked: Asked) -> Answered {
    json(&listed(&api.looks, asked).await?)
}

/// Counts the messages of a queue by where they died, why, and with which error.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters/groups", tag = "dead letters", params(OfQueue, Filters), responses((status = OK, body = Answer<Grouped>)))]
async fn groups(State(api): State<Api>, asked: Asked) -> Answered {
    json(&grouped(&api.looks, asked).await?)
}

/// Shows one message: how it died, its properties, its headers and its body; and which messages of the filter are before and behind it.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters/{id}", tag = "dead letters", params(OfQueue, Filters, ("id" = String, Path, description = "The message, as a list names it")), responses((status = OK, body = listing::Shown)))]
async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    json(&shown(&api.looks, asked).await?)
}

const ALL: (Option<u64>, Bodies) = (None, Bodies::Begin);

pub(super) async fn listed(looks: &Looks, mut asked: Asked) -> Result<Answer<Letters>, Problem> {
    let wanted = wanted(looks, &mut asked.parameters)?;
    let page = Page::new(wanted, &mut asked.parameters)?;
    asked.end()?;
    let part = (page.messages(), Bodies::Begin);
    let (walked, page) = looks.look(&asked, part, page, Page::see).await?;
    Ok(page.answer(asked.place, walked))
}

pub(super) async fn grouped(looks: &Looks, mut asked: Asked) -> Result<Answer<Grouped>, Problem> {
    let wanted = wanted(looks, &mut asked.parameters)?;
    asked.end()?;
    count(looks, asked, wanted).await
}

pub(super) async fn shown(looks: &Looks, mut asked: Asked) -> Result<Shown, Problem> {
    let wanted = wanted(looks, &mut asked.parameters)?;
    asked.end()?;
    let found = Found::new(&asked.place.last, wanted)?;
    let (walked, found) = looks.look(&asked, ALL, found, Found::see).await?;
    found.answer(walked)
}

async fn count(looks: &Looks, asked: Asked, wanted: Wanted) -> Result<Answer<Grouped>, Problem> {
    let counted = Counted::new(wanted);
    let (walked, counted) = looks.look(&asked, ALL, counted, Counted::see).await?;
    Ok(counted.answer(asked.place, walked))
}

async fn described(State((looks, text)): State<(Looks, Bytes)>, asked: Asked) -> Answered {
    // Whatever that user may do there.
    let nowhere = Place::new(Vhost::ROOT, ShortStr::EMPTY);
    let nowhere = Asked {
        place: nowhere,
        ..asked
    };
    looks.may_read(&nowhere).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn wanted(looks: &Looks, parameters: &mut Parameters) -> Result<Wanted, Problem> {
    let errors = looks.error_headers();
    let line = parameters.bytes("error")?;
    let line = line.map(|line| beginning(&line).ok_or_else(|| is_empty("error")));
    let line = line.transpose()?;
    let is_exact = parameters.is_true("exact")?;
    Ok(Wanted {
        filter: Filter {
            error: line.map(|line| (errors.clone(), line)),
            exact: is_exact.then(|| errors.clone()),
            ..listing::filter(parameters, looks.now())?
        },
        errors,
    })
}

fn json(answer: &impl Serialize) -> Answered {
    let json = serde_json::to_vec(answer);
    let json =
        json.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

#[cfg(test)]
pub(in crate::console) mod tests;
