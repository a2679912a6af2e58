//! Where dead letters are told of. A password may stand in any part of such a URL, also behind the host: so no more of it is printed.

use std::fmt;

use serde::{Serialize, Serializer};

use super::url::{ManagementUrl, Secret};
use crate::url::Url;

/// The server of `on-dead-letter`. `Display`, `Debug` and the printed settings hide password, path
/// and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookUrl {
    pub tls: bool,
    /// An IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
    pub target: Secret,
    pub user: Option<(String, Secret)>,
}

// === impl HookUrl ===

impl HookUrl {
    /// Parses `http://user:password@host:port/path?query`, or `https://…`. The default port is 80
    /// or 443.
    ///
    /// # Errors
    /// What is wrong, without quoting the URL.
    pub(super) fn parse(text: &str) -> Result<HookUrl, &'static str> {
        let url = Url::parse(text)?;
        let ManagementUrl {
            tls,
            host,
            port,
            user,
            ..
        } = ManagementUrl::of(&url)?;
        Ok(HookUrl {
            tls,
            host,
            port,
            target: Secret(url.target()),
            user,
        })
    }
}

impl fmt::Display for HookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = ManagementUrl {
            tls: self.tls,
            host: self.host.clone(),
            port: self.port,
            path: String::new(),
            user: self.user.clone(),
        };
        match self.target.reveal() {
            "/" => write!(f, "{place}"),
            _ => write!(f, "{place}/{}", self.target),
        }
    }
}

impl Serialize for HookUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
