//! Where an HTTP server is, and how an admin port is named on the command line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::net::nodes::Node;
use crate::tls::{Client, Connector};
use crate::url::Url;

#[derive(Clone, Debug)]
pub struct Place {
    /// An IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
    pub tls: Option<Connector>,
}

// === impl Place ===

impl Place {
    pub fn of(address: SocketAddr, tls: Option<Client>) -> Place {
        Place {
            host: reachable(address.ip()).to_string(),
            port: address.port(),
            tls: tls.map(Connector::fixed),
        }
    }

    pub fn named(text: &str) -> Option<Place> {
        let (host, port) = host_and_port(&format!("https://{text}")).ok()?;
        Some(Place {
            host,
            port,
            tls: None,
        })
    }

    /// Parses `https://host:port`.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn parse(text: &str, tls: Client) -> Result<Place, String> {
        let (host, port) = host_and_port(text).map_err(with_an_example)?;
        Ok(Place {
            host,
            port,
            tls: Some(Connector::fixed(tls)),
        })
    }

    /// `http` or `https`; the user in it is for the caller.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn at(url: &Url<'_>, tls: Option<Client>) -> Result<Place, String> {
        if !matches!(url.scheme, "http" | "https") || url.target() != "/" {
            return Err(with_an_example("it is more than a host and a port"));
        }
        let (host, port) = url.host().map_err(with_an_example)?;
        Ok(Place {
            host,
            port: port.ok_or_else(|| with_an_example("it has no port"))?,
            tls: tls.map(Connector::fixed),
        })
    }
}

fn with_an_example(problem: &str) -> String {
    format!("{problem}; write a URL with a port, like \"https://proxy.example:15673\"")
}

fn host_and_port(text: &str) -> Result<(String, u16), &'static str> {
    let url = Url::parse(text)?;
    if url.user.is_some() {
        return Err("leave the user out: --username and --password name it");
    }
    if url.scheme != "https" || url.target() != "/" {
        return Err("it is more than a host and a port");
    }
    let (host, port) = url.host()?;
    Ok((host, port.ok_or("it has no port")?))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.host.clone(), self.port);
        Node { host, port }.fmt(f)
    }
}

/// Replaces the wildcard address, which cannot be connected to.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_and_a_port() {
        for url in ["https://[::1]:1", "https://[::1]:1/"] {
            assert_eq!(host_and_port(url), Ok(("::1".to_owned(), 1)));
        }
        let wrong = "https:// https://host http://host:1 https://host:1/x https://host:1?x \
            https://me:secret@host:1 https://a:1,b:1";
        for wrong in wrong.split(' ') {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_may_stand_for_an_address() {
        let named = |text| Place::named(text).map(|place| place.to_string());
        for name in ["localhost:15673", "dlx-proxy.apps.svc:80", "[::1]:80"] {
            assert_eq!(named(name).as_deref(), Some(name));
        }
        for other in ["localhost", ":80", "a/b:80", "a:b:80", "a:99999"] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
