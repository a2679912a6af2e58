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

/// Answers handshakes with what is in force at that moment. Clones are the same.
#[derive(Clone, Debug)]
pub struct Acceptor(pub(super) Arc<ArcSwap<ServerConfig>>);

// === impl Acceptor ===

impl Acceptor {
    /// The same connection, with TLS on it. The caller bounds how long that may take.
    ///
    /// # Errors
    /// The peer ends it, or says what cannot be understood or accepted.
    pub async fn accept(&self, plain: Plain) -> io::Result<Socket> {
        let accepted = TlsAcceptor::from(self.0.load_full()).accept(plain).await?;
        Ok(Socket::Right(Box::new(accepted.into())))
    }
}

/// What is shown to those who connect, and asked of them.
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
