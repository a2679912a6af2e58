//! A dead letter that is changed and sent back, where `admin-edit` allows it: a redrive of one message.
//!
//! - `POST …/dead-letters/{id}/edit` takes what changes, and answers when the message has gone

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use tokio::time::timeout;

use super::super::files::late;
use super::super::listing;
use super::super::parameters::bad;
use super::super::problem::Problem;
use super::super::wanted::To;
use super::description::OfQueue;
use super::redrives::{sent, there_is_none};
use super::{Answered, Api, Asked, json};
use crate::console::redrives::{Order, Shown};
use crate::letter::{Change, Filter};
use crate::walk::MOST_HELD;

/// Bytes of an edit: what a page shows of a body, where each byte may be six of JSON, and headers.
const MOST: usize = 2 << 20;

/// Changes one message, and sends it back. Only where `admin-edit` is on.
#[utoipa::path(post, path = "/api/v1/vhosts/{vhost}/queues/{queue}/dead-letters/{id}/edit", tag = "redrives", params(OfQueue, ("id" = String, Path, description = "The message, as a list names it"), To), request_body = Change, responses((status = OK, body = Shown, description = "It has gone"), (status = ACCEPTED, body = Shown, description = "It goes")))]
pub(super) async fn edit(State(api): State<Api>, mut asked: Asked, request: Request) -> Answered {
    let mut to = sent(&mut asked)?;
    asked.end()?;
    let filter = Filter {
        ids: vec![listing::one(&asked.place.last)?],
        ..Filter::default()
    };
    api.looks.let_in(&asked).await?;
    if !api.edits {
        let detail = "this proxy allows no edits: set `admin-edit = true`, and restart it";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    to.edit = Some(Change::read(&api.received(request.into_body()).await?).map_err(bad)?);
    let order = Order {
        login: asked.who.clone().login(asked.place.vhost.clone()),
        queue: asked.place.queue.clone(),
        filter,
        most: 1,
        per_second: None,
        held: MOST_HELD,
        to: Some(to),
    };
    let begun = api.start(&asked, order).await?;
    let patience = api.files.limits.now().browse_timeout;
    let Ok(over) = timeout(patience, api.redrives.over(begun.id)).await else {
        return Ok((StatusCode::ACCEPTED, json(&begun)?).into_response());
    };
    let shown = over.ok_or_else(there_is_none)??;
    match shown.gone {
        0 => Err(stays(&shown)),
        _ => json(&shown),
    }
}

fn stays(shown: &Shown) -> Problem {
    let Some(why) = shown.stay.keys().chain(&shown.cause).next() else {
        return Problem::new(StatusCode::NOT_FOUND, "no message has this id");
    };
    let detail = format!("the message stays as it is: {why}");
    Problem::new(StatusCode::CONFLICT, detail)
}

// === impl Api ===

impl Api {
    async fn received(&self, body: Body) -> Result<Vec<u8>, Problem> {
        let limits = self.files.limits.now();
        let (most, in_time) = (MOST.min(limits.browse_bytes), limits.browse_timeout);
        drop(limits);
        // What comes, and what is made of it.
        let mut taken = self.files.room.begin().await?;
        taken.resize(2 * most)?;
        let read = timeout(in_time, to_bytes(body, most)).await;
        let read = read.map_err(|_| late("the edit did not come within `browse-timeout`"))?;
        let too_large = "an edit has up to 2 MiB: export the message, change it and import it";
        read.map(Into::into)
            .map_err(|_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, too_large))
    }
}
