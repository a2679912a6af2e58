//! Pages in front of a broker that refuses or is away. (What they show of real queues, and what a browser makes of it: tests/clients.)

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::super::api::tests::{NEAR, broker, nowhere, parts, refusal};
use super::*;
use crate::console::admin::watches::Watches;
use crate::http::basic;
use crate::machine::Wall;
use crate::recent::RecentDeaths;

const QUEUE: &str = "/vhosts/%2F/queues/dead";
const HTML: &str = "text/html; charset=utf-8";

fn pages(broker: SocketAddr) -> Router {
    let watches = Watches::new(RecentDeaths::new(Wall(0)), 2);
    let (api, _) = parts(broker, 1, Duration::from_millis(200), watches);
    router(api)
}

async fn get(pages: &Router, path: &str, site: Option<&str>) -> (u16, Response<()>, String) {
    let login = basic(b"me", b"secret");
    let mut request = Request::get(path).header(header::AUTHORIZATION, login);
    if let Some(site) = site {
        request = request.header("sec-fetch-site", site);
    }
    ask(pages, request.body(Body::empty()).expect("a request")).await
}

async fn ask(pages: &Router, mut request: Request) -> (u16, Response<()>, String) {
    request.extensions_mut().insert(NEAR);
    let pages = TowerToHyperService::new(pages.clone());
    let answer = pages.call(request).await.expect("infallible");
    let (head, body) = answer.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a short body");
    let body = String::from_utf8(body.to_vec()).expect("text");
    (head.status.as_u16(), Response::from_parts(head, ()), body)
}

#[tokio::test]
async fn who_has_not_logged_in_is_asked_to_by_each_page() {
    let pages = pages(nowhere());
    for path in [
        "/",
        "/vhosts/%2F",
        "/vhosts/%2F/live",
        QUEUE,
        &format!("{QUEUE}/messages"),
        &format!("{QUEUE}/messages/x"),
        "/vhosts/%2F/redrives/1",
    ] {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let (status, head, body) = ask(&pages, request).await;
        assert_eq!(status, 401, "{path}");
        assert!(head.headers().contains_key(header::WWW_AUTHENTICATE));
        assert!(body.contains("log in with a name and password"), "{body}");
    }
}

#[tokio::test]
async fn a_refusal_is_a_page_in_the_brokers_words_that_runs_nothing() {
    let words = "NOT_ALLOWED - vhost <script>alert(1)</script> not found";
    let pages = pages(broker(refusal(530, words)).await);
    let (status, head, body) = get(&pages, QUEUE, None).await;
    assert_eq!(
        (status, &head.headers()[header::CONTENT_TYPE]),
        (404, &HTML.parse().expect("text"))
    );
    assert!(
        body.contains("vhost &lt;script&gt;alert(1)&lt;/script&gt; not found"),
        "{body}"
    );
    let policy = head.headers()[header::CONTENT_SECURITY_POLICY].to_str();
    let policy = policy.expect("text");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(head.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(
        body.matches("<script").count(),
        1,
        "that of the page: {body}"
    );
}

#[tokio::test]
async fn what_is_no_page_is_a_page() {
    let pages = pages(nowhere());
    assert_eq!(get(&pages, "/nothing", None).await.0, 404);
    assert_eq!(get(&pages, "/assets/nothing", None).await.0, 404);
    assert_eq!(
        get(&pages, &format!("{QUEUE}?color=red"), None).await.0,
        400
    );
    let request = Request::post(QUEUE).body(Body::empty()).expect("a request");
    assert_eq!(ask(&pages, request).await.0, 405);
    assert_eq!(get(&pages, QUEUE, None).await.0, 502);
}

#[tokio::test]
async fn what_leads_here_from_elsewhere_asks_the_broker_nothing() {
    let pages = pages(nowhere());
    for site in ["cross-site", "same-site"] {
        let (status, head, body) =
            get(&pages, &format!("{QUEUE}?reason=%22%3Cb%3E"), Some(site)).await;
        assert_eq!(status, 403);
        assert!(head.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        let link = format!("href=\"{QUEUE}?reason=%22%3Cb%3E\"");
        assert!(body.contains(&link), "{body}");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(get(&pages, QUEUE, Some(site)).await.0, 502);
    }
}

#[tokio::test]
async fn the_files_of_pages_are_kept_by_browsers() {
    let pages = pages(nowhere());
    let page = get(&pages, "/nothing", None).await.2;
    for (asset, kind) in [
        (&assets::STYLE, "text/css"),
        (&assets::SCRIPT, "text/javascript"),
        (&assets::ICON, "image/svg+xml"),
    ] {
        assert!(page.contains(&asset.path()), "{page}");
        let (status, head, _) = get(&pages, &asset.path(), None).await;
        assert_eq!(
            (status, &head.headers()[header::CONTENT_TYPE]),
            (200, &kind.parse().expect("text"))
        );
        let kept = head.headers()[header::CACHE_CONTROL]
            .to_str()
            .expect("text");
        assert!(kept.ends_with("immutable"), "{kept}");
    }
}

#[tokio::test]
async fn a_form_leads_to_the_queue_that_was_typed() {
    let pages = pages(nowhere());
    let (status, head, _) = get(&pages, "/open?vhost=%2F&queue=a%2Fb+%3C", None).await;
    assert_eq!(status, 303);
    assert_eq!(
        head.headers()[header::LOCATION],
        "/vhosts/%2F/queues/a%2Fb%20%3C"
    );
    for query in ["queue=x", "vhost=%2F&queue=..", "vhost=.&queue=x"] {
        let (status, ..) = get(&pages, &format!("/open?{query}"), None).await;
        assert_eq!(status, 400, "{query}");
    }
}
