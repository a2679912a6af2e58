//! What went wrong with TLS, in the words of somebody who can do something about it.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The broker's: settings.
    Upstream,
    /// An admin port's: flags.
    Admin,
    /// The system's CAs.
    System,
}

/// Why a client's handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    NotTls,
    RefusedByClient,
    ClientCertificate,
    NothingInCommon,
    Alert,
    Ended,
    TooLate,
    Other,
}

// === impl Failure ===

impl Failure {
    pub fn of(error: &io::Error) -> Failure {
        match cause(error) {
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Failure::NotTls,
            Some(Error::AlertReceived(alert)) if is_of_certificate(*alert) => {
                Failure::RefusedByClient
            }
            Some(Error::AlertReceived(
                AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity,
            )) => Failure::NothingInCommon,
            Some(Error::AlertReceived(_)) => Failure::Alert,
            Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => {
                Failure::ClientCertificate
            }
            Some(Error::PeerIncompatible(_)) => Failure::NothingInCommon,
            None if error.kind() == io::ErrorKind::TimedOut => Failure::TooLate,
            None => Failure::Ended,
            Some(_) => Failure::Other,
        }
    }

    /// A name for it, and what to do.
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Failure::NotTls => (
                "not-tls",
                "it speaks no TLS: a client that speaks AMQP without TLS has to come to `listen`, or to be set to `amqps://`",
            ),
            Failure::RefusedByClient => (
                "refused-by-client",
                "it does not accept the certificate of `tls-cert-file`: it has to know who signed that, and to use a name that stands in it",
            ),
            Failure::ClientCertificate => (
                "client-certificate",
                "`tls-client-auth` asks for a certificate that one of `tls-client-ca-file` has signed, and it shows none such",
            ),
            Failure::NothingInCommon => (
                "nothing-in-common",
                "it has no version or cipher of TLS in common with the proxy, which speaks 1.2 and 1.3",
            ),
            Failure::Alert => ("alert", "it ended the handshake with an alert"),
            Failure::Ended => ("ended", "it ended the connection"),
            Failure::TooLate => ("timeout", "it took longer than `handshake-timeout`"),
            Failure::Other => ("other", "what it says is not understood"),
        }
    }
}

// === impl Advice ===

impl Advice {
    fn on(self, error: &CertificateError) -> &'static str {
        match (error, self) {
            // A signature that is wrong: the signer has the name of one that is known, but another key.
            (CertificateError::UnknownIssuer | CertificateError::BadSignature, advice) => {
                match advice {
                    Advice::Upstream => {
                        ": set `upstream-ca-file` to the certificate of who signed it"
                    }
                    Advice::Admin => {
                        ": name the certificate of who signed it with `--admin-ca-file`"
                    }
                    Advice::System => ": add who signed it to those whom the system trusts",
                }
            }
            (CertificateError::NotValidForNameContext { .. }, Advice::Upstream) => {
                ": connect by that name, or set `upstream-tls-name`"
            }
            (CertificateError::NotValidForNameContext { .. }, _) => ": connect by that name",
            (CertificateError::NotValidYetContext { .. }, _) => {
                ": is the clock of this machine right?"
            }
            _ => "",
        }
    }
}

/// In the words of rustls, with what can be done.
pub fn of_server(error: &io::Error, host: &str, advice: Advice) -> io::Error {
    let Some(cause) = cause(error) else {
        return io::Error::new(error.kind(), format!("TLS with {host}: {error}"));
    };
    let words = match cause {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("{host} does not speak TLS at this port: is it the port without TLS?")
        }
        Error::InvalidCertificate(error) => format!(
            "the certificate of {host} is not accepted: {error}{}",
            advice.on(error)
        ),
        Error::AlertReceived(alert) if is_of_certificate(*alert) => format!(
            "{host} does not accept the certificate of `upstream-cert-file`, or misses one ({alert:?})"
        ),
        error => format!("TLS with {host}: {error}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, words)
}

fn is_of_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

pub fn days(time: Duration) -> String {
    match time.as_secs() / 86_400 {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

pub fn is_of_tls(error: &io::Error) -> bool {
    cause(error).is_some()
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
