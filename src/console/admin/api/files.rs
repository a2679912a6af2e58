//! Messages as lines of a file (`application/x-ndjson`).
//!
//! - `GET …/dead-letters/export` answers with the messages, and how far the queue was looked at in the last line
//! - `POST …/dead-letters/import` puts messages into the queue, in the name of the user; `first-line` is the number of its first line, if this is
//!   a part of a file

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::IntoResponse;
use futures::stream;

use super::super::exported::Exported;
use super::super::files::{Answer, Part};
use super::super::wanted::Filters;
use super::description::OfQueue;
use super::{Answered, Api, Asked, json, wanted};
use crate::walk::Bodies;

const NDJSON: &str = "application/x-ndjson";

/// Writes the messages of a queue as lines of JSON.
#[utoipa::path(get, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters/export", tag = "files", params(OfQueue, Filters, ("limit" = Option<u64>, Query, description = "How many messages to export at most; the oldest go first")), responses((status = OK, content_type = "application/x-ndjson", body = String, description = "A line for each message; the last line is `{\"end\": …}` and says how far the queue was looked at")))]
pub(super) async fn export(State(Api { files, .. }): State<Api>, mut asked: Asked) -> Answered {
    let wanted = wanted(&files.looks, &mut asked.parameters)?;
    let most = asked.parameters.number("limit", 1..=u64::MAX)?;
    asked.end()?;
    files.looks.let_in(&asked).await?;
    let room = files.limits.now().browse_bytes.saturating_mul(2);
    let room = (room, files.room.begin().await?);
    let exported = Exported::new(wanted, most, files.own_user.clone(), room);
    let part = (exported.messages(), Bodies::Whole);
    let looked = files.looks.look(&asked, part, exported, Exported::see);
    let (walked, exported) = looked.await?;
    let lines = exported
        .finish(asked.place, walked)
        .map(Ok::<_, Infallible>);
    let lines = Body::from_stream(stream::iter(lines));
    Ok(([(header::CONTENT_TYPE, NDJSON)], lines).into_response())
}

/// Puts messages that were exported into a queue, in the name of the user.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters/import", tag = "files", params(OfQueue, ("first-line" = Option<u64>, Query, description = "The number of the first line, if this is a part of a file [default: 1]")), responses((status = OK, body = Answer)))]
pub(super) async fn import(
    State(Api { files, .. }): State<Api>,
    mut asked: Asked,
    request: Request,
) -> Answered {
    let first = asked.parameters.number("first-line", 1..=u64::MAX >> 1)?;
    asked.end()?;
    let file = Part {
        first: first.unwrap_or(1),
        bytes: request.into_body(),
    };
    json(&files.import(asked, file).await?)
}
