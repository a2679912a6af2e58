//! What pages are made of. Which request each of them answers, and how: `api/tests.rs`. (What a browser makes of it: tests/clients.)

use axum::body::{Body, to_bytes};
use axum::http::header;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::super::api::tests::config;
use super::*;

#[tokio::test]
async fn the_files_of_pages_are_kept_by_browsers() {
    let nowhere = config("127.0.0.1:1".parse().expect("an address"));
    let pages = TowerToHyperService::new(router(crate::app::tests::api(&nowhere).0));
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = pages.call(request).await.expect("infallible");
        let (head, body) = answer.into_parts();
        let body = to_bytes(body, 1 << 20).await.expect("a short body");
        (head, String::from_utf8(body.to_vec()).expect("text"))
    };
    let (_, page) = get("/nothing").await;
    for (asset, kind) in [
        (&assets::STYLE, "text/css"),
        (&assets::SCRIPT, "text/javascript"),
        (&assets::ICON, "image/svg+xml"),
    ] {
        assert!(page.contains(&asset.path()), "{page}");
        let (head, _) = get(&asset.path()).await;
        assert_eq!(
            (head.status.as_u16(), &head.headers[header::CONTENT_TYPE]),
            (200, &kind.parse().expect("text"))
        );
        let kept = head.headers[header::CACHE_CONTROL].to_str().expect("text");
        assert!(kept.ends_with("immutable"), "{kept}");
    }
    assert_eq!(get("/assets/nothing").await.0.status, StatusCode::NOT_FOUND);
}
