//! The first page of a vhost: whether something is wrong, what there is, and what moves messages. `refresh.js` keeps it up to date.

use axum::extract::State;
use maud::{Markup, html};

use super::super::api::Asked;
use super::super::api::status::{Counts, Overview, Status};
use super::super::parameters::{Place, bad};
use super::page::{Trail, notes, page};
use super::{Answered, Api, charts, paths, text, told};
use crate::amqp::ids::{ShortStr, Vhost};
use crate::console::redrives::Shown;
use crate::known::{DeadLetterQueue, MINUTES};

/// Dead-letter queues that are shown unasked.
const MOST: usize = 50;

pub(super) async fn first(State(api): State<Api>, mut asked: Asked) -> Answered {
    let all = asked.parameters.one("all")?.is_some();
    asked.end()?;
    let mut last = None;
    for vhost in api.vhosts.iter() {
        let place = Place::new(vhost.clone(), ShortStr::EMPTY);
        let asked = Asked {
            place,
            ..asked.clone()
        };
        match api.looks.enter(&asked).await {
            Ok(()) => return show(&api, &asked, all).await,
            Err(problem) if problem.is_about_the_vhost() => last = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    Err(last.unwrap_or_else(|| bad("name a vhost: /vhosts/NAME")))
}

pub(super) async fn of_vhost(State(api): State<Api>, mut asked: Asked) -> Answered {
    let all = asked.parameters.one("all")?.is_some();
    asked.end()?;
    api.looks.enter(&asked).await?;
    show(&api, &asked, all).await
}

async fn show(api: &Api, asked: &Asked, all: bool) -> Answered {
    let vhost = &asked.place.vhost;
    let mut now = api
        .overview(asked, if all { usize::MAX } else { MOST })
        .await?;
    now.redrives.sort_by_key(|shown| shown.ended.is_some());
    let queues = &mut now.queues.dead_letter_queues;
    queues.retain(|of| !of.parking);
    let name = vhost.to_string();
    let content = html! {
        p.renewed data-renew { "As of " (text::time(&now.status.as_of)) }
        h1 { "Vhost " (text::name(&name)) }
        @if api.vhosts.len() > 1 { (others(api, vhost)) }
        (verdict(&now.status))
        (totals(api, vhost, &now.status))
        section aria-labelledby="queues" {
            h2 #queues { "Dead-letter queues" }
            (dead_letter_queues(vhost, &now, all))
        }
        section aria-labelledby="deaths" {
            h2 #deaths { "Deaths in the last hour" }
            (charts::deaths(&now.rates))
            p.actions { a.button href=(paths::live(vhost)) { "Dead letters as they come" } }
        }
        section aria-labelledby="redrives" {
            h2 #redrives { "Redrives and purges" }
            (moves(vhost, &now.redrives))
        }
        (notes(&now.status.notes))
        (details(api, vhost))
    };
    let title = format!("Vhost {}", text::visible(&name));
    Ok(page(&title, &Trail::vhost(vhost), &content))
}

fn verdict(status: &Status) -> Markup {
    html! {
        section.verdict.good[status.healthy].bad[!status.healthy] aria-label="Verdict" {
            p.says { @match status.problems.len() {
                0 => "Nothing is wrong.",
                1 => "1 problem needs attention.",
                problems => { (problems) " problems need attention." }
            } }
            @if !status.healthy {
                ul { @for one in &status.problems { li { b { (coded(&one.says)) } " " (coded(&one.advice)) } } }
            }
        }
    }
}

/// What stands between backticks is code.
pub(super) fn coded(sentence: &str) -> Markup {
    html! {
        @for (at, part) in sentence.split('`').enumerate() {
            @if at % 2 == 1 { code { (text::visible(part)) } } @else { (text::visible(part)) }
        }
    }
}

fn totals(api: &Api, vhost: &Vhost, status: &Status) -> Markup {
    let count = |counts: &Counts, name| match counts.get(name) {
        Some(Some(count)) => text::number(*count),
        _ => "–".to_owned(),
    };
    let Status { proxy, broker, .. } = status;
    let (dead, parked) = (&status.dead_letters, status.parked.iter());
    let parked = parked.map(|one| one.messages as u64).sum();
    let parking = Place::new(vhost.clone(), api.known.parking().clone());
    let handled = status.queues.iter().filter(|(_, of)| **of != Some(0));
    html! {
        dl.facts {
            div { dt { "Dead letters" } dd { b { (count(dead, "messages")) } } }
            div { dt { "Died in the last hour" } dd { b { (count(dead, "last-hour")) } } }
            div { dt { "Parked" } dd { b { a href=(paths::queue(&parking)) { (text::number(parked)) } } } }
            div { dt { "Wait for a retry or their time" } dd { b { (count(&status.retries, "waiting")) } ", " (count(&status.retries, "due")) " due" } }
            div { dt { "Redrives at work" } dd { b { (count(&status.redrives, "running")) } } }
            div { dt { "Handled queues" } dd { a href=(paths::handled(vhost)) { "list" } @for (name, _) in handled { ", " (name) " " (count(&status.queues, name)) } } }
            div { dt { "RabbitMQ" } dd { (broker.version.as_deref().unwrap_or("–")) @if let Some(node) = &broker.node { " at " (text::visible(node)) } } }
            div { dt { "This proxy" } dd { (proxy.version) " on " (text::name(&proxy.name)) ", up for " (text::duration(proxy.uptime_seconds)) @if !proxy.ready { ", not ready" } } }
        }
    }
}

fn dead_letter_queues(vhost: &Vhost, now: &Overview, all: bool) -> Markup {
    let known = &now.queues;
    let queues = &known.dead_letter_queues;
    let shown = if all { queues.len() } else { MOST };
    // What cannot be shown yet has a note.
    let others = match all {
        true => 0,
        false => known.totals.0.saturating_sub(MOST),
    };
    html! {
        @if queues.is_empty() && known.elsewhere.is_empty() {
            p { "No dead-letter queue is known that you may read. A queue is shown here once the proxy has seen a dead letter for it, or a queue that names it." }
        } @else if !queues.is_empty() {
            table.stacked {
                thead { tr {
                    th scope="col" { "Queue" } th.number scope="col" { "Messages" } th.number scope="col" { "Oldest" }
                    th.number scope="col" { "Last hour" } th scope="col" { "Trend" } th scope="col" { "Targets" }
                } }
                tbody { @for of in queues.iter().take(shown) { (row(vhost, now, of)) } }
            }
        }
        @if others > 0 {
            p.actions { "These have the most messages. " a.button href="?all=true" { "Show " (text::number(others as u64)) " more" } }
        }
        @if !known.elsewhere.is_empty() {
            p { "Dead letters went to these exchanges. It is not known to which queues they lead:" }
            ul { @for one in &known.elsewhere { li { (told::target(&one.target)) ": " (text::number(one.dead_letters)) } } }
        }
        @if known.left_out > 0 {
            p { (text::count(known.left_out, "dead letter")) " went to queues beyond those that are remembered." }
        }
    }
}

fn row(vhost: &Vhost, now: &Overview, of: &DeadLetterQueue) -> Markup {
    let place = Place::new(vhost.clone(), of.queue.clone());
    let trend = trend(now, of);
    let died = trend.map(|trend| trend.into_iter().map(u64::from).sum());
    let number = |number: Option<u64>| html! { @match number { Some(number) => (text::number(number)), None => span.none { "–" } } };
    html! {
        tr {
            td.text data-label="Queue" {
                a href=(paths::queue(&place)) { (text::name(&of.queue.to_string())) }
            }
            td.number data-label="Messages" { (number(of.messages)) }
            td.number data-label="Oldest" { @match of.oldest_seconds { Some(age) => (text::duration(age)), None => span.none { "–" } } }
            td.number data-label="Last hour" { (number(died)) }
            td.wide data-label="Trend" { @if let Some(trend) = trend { (charts::chart(&trend)) } }
            td.text data-label="Targets" { @if !of.targets.is_empty() { ul.plain { @for target in &of.targets { li { (told::target(target)) } } } } }
        }
    }
}

/// Deaths by minute in the queues whose dead letters go there. `None`: no such queue is known.
fn trend(now: &Overview, of: &DeadLetterQueue) -> Option<[u32; MINUTES]> {
    let leads_here = |queue: &ShortStr| {
        let target = now.targets.get(queue)?;
        let fits = |here: &&_| target.covers(here);
        of.targets.iter().find(fits)
    };
    let rates = now.rates.iter();
    let rates = rates.filter(|rate| rate.queue.as_ref().and_then(leads_here).is_some());
    let sum = |a: [u32; MINUTES], b: [u32; MINUTES]| {
        std::array::from_fn(|at| a[at].saturating_add(b[at]))
    };
    rates.map(|rate| rate.per_minute).reduce(sum)
}

fn details(api: &Api, vhost: &Vhost) -> Markup {
    let metrics = api.looks.metrics();
    html! {
        details {
            summary { "The proxy's connections and limits" }
            dl.facts {
                div { dt { "Connections in this vhost" } dd { ul.plain { @for (link, is_up) in metrics.standing(vhost).links { li { (link) @if is_up { " up" } @else { " " span.sign.bad { "down" } } } } } } }
                div { dt { "Limits reached since the start, in all vhosts" } dd { ul.plain { @for (limit, times) in metrics.limits_that_were_met() { li { code { (limit) } " " (text::number(times)) "×" } } } } }
            }
        }
    }
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
        @if redrives.is_empty() { p { "No redrives yet." } }
        @else { (told::table(redrives, "id,state,queue,to,gone,by,begun", link)) }
    }
}
