//! One redrive or purge, while it goes on.

use axum::extract::State;
use maud::html;

use super::super::api::Asked;
use super::super::parameters::Place;
use super::page::{Trail, page};
use super::{Answered, Api, paths, text, told};
use crate::console::redrives::{Shown, State as Doing};
use crate::letter::rfc_3339;
use crate::machine::Wall;

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    let shown = api.seen(&asked).await?;
    let vhost = asked.place.vhost;
    let title = title(&shown);
    let place = Place::new(vhost.clone(), shown.of.clone());
    let ends = |verb| paths::told(&vhost, shown.id, verb);
    let has_ended = shown.ended.is_some();
    let content = html! {
        h1 { (title) }
        p { "From queue " a href=(paths::queue(&place)) { (text::name(&shown.queue)) } ", by " (text::name(&shown.by)) ", started " (text::time(&rfc_3339(Wall(shown.begun)))) "." }
        p { @if shown.to == "nowhere" { "Messages are removed for good." } @else if shown.to == "source" { "Messages go back to the queues that they died in." } @else { "Messages go to " (text::name(&shown.to)) "." } }
        section.watched aria-labelledby="progress" data-watch=(ends("")) {
            h2 #progress { "Progress" }
            // A bar without a value moves by itself, so it has one.
            progress data-show="bar" aria-labelledby="progress" max=(shown.ready.unwrap_or(1).max(1)) value=(if has_ended { shown.ready.unwrap_or(1).max(1) } else { shown.seen }) {}
            p.state role="status" aria-live="polite" { "It is " span data-show="state" { (told::word(&shown.state)) } "."  }
            p.problem data-show="cause" hidden[shown.cause.is_none()] { (shown.cause.as_deref().map(text::visible).unwrap_or_default()) }
            ul.notes aria-label="Notes" data-show="notes" hidden[shown.notes.is_empty()] { @for note in &shown.notes { li { (text::visible(note)) } } }
            dl.facts {
                div { dt { "Speed" } dd data-show="rate" { "–" } }
                div { dt { "Time left" } dd data-show="left" { "–" } }
                div { dt { "In the queue at the start" } dd data-show="ready" { (shown.ready.map_or("unknown".to_owned(), text::number)) } }
                div { dt { "Searched" } dd data-show="seen" { (text::number(shown.seen)) } }
                div { dt { @if shown.to == "nowhere" { "Removed" } @else { "Sent" } } dd data-show="gone" { (text::number(shown.gone)) } }
                div { dt { "Matching, but stayed" } dd { ul.plain data-show="stay" {
                    @for (why, number) in &shown.stay { li { (text::visible(why)) ": " (text::number(*number)) } }
                    @if shown.stay.is_empty() { li { "none" } }
                } } }
            }
            p.actions data-show="actions" hidden[has_ended] {
                button type="button" data-tell=(ends("/pause")) data-when="running waiting" hidden[shown.state == Doing::Paused] { "Pause" }
                button type="button" data-tell=(ends("/resume")) data-when="paused" hidden[shown.state != Doing::Paused] { "Resume" }
                button.danger type="button" data-tell=(ends("/cancel")) data-when="running waiting paused" { "Cancel" }
            }
            p.problem role="alert" data-show="problem" hidden {}
            noscript { p.problem { "Without JavaScript this page shows how far it was when you loaded it, and has no buttons." } }
        }
    };
    Ok(page(&title, &Trail::queue(&place), &content))
}

fn title(shown: &Shown) -> String {
    let what = match shown.to.as_str() {
        "nowhere" => "Purge",
        _ => "Redrive",
    };
    format!("{what} {}", shown.id)
}
