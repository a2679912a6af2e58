//! The deaths of a message as they are told to people, whoever keeps them: `x-death`, the private history, or the table of a message that is
//! away for a retry.
//!
//! Whoever says to have been the proxy is believed here: a reader need not be the proxy's user, and nothing is done because of it.

use std::borrow::Cow;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Table, Value};

use super::headers::X_DEATH;
use super::{history, remembered, retry};

#[derive(Clone, Debug, Default)]
pub struct Shown<'a> {
    /// Newest first, each a table without its length bytes.
    pub entries: Vec<Cow<'a, [u8]>>,
    /// The queue that it was returning to after a retry. It has not died there since.
    pub away_from: Option<ShortStr>,
}

pub fn shown<'a>(properties: &Properties<'a>, most: usize) -> Shown<'a> {
    let away = properties
        .get(Property::UserId)
        .and_then(|user| retry::read(properties, user))
        .and_then(|(retry, _)| Some((retry.queue, retry.away?.deaths)));
    let (away_from, headers) = match away {
        Some((queue, deaths)) => (Some(queue), deaths),
        None => (None, Table(properties.headers().unwrap_or_default())),
    };
    Shown {
        entries: entries(headers, most),
        away_from,
    }
}

fn entries(headers: Table<'_>, most: usize) -> Vec<Cow<'_, [u8]>> {
    if let Ok(Some(whole)) = remembered::restored(headers) {
        let entries = whole.entries.into_iter().take(most);
        return entries.map(history::Entry::into_fields).collect();
    }
    let mut fields = headers.fields().map_while(Result::ok);
    let x_death = fields.find(|field| field.name == X_DEATH);
    let Some(array) = x_death.and_then(|field| field.value.as_array()) else {
        return Vec::new();
    };
    let tables = array.values().map_while(Result::ok);
    let tables = tables.filter_map(Value::as_table).take(most);
    tables.map(|table| Cow::Borrowed(table.0)).collect()
}
