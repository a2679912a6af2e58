//! In what a declare may differ from its queue without a refusal: the setting, and key of a policy, `lenient`.
//!
//! Where its dead letters go (exchange and routing key) counts from such a declare on ([`redeclared`](super::redeclared)). All else stays as the queue
//! has it, and is reported: [`Kept`].

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::{Table, TableBuilder};
use crate::amqp::version::Version;

use super::Form;
use super::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, EXPIRES, QUEUE_TYPE};
use super::refusal::Difference;

/// Arguments that are refused then, or only this value of them.
const OUTDATED: [(&[u8], Option<&str>); 2] = [
    (b"x-queue-master-locator", None),
    (b"x-queue-version", Some("1")),
];
const REFUSES_SINCE: Version = Version(4, 3, 0);

/// Names of arguments, and of what the method itself says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lenient {
    names: Arc<[ShortStr]>,
    /// Of a queue that is made durable, since the broker refuses a transient one.
    transient_expires: Option<Duration>,
}

/// One item of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Name(ShortStr),
    Transient(Duration),
}

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
        let names = names.into_iter().filter_map(ShortStr::copy);
        Lenient::new(names.map(Item::Name))
    }

    pub fn new(items: impl IntoIterator<Item = Item>) -> Lenient {
        let (mut names, mut transient_expires) = (Vec::new(), None);
        for item in items {
            match item {
                Item::Name(name) => names.push(name),
                Item::Transient(expires) => transient_expires = Some(expires),
            }
        }
        Lenient {
            names: names.into(),
            transient_expires,
        }
    }

    /// In these, too.
    #[must_use]
    pub fn with(mut self, names: &[ShortStr]) -> Lenient {
        self.names = self.names.iter().chain(names).cloned().collect();
        self
    }

    pub fn allows(&self, name: &[u8]) -> bool {
        self.names.iter().any(|allowed| **allowed == *name)
    }

    /// No declare may differ from its queue. It may be made in other words all the same:
    /// [`modern`](Self::modern).
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a declare may change where dead letters go.
    pub fn follows_targets(&self) -> bool {
        self.names.iter().any(|name| is_of_target(name))
    }

    /// For a queue whose dead letters are the broker's.
    #[must_use]
    pub fn without_targets(&self) -> Lenient {
        let names = self.names.iter().filter(|name| !is_of_target(name));
        Lenient {
            names: names.cloned().collect(),
            transient_expires: self.transient_expires,
        }
    }

    /// The declare in words that 4.3 does not refuse by default, and in what those differ from the client's.
    pub fn modern(&self, form: &Form, version: Option<Version>) -> Option<(Form, Vec<Kept>)> {
        version.filter(|version| *version >= REFUSES_SINCE)?;
        let (mut next, mut kept) = (form.clone(), Vec::new());
        for difference in self.outdated(form) {
            let before = next;
            let name = ShortStr::copy(difference.name())?;
            next = before.corrected(difference);
            kept.push(Kept::between(&before, &next, name));
        }
        (!kept.is_empty()).then_some((next, kept))
    }

    /// What is to be said otherwise.
    fn outdated(&self, form: &Form) -> Vec<Difference> {
        let mut outdated = Vec::new();
        let is_transient = form.bits & (QueueDeclare::DURABLE | QueueDeclare::EXCLUSIVE) == 0;
        if let Some(expires) = self.transient_expires.filter(|_| is_transient) {
            outdated.push(Difference::Bit(QueueDeclare::DURABLE, true));
            let mut adds = |name: &[u8], put: &dyn Fn(&mut TableBuilder)| {
                if form.shown(name).is_none() {
                    let mut table = TableBuilder::default();
                    put(&mut table);
                    outdated.push(Difference::Argument(name.to_vec(), Some(table.finish())));
                }
            };
            adds(EXPIRES, &|table| {
                table.long(EXPIRES, expires.as_millis() as i64);
            });
            // The default type of a vhost is for durable queues.
            adds(QUEUE_TYPE, &|table| {
                table.longstr(QUEUE_TYPE, b"classic");
            });
        }
        for (name, refused) in OUTDATED {
            let says = form.shown(name);
            let is_refused = says.is_some_and(|says| refused.is_none_or(|of| of == says));
            if is_refused && self.allows(name) {
                outdated.push(Difference::Argument(name.to_vec(), None));
            }
        }
        outdated
    }
}

// === impl Item ===

impl Item {
    /// # Errors
    /// When no declare can differ in this from a queue that it may use.
    pub fn name(text: &str) -> Result<Item, String> {
        let is_one = text.starts_with("x-") || ["durable", "auto-delete"].contains(&text);
        let name = ShortStr::copy(text.as_bytes()).filter(|_| is_one);
        name.map(Item::Name).ok_or_else(|| {
            "write the name of an argument, such as `x-message-ttl`, or `durable`, `auto-delete` or `transient=8h`"
                .to_owned()
        })
    }
}

// === impl Kept ===

impl Kept {
    /// `argument`: what is different.
    pub fn between(wanted: &Form, has: &Form, argument: ShortStr) -> Kept {
        Kept {
            wanted: wanted.shown(&argument),
            has: has.shown(&argument),
            argument,
        }
    }
}

pub fn is_of_target(name: &[u8]) -> bool {
    [DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY].contains(&name)
}

impl Serialize for Lenient {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.names.iter().map(ShortStr::to_string);
        let expires = self.transient_expires.iter();
        serializer.collect_seq(names.chain(expires.map(|of| format!("transient={of:?}"))))
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
