//! What all pages have in common.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::super::parameters::Place;
use super::super::problem::Problem;
use super::{assets, paths, text};
use crate::amqp::ids::Vhost;

const HTML: &str = "text/html; charset=utf-8";

/// Where a page is.
pub(super) struct Trail {
    /// Titles and paths, the widest first.
    steps: Vec<(String, String)>,
    vhost: Option<Vhost>,
}

const NOWHERE: Trail = Trail {
    steps: Vec::new(),
    vhost: None,
};

// === impl Trail ===

impl Trail {
    pub(super) fn vhost(vhost: &Vhost) -> Trail {
        let title = format!("vhost {}", text::visible(&vhost.to_string()));
        Trail {
            steps: vec![(title, paths::vhost(vhost))],
            vhost: Some(vhost.clone()),
        }
    }

    pub(super) fn queue(place: &Place) -> Trail {
        let title = format!("queue {}", text::visible(&place.queue.to_string()));
        Trail::vhost(&place.vhost).then(title, paths::queue(place))
    }

    pub(super) fn then(mut self, title: String, path: String) -> Trail {
        self.steps.push((title, path));
        self
    }
}

pub(super) fn page(title: &str, trail: &Trail, content: &Markup) -> Response {
    let whole = whole(title, trail, content).into_string();
    ([(header::CONTENT_TYPE, HTML)], whole).into_response()
}

fn whole(title: &str, trail: &Trail, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · dlx-proxy" }
                link rel="icon" type="image/svg+xml" href=(assets::ICON.path());
                link rel="stylesheet" href=(assets::STYLE.path());
                script src=(assets::SCRIPT.path()) defer {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    nav aria-label="Where you are" {
                        ol.trail {
                            li { a href="/" { "dlx-proxy" } }
                            @for (title, path) in &trail.steps {
                                li { a href=(path) { bdi { (title) } } }
                            }
                        }
                    }
                    @if let Some(vhost) = &trail.vhost {
                        form.search role="search" action=(paths::search(vhost)) method="get" {
                            input type="search" name="text" required aria-label="Search" placeholder="Queue, text or message id" autocomplete="off" spellcheck="false";
                            button type="submit" { "Search" }
                        }
                    }
                }
                main #content tabindex="-1" { (content) }
                footer {
                    "dlx-proxy " (env!("CARGO_PKG_VERSION")) " · "
                    button.link type="button" data-zone disabled { "Times: UTC" } " · "
                    a href="/metrics" { "metrics" } " · "
                    a href="/readyz" { "readiness" }
                }
            }
        }
    }
}

pub(super) fn refused(problem: &Problem) -> Response {
    let status = problem.status();
    let title = match status {
        StatusCode::BAD_GATEWAY => "The broker is away",
        _ => status.canonical_reason().unwrap_or("No page"),
    };
    let content = html! {
        h1 { (title) }
        p.problem role="alert" { (text::visible(problem.detail())) }
        @if status == StatusCode::UNAUTHORIZED {
            p { "Load the page again to log in with a name and password of the broker's." }
        } @else if problem.is_to_wait() {
            p { a.button href="" { "Try again" } }
        }
    };
    problem.answer(HTML, whole(title, &NOWHERE, &content).into_string())
}

/// For links from foreign pages.
pub(super) fn from_elsewhere(uri: &Uri) -> Response {
    // Only the path: an absolute URI would lead away from here.
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    let path = match path.starts_with("//") {
        true => "/",
        false => path,
    };
    let title = "A page from elsewhere led here";
    let content = html! {
        h1 { (title) }
        p { "To show this page the proxy asks the broker in your name. Go on if you want that." }
        p { a.button href=(path) { "Show the page" } }
    };
    let whole = whole(title, &NOWHERE, &content).into_string();
    let kind = [(header::CONTENT_TYPE, HTML)];
    (StatusCode::FORBIDDEN, kind, whole).into_response()
}

pub(super) fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            ul.notes aria-label="Notes" {
                @for note in notes { li { (text::visible(note)) } }
            }
        }
    }
}
