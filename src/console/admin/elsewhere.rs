//! Requests that a page of somebody else's made a browser send. A browser remembers passwords, and a look is felt by its queue.
//!
//! - Browsers say where a request comes from: in `Sec-Fetch-Site`, but only to HTTPS and to this machine; else in `Origin` or `Referer`.
//! - A page may have a name that suddenly leads to this machine (DNS rebinding). To the browser that is one site, so the name is judged.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};
use thiserror::Error;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The request came over TLS: with another name the browser would have refused the certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverTls;

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum Elsewhere {
    #[error("a page from elsewhere asked for this")]
    Page,
    #[error(
        "on this machine write the address of the admin port, or localhost: a page from elsewhere could have made up the name in the header `Host`"
    )]
    Name,
}

/// Whether a foreign page may have sent this. `peer`: for requests without TLS.
///
/// # Errors
/// When it may.
pub(super) fn judge(headers: &HeaderMap, peer: Option<IpAddr>) -> Result<(), Elsewhere> {
    let host = text(headers, header::HOST);
    let is_here = peer.is_some_and(|peer| peer.to_canonical().is_loopback());
    // No browser leaves it out.
    if is_here && !host.is_none_or(is_of_this_machine) {
        return Err(Elsewhere::Name);
    }
    let is_ours = match headers.get(SEC_FETCH_SITE) {
        Some(site) => site == "same-origin" || site == "none",
        None => [header::ORIGIN, header::REFERER]
            .into_iter()
            .find(|name| headers.contains_key(name))
            .is_none_or(|name| is_of(text(headers, name), host)),
    };
    match is_ours {
        true => Ok(()),
        false => Err(Elsewhere::Page),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// An IP address, or `localhost`: names that no DNS answer can redirect.
fn is_of_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn is_of(url: Option<&str>, host: Option<&str>) -> bool {
    let rest = url.and_then(|url| Some(url.split_once("://")?.1));
    let of = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    match (of, host) {
        (Some(of), Some(host)) => of.eq_ignore_ascii_case(host),
        _ => false,
    }
}
