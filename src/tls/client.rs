//! TLS on connections that the proxy opens: to the broker, to its management API, to the server of `on-dead-letter`, to an admin port.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WantsClientCert, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::files::{Contents, Identity, Problem};
use super::words::Advice;
use super::{provider, words};
use crate::net::stream::{Plain, Socket};
use crate::telemetry::Metrics;

#[derive(Clone, Debug)]
pub struct Client {
    pub(super) config: Arc<ClientConfig>,
    /// Overrides the host.
    pub(super) name: Option<ServerName<'static>>,
    pub(super) advice: Advice,
    /// Counts failures unless the caller does.
    pub(super) metrics: Option<Metrics>,
}

/// Uses the settings in force at each connection. Clones share them.
#[derive(Clone, Debug)]
pub struct Connector(pub(super) Arc<ArcSwap<Client>>);

/// Accepts any certificate, but verifies its signatures.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

// === impl Client ===

impl Client {
    pub(super) fn new(
        roots: RootCertStore,
        identity: Option<Identity>,
        name: Option<ServerName<'static>>,
        advice: Advice,
    ) -> Result<Client, String> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| error.to_string())?;
        let builder = builder()?.with_webpki_verifier(verifier);
        Client::build(builder, identity, name, advice)
    }

    /// For an admin port: trusts this file, or the system.
    ///
    /// # Errors
    /// An invalid file, or a problem of the system.
    pub fn of_admin(ca_file: Option<&str>) -> Result<Client, String> {
        let roots = match ca_file {
            Some(file) => Contents::of_file("--admin-ca-file", file).roots("--admin-ca-file"),
            None => roots_of_the_system("--admin-ca-file").map(Some),
        };
        let roots = roots.map_err(|problem| problem.what)?;
        Client::new(
            roots.unwrap_or_else(RootCertStore::empty),
            None,
            None,
            Advice::Admin,
        )
    }

    /// For this machine's proxy, which gets no secrets.
    ///
    /// # Errors
    /// TLS is unavailable.
    pub fn of_own_admin() -> Result<Client, String> {
        Client::unverified(None, None)
    }

    pub(super) fn unverified(
        identity: Option<Identity>,
        name: Option<ServerName<'static>>,
    ) -> Result<Client, String> {
        let verifier = AnyCertificate(provider().signature_verification_algorithms);
        let builder = builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        Client::build(builder, identity, name, Advice::Upstream)
    }

    fn build(
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
        identity: Option<Identity>,
        name: Option<ServerName<'static>>,
        advice: Advice,
    ) -> Result<Client, String> {
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain, identity.key)
                .map_err(|error| error.to_string())?,
        };
        Ok(Client {
            config: Arc::new(config),
            name,
            advice,
            metrics: None,
        })
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// In words: the peer's or the connection's fault.
    pub async fn connect(&self, plain: Plain, host: &str) -> io::Result<Socket> {
        let name = self.name_for(host)?;
        let connecting = TlsConnector::from(self.config.clone()).connect(name, plain);
        match connecting.await {
            Ok(connected) => Ok(Socket::Right(Box::new(connected.into()))),
            Err(error) => Err(self.failed(&error, host)),
        }
    }

    /// Whether the server gets a client certificate on request.
    pub fn shows_certificate(&self) -> bool {
        self.config.client_auth_cert_resolver.has_certs()
    }

    pub fn failed(&self, error: &io::Error, host: &str) -> io::Error {
        let error = words::of_server(error, host, self.advice);
        if let Some(metrics) = &self.metrics {
            metrics.upstream_tls_failed(&error);
        }
        error
    }

    fn name_for(&self, host: &str) -> io::Result<ServerName<'static>> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(host.to_owned())
                .map_err(|_| io::Error::other(format!("no certificate can be for {host:?}"))),
        }
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, tokio_rustls::rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

pub(super) fn roots_of_the_system(instead: &'static str) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => Err(Problem::new(
            instead,
            "the system has no certificates that it trusts: install `ca-certificates`, or set a file of your own here",
        )),
    }
}

// === impl Connector ===

impl Connector {
    pub fn fixed(client: Client) -> Connector {
        Connector(Arc::new(ArcSwap::from_pointee(client)))
    }

    pub fn client(&self) -> Arc<Client> {
        self.0.load_full()
    }
}

// === impl AnyCertificate ===

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
