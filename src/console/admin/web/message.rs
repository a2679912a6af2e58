//! One message, and all that it says.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::{Asked, shown};
use super::page::{Trail, notes, page};
use super::{Answered, Api, edit, moving, paths, text, told};
use crate::letter::{Body, Encoding};

const FACTS: &str = "position,source-queue,reason,died-at,deaths,redriven,exchange,routing-key,error,redelivered,parked-for,parked-cause";

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    let place = asked.place.clone();
    let answer = shown(&api.looks, asked).await?;
    let (detail, letter) = (&answer.detail, &answer.detail.summary);
    let id = paths::query([("id", letter.id.as_bytes())]);
    let title = format!("Message {}", letter.position);
    let content = html! {
        h1 { (title) }
        (notes(&answer.notes))
        (told::facts(letter, FACTS))
        section aria-labelledby="history" {
            h2 #history { "History" }
            @if detail.history.is_empty() { p { "It says nothing of how it came here." } }
            ol.history { @for sentence in &detail.history { li { (text::visible(sentence)) } } }
        }
        section aria-labelledby="body" {
            h2 #body { "Body" }
            (body(&detail.body, letter.size))
        }
        section aria-labelledby="headers" {
            h2 #headers { "Headers" }
            @if detail.malformed { p.problem { "Its properties or headers cannot be read to their end." } }
            @if detail.headers.is_empty() { p { "It has none." } }
            @else { (told::table(&detail.headers, "name,type,value", |_, _| None)) }
            @if detail.headers_cut { p { "There is more than what is shown here." } }
        }
        section aria-labelledby="properties" {
            h2 #properties { "Properties" }
            @if detail.properties.is_empty() { p { "It has none." } }
            (told::facts(&detail.properties, ""))
        }
        (moving::forms(&place, &id, &moving::Meant::One))
        (edit::form(&api, &place, detail))
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
        p { (text::bytes(size)) ", " (kind) @if body.cut { "; this is its beginning" } }
        @if size > 0 { pre.body tabindex="0" role="region" aria-label="Body" { (text) } }
    }
}
