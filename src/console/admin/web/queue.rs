//! A queue: its dead letters by what they have in common.

use axum::extract::State;
use maud::{Markup, html};
use serde::Serialize;

use super::super::api::{Asked, grouped};
use super::super::listing::Answer;
use super::super::parameters::Place;
use super::page::{Trail, notes, page};
use super::{Answered, Api, moving, paths, text, told};
use crate::letter::Group;
use crate::machine::Reason;

pub(super) async fn show(State(api): State<Api>, asked: Asked) -> Answered {
    let (place, query) = (
        asked.place.clone(),
        paths::query_without(&asked.parameters, &[]),
    );
    let answer = grouped(&api.looks, asked).await?;
    let name = place.queue.to_string();
    let content = html! {
        h1 { "Queue " (text::name(&name)) }
        (looked(&answer))
        p.actions {
            a.button href=(paths::messages(&place, &query)) { "All messages" }
            a.button href="" { "Look again" }
        }
        section aria-labelledby="groups" {
            h2 #groups { "Groups" }
            @if answer.found.groups.is_empty() { p { "No message was found." } }
            @else { (groups(&place, &answer.found.groups)) }
        }
        (moving::forms(&place, &query, &moving::Meant::All))
    };
    let title = format!("Queue {}", text::visible(&name));
    Ok(page(&title, &Trail::queue(&place), &content))
}

pub(super) fn looked<T: Serialize>(answer: &Answer<T>) -> Markup {
    html! {
        (told::facts(answer, "queue-type,ready,consumers,scanned"))
        (notes(&answer.notes))
    }
}

fn groups(place: &Place, groups: &[Group]) -> Markup {
    let link = |at: usize, name: &str| match name {
        "messages" => path(place, groups.get(at)?),
        _ => None,
    };
    let columns = "messages,source,reason,error,oldest,newest";
    html! {
        (told::table(groups, columns, link))
        @if groups.iter().any(|group| group.is_rest) { p { "The group without a source is of many more groups." } }
    }
}

/// The list of a group's messages. `None`: the group lacks a part, or its reason is unknown to
/// RabbitMQ.
fn path(place: &Place, group: &Group) -> Option<String> {
    let source = group.of.as_deref().unwrap_or_default();
    let reason = group.reason.as_deref();
    let reason = reason.and_then(|reason| Reason::parse(reason.as_bytes()));
    let reason = reason.map_or("", Reason::as_str);
    let error = group.error.as_deref().unwrap_or_default();
    let query = paths::query([
        ("source", source),
        ("reason", reason.as_bytes()),
        ("error", error.as_bytes()),
    ]);
    (!query.is_empty()).then(|| paths::messages(place, &query))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::{Vhost, name};

    #[test]
    fn the_number_of_a_group_leads_to_its_messages() {
        let place = Place::new(Vhost::ROOT, name("dead"));
        let of = |reason: Option<&str>| Group {
            of: Some(name("orders")),
            reason: reason.map(str::to_owned),
            error: Some("no <stock>".to_owned()),
            ..Group::default()
        };
        // Anybody can write another reason into a message.
        for (reason, parameter) in [("rejected", "&reason=rejected"), ("odd", "")] {
            let query = format!("source=orders{parameter}&error=no%20%3Cstock%3E");
            let link = format!("/vhosts/%2F/queues/dead/messages?{query}");
            assert_eq!(path(&place, &of(Some(reason))), Some(link));
        }
        assert_eq!(path(&place, &Group::default()), None);
    }
}
