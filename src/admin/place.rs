//! Where an admin port is, for those who ask it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use axum::http::Uri;

use crate::net::ports::At;
use crate::tls::{Client, Connector};

/// An admin port.
#[derive(Clone, Debug)]
pub enum Place {
    /// One of TCP.
    Port {
        /// Name or address; an IPv6 address stands without its brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// How TLS is spoken there, if it is.
        tls: Option<Connector>,
    },
    /// A Unix socket.
    Socket(PathBuf),
}

// === impl Place ===

impl Place {
    /// Where a proxy of this machine listens, without TLS.
    pub fn at(at: At) -> Place {
        match at {
            At::Tcp(address) => Place::of(address, None),
            At::Unix(path) => Place::Socket(path),
        }
    }

    /// The port that this address is listened to at, by a proxy of this machine.
    pub fn of(address: SocketAddr, tls: Option<Client>) -> Place {
        Place::Port {
            host: reachable(address.ip()).to_string(),
            port: address.port(),
            tls: tls.map(Connector::fixed),
        }
    }

    /// Takes `name:port`, for one without TLS. `None`: it is not of that form.
    pub fn named(text: &str) -> Option<Place> {
        let (host, port) = text.rsplit_once(':')?;
        let fits = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
        let is_name = !host.is_empty() && host.bytes().all(fits);
        Some(Place::Port {
            host: is_name.then(|| host.to_owned())?,
            port: port.parse().ok()?,
            tls: None,
        })
    }

    /// Takes `https://host:port`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(url: &str, tls: Client) -> Result<Place, &'static str> {
        let uri: Option<Uri> = url.parse().ok();
        let uri = uri.filter(|uri| uri.scheme_str() == Some("https") && uri.path() == "/");
        let authority = uri
            .as_ref()
            .and_then(|uri| Some((uri.host()?, uri.port_u16()?)));
        let (host, port) =
            authority.ok_or("write a URL with a port, like \"https://proxy.example:15673\"")?;
        Ok(Place::Port {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            tls: Some(Connector::fixed(tls)),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Port { host, port, .. } => f.write_str(&crate::http::host(host, *port)),
            Place::Socket(path) => At::Unix(path.clone()).fmt(f),
        }
    }
}

/// "All addresses" can be listened to, but not connected to.
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
    fn a_name_may_stand_for_an_address() {
        let named = |text| Place::named(text).map(|place| place.to_string());
        for name in ["localhost:15673", "dlx-proxy.apps.svc:80"] {
            assert_eq!(named(name).as_deref(), Some(name));
        }
        for other in [
            "localhost",
            ":80",
            "[::1]:80",
            "a/b:80",
            "a:b:80",
            "a:99999",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
