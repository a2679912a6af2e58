//! What the field in the header finds: the queue with that name, or where a text may be. No queue is browsed before somebody clicks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use maud::html;

use super::super::api::Asked;
use super::super::parameters::{Place, bad};
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
        if answers == [None] {
            // Browsers take these for steps in a path, however they are escaped.
            return match [&b"."[..], b".."].contains(&&typed[..]) {
                true => Err(bad(
                    "a browser cannot name what is called . or ..: the command line can",
                )),
                false => leads_to(paths::queue(&Place::new(vhost, queue))),
            };
        }
    }
    let shown = String::from_utf8_lossy(&typed).into_owned();
    let mut dead = api.queues(&asked).await?.dead_letter_queues;
    dead.sort_by_key(|of| Reverse(of.messages));
    let dead: Vec<_> = dead.into_iter().map(|of| (of.queue, of.messages)).collect();
    let named = named(&api, &asked, &shown).await?;
    let is_id = typed.len() == 16 && typed.iter().all(u8::is_ascii_hexdigit);
    let query = paths::query([("body", &typed[..])]);
    let rows = |queues: &[(ShortStr, Option<u64>)]| {
        html! { table.stacked {
            thead { tr { th scope="col" { "Queue" } th.number scope="col" { "Messages" } th scope="col" { "Look for" } } }
            tbody { @for (queue, messages) in queues.iter().take(MOST) {
                @let place = Place::new(vhost.clone(), queue.clone());
                tr {
                    td.text data-label="Queue" { a href=(paths::queue(&place)) { (text::name(&queue.to_string())) } }
                    td.number data-label="Messages" { @match messages { Some(messages) => (text::number(*messages)), None => "–" } }
                    td data-label="Look for" {
                        a href=(paths::messages(&place, &query)) { "messages with this text" }
                        @if is_id { ", " a href=(paths::message(&place, &shown, "")) { "the message with this id" } }
                    }
                }
            } }
        } }
    };
    let content = html! {
        h1 { "Search for " (text::name(&shown)) }
        section aria-labelledby="named" {
            h2 #named { "Queues with this in their names" }
            @if named.is_empty() { p { "None that you may read is known. A queue that the proxy does not know is found by its whole name." } }
            @else { (rows(&named)) }
        }
        section aria-labelledby="messages" {
            h2 #messages { "Look in the messages of a dead-letter queue" }
            @if dead.is_empty() { p { "No dead-letter queue is known that you may read." } }
            @else { (rows(&dead)) }
            @if dead.len() > MOST { p { "These are the largest " (MOST) " of " (dead.len()) "." } }
        }
    };
    let trail = Trail::vhost(&vhost).then("search".to_owned(), paths::search(&vhost));
    Ok(page("Search", &trail, &content))
}

/// Queues that the proxy knows and the user may read.
async fn named(
    api: &Api,
    asked: &Asked,
    text: &str,
) -> Result<Vec<(ShortStr, Option<u64>)>, Problem> {
    let vhost = &asked.place.vhost;
    let known = api.known.of(vhost).queues.into_iter();
    let known = known.map(|of| (of.queue, of.messages));
    let handled = api.known.handlings.of(vhost).into_iter();
    let handled = handled.flat_map(|(queue, of)| {
        let target = of.target.filter(|target| target.exchange.is_empty());
        [Some(queue), target.and_then(|target| target.routing_key)]
    });
    let text = text.to_lowercase();
    let mut found: BTreeMap<_, _> = handled
        .flatten()
        .map(|queue| (queue, None))
        .chain(known)
        .collect();
    found.retain(|queue, _| queue.to_string().to_lowercase().contains(&text));
    let found: Vec<_> = found.into_iter().take(MOST).collect();
    let names = found.iter().map(|(queue, _)| queue);
    let (readable, _) = api.looks.readable(asked, names).await?;
    Ok(found
        .into_iter()
        .filter(|(queue, _)| readable.contains(queue))
        .collect())
}
