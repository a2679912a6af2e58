//! What a letter says of its deaths.

use serde::Serialize;

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Array, Field, Table, Value};
use crate::dead_letter::{Shown, shown};
use crate::machine::Wall;

use super::Letter;

const MOST: usize = 1000;
const LONGEST: usize = 255;
const INTAKE: &[u8] = b".intake";

/// One entry of `x-death`: the deaths in one queue for one reason. A field that is missing or has
/// another type is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Death {
    pub queue: Option<ShortStr>,
    /// In RabbitMQ's words; cut at 255 bytes.
    pub reason: Option<String>,
    pub count: Option<u64>,
    /// Of the first death, in seconds since 1970. RabbitMQ keeps it when it counts on (S4.2).
    pub time: Option<u64>,
    /// Before the first of these deaths.
    pub exchange: Option<ShortStr>,
    /// Before the first of these deaths: the routing key, then those of `CC`.
    pub routing_keys: Vec<ShortStr>,
    /// The property `expiration` that the first of these deaths removed, in milliseconds; cut at
    /// 255 bytes.
    pub original_expiration: Option<String>,
}

/// The origin of a message, from one pass over its headers.
#[derive(Debug, Default)]
pub(super) struct LastDeath {
    /// The queue of the newest death.
    ///
    /// - For a parked message: the queue in which its dead letter died. A message that was parked
    ///   on its way back after a retry has not died: this is its own queue then, and `reason` is
    ///   `None`.
    /// - Ignores the "death" of a message that the broker removed from the intake queue.
    /// - `None` without `x-death`: the message was published to this queue, or its history was
    ///   removed.
    pub(super) source: Option<ShortStr>,
    pub(super) reason: Option<String>,
    /// When it last died. For repeated deaths in a queue by one reason, RabbitMQ keeps only the
    /// first time.
    pub(super) died_at: Option<Wall>,
    /// The newest 1,000 deaths, newest first. Includes those that the broker has forgotten and the
    /// proxy has not.
    pub(super) deaths: Vec<Death>,
}

// === impl Letter ===

impl Letter {
    pub(super) fn last_death(&self) -> LastDeath {
        let Some(properties) = self.parsed() else {
            return LastDeath::default();
        };
        let Shown { entries, away_from } = shown(&properties, MOST);
        let deaths: Vec<_> = entries.iter().map(|raw| Death::read(Table(raw))).collect();
        let last = match away_from {
            Some(_) => None,
            None => deaths.iter().find(|death| !death.is_in_intake()),
        };
        LastDeath {
            reason: last.and_then(|death| death.reason.clone()),
            died_at: last.and_then(|death| death.time).map(Wall::of_seconds),
            source: away_from.or_else(|| last?.queue.clone()),
            deaths,
        }
    }
}

// === impl LastDeath ===

impl LastDeath {
    pub(super) fn number(&self) -> u64 {
        let counts = self.deaths.iter().map(|death| death.count.unwrap_or(1));
        counts.fold(0, u64::saturating_add)
    }
}

// === impl Death ===

impl Death {
    fn read(entry: Table<'_>) -> Death {
        let mut death = Death::default();
        let mut has_keys = false;
        for Field { name, value, .. } in entry.fields().map_while(Result::ok) {
            let text = || value.as_text().map(text);
            let name_of = || value.as_text().and_then(ShortStr::copy);
            let number = || value.as_integer().and_then(|it| u64::try_from(it).ok());
            match name {
                b"queue" => death.queue = death.queue.or_else(name_of),
                b"reason" => death.reason = death.reason.or_else(text),
                b"count" => death.count = death.count.or_else(number),
                b"time" => {
                    let time = || value.as_timestamp().or_else(number);
                    death.time = death.time.or_else(time);
                }
                b"exchange" => death.exchange = death.exchange.or_else(name_of),
                b"routing-keys" if !std::mem::replace(&mut has_keys, true) => {
                    let keys = value.as_array().unwrap_or(Array(&[])).values();
                    let keys = keys.map_while(Result::ok).filter_map(Value::as_text);
                    death.routing_keys = keys.filter_map(ShortStr::copy).collect();
                }
                b"original-expiration" => {
                    death.original_expiration = death.original_expiration.or_else(text);
                }
                _ => {}
            }
        }
        death
    }

    fn is_in_intake(&self) -> bool {
        let prefix = self.queue.as_deref().and_then(|it| it.strip_suffix(INTAKE));
        let exchange = self.exchange.as_deref().unwrap_or_default();
        prefix.is_some_and(|prefix| !prefix.is_empty() && exchange.starts_with(prefix))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
}
