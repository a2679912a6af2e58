//! The admin port of a proxy.

use std::io;
use std::net::SocketAddr;

use super::http;

/// Status and text of a page.
pub(crate) async fn page(admin: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    http::request(admin, "GET", path, &[], "").await
}

/// The sum of all samples of a metric whose labels contain all of these; `text` is the page `/metrics`.
pub(crate) fn sum(text: &str, name: &str, labels: &[&str]) -> u64 {
    let fits = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    text.lines().filter(fits).filter_map(value).sum()
}
