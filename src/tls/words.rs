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

/// Why a client's handshake failed. The label of a metric.
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
    pub const ALL: [Failure; 8] = [
        Failure::NotTls,
        Failure::RefusedByClient,
        Failure::ClientCertificate,
        Failure::NothingInCommon,
        Failure::Alert,
        Failure::Ended,
        Failure::TooLate,
        Failure::Other,
    ];

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

    pub fn as_str(self) -> &'static str {
        match self {
            Failure::NotTls => "not-tls",
            Failure::RefusedByClient => "refused-by-client",
            Failure::ClientCertificate => "client-certificate",
            Failure::NothingInCommon => "nothing-in-common",
            Failure::Alert => "alert",
            Failure::Ended => "ended",
            Failure::TooLate => "timeout",
            Failure::Other => "other",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Failure::NotTls => {
                "it speaks no TLS: a client that speaks AMQP without TLS has to come to `listen`, or to be set to `amqps://`"
            }
            Failure::RefusedByClient => {
                "it does not accept the certificate of `tls-cert-file`: it has to know who signed that, and to use a name that stands in it"
            }
            Failure::ClientCertificate => {
                "`tls-client-auth` asks for a certificate that one of `tls-client-ca-file` has signed, and it shows none such"
            }
            Failure::NothingInCommon => {
                "it has no version or cipher of TLS in common with the proxy, which speaks 1.2 and 1.3"
            }
            Failure::Alert => "it ended the handshake with an alert",
            Failure::Ended => "it ended the connection",
            Failure::TooLate => "it took longer than `handshake-timeout`",
            Failure::Other => "what it says is not understood",
        }
    }
}

// === impl Advice ===

impl Advice {
    fn of_issuer(self) -> &'static str {
        match self {
            Advice::Upstream => "set `upstream-ca-file` to the certificate of who signed it",
            Advice::Admin => "name the certificate of who signed it with `--admin-ca-file`",
            Advice::System => "add who signed it to those whom the system trusts",
        }
    }

    fn of_name(self) -> &'static str {
        match self {
            Advice::Upstream => "connect by that name, or set `upstream-tls-name`",
            Advice::Admin | Advice::System => "connect by that name",
        }
    }
}

pub fn of_server(error: &io::Error, host: &str, advice: Advice) -> io::Error {
    let words = match cause(error) {
        None => return io::Error::new(error.kind(), format!("TLS with {host}: {}", ended(error))),
        Some(error) => server(error, host, advice),
    };
    io::Error::new(io::ErrorKind::InvalidData, words)
}

fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            format!("it ended the connection in the handshake ({error})")
        }
        _ => error.to_string(),
    }
}

fn server(error: &Error, host: &str, advice: Advice) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("{host} does not speak TLS at this port: is it the port without TLS?")
        }
        Error::InvalidCertificate(error) => certificate(error, host, advice),
        Error::AlertReceived(alert) if is_of_certificate(*alert) => format!(
            "{host} does not accept the certificate of `upstream-cert-file`, or misses one ({alert:?})"
        ),
        Error::AlertReceived(alert) => format!("{host} ends the handshake of TLS ({alert:?})"),
        Error::PeerIncompatible(_) => {
            format!("{host} has no version or cipher of TLS in common with the proxy: {error}")
        }
        error => format!("TLS with {host}: {error}"),
    }
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

fn certificate(error: &CertificateError, host: &str, advice: Advice) -> String {
    match error {
        // A signature that is wrong: the signer has the name of one that is known, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {host} is signed by somebody unknown: {}",
            advice.of_issuer()
        ),
        CertificateError::NotValidForName => {
            format!(
                "the certificate of {host} is for another name: {}",
                advice.of_name()
            )
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the certificate of {host} is not for {} but for {}: {}",
            expected.to_str(),
            listed(presented),
            advice.of_name()
        ),
        CertificateError::Expired => format!("the certificate of {host} has expired"),
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("the certificate of {host} expired {} ago", days(ago))
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => format!(
            "the certificate of {host} is not valid yet: is the clock of this machine right?"
        ),
        error => format!("the certificate of {host} is not accepted: {error}"),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "no name".to_owned(),
        names => {
            let names: Vec<_> = names.iter().map(|name| bare(name)).collect();
            names.join(", ")
        }
    }
}

/// A name as in the certificate, where rustls writes `DnsName("rabbit")` or `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(');
    let inner = inner.and_then(|(_, inner)| inner.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
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
