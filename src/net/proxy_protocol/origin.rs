//! Where a client comes from, as the broker is told, and the log.

use std::fmt;

use ppp::v2;

use super::ssl::{self, Ssl};
use super::{Ends, Told};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `None`: a Unix socket.
    pub ends: Option<Ends>,
    pub ssl: Option<Ssl>,
}

// === impl Origin ===

impl Origin {
    /// For Unix sockets, and the proxy's own connections.
    pub const LOCAL: Origin = Origin {
        ends: None,
        ssl: None,
    };

    /// As a header. For a Unix socket it has the ends of the proxy's `own` connection, because
    /// RabbitMQ 3.10 hangs up at a `LOCAL`.
    pub fn header(&self, own: Ends, told: Told) -> Vec<u8> {
        let ends = self.ends.unwrap_or(own).of_one_family();
        let ends = (ends.source, ends.destination);
        match told {
            Told::Off => Vec::new(),
            Told::V2 => {
                let proxy = v2::Version::Two | v2::Command::Proxy;
                let header = v2::Builder::with_addresses(proxy, v2::Protocol::Stream, ends);
                let header = match &self.ssl {
                    Some(ssl) => header.write_tlv(ssl::TYPE, ssl.bytes()),
                    None => Ok(header),
                };
                let header = header.and_then(v2::Builder::build);
                header.expect("two addresses and some texts are never too long")
            }
        }
    }

    /// As in `x-rejected-by`.
    pub fn host(&self) -> String {
        match self.ends {
            Some(ends) => ends.source.ip().to_string(),
            None => "unix".to_owned(),
        }
    }
}

impl From<Ends> for Origin {
    fn from(ends: Ends) -> Origin {
        Origin {
            ends: Some(ends),
            ssl: None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends {
            Some(ends) => ends.source.fmt(f),
            None => f.write_str("unix"),
        }
    }
}
