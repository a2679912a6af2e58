//! Which generation of RabbitMQ a broker belongs to, by the version that its server properties name.

use bytes::Bytes;

use crate::amqp::table::{Table, Value};
use crate::dead_letter::Dialect;

/// `server-properties.version`; empty when there is none.
pub(super) fn of(server_properties: &[u8]) -> Bytes {
    let version = Table(server_properties).get(b"version").ok().flatten();
    Bytes::copy_from_slice(version.and_then(Value::as_longstr).unwrap_or_default())
}

/// The generation of a version such as `3.10.8` or `4.3.0-rc.1`; `None` for those before 3.10, and for what is no version.
pub fn dialect(version: &[u8]) -> Option<Dialect> {
    let mut numbers = std::str::from_utf8(version).ok()?.split(['.', '-', '+']);
    let mut next = || numbers.next()?.parse::<u32>().ok();
    match (next()?, next().unwrap_or(0)) {
        (3, 10..=12) => Some(Dialect::V3),
        (3, 13..) => Some(Dialect::V3_13),
        (4.., _) => Some(Dialect::V4),
        _ => None,
    }
}
