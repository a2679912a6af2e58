//! One message, and all that it says.

use axum::Extension;
use axum::extract::{Request, State};
use maud::{Markup, html};

use super::super::api::{Peer, read, shown};
use super::page::{Trail, facts, notes, page};
use super::{Answered, Pages, moving, paths, text};
use crate::letter::{Body, Detail, Encoding};

pub(super) async fn show(
    State(pages): State<Pages>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let asked = read(&request, peer)?;
    let place = asked.1.clone();
    let answer = shown(&pages.moves.looks, peer, asked).await?;
    let (detail, letter) = (&answer.detail, &answer.detail.summary);
    let parked = |text: &Option<String>| text.as_deref().map(|it| text::maybe(Some(it), ""));
    let mut known = vec![
        (
            "Place in the queue",
            html! { (text::number(letter.position)) },
        ),
        (
            "Died in",
            text::maybe(letter.source_queue.as_deref(), "unknown"),
        ),
        ("Reason", text::maybe(letter.reason.as_deref(), "unknown")),
        ("Died at", text::time(letter.died_at.as_deref())),
        ("Deaths", html! { (text::number(letter.deaths)) }),
        ("Redriven", html! { (text::number(letter.redriven)) "×" }),
        ("Exchange", text::maybe(Some(&letter.exchange), "")),
        ("Routing key", text::maybe(Some(&letter.routing_key), "")),
        ("Error", text::maybe(letter.error.as_deref(), "–")),
        (
            "Delivered before",
            html! { @if letter.redelivered { "yes" } @else { "no" } },
        ),
    ];
    known.extend(parked(&letter.parked_for).map(|it| ("Parked for exchange", it)));
    known.extend(parked(&letter.parked_cause).map(|it| ("Parked because", it)));
    let id = paths::query([("id", letter.id.as_bytes())]);
    let title = format!("Message {}", letter.position);
    let content = html! {
        h1 { (title) }
        (notes(&answer.notes))
        (facts(&known))
        section aria-labelledby="story" {
            h2 #story { "Story" }
            @if detail.story.is_empty() { p { "It says nothing of how it came here." } }
            ol.story { @for sentence in &detail.story { li { (text::visible(sentence)) } } }
        }
        section aria-labelledby="body" {
            h2 #body { "Body" }
            (body(&detail.body, letter.size))
        }
        section aria-labelledby="headers" {
            h2 #headers { "Headers" }
            @if detail.malformed { p.problem { "Its properties or headers cannot be read to their end." } }
            (headers(detail))
        }
        section aria-labelledby="properties" {
            h2 #properties { "Properties" }
            (properties(detail))
        }
        (moving::forms(&place, &id, &moving::Meant::One))
    };
    let path = paths::message(&place, &letter.id);
    Ok(page(
        &title,
        &Trail::queue(&place).then("message".to_owned(), path),
        &content,
    ))
}

fn body(body: &Body, size: u64) -> Markup {
    let (kind, text) = match body.encoding {
        Encoding::Text => ("text", text::visible(&body.text)),
        Encoding::Json => ("JSON", text::visible(&body.text)),
        Encoding::Hex => ("not text: hexadecimal digits", text::hex_lines(&body.text)),
    };
    html! {
        p { (text::octets(size)) ", " (kind) @if body.cut { "; this is its beginning" } }
        @if size > 0 { pre.body tabindex="0" role="region" aria-label="Body" { (text) } }
    }
}

fn headers(detail: &Detail) -> Markup {
    html! {
        @if detail.headers.is_empty() { p { "It has none." } }
        @else {
            table.stacked {
                thead { tr { th scope="col" { "Name" } th scope="col" { "Type" } th scope="col" { "Value" } } }
                tbody {
                    @for header in &detail.headers {
                        tr {
                            td data-label="Name" { (text::maybe(Some(&header.name), "")) }
                            td data-label="Type" { (header.kind) }
                            td.wide data-label="Value" { (value(&header.value)) }
                        }
                    }
                }
            }
        }
        @if detail.headers_cut { p { "There is more than what is shown here." } }
    }
}

fn properties(detail: &Detail) -> Markup {
    html! {
        @if detail.properties.is_empty() { p { "It has none." } }
        @else {
            dl.facts { @for (name, property) in &detail.properties { div { dt { (name) } dd { (value(property)) } } } }
        }
    }
}

/// A text as it is, what is nested on lines of its own.
fn value(value: &serde_json::Value) -> Markup {
    match value {
        serde_json::Value::String(text) if text.is_empty() => text::maybe(Some(""), ""),
        serde_json::Value::String(text) => html! { span.value { (text::visible(text)) } },
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
            html! { pre { (text::visible(&pretty)) } }
        }
        plain => html! { span.value { (plain.to_string()) } },
    }
}
