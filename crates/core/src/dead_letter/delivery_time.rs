//! The header `x-opt-delivery-time`: until then a quorum queue of RabbitMQ 4.4 holds a message, also one that died or that AMQP 0-9-1 published (S13).
//!
//! In the proxy's own queues nothing of a message may act. There the header has a private name, of the same length, so that nothing grows.
//! On its way out the message has the header back. But a time that no broker can wait for never goes out: in RabbitMQ's sources of 4.4 a time
//! more than 292 years ahead ends the queue for good.

use std::time::Duration;

use bytes::Bytes;

use crate::amqp::properties::Properties;
use crate::amqp::table::{Field, Table, TableBuilder, Value};
use crate::machine::Wall;

use super::headers::contains;
use super::private::DELIVERY_TIME;

pub(super) const NAME: &[u8] = b"x-opt-delivery-time";
/// What both names have. It ends with a letter that few other headers have, so that a search stops rarely.
const IN_BOTH: &[u8] = b"-deliv";

/// A later time is a mistake: microseconds for milliseconds, or milliseconds for seconds.
const MOST_AHEAD: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

enum Becomes {
    Itself,
    Named(&'static [u8]),
    Nothing,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ForTarget {
    pub properties: Bytes,
    pub too_far: bool,
}

/// For a queue of the proxy: disables the header. `None`: there is none.
pub fn set_aside(properties: &[u8]) -> Option<Bytes> {
    edited(properties, &[NAME], |field| match field.name {
        NAME => Becomes::Named(DELIVERY_TIME),
        DELIVERY_TIME => Becomes::Nothing,
        _ => Becomes::Itself,
    })
}

/// For people and clients: restores the header's name. `None`: it was not changed.
pub fn shown(properties: &[u8]) -> Option<Bytes> {
    edited(properties, &[DELIVERY_TIME], |field| match field.name {
        DELIVERY_TIME => Becomes::Named(NAME),
        _ => Becomes::Itself,
    })
}

pub fn shown_name(name: &[u8]) -> &[u8] {
    match name {
        DELIVERY_TIME => NAME,
        name => name,
    }
}

/// For other queues: enables the header, unless its time is too far ahead. `None`: no change.
pub fn for_target(properties: &[u8], now: Wall) -> Option<ForTarget> {
    let (mut too_far, mut acts_again) = (false, false);
    let properties = edited(properties, &[NAME, DELIVERY_TIME], |field| {
        match field.name {
            NAME | DELIVERY_TIME if is_too_far(field.value, now) => {
                too_far = true;
                Becomes::Nothing
            }
            DELIVERY_TIME => {
                acts_again = true;
                Becomes::Named(NAME)
            }
            _ => Becomes::Itself,
        }
    })?;
    (too_far || acts_again).then_some(ForTarget {
        properties,
        too_far,
    })
}

pub(super) fn is_too_far(value: Value<'_>, now: Wall) -> bool {
    read(value) > now.after(MOST_AHEAD)
}

/// As RabbitMQ reads it (`annotate_delivery_time`): integer milliseconds, or a timestamp in
/// seconds.
pub(super) fn read(value: Value<'_>) -> Wall {
    Wall(match value.as_timestamp() {
        Some(seconds) => Wall::of_seconds(seconds).0,
        None => value
            .as_integer()
            .and_then(|millis| millis.try_into().ok())
            .unwrap_or(0),
    })
}

/// Edits the headers if any has one of these names. Does not search nested tables.
fn edited(
    properties: &[u8],
    names: &[&[u8]],
    mut becomes: impl FnMut(&Field<'_>) -> Becomes,
) -> Option<Bytes> {
    // Few messages have any of them.
    if !contains(properties, IN_BOTH) {
        return None;
    }
    let parsed = Properties::parse(properties).ok()?;
    let table = Table(parsed.headers()?);
    let mut fields = table.fields().map_while(Result::ok);
    fields.find(|field| names.contains(&field.name))?;
    let mut out = TableBuilder::with_capacity(table.0.len());
    for field in table.fields() {
        let field = field.ok()?;
        match becomes(&field) {
            Becomes::Itself => out.raw(&field),
            Becomes::Named(name) => out.value(name, &field.value),
            Becomes::Nothing => &mut out,
        };
    }
    Some(parsed.with_headers(out.finish()))
}
