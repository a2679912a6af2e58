//! What was agreed on with a client that came with TLS, for those who are told of it.

use tokio_rustls::rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// X.520 allows 64 characters.
const LONGEST_NAME: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `TLSv1.2` or `TLSv1.3`, as in OpenSSL.
    pub version: Option<&'static str>,
    pub cipher: Option<String>,
    pub shown: Option<Shown>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Common name of the subject, unless too long.
    pub name: Option<String>,
    /// Sent on an earlier connection, whose session this resumes.
    pub before: bool,
}

// === impl Facts ===

impl Facts {
    pub fn of(state: &CommonState) -> Facts {
        let shown = state.peer_certificates().and_then(<[_]>::first);
        Facts {
            version: state.protocol_version().and_then(version),
            cipher: state
                .negotiated_cipher_suite()
                .and_then(|cipher| name_of(cipher.suite())),
            shown: shown.map(|certificate| Shown {
                name: common_name(certificate),
                before: state.handshake_kind() == Some(HandshakeKind::Resumed),
            }),
        }
    }
}

fn version(version: ProtocolVersion) -> Option<&'static str> {
    match version {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// In OpenSSL's spelling: TLS 1.3 ciphers lack a prefix, older ones have shorter names.
fn name_of(cipher: CipherSuite) -> Option<String> {
    let name = cipher.as_str()?;
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return Some(format!("TLS_{rest}"));
    }
    let name = name.strip_prefix("TLS_")?.replace("_WITH_", "_");
    let name = name.replace("AES_", "AES");
    let name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305");
    Some(name.replace('_', "-"))
}

fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let name = certificate
        .tbs_certificate()
        .subject()
        .common_name()
        .ok()??;
    let name = name.value().into_owned();
    (name.len() <= LONGEST_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::crypto::ring::ALL_CIPHER_SUITES;

    use super::name_of;

    #[test]
    fn ciphers_have_the_names_that_openssl_gives_them() {
        let names = ALL_CIPHER_SUITES.iter();
        let names: Vec<_> = names.filter_map(|cipher| name_of(cipher.suite())).collect();
        assert_eq!(
            names,
            [
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                "ECDHE-RSA-AES256-GCM-SHA384",
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-RSA-CHACHA20-POLY1305",
            ]
        );
    }
}
