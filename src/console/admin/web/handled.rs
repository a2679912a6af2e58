//! How the queues of a vhost are handled, why, and what to do.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::Asked;
use super::super::api::handled::{Differs, HandledQueue, handled};
use super::super::parameters::Place;
use super::overview::coded;
use super::page::{Trail, notes, page};
use super::{Answered, Api, moving, paths, text, told};

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    let vhost = asked.place.vhost.clone();
    let found = handled(&api, asked).await?;
    let is_to_change = api.adoption.is_some();
    let button = |of: &HandledQueue| match (is_to_change, of.state, of.cause) {
        (true, "rejects-only", "broker-policy" | "proxy-policy") => {
            moving::plan(&of.queue, "adopt", "Adopt")
        }
        (true, _, "own-arguments" | "not-taken-over") => {
            moving::plan(&of.queue, "alter", "Take over")
        }
        (true, _, "adopted") => moving::plan(&of.queue, "release", "Release"),
        _ => html! {},
    };
    let row = |of: &HandledQueue| {
        let place = Place::new(vhost.clone(), of.queue.clone());
        html! { tr {
            td.text data-label="Queue" { a href=(paths::queue(&place)) { (text::name(&of.queue.to_string())) } }
            td data-label="Handled" { (of.state) }
            td.text data-label="Target" { div {
                @if let Some(target) = &of.target { (told::target(target)) } @else { span.none { "–" } }
                @if of.leads_nowhere() { " " span.sign.bad { "leads to no queue" } }
                @for differs in &of.differs { (difference(differs)) }
            } }
            td data-label="Retries" {
                @if of.retries { "yes" } @else { "no" }
                @if let Some(seconds) = of.ack_timeout_seconds { ", ack timeout " (text::duration(seconds)) }
            }
            td.text data-label="Why" { a href={ "#" (of.cause) } { (of.cause) } }
            @if is_to_change { td.own { (button(of)) } }
        } }
    };
    let content = html! {
        h1 { "Handled queues" }
        @if found.queues.is_empty() { p { "No queue with a dead-letter exchange, retries or an ack timeout is known that you may read." } }
        @else {
            p { "Queues with a dead-letter exchange, retries or an ack timeout; those first that need attention." }
            table.stacked {
                thead { tr { @for name in ["Queue", "Handled", "Target", "Retries", "Why"] { th scope="col" { (name) } } @if is_to_change { th {} } } }
                tbody { @for of in &found.queues { (row(of)) } }
            }
        }
        @if found.left_out > 0 { p { "There are " (text::number(found.left_out as u64)) " more. " code { "dlx-proxy queues" } " lists up to 1,000." } }
        dl.causes { @for (name, cause) in &found.causes {
            dt #(name) { (name) } dd { (coded(cause.says)) " " (coded(cause.advice)) }
        } }
        (notes(&found.notes))
        @if is_to_change { (moving::plans(&vhost)) }
    };
    let trail = Trail::vhost(&vhost).then("queues".to_owned(), paths::handled(&vhost));
    Ok(page("Handled queues", &trail, &content))
}

fn difference(differs: &Differs) -> Markup {
    let Differs {
        argument,
        wanted,
        has,
    } = differs;
    let has = has.as_deref().unwrap_or("none");
    html! { p {
        @match wanted {
            Some(wanted) => { "Declared with " code { (argument) } " " (wanted) }
            None => { "Declared without " code { (argument) } }
        }
        "; the queue has " (has) "."
    } }
}
