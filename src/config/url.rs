//! URLs with passwords in them: taken apart here, and printed only without the password. Nothing in an error quotes them.

use std::borrow::Cow;
use std::fmt;

use amq_protocol::uri::AMQPUri;
use serde::{Serialize, Serializer};

use crate::amqp::ids::ShortStr;

/// The broker's address, with the proxy's own credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Name or address; an IPv6 address stands without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of the links.
    pub user: ShortStr,
    /// Its password.
    pub password: Secret,
}

/// A text that is never printed: `Debug` and `Display` say `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Where the management API is. `Display`, `Debug` and the printed settings hide its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementUrl {
    /// Name or address; an IPv6 address stands without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What stands before `/api`, without a slash at its end.
    pub path: String,
    /// Its own user, if the URL has one; else it is that of `upstream`.
    pub user: Option<(String, Secret)>,
}

// === impl Upstream ===

impl Upstream {
    /// Takes `amqp://user:password@host:port`; what is missing is RabbitMQ's default, and a path or query is ignored.
    ///
    /// # Errors
    /// What is wrong, in words that do not quote the URL.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let uri: AMQPUri = match text.split_once("://") {
            Some(("amqp", _)) => text.parse().map_err(|_| "not a URL")?,
            Some(("amqps", _)) => return Err("TLS to the broker is not supported yet".to_owned()),
            _ => return Err("not an AMQP URL".to_owned()),
        };
        let authority = uri.authority;
        Ok(Self {
            host: bracketed(text).map_or(authority.host, str::to_owned),
            port: authority.port,
            user: ShortStr::new(authority.userinfo.username).ok_or("the user is over 255 bytes")?,
            password: Secret(authority.userinfo.password),
        })
    }
}

/// The IPv6 address in a URL: `AMQPUri` puts `localhost` in its place, as it asks only for a domain.
fn bracketed(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    host.strip_prefix('[')?.split(']').next()
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            user,
            password,
        } = self;
        let user = percent_encoding::percent_encode(user, percent_encoding::NON_ALPHANUMERIC);
        if host.contains(':') {
            write!(f, "amqp://{user}:{password}@[{host}]:{port}")
        } else {
            write!(f, "amqp://{user}:{password}@{host}:{port}")
        }
    }
}

impl Serialize for Upstream {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl Secret ===

impl Secret {
    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

// === impl ManagementUrl ===

impl ManagementUrl {
    /// Takes `http://user:password@host:port/path`. Without a port it is 80, as in every such URL; a query is ignored.
    ///
    /// # Errors
    /// What is wrong, in words that do not quote the URL.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let uri: axum::http::Uri = text.parse().map_err(|_| "not a URL")?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err("TLS to the broker is not supported yet".to_owned()),
            _ => return Err("not an HTTP URL".to_owned()),
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let decoded = |text: &str| {
            let octets = percent_encoding::percent_decode_str(text);
            octets
                .decode_utf8()
                .map(Cow::into_owned)
                .map_err(|_| "not a URL")
        };
        let user = match authority.rsplit_once('@') {
            None => None,
            Some((credentials, _)) => {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                Some((decoded(user)?, Secret(decoded(password)?)))
            }
        };
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or("not an HTTP URL")?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(80),
            path: uri.path().trim_end_matches('/').to_owned(),
            user,
        })
    }
}

impl fmt::Display for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("http://")?;
        if let Some((user, password)) = &self.user {
            let user =
                percent_encoding::utf8_percent_encode(user, percent_encoding::NON_ALPHANUMERIC);
            write!(f, "{user}:{password}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}{}", self.host, self.port, self.path),
            false => write!(f, "{}:{}{}", self.host, self.port, self.path),
        }
    }
}

impl Serialize for ManagementUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
