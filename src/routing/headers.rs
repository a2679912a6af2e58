//! The arguments of a binding to a headers exchange, and whether a message has what they ask for.
//!
//! Versions of RabbitMQ differ in how they compare what is neither text, integer nor boolean (`==` or `=:=` of Erlang, seconds or
//! milliseconds), and in which of two headers of one name counts. There the answer is "unknown".
//!
//! The limit: of two arguments of one name a survey shows only one, as JSON has it. No client library writes such a table.

use crate::amqp::cursor::Malformed;
use crate::amqp::table::{Table, Value};

const X_MATCH: &[u8] = b"x-match";
/// The broker may put these on a message itself (`message_interceptors`) before it routes it.
const SET_BY_BROKER: [&[u8]; 2] = [b"timestamp_in_ms", b"x-routed-by"];

/// What a binding asks of the headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Criteria {
    /// `x-match` is `any` or `any-with-x`.
    any: bool,
    /// Sorted by name; without `x-match`, and without other names in `x-` unless they count.
    wanted: Vec<(Vec<u8>, Wanted)>,
    /// Something in it cannot be read.
    odd: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// Any value.
    Presence,
    Text(Vec<u8>),
    Integer(i64),
    Boolean(bool),
    /// Of this type and these bytes: only known to be itself.
    Other(u8, Vec<u8>),
}

// === impl Criteria ===

impl Criteria {
    /// Those of a binding with these arguments.
    pub(super) fn of(arguments: &[u8]) -> Criteria {
        Criteria::read(Table(arguments)).unwrap_or(Criteria {
            odd: true,
            ..Criteria::default()
        })
    }

    fn read(arguments: Table<'_>) -> Result<Criteria, Malformed> {
        let how = arguments.get(X_MATCH)?.and_then(Value::as_longstr);
        let (any, with_x) = match how {
            Some(b"any") => (true, false),
            Some(b"any-with-x") => (true, true),
            Some(b"all-with-x") => (false, true),
            _ => (false, false),
        };
        let mut wanted = Vec::new();
        for field in arguments.fields() {
            let field = field?;
            if field.name != X_MATCH && (with_x || !field.name.starts_with(b"x-")) {
                wanted.push((field.name.to_vec(), Wanted::of(field.value)));
            }
        }
        wanted.sort();
        let odd = wanted.windows(2).any(|two| match two {
            [(a, _), (b, _)] => a == b,
            _ => false,
        });
        Ok(Criteria { any, wanted, odd })
    }

    /// Octets that they occupy, about.
    pub(super) fn len(&self) -> usize {
        let value = |wanted: &Wanted| match wanted {
            Wanted::Text(text) | Wanted::Other(_, text) => text.len(),
            Wanted::Presence | Wanted::Integer(_) | Wanted::Boolean(_) => 0,
        };
        let of = |(name, wanted): &(Vec<u8>, Wanted)| 120 + name.len() + value(wanted);
        self.wanted.iter().map(of).sum()
    }

    /// What that costs: each that is wanted is looked for in all headers. A match of a short key costs one.
    pub(super) fn cost(&self, headers: Table<'_>) -> usize {
        self.wanted.len().saturating_mul(headers.0.len() / 64 + 1)
    }

    /// Whether a message with these headers passes; `None`: unknown.
    pub(super) fn matches(&self, headers: Table<'_>) -> Option<bool> {
        if self.odd {
            return None;
        }
        let mut unknown = false;
        for (name, wanted) in &self.wanted {
            match wanted.is_in(headers, name) {
                Some(found) if found == self.any => return Some(found),
                Some(_) => {}
                None => unknown = true,
            }
        }
        (!unknown).then_some(!self.any)
    }
}

// === impl Wanted ===

impl Wanted {
    fn of(value: Value<'_>) -> Wanted {
        match (value.tag, value.as_integer()) {
            (b'V', _) => Wanted::Presence,
            (b'S' | b'x', _) => Wanted::Text(value.data.to_vec()),
            (b't', _) => Wanted::Boolean(value.data != [0]),
            (_, Some(integer)) => Wanted::Integer(integer),
            (tag, None) => Wanted::Other(tag, value.data.to_vec()),
        }
    }

    fn is_in(&self, headers: Table<'_>, name: &[u8]) -> Option<bool> {
        if SET_BY_BROKER.contains(&name) {
            return None;
        }
        let mut found = None;
        for field in headers.fields() {
            let field = field.ok()?;
            if field.name == name && found.replace(field.value).is_some() {
                return None;
            }
        }
        match (self, found.map(Wanted::of)) {
            (_, None) => Some(false),
            (Wanted::Presence, Some(_)) => Some(true),
            (Wanted::Other(..), _) | (_, Some(Wanted::Other(..) | Wanted::Presence)) => None,
            (wanted, Some(value)) => Some(*wanted == value),
        }
    }
}
