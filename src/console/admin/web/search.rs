//! What the field in the header finds: the queue with that name, or where a text may be. No queue is browsed before somebody clicks.

use std::cmp::Reverse;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use maud::html;

use super::super::api::Asked;
use super::super::parameters::{Place, bad};
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
    let wanted = shown.to_lowercase();
    let mut queues = api.queues(&asked).await?.dead_letter_queues;
    let fits = |name: &ShortStr| name.to_string().to_lowercase().contains(&wanted);
    queues.sort_by_key(|of| Reverse((fits(&of.queue), of.messages)));
    let is_id = typed.len() == 16 && typed.iter().all(u8::is_ascii_hexdigit);
    let query = paths::query([("body", &typed[..])]);
    let content = html! {
        h1 { "Search for " (text::name(&shown)) }
        p { "There is no queue with exactly this name that you may read. Choose a queue, or look for the text in the messages of one." }
        @if queues.is_empty() { p { "No dead-letter queue is known that you may read." } }
        @else {
            table.stacked {
                thead { tr { th scope="col" { "Queue" } th.number scope="col" { "Messages" } th scope="col" { "Look for" } } }
                tbody { @for of in queues.iter().take(MOST) {
                    @let place = Place::new(vhost.clone(), of.queue.clone());
                    tr {
                        td.text data-label="Queue" {
                            @if fits(&of.queue) { b { a href=(paths::queue(&place)) { (text::name(&of.queue.to_string())) } } }
                            @else { a href=(paths::queue(&place)) { (text::name(&of.queue.to_string())) } }
                        }
                        td.number data-label="Messages" { @match of.messages { Some(messages) => (text::number(messages)), None => "–" } }
                        td data-label="Look for" {
                            a href=(paths::messages(&place, &query)) { "messages with this text" }
                            @if is_id { ", " a href=(paths::message(&place, &shown)) { "the message with this id" } }
                        }
                    }
                } }
            }
            @if queues.len() > MOST { p { "These are the first " (MOST) " of " (queues.len()) " dead-letter queues." } }
        }
    };
    let trail = Trail::vhost(&vhost).then("search".to_owned(), paths::search(&vhost));
    Ok(page("Search", &trail, &content))
}
