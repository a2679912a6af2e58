//! Requests that a page of somebody else's made a browser send. A browser remembers passwords, and a look is felt by its queue.
//!
//! - Browsers say where a request comes from: in `Sec-Fetch-Site`, but only to HTTPS and to this machine; else in `Origin` or `Referer`.
//! - A page may have a name that suddenly leads to this machine (DNS rebinding). To the browser that is one site, so the name is judged.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};
use thiserror::Error;

pub(super) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

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

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1";
    const FAR: &str = "192.0.2.1";

    fn judged(headers: &[(HeaderName, &'static str)], peer: &str) -> Result<(), Elsewhere> {
        let headers = headers.iter().cloned();
        let headers = headers.map(|(name, value)| (name, value.parse().expect("a value")));
        judge(&headers.collect(), peer.parse().ok())
    }

    #[test]
    fn where_a_browser_says_nothing_of_sites_the_page_that_asked_must_be_one_of_ours() {
        let host = (header::HOST, "proxy.example:15673");
        for (name, value, expected) in [
            (header::ORIGIN, "http://proxy.example:15673", Ok(())),
            (header::ORIGIN, "http://Proxy.example:15673", Ok(())),
            (header::ORIGIN, "http://evil.example", Err(Elsewhere::Page)),
            (
                header::ORIGIN,
                "http://proxy.example:80",
                Err(Elsewhere::Page),
            ),
            (header::ORIGIN, "null", Err(Elsewhere::Page)),
            (
                header::REFERER,
                "http://proxy.example:15673/vhosts/%2F?x",
                Ok(()),
            ),
            (
                header::REFERER,
                "http://evil.example/proxy.example:15673",
                Err(Elsewhere::Page),
            ),
        ] {
            let headers = [host.clone(), (name, value)];
            assert_eq!(judged(&headers, FAR), expected, "{value}");
        }
        let foreign = (header::ORIGIN, "http://evil.example");
        assert_eq!(judged(&[foreign], FAR), Err(Elsewhere::Page), "no host");
        assert_eq!(judged(&[host], FAR), Ok(()), "curl, or a typed address");
    }

    /// Behind an HTTP proxy the host may differ.
    #[test]
    fn what_a_browser_says_of_sites_counts_before_all_else() {
        let of = |site| {
            let origin = (header::ORIGIN, "https://admin.example");
            let host = (header::HOST, "10.0.0.1:15673");
            judged(&[origin, host, (SEC_FETCH_SITE, site)], FAR)
        };
        assert_eq!((of("same-origin"), of("none")), (Ok(()), Ok(())));
        assert_eq!(of("cross-site"), Err(Elsewhere::Page));
        assert_eq!(of("same-site"), Err(Elsewhere::Page));
    }

    #[test]
    fn from_this_machine_no_name_leads_here_that_somebody_could_have_made_up() {
        for host in [
            "127.0.0.1:15673",
            "localhost",
            "LOCALHOST:1",
            "[::1]:15673",
            "[::1]",
        ] {
            assert_eq!(judged(&[(header::HOST, host)], HERE), Ok(()), "{host}");
        }
        for host in [
            "evil.example:15673",
            "127.0.0.1.evil.example",
            "localhost.evil.example:1",
            "",
        ] {
            for here in [HERE, "::1", "::ffff:127.0.0.1"] {
                let refused = judged(&[(header::HOST, host)], here);
                assert_eq!(refused, Err(Elsewhere::Name), "{host}");
            }
            assert_eq!(judged(&[(header::HOST, host)], FAR), Ok(()), "{host}");
            assert_eq!(judged(&[(header::HOST, host)], "over TLS"), Ok(()));
        }
        assert_eq!(judged(&[], HERE), Ok(()), "no browser");
    }
}
