//! Pages for a browser: what the API of `api.rs` answers, as HTML. Each login, each look and each bound is the API's, and what changes something
//! is a request to the API, sent by `web/script.js`.
//!
//! - `GET /` and `/vhosts/{vhost}`: how things stand, and what moves messages
//! - `GET /vhosts/{vhost}/queues/{queue}`: a queue, by groups; `…/messages` lists; `…/messages/{id}` shows one
//! - `GET /vhosts/{vhost}/redrives/{id}`: one redrive while it goes on
//! - `GET /vhosts/{vhost}/live`: dead letters as they come
//! - `GET /vhosts/{vhost}/queues` lists how queues are handled; `…/search` leads to the queue that somebody typed, or to what may have the text
//!
//! A page says nothing that HTML would act on: maud escapes all that it is given, and the headers let nothing run or load but the two files of
//! `assets.rs`.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::api::{self, Answered, Api};
use super::elsewhere::Elsewhere;
use super::problem::Problem;

mod assets;
mod charts;
mod edit;
mod handled;
mod letters;
mod live;
mod message;
mod moving;
mod overview;
mod page;
mod paths;
mod queue;
mod redrive;
mod search;
mod text;
mod told;

/// No foreign content, and not in frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(super) fn router(api: Api) -> Router {
    let queue = "/vhosts/{vhost}/queues/{queue}";
    Router::new()
        .route("/", get(overview::first))
        .route("/vhosts/{vhost}", get(overview::of_vhost))
        .route("/vhosts/{vhost}/live", get(live::show))
        .route("/vhosts/{vhost}/queues", get(handled::show))
        .route("/vhosts/{vhost}/search", get(search::show))
        .route(queue, get(queue::show))
        .route(&format!("{queue}/messages"), get(letters::list))
        .route(&format!("{queue}/messages/{{id}}"), get(message::show))
        .route("/vhosts/{vhost}/redrives/{id}", get(redrive::show))
        .fallback(api::no_page)
        .method_not_allowed_fallback(api::no_method)
        .with_state(api)
        .layer(middleware::from_fn(guarded))
        // Anybody may have these: they are the same in every proxy of this version.
        .route("/assets/{name}", get(assets::serve))
}

/// A look disturbs the queue and uses a stored password: if a foreign page links here, the user
/// must confirm with a click.
async fn guarded(request: Request, next: Next) -> Response {
    let mut answer = match api::judge(&request) {
        Err(Elsewhere::Page) => page::from_elsewhere(request.uri()),
        Err(name) => Problem::new(StatusCode::FORBIDDEN, name.to_string()).into_response(),
        Ok(()) => next.run(request).await,
    };
    if let Some(problem) = answer.extensions_mut().remove::<Problem>() {
        answer = page::refused(&problem);
    }
    api::protect(&mut answer, "no-store", POLICY);
    answer
}

#[cfg(test)]
mod tests;
