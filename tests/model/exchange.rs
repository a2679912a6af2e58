//! Exchanges and where they lead.

use std::collections::{BTreeMap, BTreeSet};

use crate::codec::value::{Bytes, Table, Value};

use super::broker::Broker;
use super::call::string;
use super::message::Message;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Direct,
    Fanout,
    Topic,
    Headers,
}

#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub kind: Type,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: Table,
}

/// What a binding leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Destination {
    Queue(Bytes),
    Exchange(Bytes),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binding {
    pub source: Bytes,
    pub destination: Destination,
    pub key: Bytes,
    pub arguments: Table,
}

impl Type {
    pub(super) fn named(name: &[u8]) -> Option<Type> {
        Some(match name {
            b"direct" => Type::Direct,
            b"fanout" => Type::Fanout,
            b"topic" => Type::Topic,
            b"headers" => Type::Headers,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Direct => "direct",
            Type::Fanout => "fanout",
            Type::Topic => "topic",
            Type::Headers => "headers",
        }
    }
}

impl Exchange {
    /// Those of every vhost.
    pub(super) fn predeclared() -> BTreeMap<Bytes, Exchange> {
        let all = [
            ("", Type::Direct),
            ("amq.direct", Type::Direct),
            ("amq.fanout", Type::Fanout),
            ("amq.topic", Type::Topic),
            ("amq.headers", Type::Headers),
            ("amq.match", Type::Headers),
            ("amq.rabbitmq.trace", Type::Topic),
        ];
        let made = all.map(|(name, kind)| {
            let exchange = Exchange {
                kind,
                durable: true,
                auto_delete: false,
                internal: name == "amq.rabbitmq.trace",
                arguments: Table::default(),
            };
            (name.as_bytes().to_vec(), exchange)
        });
        made.into()
    }

    fn alternate(&self) -> Option<Bytes> {
        string(&self.arguments, "alternate-exchange")
    }
}

impl Broker {
    /// All queues that a message reaches through an exchange that is there.
    pub(super) fn route(&self, exchange: &[u8], message: &Message) -> BTreeSet<Bytes> {
        let mut queues = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut next = vec![exchange.to_vec()];
        while let Some(name) = next.pop() {
            let Some(exchange) = self.exchanges.get(&name) else {
                continue;
            };
            if !seen.insert(name.clone()) {
                continue;
            }
            let mut found = self.destinations(&name, exchange, message);
            if found.is_empty() {
                found.extend(exchange.alternate().map(Destination::Exchange));
            }
            for destination in found {
                match destination {
                    Destination::Exchange(name) => next.push(name),
                    Destination::Queue(name) if self.queues.contains_key(&name) => {
                        queues.insert(name);
                    }
                    Destination::Queue(_) => {}
                }
            }
        }
        queues
    }

    fn destinations(
        &self,
        name: &[u8],
        exchange: &Exchange,
        message: &Message,
    ) -> Vec<Destination> {
        let keys = &message.keys;
        if name.is_empty() {
            let there = keys.iter().filter(|key| self.queues.contains_key(*key));
            return there.cloned().map(Destination::Queue).collect();
        }
        let fits = |binding: &&Binding| {
            binding.source == name
                && match exchange.kind {
                    Type::Direct => keys.contains(&binding.key),
                    Type::Fanout => true,
                    Type::Topic => keys.iter().any(|key| topic(&binding.key, key)),
                    Type::Headers => headers(&binding.arguments, &message.routing_headers()),
                }
        };
        let found = self.bindings.iter().filter(fits);
        found.map(|binding| binding.destination.clone()).collect()
    }
}

fn topic(pattern: &[u8], key: &[u8]) -> bool {
    let words = |text: &[u8]| -> Vec<Bytes> {
        match text.is_empty() {
            true => Vec::new(),
            false => text
                .split(|octet| *octet == b'.')
                .map(<[u8]>::to_vec)
                .collect(),
        }
    };
    fn fits(pattern: &[Bytes], words: &[Bytes]) -> bool {
        match (pattern, words) {
            ([], words) => words.is_empty(),
            ([first, rest @ ..], words) if first == b"#" => {
                (0..=words.len()).any(|skipped| fits(rest, &words[skipped..]))
            }
            ([first, rest @ ..], [word, others @ ..]) => {
                (first == b"*" || first == word) && fits(rest, others)
            }
            _ => false,
        }
    }
    fits(&words(pattern), &words(key))
}

fn headers(wanted: &Table, is: &Table) -> bool {
    let how = string(wanted, "x-match").unwrap_or_else(|| b"all".to_vec());
    let with_x = how.ends_with(b"-with-x");
    let counts =
        |(name, _): &&(Bytes, Value)| name != b"x-match" && (with_x || !name.starts_with(b"x-"));
    let mut tested = wanted.fields.iter().filter(counts).map(|(name, value)| {
        let found = is.get(&String::from_utf8_lossy(name));
        match (value, found) {
            (Value::Void, Some(_)) => true,
            (Value::Integer(_, a), Some(Value::Integer(_, b))) => a == b,
            (value, found) => Some(value) == found,
        }
    });
    match how.starts_with(b"any") {
        true => tested.any(|fits| fits),
        false => tested.all(|fits| fits),
    }
}
