//! The files that pages use. They are in the binary, and have their content in their names: so a browser may keep them for good.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::super::api;
use super::super::problem::Problem;

pub(super) struct Asset {
    name: String,
    kind: &'static str,
    content: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css", include_str!("style.css")));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("script", "js", "text/javascript", SCRIPTS));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

const SCRIPTS: &str = concat!(
    include_str!("script.js"),
    include_str!("refresh.js"),
    include_str!("edit.js")
);
const FOR_GOOD: &str = "public, max-age=31536000, immutable";

// === impl Asset ===

impl Asset {
    fn new(name: &str, suffix: &str, kind: &'static str, content: &'static str) -> Asset {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let name = format!("{name}-{:016x}.{suffix}", hasher.finish());
        Asset {
            name,
            kind,
            content,
        }
    }

    pub(super) fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let all = [&*STYLE, &*SCRIPT, &*ICON];
    let Some(asset) = all.into_iter().find(|asset| asset.name == name) else {
        return Problem::new(StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    let kind = [(header::CONTENT_TYPE, asset.kind)];
    let mut answer = (kind, asset.content).into_response();
    api::protect(&mut answer, FOR_GOOD, "default-src 'none'");
    answer
}
