//! The part of a header of version 2 that tells of TLS: PP2_TYPE_SSL, section 2.2.6 of the specification.

use crate::tls::Facts;

/// PP2_TYPE_SSL; below, names of subtypes and flags likewise.
pub(super) const TYPE: u8 = 0x20;
const VERSION: u8 = 0x21;
const NAME: u8 = 0x22;
const CIPHER: u8 = 0x23;
/// PP2_CLIENT_SSL: a TLS client.
const WITH_TLS: u8 = 0x01;
/// PP2_CLIENT_CERT_CONN: sent a certificate on this connection.
const SHOWN: u8 = 0x02;
/// PP2_CLIENT_CERT_SESS: sent one in this TLS session.
const SHOWN_IN_SESSION: u8 = 0x04;
const FIXED: usize = 5;
/// Longer values are dropped, so that a header always has room.
const LONGEST: usize = 8 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssl(Vec<u8>);

// === impl Ssl ===

impl Ssl {
    pub fn of(facts: &Facts) -> Ssl {
        let (flags, unverified) = match &facts.shown {
            None => (WITH_TLS, 1_u32),
            Some(shown) if shown.before => (WITH_TLS | SHOWN_IN_SESSION, 0),
            Some(_) => (WITH_TLS | SHOWN | SHOWN_IN_SESSION, 0),
        };
        let mut value = vec![flags];
        value.extend(unverified.to_be_bytes());
        let name = facts.shown.as_ref().and_then(|shown| shown.name.as_deref());
        for (kind, text) in [
            (VERSION, facts.version),
            (NAME, name),
            (CIPHER, facts.cipher.as_deref()),
        ] {
            let Some(text) = text else { continue };
            let Ok(length) = u16::try_from(text.len()) else {
                continue;
            };
            value.push(kind);
            value.extend(length.to_be_bytes());
            value.extend(text.as_bytes());
        }
        Ssl(value)
    }

    /// From a load balancer's header; `None`: its client came without TLS.
    pub(super) fn read(value: &[u8]) -> Option<Ssl> {
        let with_tls = value.first().is_some_and(|flags| flags & WITH_TLS != 0);
        let fits = (FIXED..=LONGEST).contains(&value.len());
        (with_tls && fits).then(|| Ssl(value.to_vec()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
