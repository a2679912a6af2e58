//! What all that asks over HTTP needs: the header of a login, the name of a host, and an answer within a bound.

use std::fmt::Display;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What needs no escape in a path or a query, whatever it stands for.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Why the body of an answer cannot be had: it broke off, or is too long.
pub(crate) type BadBody = Box<dyn std::error::Error + Send + Sync>;

/// The header `Authorization` of HTTP Basic.
pub(crate) fn basic(user: &[u8], password: &[u8]) -> String {
    let credentials = BASE64_STANDARD.encode([user, b":", password].concat());
    format!("Basic {credentials}")
}

/// Octets as they stand in a path or a query.
pub(crate) fn escaped(octets: &[u8]) -> String {
    percent_encode(octets, ESCAPED).to_string()
}

pub(crate) fn host(name: impl Display, port: u16) -> String {
    let name = name.to_string();
    match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    }
}

/// The whole body, if it has at most so many octets.
pub(crate) async fn body(body: Incoming, longest: usize) -> Result<Vec<u8>, BadBody> {
    let mut body = Limited::new(body, longest);
    let mut octets = Vec::new();
    while let Some(frame) = body.frame().await {
        octets.extend_from_slice(frame?.data_ref().unwrap_or(&Bytes::new()));
    }
    Ok(octets)
}
