//! What the field in the header finds: the queue with that name, or where a text may be. No queue is browsed before somebody clicks.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use maud::html;

use super::super::api::Asked;
use super::super::parameters::Place;
use super::super::problem::Problem;
use super::page::{Trail, page};
use super::{Answered, Api, paths, text};
use crate::amqp::ids::ShortStr;

const MOST: usize = 50;

pub(super) async fn show(State(api): State<Api>, mut asked: Asked) -> Answered {
    let typed = asked.parameters.bytes("text")?.unwrap_or_default();
    asked.end()?;
    let vhost = asked.place.vhost.clone();
    let leads_to =
        |path: String| Ok((StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response());
    if typed.is_empty() {
        return leads_to(paths::vhost(&vhost));
    }
    if let Some(queue) = ShortStr::copy(&typed) {
        let answers = api.looks.told(&asked, vec![queue.clone()]).await?;
        // Browsers take these for steps in a path, however they are escaped.
        if answers == [None] && ![&b"."[..], b".."].contains(&&typed[..]) {
            return leads_to(paths::queue(&Place::new(vhost, queue)));
        }
    }
    let shown = String::from_utf8_lossy(&typed).into_owned();
    let found = api.queues(&asked, MOST).await?;
    let (dead, all) = (found.dead_letter_queues, found.totals.0);
    let named = named(&api, &asked, &shown).await?;
    let is_id = typed.len() == 16 && typed.iter().all(u8::is_ascii_hexdigit);
    let query = paths::query([("body", &typed[..])]);
    let place = |queue: &ShortStr| Place::new(vhost.clone(), queue.clone());
    let link = |queue: &ShortStr| html! { a href=(paths::queue(&place(queue))) { (text::name(&queue.to_string())) } };
    let content = html! {
        h1 { "Search for " (text::name(&shown)) }
        section aria-labelledby="named" {
            h2 #named { "Queues with this in their names" }
            @if named.is_empty() { p { "None that you may read is known. A queue that the proxy does not know is found by its whole name." } }
            ul { @for queue in &named { li { (link(queue)) } } }
        }
        section aria-labelledby="messages" {
            h2 #messages { "Look in the messages of a dead-letter queue" }
            @if dead.is_empty() { p { "No dead-letter queue is known that you may read." } }
            ul { @for of in dead.iter().take(MOST) { li {
                (link(&of.queue)) ": "
                a href=(paths::messages(&place(&of.queue), &query)) { "messages with this text" }
                @if is_id { ", " a href=(paths::message(&place(&of.queue), &shown, "")) { "the message with this id" } }
            } } }
            @if all > MOST { p { "These are the largest " (MOST) " of " (text::number(all as u64)) "." } }
        }
    };
    let trail = Trail::vhost(&vhost).then("search".to_owned(), paths::search(&vhost));
    Ok(page("Search", &trail, &content))
}

/// Queues that the proxy knows and the user may read.
async fn named(api: &Api, asked: &Asked, text: &str) -> Result<BTreeSet<ShortStr>, Problem> {
    let vhost = &asked.place.vhost;
    let handled = api.known.handlings.of(vhost).into_iter();
    let handled = handled.flat_map(|(queue, of)| {
        let target = of.target.filter(|target| target.exchange.is_empty());
        [Some(queue), target.and_then(|target| target.routing_key)]
    });
    let known = api.known.of(vhost).queues.into_iter().map(|of| of.queue);
    let mut found: BTreeSet<_> = handled.flatten().chain(known).collect();
    found.retain(|it| it.to_string().to_lowercase().contains(&text.to_lowercase()));
    let found = found.iter().take(MOST);
    Ok(api.looks.readable(asked, found).await?.0)
}
