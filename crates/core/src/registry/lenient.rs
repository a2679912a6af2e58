//! In what a declare may differ from its queue without a refusal: the setting, and key of a policy, `lenient`.
//!
//! Where its dead letters go (exchange and routing key) counts from such a declare on ([`redeclared`](super::redeclared)). All else stays as the queue
//! has it, and is reported: [`Kept`].

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::Table;

use super::Form;
use super::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY};

/// Names of arguments, and of what the method itself says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lenient(Arc<[ShortStr]>);

/// What a declare said, and the queue has otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub argument: ShortStr,
    /// As text. `None`: it said nothing.
    pub wanted: Option<String>,
    pub has: Option<String>,
}

// === impl Lenient ===

impl Lenient {
    /// Where dead letters go, and nothing else.
    pub fn targets() -> Lenient {
        let names = [DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY];
        Lenient::new(names.into_iter().filter_map(ShortStr::copy))
    }

    pub fn new(names: impl IntoIterator<Item = ShortStr>) -> Lenient {
        Lenient(names.into_iter().collect())
    }

    /// # Errors
    /// When no declare can differ in this from a queue that it may use.
    pub fn name(text: &str) -> Result<ShortStr, String> {
        let is_one = text.starts_with("x-") || ["durable", "auto-delete"].contains(&text);
        let name = ShortStr::copy(text.as_bytes()).filter(|_| is_one);
        name.ok_or_else(|| {
            "write the name of an argument, such as `x-message-ttl`, or `durable` or `auto-delete`"
                .to_owned()
        })
    }

    pub fn allows(&self, name: &[u8]) -> bool {
        self.0.iter().any(|allowed| **allowed == *name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a declare may change where dead letters go.
    pub fn follows_targets(&self) -> bool {
        self.0.iter().any(|name| is_of_target(name))
    }

    /// For a queue whose dead letters are the broker's.
    #[must_use]
    pub fn without_targets(&self) -> Lenient {
        let names = self.0.iter().filter(|name| !is_of_target(name));
        Lenient::new(names.cloned())
    }
}

pub fn is_of_target(name: &[u8]) -> bool {
    [DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY].contains(&name)
}

impl Serialize for Lenient {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

// === impl Form ===

impl Form {
    /// A value, for people. `None`: it is not there.
    pub fn shown(&self, name: &[u8]) -> Option<String> {
        match name {
            b"durable" => return Some(self.has(QueueDeclare::DURABLE)),
            b"auto-delete" => return Some(self.has(QueueDeclare::AUTO_DELETE)),
            _ => {}
        }
        let value = Table(&self.arguments).get(name).ok()??;
        Some(match (value.as_text(), value.as_integer()) {
            (Some(text), _) => String::from_utf8_lossy(text).into_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) if value.tag == b't' => (value.data != [0]).to_string(),
            (None, None) => "?".to_owned(),
        })
    }

    fn has(&self, bit: u8) -> String {
        (self.bits & bit != 0).to_string()
    }
}
