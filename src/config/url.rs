//! URLs with passwords in them, as settings have them: printed only without the password. Nothing in an error quotes them.

use std::fmt;

use axum::http::uri::PathAndQuery;
use serde::{Serialize, Serializer};

use crate::amqp::ids::ShortStr;
use crate::net::nodes::Node;
use crate::url::Url;

/// Clients choose their vhosts; the proxy's own connections use those of the setting `vhosts`.
const NO_VHOST: &str = "leave out the path: the proxy serves all vhosts, and `vhosts` names those that it connects to at its start (`vhosts = [\"orders\"]`)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub tls: bool,
    pub nodes: Vec<Node>,
    pub user: ShortStr,
    pub password: Secret,
}

/// `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

/// The management API, or the server of `on-dead-letter`. `Display`, `Debug` and the printed
/// settings hide the password, and of that server path and query: a password may stand in any part.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    pub tls: bool,
    pub node: Node,
    pub user: Option<(String, Secret)>,
    /// Of the API: precedes `/api`, no slash at its end. Of that server: with the query.
    pub path: String,
    hides_path: bool,
}

// === impl Upstream ===

impl Upstream {
    /// Parses `amqp://user:password@host:port,host:port`, or `amqps://…`, with RabbitMQ's defaults.
    /// Ignores a `/` at the end.
    ///
    /// # Errors
    /// What is wrong, without quoting the URL.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text)?;
        let (tls, port) = match url.scheme {
            "amqp" => (false, 5672),
            "amqps" => (true, 5671),
            _ => return Err("not an AMQP URL"),
        };
        if !matches!(url.path(), "" | "/") {
            return Err(NO_VHOST);
        }
        if url.has_query() {
            return Err("leave out what begins with `?`: the proxy takes no parameters there");
        }
        let mut nodes = Vec::new();
        for (host, said) in url.hosts()? {
            let node = Node {
                host,
                port: said.unwrap_or(port),
            };
            if nodes.contains(&node) {
                return Err("it names a node twice");
            }
            nodes.push(node);
        }
        let (user, password) = url.user.unwrap_or_default();
        let or_guest = |text: Option<String>| {
            let text = text.filter(|text| !text.is_empty());
            text.unwrap_or_else(|| "guest".to_owned())
        };
        Ok(Self {
            tls,
            nodes,
            user: ShortStr::new(or_guest(Some(user))).ok_or("the user is over 255 bytes")?,
            password: Secret(or_guest(password)),
        })
    }
}

fn scheme(tls: bool) -> &'static str {
    match tls {
        true => "amqps",
        false => "amqp",
    }
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

// === impl HttpUrl ===

impl HttpUrl {
    /// Parses `http://user:password@host:port/path`, or `https://…`. The default port is 80 or 443.
    ///
    /// # Errors
    /// What is wrong, without quoting the URL.
    pub(super) fn of_api(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text)?;
        if url.has_query() {
            return Err(
                "leave out what begins with `?`: the proxy asks with parameters of its own",
            );
        }
        let path = url.path().trim_end_matches('/').to_owned();
        Self::of(&url, path, false)
    }

    /// The same with `?query`.
    ///
    /// # Errors
    /// What is wrong, without quoting the URL.
    pub(super) fn of_hook(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text)?;
        Self::of(&url, url.target(), true)
    }

    fn of(url: &Url<'_>, path: String, hides_path: bool) -> Result<Self, &'static str> {
        let (tls, port) = match url.scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err("not an HTTP URL"),
        };
        url.target()
            .parse::<PathAndQuery>()
            .map_err(|_| "not a URL")?;
        let (host, said) = url.host()?;
        let port = said.unwrap_or(port);
        let user = url.user.clone();
        Ok(Self {
            tls,
            node: Node { host, port },
            user: user.map(|(user, password)| (user, Secret(password.unwrap_or_default()))),
            path,
            hides_path,
        })
    }
}

impl fmt::Display for HttpUrl {
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
        match self.path.as_str() {
            "/" => write!(f, "{}", self.node),
            _ if self.hides_path => write!(f, "{}/***", self.node),
            path => write!(f, "{}{path}", self.node),
        }
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for HttpUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
