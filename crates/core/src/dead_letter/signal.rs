//! What a message in the intake queue says: which queue it died in, and why.
//!
//! The broker has counted this death in the newest x-death entry, so there is a queue, a reason and a number. The other fields are those of
//! the first death there, which up to 3.12 a client may have made up, of any type (S4.4). That the message came through an intake exchange
//! is checked by who knows their names.

use thiserror::Error;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{Table, Value};
use crate::machine::Reason;

use super::Death;
use super::headers::{HeaderEdit, OF_THE_QUEUE, X_DEATH, X_LAST_DEATH};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal<'a> {
    pub queue: ShortStr,
    pub reason: Reason,
    /// Before its death: on 3.x only that of its first death here (S4.2).
    pub exchange: &'a [u8],
    /// Before its death, because intake exchanges set no key; or a key that a broker policy set on
    /// the way here (S2.1).
    pub routing_key: &'a [u8],
    pub count: i64,
    pub content: &'a Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Implausible {
    #[error("its properties cannot be read")]
    Malformed,
    #[error("it has no x-death entry")]
    NoDeath,
    #[error("its newest x-death entry has no proper {0}")]
    Field(&'static str),
}

/// Reads the newest x-death entry of a message from the intake queue. `routing_key`: of the
/// delivery.
///
/// # Errors
/// When RabbitMQ did not write it.
pub fn signal<'a>(routing_key: &'a [u8], content: &'a Content) -> Result<Signal<'a>, Implausible> {
    let properties = Properties::parse(&content.properties).map_err(|_| Implausible::Malformed)?;
    let headers = Table(properties.headers().ok_or(Implausible::NoDeath)?);
    headers.check().map_err(|_| Implausible::Malformed)?;
    let newest = lookup(headers, X_DEATH)
        .and_then(Value::as_array)
        .and_then(|array| array.values().next()?.ok()?.as_table())
        .ok_or(Implausible::NoDeath)?;
    newest.check().map_err(|_| Implausible::Malformed)?;

    let text = |name: &'static str| {
        lookup(newest, name.as_bytes())
            .and_then(Value::as_text)
            .ok_or(Implausible::Field(name))
    };
    let queue = ShortStr::copy(text("queue")?)
        .filter(|queue| !queue.is_empty())
        .ok_or(Implausible::Field("queue"))?;
    let reason = Reason::parse(text("reason")?).ok_or(Implausible::Field("reason"))?;
    let exchange = lookup(newest, b"exchange").and_then(Value::as_longstr);
    let count = lookup(newest, b"count")
        .and_then(Value::as_integer)
        .ok_or(Implausible::Field("count"))?;
    let [_, _, last_exchange] = X_LAST_DEATH;
    Ok(Signal {
        queue,
        reason,
        exchange: lookup(headers, last_exchange)
            .and_then(Value::as_longstr)
            .or(exchange)
            .unwrap_or_default(),
        routing_key,
        count,
        content,
    })
}

/// For parking an implausible signal: removes headers of its queue, and the expiration, as the
/// broker would. `None`: malformed.
pub fn without_death(content: &Content) -> Option<Content> {
    let properties = Properties::parse(&content.properties).ok()?;
    let headers = match properties.headers().map(Table) {
        None => Change::Keep,
        Some(table) => {
            table.check().ok()?;
            let own = |name: &[u8]| !OF_THE_QUEUE.contains(&name);
            Change::Set(HeaderEdit::default().apply(table, own).ok()?)
        }
    };
    let edit = Edit {
        headers,
        expiration: Change::Remove,
        ..Edit::default()
    };
    Some(content.with_properties(properties.edit(&edit)))
}

fn lookup<'a>(table: Table<'a>, name: &[u8]) -> Option<Value<'a>> {
    table.get(name).ok().flatten()
}

// === impl Signal ===

impl Signal<'_> {
    pub fn death(&self) -> Death<'_> {
        Death {
            queue: &self.queue,
            reason: self.reason,
            exchange: self.exchange,
            routing_key: self.routing_key,
            content: self.content,
            recorded: true,
            by: None,
        }
    }
}
