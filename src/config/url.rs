//! URLs with passwords in them: taken apart here, and printed only without the password. Nothing in an error quotes them.

use std::borrow::Cow;
use std::fmt;

use amq_protocol::uri::AMQPUri;
use serde::{Serialize, Serializer};

use crate::amqp::ids::ShortStr;
use crate::net::nodes::Node;

/// The broker's addresses, with the proxy's own credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// With TLS.
    pub tls: bool,
    /// One or more, in the order in which they are written.
    pub nodes: Vec<Node>,
    /// User of the links.
    pub user: ShortStr,
    /// Its password.
    pub password: Secret,
}

/// A text that is never printed: `Debug` and `Display` say `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

/// Where the management API is. `Display`, `Debug` and the printed settings hide its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementUrl {
    /// With TLS.
    pub tls: bool,
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
    /// Takes `amqp://user:password@host:port,host:port`, or `amqps://…`; what is missing is RabbitMQ's default, and a path or query is ignored.
    ///
    /// # Errors
    /// What is wrong, in words that do not quote the URL.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            Some(("amqp", rest)) => (false, rest),
            Some(("amqps", rest)) => (true, rest),
            _ => return Err("not an AMQP URL".to_owned()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), authority),
        };
        // `AMQPUri` knows one host.
        let scheme = scheme(tls);
        let of = |host: &str| format!("{scheme}://{credentials}{host}").parse::<AMQPUri>();
        let mut nodes = Vec::new();
        let mut login = None;
        for host in hosts.split(',') {
            let authority = of(host).map_err(|_| "not a URL")?.authority;
            let node = Node {
                host: bracketed(host).map_or(authority.host, str::to_owned),
                port: authority.port,
            };
            if nodes.contains(&node) {
                return Err("it names a node twice".to_owned());
            }
            nodes.push(node);
            login = Some(authority.userinfo);
        }
        let login = login.ok_or("it names no node")?;
        Ok(Self {
            tls,
            nodes,
            user: ShortStr::new(login.username).ok_or("the user is over 255 bytes")?,
            password: Secret(login.password),
        })
    }
}

fn scheme(tls: bool) -> &'static str {
    match tls {
        true => "amqps",
        false => "amqp",
    }
}

/// The IPv6 address of a host: `AMQPUri` puts `localhost` in its place, as it asks only for a domain.
fn bracketed(host: &str) -> Option<&str> {
    host.strip_prefix('[')?.split(']').next()
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tls,
            nodes,
            user,
            password,
        } = self;
        let user = percent_encoding::percent_encode(user, percent_encoding::NON_ALPHANUMERIC);
        let nodes: Vec<_> = nodes.iter().map(Node::to_string).collect();
        let scheme = scheme(*tls);
        write!(f, "{scheme}://{user}:{password}@{}", nodes.join(","))
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
    /// Takes `http://user:password@host:port/path`, or `https://…`. Without a port it is 80 or 443, as in every such URL; a query is ignored.
    ///
    /// # Errors
    /// What is wrong, in words that do not quote the URL.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let uri: axum::http::Uri = text.parse().map_err(|_| "not a URL")?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err("not an HTTP URL".to_owned()),
        };
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
            tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(port),
            path: uri.path().trim_end_matches('/').to_owned(),
            user,
        })
    }
}

impl fmt::Display for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tls {
            true => "https://",
            false => "http://",
        })?;
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
