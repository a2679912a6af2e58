//! What is to be made of a queue, written down at the broker before anything is changed: as one argument of a queue whose name says which
//! queue it is about. So whoever finds that queue can finish the work.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::TableBuilder;
use crate::objects::{Names, QueueType};
use crate::registry::reach::Reach;
use crate::registry::{Declared, Form};

use super::ORDER;

/// Arguments as the management API lists them.
pub type Arguments = BTreeMap<String, Value>;

/// A queue as it is, and as it shall be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    pub queue: String,
    pub durable: bool,
    pub quorum: bool,
    pub old: Arguments,
    pub new: Arguments,
    /// Without the one by its name at the default exchange.
    pub bindings: Vec<Binding>,
    /// From which some binding, or an alternate exchange, leads to the queue.
    #[serde(default)]
    pub exchanges: BTreeSet<String>,
    /// Auto-delete exchanges, which would go with their last binding: the queue of the order stands in for the queue meanwhile.
    #[serde(default)]
    pub kept: BTreeSet<String>,
    /// Consumers past the proxies do not stop it.
    #[serde(default)]
    pub allow_direct: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    pub source: String,
    pub routing_key: String,
    pub arguments: Arguments,
}

/// What became of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// Nothing, as far as known.
    #[default]
    Stays,
    /// It is another one, as the order says.
    Ordered,
    /// It is another one, or missing.
    Otherwise,
}

// === impl Order ===

impl Order {
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // texts as keys: it cannot fail
    }

    /// Says which of all orders for its queue it is: one that is over may still be in a list.
    pub(super) fn mark(&self) -> u32 {
        let digest = digest(&SHA256, self.text().as_bytes());
        digest
            .as_ref()
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// The arguments of the queue that has it. Declares are compared with the mark, not with an argument that the broker does not know.
    pub(super) fn arguments(&self) -> Vec<u8> {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"quorum");
        arguments.longstr(ORDER, self.text().as_bytes());
        arguments.long(b"x-max-length", 1); // nobody reads what comes by way of `keep`
        arguments.long(b"x-max-length-bytes", self.mark().into());
        arguments.finish()
    }

    /// Of the queue.
    pub fn name(&self) -> ShortStr {
        ShortStr::copy(self.queue.as_bytes()).unwrap_or_default()
    }

    /// The queue as it shall be.
    pub fn declared(&self, names: &Names) -> Declared {
        let bits = match self.durable {
            true => QueueDeclare::DURABLE,
            false => 0,
        };
        let form = Form::of(bits, &table(&self.new).unwrap_or_default());
        let was = match self.quorum {
            true => QueueType::Quorum,
            false => QueueType::Classic,
        };
        Declared::of_queue(form, was, names)
    }

    /// What has to wait meanwhile.
    pub fn reach(&self, vhost: &Vhost) -> Reach {
        let exchanges = self.exchanges.iter();
        Reach {
            vhost: vhost.clone(),
            queue: self.name(),
            exchanges: exchanges
                .filter_map(|name| ShortStr::copy(name.as_bytes()))
                .collect(),
        }
    }

    /// That a queue has in its arguments, for another one.
    pub fn of_arguments(listed: &Value) -> Option<Order> {
        let order = listed.get(str::from_utf8(ORDER).ok()?)?;
        Order::read(order.as_str()?)
    }

    pub fn read(text: &str) -> Option<Order> {
        serde_json::from_str(text).ok()
    }
}

/// A table without its length. `None`: a value has no certain form.
pub fn table(arguments: &Arguments) -> Option<Vec<u8>> {
    let mut table = TableBuilder::default();
    for (name, value) in arguments {
        let name = name.as_bytes();
        match (value, value.as_i64()) {
            (Value::String(text), _) => table.longstr(name, text.as_bytes()),
            (Value::Bool(value), _) => table.boolean(name, *value),
            (_, Some(number)) => table.long(name, number),
            _ => return None,
        };
    }
    Some(table.finish())
}
