//! One message, and all that it says.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::{Asked, shown};
use super::super::parameters::Place;
use super::page::{Trail, notes, page};
use super::{Answered, Api, edit, moving, paths, text, told};
use crate::letter::{Body, Encoding, Header};

const FACTS: &str = "source-queue,reason,died-at,deaths,redriven,exchange,routing-key";
/// Headers that the page shows in a better way, or that only the proxy reads.
const HIDDEN: [&str; 2] = ["x-death", "x-dlx-proxy-"];

pub(super) async fn show(State(api): State<Api>, mut asked: Asked) -> Answered {
    let place = asked.place.clone();
    let query = paths::query_without(&asked.parameters, &[]);
    // Of the list that led here.
    let _page = ["offset", "limit"].map(|name| asked.parameters.all(name));
    let answer = shown(&api.looks, asked).await?;
    let (detail, letter) = (&answer.detail, &answer.detail.summary);
    let id = paths::query([("id", letter.id.as_bytes())]);
    let (source, reason) = (letter.source_queue.as_deref(), letter.reason.as_deref());
    let which = moving::died(source, reason, letter.error.as_deref());
    let title = format!("Message {}", letter.position);
    let has_ttl = detail
        .timeline
        .iter()
        .any(|death| death.original_expiration.is_some());
    let ttl = if has_ttl { ",original-expiration" } else { "" };
    let columns = format!("time,reason,queue,count,exchange,routing-keys{ttl}");
    let content = html! {
        div.bar {
            h1 { (title) }
            (moving::buttons(&place, &id, &which, Some(1)))
            (neighbours(&place, &query, [&answer.previous, &answer.next]))
        }
        (notes(&answer.notes))
        @if let Some(error) = &letter.error { p.problem { (text::visible(error)) } }
        @if let Some(cause) = &letter.parked_cause {
            p.problem { "Parked (" (text::visible(cause)) "): meant for exchange " (text::name(letter.parked_for.as_deref().unwrap_or_default())) "." }
        }
        (told::facts(letter, FACTS))
        section aria-labelledby="history" {
            h2 #history { "History" }
            @if detail.timeline.is_empty() { p.soft { "No deaths: the message was published to this queue, or its x-death was removed." } }
            @else { (told::table(&detail.timeline, &columns, |_, _| None)) }
        }
        div.columns {
            section aria-labelledby="body" { (body(&detail.body, letter.size)) }
            section aria-labelledby="headers" {
                h2 #headers { "Headers" }
                @if detail.malformed { p.problem { "The headers or properties of this message are damaged. The readable part is shown." } }
                (headers(&detail.headers))
                @if detail.headers_cut { p { "There are more headers than are shown here." } }
                h2 { "Properties" }
                @if detail.properties.is_empty() { p.soft { "None." } }
                (told::facts(&detail.properties, ""))
            }
        }
        (edit::form(&api, &place, detail))
        (moving::dialog(&place))
    };
    let path = paths::message(&place, &letter.id, &query);
    let trail = Trail::queue(&place)
        .then("messages".to_owned(), paths::messages(&place, &query))
        .then("message".to_owned(), path);
    Ok(page(&title, &trail, &content))
}

fn neighbours(place: &Place, query: &str, ids: [&Option<String>; 2]) -> Markup {
    let words = [("prev", "Previous"), ("next", "Next")];
    html! {
        nav.moves aria-label="Messages" {
            @for (id, (rel, word)) in ids.into_iter().zip(words) {
                @if let Some(id) = id { a.button rel=(rel) href=(paths::message(place, id, query)) { (word) } }
            }
        }
    }
}

fn headers(headers: &[Header]) -> Markup {
    let is_hidden = |header: &&Header| HIDDEN.iter().any(|name| header.name.starts_with(name));
    let (hidden, own): (Vec<&Header>, Vec<_>) = headers.iter().partition(is_hidden);
    let table = |of: &[&Header]| told::table(of, "name,type,value", |_, _| None);
    html! {
        @if own.is_empty() { p.soft { "None." } } @else { (table(&own)) }
        @if !hidden.is_empty() {
            details { summary { "Show all (" (hidden.len()) " more)" } (table(&hidden)) }
        }
    }
}

fn body(body: &Body, size: u64) -> Markup {
    let (kind, text) = match body.encoding {
        Encoding::Text => ("text", text::visible(&body.text)),
        Encoding::Json => ("JSON", text::visible(&body.text)),
        Encoding::Hex => ("not text: hexadecimal digits", text::hex_lines(&body.text)),
    };
    html! {
        div.bar {
            h2 #body { "Body" }
            span.soft { (text::bytes(size)) ", " (kind) @if body.cut { "; only the beginning is shown" } }
            @if size > 0 {
                @if body.encoding == Encoding::Json { button type="button" data-pretty aria-pressed="false" hidden { "Pretty" } }
                button type="button" data-copy hidden { "Copy" }
            }
        }
        @if size > 0 { pre.body tabindex="0" role="region" aria-label="Body" { (text) } }
    }
}
