//! What a broker calls itself.

use bytes::Bytes;

use crate::amqp::table::{Table, Value};

/// `server-properties.version`; empty when there is none.
pub(super) fn of(server_properties: &[u8]) -> Bytes {
    let version = Table(server_properties).get(b"version").ok().flatten();
    Bytes::copy_from_slice(version.and_then(Value::as_longstr).unwrap_or_default())
}
