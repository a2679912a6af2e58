//! The broker as the management API lists it to whoever plans an alteration.

use std::collections::{BTreeMap, BTreeSet};

use dlx_proxy::alteration::Order;
use dlx_proxy::alteration::plan::{ListedBinding, ListedConnection, ListedExchange, Seen};
use dlx_proxy::management::ListedPolicy;
use dlx_proxy::registry::adoption::ListedQueue;
use serde_json::{Map, Value as Json};

use super::super::codec::value::{Table, Value};
use super::super::model::{BindingView, ExchangeType, ExchangeView};
use super::super::world::World;

impl World {
    pub(super) fn seen(&self) -> Seen {
        let queues = self.broker.queue_names();
        let bindings = self.broker.bindings().into_iter();
        let exchanges = self.broker.exchanges().into_iter();
        let connections = self.broker.names().map(|(_, name)| ListedConnection {
            protocol: "AMQP 0-9-1".to_owned(),
            user_provided_name: text(name),
        });
        Seen {
            queues: queues
                .iter()
                .filter_map(|name| self.queue_of(name))
                .collect(),
            bindings: bindings.map(binding).collect(),
            exchanges: exchanges.map(exchange).collect(),
            policies: self.policies(),
            connections: connections.collect(),
            mark: String::new(), // whoever plans knows its own
            global_prefetches: 0,
            backlog: Default::default(),
        }
    }

    fn queue_of(&self, name: &[u8]) -> Option<ListedQueue> {
        let listed = self.broker.listed(name)?;
        let name = text(name);
        Some(ListedQueue {
            queue_type: Some(listed.kind.to_owned()),
            policy: self.unknown.policies.get(&name).map(|_| name.clone()),
            arguments: json(&listed.arguments),
            durable: listed.durable,
            auto_delete: listed.auto_delete,
            exclusive: listed.exclusive,
            members: BTreeSet::new(),
            online: BTreeSet::new(),
            name,
        })
    }

    /// Each is named as its queue.
    fn policies(&self) -> Vec<ListedPolicy> {
        let all = self.unknown.policies.iter();
        let policy = |(queue, ruling): (&String, &super::super::rulings::Ruling)| {
            let keys = [
                ("dead-letter-exchange", &ruling.exchange),
                ("dead-letter-routing-key", &ruling.key),
            ];
            let said = keys.into_iter().filter_map(|(name, value)| {
                let value = value.clone()?;
                Some((name.to_owned(), value.into()))
            });
            ListedPolicy {
                vhost: "/".to_owned(),
                name: queue.clone(),
                pattern: format!("^{queue}$"),
                apply_to: "queues".to_owned(),
                priority: 1.0,
                definition: said.collect::<BTreeMap<_, _>>(),
            }
        };
        all.map(policy).collect()
    }

    /// What that queue has in its arguments.
    pub(super) fn order_of(&self, name: &[u8]) -> Option<Order> {
        Order::of_arguments(&json(&self.broker.listed(name)?.arguments))
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn binding(of: BindingView) -> ListedBinding {
    ListedBinding {
        source: text(&of.source),
        destination: text(&of.destination),
        destination_type: if of.to_queue { "queue" } else { "exchange" }.to_owned(),
        routing_key: text(&of.key),
        arguments: Json::Object(Map::new()),
    }
}

fn exchange(of: ExchangeView) -> ListedExchange {
    let kind = match of.kind {
        ExchangeType::Direct => "direct",
        ExchangeType::Fanout => "fanout",
        ExchangeType::Topic => "topic",
        ExchangeType::Headers => "headers",
    };
    ListedExchange {
        name: text(&of.name),
        exchange_type: kind.to_owned(),
        auto_delete: of.auto_delete,
        arguments: json(&of.arguments),
    }
}

/// Arguments, as far as JSON has them.
pub(super) fn json(table: &Table) -> Json {
    let value = |value: &Value| match value {
        Value::Text(bytes) => text(bytes).into(),
        Value::Integer(_, number) => i64::try_from(*number).map_or(Json::Null, Json::from),
        Value::Bool(value) => (*value).into(),
        _ => Json::Null,
    };
    let fields = table.fields.iter();
    Json::Object(fields.map(|(name, of)| (text(name), value(of))).collect())
}
