//! A broker's exchanges as plain lists, and routing in the plainest words.

use std::collections::BTreeSet;

use crate::amqp::ids::{ShortStr, name};
use crate::amqp::table::TableBuilder;
use crate::machine::{Binding, Change, Destination, Exchange, Mono, Survey};

pub(crate) fn queue(text: &str) -> Destination {
    Destination::Queue(name(text))
}

/// Text headers, or the arguments of a binding.
pub(crate) fn headers(members: &[(&str, &str)]) -> Vec<u8> {
    let mut table = TableBuilder::default();
    for (name, value) in members {
        table.longstr(name.as_bytes(), value.as_bytes());
    }
    table.finish()
}

pub(crate) fn exchange(text: &str, kind: &str, alternate: Option<&str>) -> Exchange {
    let arguments: Vec<_> = alternate
        .into_iter()
        .map(|name| ("alternate-exchange", name))
        .collect();
    Exchange {
        name: name(text),
        kind: name(kind),
        arguments: headers(&arguments),
        policy: false,
    }
}

pub(crate) fn binding(
    source: &str,
    destination: Destination,
    key: &str,
    arguments: &[(&str, &str)],
) -> Binding {
    Binding {
        source: name(source),
        destination,
        routing_key: name(key),
        arguments: headers(arguments),
    }
}

/// The members of a table of text.
fn members(table: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = crate::amqp::table::Table(table).fields();
    fields
        .map(|field| {
            let field = field.unwrap();
            (text(field.name), text(field.value.as_longstr().unwrap()))
        })
        .collect()
}

/// What there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) bindings: Vec<Binding>,
}

impl Model {
    /// As a broker carries it out; what it would refuse is not done.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Declared(exchange) => {
                self.exchanges.retain(|x| x.name != exchange.name);
                self.exchanges.push(exchange.clone());
            }
            Change::Bound(binding) => {
                if !self.bindings.contains(binding) {
                    self.bindings.push(binding.clone());
                }
            }
            Change::Unbound(binding) => self.bindings.retain(|b| b != binding),
            Change::ExchangeDeleted(name) => {
                self.exchanges.retain(|x| x.name != *name);
                let to = Destination::Exchange(name.clone());
                self.bindings
                    .retain(|b| b.source != *name && b.destination != to);
            }
            Change::QueueDeleted(name) => {
                let to = Destination::Queue(name.clone());
                self.bindings.retain(|b| b.destination != to);
            }
        }
    }

    pub(crate) fn survey(&self, begun: Mono) -> Survey {
        Survey {
            begun,
            exchanges: self.exchanges.clone(),
            bindings: self.bindings.clone(),
        }
    }

    /// The queues; `None` when an exchange on the way is not there.
    pub(crate) fn route(
        &self,
        from: &str,
        keys: &[&str],
        headers: &[u8],
    ) -> Option<BTreeSet<ShortStr>> {
        let mut reached = BTreeSet::from([Destination::Exchange(name(from))]);
        loop {
            let before = reached.len();
            for place in reached.clone() {
                if let Destination::Exchange(exchange) = place {
                    reached.extend(self.pass(&exchange, keys, headers)?);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        let queues = reached.into_iter().filter_map(|place| match place {
            Destination::Queue(queue) => Some(queue),
            Destination::Exchange(_) => None,
        });
        Some(queues.collect())
    }

    /// Where one exchange passes a message on to.
    fn pass(&self, from: &ShortStr, keys: &[&str], headers: &[u8]) -> Option<Vec<Destination>> {
        let exchange = self.exchanges.iter().find(|x| x.name == *from)?;
        let takes = |binding: &&Binding| {
            let pattern = binding.routing_key.to_string();
            binding.source == *from
                && match &*exchange.kind.to_string() {
                    "fanout" => true,
                    "direct" => keys.contains(&&*pattern),
                    "topic" => keys.iter().any(|key| topic(&words(&pattern), &words(key))),
                    "headers" => has(headers, &binding.arguments),
                    other => panic!("no type {other}"),
                }
        };
        let found = self.bindings.iter().filter(takes);
        let mut found: Vec<Destination> = found.map(|b| b.destination.clone()).collect();
        if found.is_empty() {
            let alternate = members(&exchange.arguments).pop();
            found.extend(alternate.map(|(_, value)| Destination::Exchange(name(&value))));
        }
        Some(found)
    }
}

fn words(key: &str) -> Vec<&str> {
    match key {
        "" => Vec::new(),
        key => key.split('.').collect(),
    }
}

fn topic(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], key) => key.is_empty(),
        (["#", rest @ ..], []) => topic(rest, &[]),
        (["#", rest @ ..], [_, behind @ ..]) => topic(rest, key) || topic(pattern, behind),
        (["*", rest @ ..], [_, behind @ ..]) => topic(rest, behind),
        ([word, rest @ ..], [first, behind @ ..]) => word == first && topic(rest, behind),
        (_, []) => false,
    }
}

fn has(headers: &[u8], arguments: &[u8]) -> bool {
    let headers = members(headers);
    let (how, wanted): (Vec<_>, Vec<_>) = members(arguments)
        .into_iter()
        .partition(|(name, _)| name == "x-match");
    let how = how.first().map_or("all", |(_, how)| how.as_str());
    let mut counted = wanted
        .iter()
        .filter(|(name, _)| how.ends_with("-with-x") || !name.starts_with("x-"));
    match how.starts_with("any") {
        true => counted.any(|member| headers.contains(member)),
        false => counted.all(|member| headers.contains(member)),
    }
}
