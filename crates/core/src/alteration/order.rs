//! What is to be made of a queue, written down at the broker before anything is changed: as one argument of a queue whose name says which
//! queue it is about. So whoever finds that queue can finish the work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::amqp::table::TableBuilder;

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
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    pub source: String,
    pub routing_key: String,
    pub arguments: Arguments,
}

// === impl Order ===

impl Order {
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // texts as keys: it cannot fail
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
