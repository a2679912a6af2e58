//! TLS on the proxy's connections: which certificates, keys and roots there are, and that new ones are taken over while the proxy runs.
//!
//! ```text
//! settings ─▶ Contents (the files, read) ─▶ Material (checked) ─▶ cells ─▶ Connector: to the broker
//!                                                                      └─▶ Acceptor: of clients, of the admin port
//! ```
//! The files are read at start, at SIGHUP, and every few seconds; what is new counts for new connections only. Files that are wrong, or half
//! of a pair that is being replaced, change nothing: those before stay in force.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::CertificateDer;

pub use certificates::{Certificates, Certified};
pub(crate) use certificates::{SOON, now};
pub use client::{Client, Connector};
pub use facts::{Facts, Shown};
pub use files::{Contents, Problem};
pub use material::Material;
pub use server::Acceptor;

mod certificates;
mod client;
mod facts;
mod files;
mod material;
mod server;
#[cfg(test)]
mod tests;
pub mod words;

/// Field names are those of the settings with `_` for `-`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// Instead of the system's CAs.
    #[serde(serialize_with = "none_as_empty")]
    pub upstream_ca_file: Option<String>,
    /// Instead of the host in the URL.
    #[serde(serialize_with = "none_as_empty")]
    pub upstream_tls_name: Option<String>,
    #[serde(serialize_with = "none_as_empty")]
    pub upstream_cert_file: Option<String>,
    #[serde(serialize_with = "none_as_empty")]
    pub upstream_key_file: Option<String>,
    pub upstream_tls_verify: bool,
    #[serde(serialize_with = "none_as_empty")]
    pub tls_cert_file: Option<String>,
    #[serde(serialize_with = "none_as_empty")]
    pub tls_key_file: Option<String>,
    #[serde(serialize_with = "none_as_empty")]
    pub tls_client_ca_file: Option<String>,
    pub tls_client_auth: ClientAuth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    Off,
    /// Requested, not required; must be valid.
    Optional,
    Required,
}

/// The sides that speak TLS. Changes need a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// By AMQP or the management API.
    pub upstream: bool,
    pub hook: bool,
    pub clients: bool,
    pub admin: bool,
}

// === impl Uses ===

impl Uses {
    pub fn serves(self) -> bool {
        self.clients || self.admin
    }

    pub fn any(self) -> bool {
        self != Uses::default()
    }
}

/// Since 1970, when the first certificate of a chain expires; `None`: unreadable.
pub(crate) fn ends(chain: &[CertificateDer<'_>]) -> Option<Duration> {
    files::expires(chain).ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn none_as_empty<S: serde::Serializer>(
    text: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
}
