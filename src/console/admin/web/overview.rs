//! How things stand in a vhost, and what moves messages there.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use maud::{Markup, html};

use super::super::api::queues::DeadLetterQueues;
use super::super::api::{Asked, not_asked};
use super::super::parameters::{Parameters, Place, bad};
use super::page::{Trail, facts, notes, page};
use super::{Answered, Api, charts, paths, text, told};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::console::redrives::Shown;

pub(super) async fn first(State(api): State<Api>, asked: Asked) -> Answered {
    asked.end()?;
    let mut last = None;
    for vhost in api.vhosts.iter() {
        let place = Place::new(vhost.clone(), ShortStr::EMPTY);
        let asked = Asked {
            place,
            ..asked.clone()
        };
        match api.looks.enter(&asked).await {
            Ok(()) => return show(&api, &asked).await,
            Err(problem) if problem.is_about_the_vhost() => last = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    Err(last.unwrap_or_else(|| bad("name a vhost: /vhosts/NAME")))
}

pub(super) async fn of_vhost(State(api): State<Api>, asked: Asked) -> Answered {
    asked.end()?;
    api.looks.enter(&asked).await?;
    show(&api, &asked).await
}

pub(super) async fn open(request: Request) -> Answered {
    let mut parameters = Parameters::of(request.uri());
    let (vhost, queue) = (parameters.name("vhost")?, parameters.name("queue")?);
    parameters.end()?;
    // Browsers take these for steps in a path, however they are escaped.
    let is_step = |name: &ShortStr| [&b"."[..], b".."].contains(&&name[..]);
    if vhost.iter().chain(&queue).any(is_step) {
        let detail = "a browser cannot name what is called . or ..: the command line can";
        return Err(bad(detail));
    }
    let path = match (vhost, queue) {
        (Some(vhost), Some(queue)) => paths::queue(&Place::new(vhost, queue)),
        (Some(vhost), None) => paths::vhost(&vhost),
        _ => return Err(bad("write the name of a queue and of its vhost")),
    };
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response())
}

async fn show(api: &Api, asked: &Asked) -> Answered {
    let vhost = &asked.place.vhost;
    let queues = api.queues(asked).await?;
    let (_, rates, no_rates) = api.rates(asked, &None).await?;
    let (mut redrives, unasked) = api.moves(asked).await?;
    redrives.sort_by_key(|shown| shown.ended.is_some());
    let name = vhost.to_string();
    let content = html! {
        h1 { "Vhost " (text::name(&name)) }
        @if api.vhosts.len() > 1 { (others(api, vhost)) }
        (state(api, vhost, &queues))
        section aria-labelledby="deaths" {
            h2 #deaths { "Deaths in the last hour" }
            (charts::deaths(&rates))
            p.actions { a.button href=(paths::live(vhost)) { "Dead letters as they come" } }
            (notes(&not_asked(no_rates)))
        }
        section aria-labelledby="queues" {
            h2 #queues { "Dead-letter queues" }
            (dead_letter_queues(vhost, &queues))
        }
        section aria-labelledby="look" {
            h2 #look { "Look into another queue" }
            form.row action="/open" method="get" {
                label { "Queue" input name="queue" required maxlength="255" autocomplete="off" spellcheck="false"; }
                label { "Vhost" input name="vhost" required maxlength="255" value=(name) autocomplete="off" spellcheck="false"; }
                button type="submit" { "Look" }
            }
        }
        section aria-labelledby="redrives" {
            h2 #redrives { "Redrives and purges" }
            (moves(vhost, &redrives))
            (notes(&not_asked(unasked)))
        }
    };
    let title = format!("Vhost {}", text::visible(&name));
    Ok(page(&title, &Trail::vhost(vhost), &content))
}

fn others(api: &Api, vhost: &Vhost) -> Markup {
    html! {
        nav aria-label="Vhosts" {
            ul.tabs {
                @for other in api.vhosts.iter() {
                    li {
                        a href=(paths::vhost(other)) aria-current=[(other == vhost).then_some("page")] {
                            (text::name(&other.to_string()))
                        }
                    }
                }
            }
        }
    }
}

fn state(api: &Api, vhost: &Vhost, known: &DeadLetterQueues) -> Markup {
    let standing = api.looks.metrics().standing(vhost);
    let reasons = api.readiness.reasons();
    let limits = api.looks.metrics().limits_that_were_met();
    let links = html! {
        @if standing.links.is_empty() { span.none { "none yet" } }
        ul.plain {
            @for (link, is_up) in &standing.links {
                li { (link) " " (sign(*is_up, if *is_up { "up" } else { "down" })) }
            }
        }
    };
    let ready = html! {
        @if reasons.is_empty() { (sign(true, "ready")) }
        @else {
            (sign(false, "not ready"))
            ul.plain { @for reason in &reasons { li { (text::visible(reason)) } } }
        }
    };
    let limits = html! {
        @if limits.is_empty() { "none" }
        ul.plain { @for (limit, times) in &limits { li { code { (limit) } " " (text::number(*times)) "×" } } }
    };
    html! {
        section aria-labelledby="state" {
            h2 #state { "State" }
            @if standing.is_native {
                p.problem { "The proxy's user has no rights in this vhost: the broker dead-letters here by itself." }
            }
            @for trouble in api.looks.metrics().own_queues_in_trouble(vhost) {
                p.problem { (text::visible(&trouble)) }
            }
            @if !known.alarms.is_empty() {
                p.problem { "The broker has an alarm (" (text::visible(&known.alarms.join(", "))) "): it takes no messages until that is over." }
            }
            @if standing.is_blocked {
                p.problem { "The broker blocks publishing: dead letters and redrives wait." }
            }
            (facts(&[
                ("This proxy", ready),
                ("Links", links),
                ("Dead-letter queues", dead_letters(known)),
                ("Parked messages, as of the last try", parked(standing.parked, known)),
                ("Limits met since the start, in all vhosts", limits),
            ]))
        }
    }
}

fn dead_letters(known: &DeadLetterQueues) -> Markup {
    let counted = known.dead_letter_queues.iter();
    let counted = counted.filter(|queue| queue.messages.is_some()).count();
    match known.messages {
        Some(messages) => {
            html! { (text::number(messages)) " messages in " (text::number(counted as u64)) " queues" }
        }
        None => html! { span.none { "not counted: that takes a management-url" } },
    }
}

fn parked(messages: Option<u64>, known: &DeadLetterQueues) -> Markup {
    match messages {
        Some(messages) => html! {
            (text::number(messages))
            @for one in &known.parked { " · " (text::visible(&one.cause.to_string())) " " (text::number(one.messages as u64)) }
        },
        None => html! { span.none { "not known yet" } },
    }
}

fn dead_letter_queues(vhost: &Vhost, known: &DeadLetterQueues) -> Markup {
    let queues = &known.dead_letter_queues;
    let link = |at: usize, name: &str| {
        let queue = queues.get(at).filter(|_| name == "queue")?;
        Some(paths::queue(&Place::new(
            vhost.clone(),
            queue.queue.clone(),
        )))
    };
    let columns = "queue,messages,oldest-seconds,dead-letters,targets,parking";
    html! {
        @if known.dead_letter_queues.is_empty() && known.elsewhere.is_empty() {
            p { "No dead-letter queue is known that you may read." }
        } @else if !known.dead_letter_queues.is_empty() {
            (told::table(queues, columns, link))
        }
        @if !known.elsewhere.is_empty() {
            p { "Dead letters went to these exchanges. It is not known to which queues they lead:" }
            ul { @for one in &known.elsewhere { li { (told::target(&one.target)) ": " (text::number(one.dead_letters)) } } }
        }
        @if known.left_out > 0 {
            p { (text::number(known.left_out)) " dead letters went to queues beyond those that are remembered." }
        }
        (notes(&known.notes))
    }
}

fn sign(is_good: bool, word: &str) -> Markup {
    html! { span.sign.good[is_good].bad[!is_good] { (word) } }
}

fn moves(vhost: &Vhost, redrives: &[Shown]) -> Markup {
    let link = |at: usize, name: &str| {
        let shown = redrives.get(at)?;
        match name {
            "id" => Some(paths::redrive(vhost, shown.id)),
            "queue" => Some(paths::queue(&Place::new(vhost.clone(), shown.of.clone()))),
            _ => None,
        }
    };
    html! {
        @if redrives.is_empty() { p { "There are none that you may see, of this process." } }
        @else { (told::table(redrives, "id,state,queue,to,gone,by,begun", link)) }
    }
}
