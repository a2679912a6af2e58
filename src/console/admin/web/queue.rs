//! A queue: its dead letters by what they have in common.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::{Asked, grouped};
use super::super::listing::Answer;
use super::super::parameters::Place;
use super::page::{Trail, notes, page};
use super::{Answered, Api, moving, paths, text, told};
use crate::letter::Group;
use crate::machine::Reason;

/// A page with more is slow, and nobody reads it.
const MOST: usize = 200;

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    let (place, parameters) = (asked.place.clone(), asked.parameters.clone());
    let query = paths::query_without(&parameters, &[]);
    let answer = grouped(&api.looks, asked).await?;
    let name = place.queue.to_string();
    let which = moving::filtered(&parameters);
    let content = html! {
        h1 { "Queue " (text::name(&name)) }
        (looked(&answer))
        @if answer.found.groups.is_empty() { (none(&name, &query)) }
        @else {
            section aria-labelledby="groups" {
                div.bar {
                    h2 #groups { "Groups" }
                    a.button href=(paths::messages(&place, &query)) { "All messages" }
                    (moving::buttons(&place, &query, &which, Some(answer.matched)))
                }
                (groups(&place, &answer.found.groups))
            }
        }
        (moving::dialog(&place))
    };
    let title = format!("Queue {}", text::visible(&name));
    Ok(page(&title, &Trail::queue(&place), &content))
}

/// What the queue is, and what to know of the answer.
pub(super) fn looked<T>(answer: &Answer<T>) -> Markup {
    html! {
        p.soft {
            @if let Some(ready) = answer.ready { (text::count(ready, "message")) } @else { "At least " (text::count(answer.scanned, "message")) }
            @if let Some(kind) = answer.queue_type { " · " (kind) " queue" }
            @if let Some(consumers) = answer.consumers.filter(|it| *it > 0) { " · " (text::count(consumers, "consumer")) }
            " · " a href="" { "Refresh" }
        }
        (notes(&answer.notes))
    }
}

pub(super) fn none(queue: &str, query: &str) -> Markup {
    html! {
        p.empty {
            @if query.is_empty() { "No dead letters in " (text::name(queue)) "." }
            @else { "No message in " (text::name(queue)) " matches the filter." }
        }
    }
}

fn groups(place: &Place, groups: &[Group]) -> Markup {
    let (shown, more) = groups.split_at(groups.len().min(MOST));
    let own = |at: usize, name: &str, cell: Markup| {
        let Some((group, query)) = shown.get(at).and_then(|it| Some((it, query(it)?))) else {
            return if name == "actions" {
                html! {}
            } else {
                cell
            };
        };
        let path = paths::messages(place, &query);
        match name {
            "messages" => html! { a href=(path) { (cell) } },
            "actions" => {
                let (source, reason) = (group.source.as_deref(), group.reason.as_deref());
                let which = moving::died(source, reason, group.error.as_deref());
                html! {
                    a.button href=(path) { "Open" }
                    (moving::buttons(place, &query, &which, Some(group.messages)))
                }
            }
            _ => cell,
        }
    };
    let left: u64 = more.iter().map(|group| group.messages).sum();
    html! {
        @if left > 0 { p { "The largest " (shown.len()) " groups are shown. Smaller ones have " (text::count(left, "message")) " more: filter the messages to find them." } }
        @else if shown.iter().any(|group| group.is_rest) { p { "The last line has the messages of all smaller groups." } }
        (told::table_of(shown, "messages,error,source,reason,newest,oldest,actions", own))
    }
}

/// The filter that takes this group and no other. `None`: its reason is unknown to RabbitMQ, or it is what many small groups have together.
fn query(group: &Group) -> Option<String> {
    let reason = match group.reason.as_deref() {
        Some(reason) => Reason::parse(reason.as_bytes())?.as_str(),
        None => "",
    };
    let error = group.error.as_deref().unwrap_or_default();
    let query = paths::query([
        ("source", group.of.as_deref().unwrap_or_default()),
        ("reason", reason.as_bytes()),
        ("error", error.as_bytes()),
        ("exact", b"true"),
    ]);
    (!group.is_rest).then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    #[test]
    fn a_group_has_a_filter_that_takes_no_other() {
        let of = |reason: Option<&str>| Group {
            of: Some(name("orders")),
            reason: reason.map(str::to_owned),
            error: Some("no <stock>".to_owned()),
            ..Group::default()
        };
        let all = "source=orders&reason=rejected&error=no%20%3Cstock%3E&exact=true";
        assert_eq!(query(&of(Some("rejected"))).as_deref(), Some(all));
        // Anybody can write another reason into a message.
        assert_eq!(query(&of(Some("odd"))), None);
        let bare = Group::default();
        assert_eq!(query(&bare).as_deref(), Some("exact=true"));
        let rest = Group {
            is_rest: true,
            ..bare
        };
        assert_eq!(query(&rest), None);
    }
}
