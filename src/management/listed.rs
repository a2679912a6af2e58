//! What `/api/exchanges`, `/api/policies` and `/api/bindings` answer for one vhost.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::amqp::ids::ShortStr;
use crate::machine::{Binding, Destination, Exchange};
use crate::routing;

/// Policy keys that do not affect routing: most policies that match an exchange are meant for
/// queues.
const OF_QUEUES: &[&str] = &[
    "consumer-timeout",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delivery-limit",
    "expires",
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-batch-size",
    "ha-sync-mode",
    "max-age",
    "max-in-memory-bytes",
    "max-in-memory-length",
    "max-length",
    "max-length-bytes",
    "message-ttl",
    "overflow",
    "queue-leader-locator",
    "queue-master-locator",
    "queue-mode",
    "queue-version",
    "target-group-size",
];

#[derive(Deserialize)]
struct ListedExchange<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    arguments: Value,
    #[serde(borrow, default)]
    policy: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ListedPolicy {
    name: String,
    definition: Map<String, Value>,
}

#[derive(Deserialize)]
struct ListedBinding<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    destination: Cow<'a, str>,
    #[serde(borrow)]
    destination_type: Cow<'a, str>,
    #[serde(borrow)]
    routing_key: Cow<'a, str>,
}

pub(super) type Found = (Exchange, Option<String>);

pub(super) fn exchanges(json: &[u8]) -> serde_json::Result<Vec<Found>> {
    each(json, |exchange: ListedExchange<'_>| {
        let alternate = alternate(&exchange.arguments);
        let known = Exchange {
            name: short(&exchange.name)?,
            kind: short(&exchange.kind)?,
            is_odd: alternate.is_none(),
            alternate: alternate.flatten(),
        };
        let policy = exchange.policy.filter(|policy| !policy.is_empty());
        let octets = known.octets() + policy.as_ref().map_or(0, |policy| policy.len());
        Ok(Some(((known, policy.map(Cow::into_owned)), octets)))
    })
}

/// Policies that do not affect routing, from `/api/policies/VHOST`.
pub(super) fn of_queues(json: &[u8]) -> serde_json::Result<BTreeSet<String>> {
    let listed: Vec<ListedPolicy> = serde_json::from_slice(json)?;
    let harmless = listed.into_iter().filter(|policy| {
        let mut keys = policy.definition.keys();
        keys.all(|key| OF_QUEUES.contains(&key.as_str()))
    });
    Ok(harmless.map(|policy| policy.name).collect())
}

/// From `/api/bindings/VHOST`, without the default exchange's, which every queue has.
pub(super) fn bindings(json: &[u8]) -> serde_json::Result<Vec<Binding>> {
    each(json, |binding: ListedBinding<'_>| {
        if binding.source.is_empty() {
            return Ok(None);
        }
        let destination = short(&binding.destination)?;
        let known = Binding {
            source: short(&binding.source)?,
            destination: match &*binding.destination_type {
                "queue" => Destination::Queue(destination),
                _ => Destination::Exchange(destination),
            },
            routing_key: short(&binding.routing_key)?,
        };
        let octets = known.octets();
        Ok(Some((known, octets)))
    })
}

type Taken<U> = serde_json::Result<Option<(U, usize)>>;

/// Reduces each member before the next is read, because parsed JSON takes many times the memory.
/// Bounds the total.
struct Each<T, U>(fn(T) -> Taken<U>);

fn each<'de, T: Deserialize<'de>, U>(
    json: &'de [u8],
    take: fn(T) -> Taken<U>,
) -> serde_json::Result<Vec<U>> {
    let mut list = serde_json::Deserializer::from_slice(json);
    let found = list.deserialize_seq(Each(take))?;
    list.end()?;
    Ok(found)
}

impl<'de, T: Deserialize<'de>, U> Visitor<'de> for Each<T, U> {
    type Value = Vec<U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<U>, A::Error> {
        let (mut found, mut left) = (Vec::new(), routing::MOST_OCTETS);
        while let Some(listed) = list.next_element()? {
            if let Some((next, octets)) = (self.0)(listed).map_err(A::Error::custom)? {
                left = left
                    .checked_sub(routing::OVERHEAD + octets)
                    .ok_or_else(|| A::Error::custom("it is more than is kept"))?;
                found.push(next);
            }
        }
        Ok(found)
    }
}

/// Fails instead of omitting one, which would falsify the others.
fn short(name: &str) -> serde_json::Result<ShortStr> {
    let over = || serde_json::Error::custom("a name of over 255 octets");
    ShortStr::copy(name.as_bytes()).ok_or_else(over)
}

/// `None`: JSON does not show it.
fn alternate(arguments: &Value) -> Option<Option<ShortStr>> {
    match arguments.get("alternate-exchange") {
        None => Some(None),
        // A void, and octets that are not UTF-8 (`rabbit_misc:utf8_safe`).
        Some(Value::String(text)) if text == "undefined" || text.starts_with("Not UTF-8") => None,
        Some(name) => short(name.as_str()?).ok().map(Some),
    }
}
