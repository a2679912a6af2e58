//! The files that the settings name: read here, and taken apart into certificates and keys.

use std::time::Duration;

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys, RootCertStore};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::{Settings, provider};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub setting: &'static str,
    pub what: String,
}

/// All files at one moment. Equal contents need no check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents(Vec<(&'static str, Result<Vec<u8>, String>)>);

#[derive(Debug)]
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// Since 1970, when the first certificate of the chain expires.
    pub(super) expires: Duration,
}

// === impl Problem ===

impl Problem {
    pub(super) fn new(setting: &'static str, what: impl Into<String>) -> Problem {
        let what = what.into();
        Problem { setting, what }
    }
}

/// Adds a problem to those before.
pub(super) fn noted<T>(checked: Result<T, Problem>, problems: &mut Vec<Problem>) -> Option<T> {
    checked.map_err(|problem| problems.push(problem)).ok()
}

// === impl Contents ===

impl Contents {
    pub fn read(settings: &Settings) -> Contents {
        let files = [
            ("upstream-ca-file", &settings.upstream_ca_file),
            ("upstream-cert-file", &settings.upstream_cert_file),
            ("upstream-key-file", &settings.upstream_key_file),
            ("tls-cert-file", &settings.tls_cert_file),
            ("tls-key-file", &settings.tls_key_file),
            ("tls-client-ca-file", &settings.tls_client_ca_file),
        ];
        let named = files
            .into_iter()
            .filter_map(|(setting, file)| Some((setting, file.as_ref()?)));
        Contents(named.map(|(setting, file)| (setting, read(file))).collect())
    }

    /// By side.
    pub(super) fn split(self) -> [Contents; 2] {
        let parts = self.0.into_iter();
        let (upstream, served) = parts.partition(|(name, _)| name.starts_with("upstream-"));
        [Contents(upstream), Contents(served)]
    }

    pub(super) fn of_file(setting: &'static str, file: &str) -> Contents {
        Contents(vec![(setting, read(file))])
    }

    pub(super) fn roots(&self, setting: &'static str) -> Result<Option<RootCertStore>, Problem> {
        let Some(chain) = self.chain(setting)? else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for root in chain {
            roots.add(root).map_err(|error| {
                Problem::new(
                    setting,
                    format!("it has a certificate that cannot be read: {error}"),
                )
            })?;
        }
        Ok(Some(roots))
    }

    pub(super) fn identity(
        &self,
        certificate: &'static str,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<Identity> {
        let chain = noted(self.chain(certificate), problems);
        let secret = noted(self.key(key), problems);
        let identity = match (chain?, secret?) {
            (None, None) => return None,
            (Some(chain), Some(secret)) => identity(chain, secret, (certificate, key)),
            (Some(_), None) => {
                let what = format!("set it too: `{certificate}` is of no use without its key");
                Err(Problem::new(key, what))
            }
            (None, Some(_)) => {
                let what = format!("set it too: `{key}` is of no use without its certificate");
                Err(Problem::new(certificate, what))
            }
        };
        noted(identity, problems)
    }

    fn chain(
        &self,
        setting: &'static str,
    ) -> Result<Option<Vec<CertificateDer<'static>>>, Problem> {
        let Some(content) = self.of(setting)? else {
            return Ok(None);
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
        match chain {
            Ok(chain) if chain.is_empty() => Err(Problem::new(
                setting,
                "there is no certificate in this file: it has to have lines `-----BEGIN CERTIFICATE-----` (PEM)",
            )),
            Ok(chain) => Ok(Some(chain)),
            Err(error) => Err(Problem::new(setting, format!("it is not PEM: {error}"))),
        }
    }

    fn key(&self, setting: &'static str) -> Result<Option<PrivateKeyDer<'static>>, Problem> {
        let Some(content) = self.of(setting)? else {
            return Ok(None);
        };
        match PrivateKeyDer::from_pem_slice(content) {
            Ok(key) => Ok(Some(key)),
            Err(pem::Error::NoItemsFound) if is_encrypted(content) => Err(Problem::new(
                setting,
                "its key is encrypted: write it without a password, as in `openssl pkey -in FILE -out NEW`",
            )),
            Err(pem::Error::NoItemsFound) => Err(Problem::new(
                setting,
                "there is no private key in this file: it has to have a line `-----BEGIN PRIVATE KEY-----` (PEM)",
            )),
            Err(error) => Err(Problem::new(setting, format!("it is not PEM: {error}"))),
        }
    }

    fn of(&self, setting: &'static str) -> Result<Option<&[u8]>, Problem> {
        match self.0.iter().find(|(name, _)| *name == setting) {
            None => Ok(None),
            Some((_, Ok(content))) => Ok(Some(content)),
            Some((_, Err(error))) => Err(Problem::new(setting, format!("cannot be read: {error}"))),
        }
    }
}

fn read(file: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| error.to_string())
}

fn is_encrypted(content: &[u8]) -> bool {
    memchr::memmem::find(content, b"ENCRYPTED").is_some()
}

fn identity(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    (certificate_setting, key_setting): (&'static str, &'static str),
) -> Result<Identity, Problem> {
    // The server of TLS has the same check, but says it only to whom it serves.
    match CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()) {
        Ok(_) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            let what = format!(
                "this key does not belong to the certificate of `{certificate_setting}`, whose first certificate has to be the one of the key"
            );
            return Err(Problem::new(key_setting, what));
        }
        Err(Error::InvalidCertificate(error)) => {
            let what = format!("its certificate cannot be read: {error}");
            return Err(Problem::new(certificate_setting, what));
        }
        Err(error) => {
            return Err(Problem::new(
                key_setting,
                format!("its key cannot be used: {error}"),
            ));
        }
    }
    let expires = expires(&chain).map_err(|error| {
        let what = format!("it has a certificate that cannot be read: {error}");
        Problem::new(certificate_setting, what)
    })?;
    Ok(Identity {
        chain,
        key,
        expires,
    })
}

/// Since 1970, when the first of a chain expires.
///
/// # Errors
/// One is unreadable.
pub(super) fn expires(chain: &[CertificateDer<'_>]) -> x509_cert::der::Result<Duration> {
    let mut expires = Duration::MAX;
    for certificate in chain {
        let certificate = Certificate::from_der(certificate)?;
        let validity = certificate.tbs_certificate().validity();
        expires = expires.min(validity.not_after.to_unix_duration());
    }
    Ok(expires)
}
