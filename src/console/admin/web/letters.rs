//! A list of messages, page by page, with the form of its filter.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::{Asked, listed};
use super::super::listing::{Answer, Letters, USUAL};
use super::super::parameters::{Parameters, Place};
use super::page::{Trail, page};
use super::{Answered, Api, moving, paths, queue, text, told};
use crate::letter::Summary;
use crate::machine::Reason;

const PAGE: [&str; 2] = ["offset", "limit"];

pub(super) async fn list(State(api): State<Api>, asked: Asked) -> Answered {
    let (place, parameters) = (asked.place.clone(), asked.parameters.clone());
    let answer = listed(&api.looks, asked).await?;
    let query = paths::query_without(&parameters, &PAGE);
    let name = place.queue.to_string();
    let whole = paths::query_without(&parameters, &[]);
    let is_empty = answer.found.dead_letters.is_empty();
    let content = html! {
        h1 { "Messages in " (text::name(&name)) }
        (queue::looked(&answer))
        (filter(&place, &parameters))
        section aria-labelledby="messages" {
            @if is_empty { (queue::none(&name, &whole)) }
            @else {
                div.bar.sticky data-select {
                    h2 #messages data-show="number" { @if query.is_empty() { "All messages" } @else { "All that match" } }
                    (moving::buttons(&place, &query, &moving::filtered(&parameters), None))
                    label.choice { input type="checkbox" data-all; "Select all on this page" }
                }
                (letters(&place, &answer.found.dead_letters, &whole))
            }
            (pager(&place, &parameters, &query, &answer))
        }
        (moving::dialog(&place))
    };
    let title = format!("Messages in {}", text::visible(&name));
    let trail = Trail::queue(&place).then("messages".to_owned(), paths::messages(&place, ""));
    Ok(page(&title, &trail, &content))
}

/// `query`: of this page, so that a message leads back here, and to its neighbours.
fn letters(place: &Place, letters: &[Summary], query: &str) -> Markup {
    let own = |at: usize, name: &str, cell: Markup| {
        let Some(letter) = letters.get(at) else {
            return cell;
        };
        match name {
            "select" => html! {
                input type="checkbox" value=(letter.id) aria-label={"Select message " (letter.position)};
            },
            "preview" => html! { a href=(paths::message(place, &letter.id, query)) {
                @if letter.preview.is_some() { (cell) } @else { "message " (letter.position) }
            } },
            _ => cell,
        }
    };
    let any = |is: fn(&Summary) -> bool, column: &'static str| {
        if letters.iter().any(is) { column } else { "" }
    };
    let columns = [
        "select",
        any(|it| it.error.is_some(), ",error"),
        ",preview,source-queue,reason,died-at,routing-key,size",
        any(|it| it.redriven > 0, ",redriven"),
        any(|it| it.parked_cause.is_some(), ",parked-cause"),
    ];
    told::table_of(letters, &columns.concat(), own)
}

/// Works without JavaScript.
fn filter(place: &Place, parameters: &Parameters) -> Markup {
    let one = |name: &str| parameters.texts(name).next().unwrap_or_default();
    let input = |label: &str, name: &str, value: &str, hint: &str| {
        html! {
            label { (label) input name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false"; }
        }
    };
    let headers = parameters.texts("header").chain([String::new()]);
    let is_open = parameters.pairs().any(|(name, _)| !PAGE.contains(&name));
    html! {
        details open[is_open] {
            summary { "Filter" }
            form.row action=(paths::messages(place, "")) method="get" {
                (input("Died in", "source", &one("source"), "queue"))
                label { "Reason" select name="reason" {
                    option value="" { "any" }
                    @for reason in Reason::ALL.map(Reason::as_str) { option value=(reason) selected[reason == one("reason")] { (reason) } }
                } }
                (input("Error", "error", &one("error"), "how its first line begins"))
                @if !one("exact").is_empty() {
                    label.choice { input type="checkbox" name="exact" value="true" checked; "Exactly this group" }
                }
                (input("Routing key", "routing-key", &one("routing-key"), ""))
                @for header in headers { (input("Header", "header", &header, "NAME=VALUE")) }
                (input("Text in the body", "body", &one("body"), ""))
                (input("Died in the last", "since", &one("since"), "15m, 2h, 7d"))
                (input("Died at least … ago", "older-than", &one("older-than"), "15m, 2h, 7d"))
                @for id in parameters.texts("id") { input type="hidden" name="id" value=(id); }
                button type="submit" { "Filter" }
                a.button href=(paths::messages(place, "")) { "No filter" }
            }
        }
    }
}

fn pager(place: &Place, parameters: &Parameters, query: &str, answer: &Answer<Letters>) -> Markup {
    let number = |name: &str| parameters.texts(name).next()?.parse::<u64>().ok();
    let limit = number("limit").unwrap_or(USUAL as u64);
    let offset = number("offset").unwrap_or(0);
    let to = |offset: u64| {
        let (offset, limit) = (offset.to_string(), limit.to_string());
        let page = paths::query([("offset", offset.as_bytes()), ("limit", limit.as_bytes())]);
        let parts = [query, &page].into_iter().filter(|part| !part.is_empty());
        paths::messages(place, &parts.collect::<Vec<_>>().join("&"))
    };
    let shown = answer.found.dead_letters.len() as u64;
    // Of a page without a filter the number of messages is often known.
    let is_last = shown < limit
        || (query.is_empty() && answer.ready.is_some_and(|ready| ready <= offset + shown));
    html! {
        nav.actions aria-label="Pages" {
            @if offset > 0 { a.button rel="prev" href=(to(offset.saturating_sub(limit))) { "Older" } }
            @if shown > 0 { span {
                (text::number(offset + 1)) " to " (text::number(offset + shown))
                @if let Some(ready) = answer.ready.filter(|_| query.is_empty()) { " of " (text::number(ready)) }
            } }
            @if !is_last { a.button rel="next" href=(to(offset + limit)) { "Newer" } }
        }
    }
}
