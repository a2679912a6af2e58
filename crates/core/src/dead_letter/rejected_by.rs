//! `x-rejected-by`: the one header of the proxy's that is for those who read the dead-letter queue. It is written on request only, and belongs to
//! the newest death: a later one replaces it, or takes it away.

use bytes::Bytes;
use memchr::memmem;

use crate::amqp::properties::Properties;
use crate::amqp::table::{Table, TableBuilder};
use crate::machine::Rejecter;

use super::Death;
use super::headers::HeaderEdit;

pub const X_REJECTED_BY: &[u8] = b"x-rejected-by";

/// Sets or removes the header. `now`: seconds since 1970.
pub(super) fn put(edit: &mut HeaderEdit<'_>, death: &Death<'_>, now: u64) {
    match death.by {
        Some(by) => edit.table(X_REJECTED_BY, &table(by, death.queue, now)),
        None => edit.remove(X_REJECTED_BY),
    }
}

fn table(by: &Rejecter, queue: &[u8], now: u64) -> TableBuilder {
    let connection = &by.connection;
    let mut table = TableBuilder::default();
    for (field, value) in [
        ("consumer", by.consumer.as_ref()),
        ("connection", connection.name.as_ref()),
        ("user", connection.user.as_ref()),
        ("host", Some(&connection.host)),
    ] {
        if let Some(value) = value {
            table.longstr(field.as_bytes(), value);
        }
    }
    let held = i64::try_from(by.held.as_millis()).unwrap_or(i64::MAX);
    table.longstr(b"queue", queue);
    table.timestamp(b"time", now).long(b"held-ms", held);
    table
}

/// For a dead letter too large for a frame. `None`: no such header.
pub fn without(properties: &[u8]) -> Option<Bytes> {
    memmem::find(properties, X_REJECTED_BY)?;
    let parsed = Properties::parse(properties).ok()?;
    let headers = Table(parsed.headers()?).without(|name| name == X_REJECTED_BY)?;
    Some(parsed.with_headers(headers))
}
