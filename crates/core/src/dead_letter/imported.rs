//! A message that was written to a file and is to be a message again: what its exporter saw of it, and what its importer may publish.
//!
//! Both are what a client of the proxy would read and write. So a file shows no private header, and nobody gains anything by writing one into it.

use bytes::Bytes;

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::Table;

use super::headers::{self, HeaderEdit};
use super::{Rules, private};

pub fn exported(properties: &Bytes, own_user: &[u8]) -> Bytes {
    private::on_delivery(properties, own_user).unwrap_or_else(|| properties.clone())
}

/// Properties with which `user` publishes an exported message to a queue.
///
/// - Its history continues, like that of a client's message.
/// - A `CC` is shown but does not count, because RabbitMQ would route by it. A `BCC` is dropped.
/// - Another user's user-id is dropped, because RabbitMQ would refuse it.
///
/// # Errors
/// When properties or headers are malformed.
pub fn imported(properties: &[u8], user: &[u8], rules: &Rules) -> Result<Bytes, Malformed> {
    let parsed = Properties::parse(properties)?;
    let foreign = parsed.get(Property::UserId).is_some_and(|it| it != user);
    let headers = match parsed.headers() {
        None => Change::Keep,
        Some(headers) => Change::Set(table(Table(headers), rules)?),
    };
    Ok(parsed.edit(&Edit {
        headers,
        user_id: match foreign {
            true => Change::Remove,
            false => Change::Keep,
        },
        ..Edit::default()
    }))
}

fn table(table: Table<'_>, rules: &Rules) -> Result<Vec<u8>, Malformed> {
    let mut edit = HeaderEdit::default();
    if let Some(keys) = table.get(headers::CC)? {
        edit.value(private::CC, &keys);
    }
    if let Some(history) = private::carried(table, rules)? {
        edit.member(private::HISTORY, &history);
    }
    let counts = |name: &[u8]| name == headers::CC || name == headers::BCC;
    edit.apply(table, |name| {
        !name.starts_with(private::PREFIX) && !counts(name)
    })
}
