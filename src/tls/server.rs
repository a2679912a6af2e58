//! TLS on connections that others open: clients, and those who ask the admin port.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::files::{Identity, Problem};
use super::{ClientAuth, provider};
use crate::net::stream::{Plain, Socket};

/// Uses the settings in force at each handshake. Clones share them.
#[derive(Clone, Debug)]
pub struct Acceptor(pub(super) Arc<ArcSwap<ServerConfig>>);

// === impl Acceptor ===

impl Acceptor {
    /// The caller must bound the time.
    ///
    /// # Errors
    /// The peer ends it, or violates the protocol.
    pub async fn accept(&self, plain: Plain) -> io::Result<Socket> {
        let accepted = TlsAcceptor::from(self.0.load_full()).accept(plain).await?;
        Ok(Socket::Right(Box::new(accepted.into())))
    }
}

pub(super) fn config(
    identity: &Identity,
    auth: ClientAuth,
    roots: Option<RootCertStore>,
) -> Result<ServerConfig, Problem> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::new("tls-cert-file", error.to_string()))?;
    let builder = match (auth, roots) {
        (ClientAuth::Off, _) | (_, None) => builder.with_no_client_auth(),
        (auth, Some(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier = match auth {
                ClientAuth::Required => verifier,
                ClientAuth::Off | ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier
                .build()
                .map_err(|error| Problem::new("tls-client-ca-file", error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(|error| Problem::new("tls-cert-file", error.to_string()))
}
