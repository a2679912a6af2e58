//! A queue: its dead letters by what they have in common.

use axum::Extension;
use axum::extract::{Request, State};
use maud::{Markup, html};

use super::super::api::{Peer, grouped, read};
use super::super::listing::Answer;
use super::super::parameters::Place;
use super::page::{Trail, facts, notes, page};
use super::{Answered, Pages, moving, paths, text};
use crate::letter::Group;
use crate::machine::Reason;

pub(super) async fn show(
    State(pages): State<Pages>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answered {
    let asked = read(&request, peer)?;
    let (place, query) = (asked.1.clone(), paths::query_without(&asked.2, &[]));
    let answer = grouped(&pages.moves.looks, peer, asked).await?;
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

/// How far a queue was looked at.
pub(super) fn looked<T>(answer: &Answer<T>) -> Markup {
    let known = |number: Option<u64>| match number {
        Some(number) => html! { (text::number(number)) },
        None => html! { span.none { "unknown" } },
    };
    html! {
        (facts(&[
            ("Type", html! { (answer.queue_type.unwrap_or("–")) }),
            ("Messages", known(answer.ready)),
            ("Consumers", known(answer.consumers)),
            ("Looked at", html! { (text::number(answer.looked_at)) }),
        ]))
        (notes(&answer.notes))
    }
}

fn groups(place: &Place, groups: &[Group]) -> Markup {
    html! {
        table.stacked {
            thead { tr {
                th.number scope="col" { "Messages" } th scope="col" { "Died in" } th scope="col" { "Reason" }
                th scope="col" { "Error" } th scope="col" { "Oldest" } th scope="col" { "Newest" }
            } }
            tbody {
                @for group in groups {
                    tr {
                        td.number data-label="Messages" { (number(place, group)) }
                        @if group.is_rest {
                            td colspan="3" data-label="Died in" { "many more groups" }
                        } @else {
                            td data-label="Died in" { (text::maybe(group.source.as_deref(), "unknown")) }
                            td data-label="Reason" { (text::maybe(group.reason.as_deref(), "unknown")) }
                            td.text data-label="Error" { (text::maybe(group.error.as_deref(), "–")) }
                        }
                        td data-label="Oldest" { (text::time(group.oldest.as_deref())) }
                        td data-label="Newest" { (text::time(group.newest.as_deref())) }
                    }
                }
            }
        }
    }
}

/// Their number, with a link to those of the same source and reason, whose error begins as theirs. What a group has none of the link cannot say, nor a
/// reason that is none of RabbitMQ's.
fn number(place: &Place, group: &Group) -> Markup {
    let number = text::number(group.messages);
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
    match query.is_empty() {
        true => html! { (number) },
        false => {
            let of = format!(
                "{number} messages that died in {} of {}",
                text::visible(group.source.as_deref().unwrap_or_default()),
                text::visible(reason)
            );
            html! { a href=(paths::messages(place, &query)) aria-label=(of) { (number) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::{ShortStr, Vhost};

    #[test]
    fn the_number_of_a_group_leads_to_its_messages() {
        let place = Place::new(Vhost::ROOT, ShortStr::copy(b"dead").expect("short"));
        let group = Group {
            of: ShortStr::copy(b"orders"),
            reason: Some("rejected".to_owned()),
            error: Some("no <stock>".to_owned()),
            messages: 7,
            ..Group::default()
        };
        let link = number(&place, &group).into_string();
        let path = "/vhosts/%2F/queues/dead/messages?source=orders&amp;reason=rejected&amp;error=no%20%3Cstock%3E";
        assert!(link.contains(path), "{link}");
        // Anybody can write one into a message.
        let odd = Group {
            reason: Some("odd".to_owned()),
            ..group
        };
        let link = number(&place, &odd).into_string();
        assert!(link.contains("messages?source=orders&amp;error="), "{link}");
    }
}
