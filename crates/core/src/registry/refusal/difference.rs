//! In what a queue differs from a declare, as the broker's refusal names it: the first difference, with what the queue has.

use memchr::memmem;

use crate::amqp::method::QueueDeclare;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::{Table, TableBuilder};
use crate::registry::Form;
use crate::registry::arguments::ONLY_IF_THERE;
use crate::registry::lenient::is_of_target;

use super::{BUT_CURRENT_IS, INEQUIVALENT};

/// What differs, and the queue's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Bit(u8, bool),
    /// As the one member of a table. `None`: the queue lacks it.
    Argument(Vec<u8>, Option<Vec<u8>>),
    /// The argument of [`if_there`](super::super::arguments::if_there), which only streams compare.
    IsStream,
}

/// The difference in a refusal. `None`: none, or the text was cut.
pub fn difference(code: u16, text: &[u8], queue: &[u8]) -> Option<Difference> {
    let rest = text.strip_prefix(INEQUIVALENT)?;
    let (name, rest) = rest.split_at_checked(memchr::memchr(b'\'', rest)?)?;
    let about = [b"' for queue '", queue, b"' in vhost '"].concat();
    if code != PRECONDITION_FAILED || !rest.starts_with(&about) {
        return None;
    }
    let current = rest.get(memmem::rfind(rest, BUT_CURRENT_IS)? + BUT_CURRENT_IS.len()..)?;
    let bit = match name {
        b"durable" => Some(QueueDeclare::DURABLE),
        b"exclusive" => Some(QueueDeclare::EXCLUSIVE),
        b"auto_delete" => Some(QueueDeclare::AUTO_DELETE),
        ONLY_IF_THERE => return Some(Difference::IsStream),
        _ => None,
    };
    if let Some(bit) = bit {
        return Some(Difference::Bit(bit, current == b"'true'"));
    }
    if current == b"none" {
        return Some(Difference::Argument(name.to_vec(), None));
    }
    Some(Difference::Argument(
        name.to_vec(),
        Some(member(name, current)?),
    ))
}

/// `the value '5' of type 'signedint'` beside none; `'quorum'`, `'5'`, `'true'` beside another value.
fn member(name: &[u8], current: &[u8]) -> Option<Vec<u8>> {
    let typed = current
        .strip_prefix(b"the value ")
        .and_then(|typed| typed.strip_suffix(b"'"))
        .and_then(|typed| typed.split_at_checked(memmem::rfind(typed, b" of type '")?));
    let (value, kind) = match typed {
        Some((value, kind)) => (value, kind.strip_prefix(b" of type '")?),
        None => (current, &b""[..]),
    };
    let value = value.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let number = std::str::from_utf8(value)
        .ok()
        .and_then(|of| of.parse().ok());
    let mut table = TableBuilder::default();
    match kind {
        b"longstr" => table.longstr(name, value),
        b"bool" => table.boolean(name, value == b"true"),
        b"" if is_of_target(name) => table.longstr(name, value),
        // Other arguments that are compared are texts only if they do not look like another type.
        b"" if [&b"true"[..], b"false"].contains(&value) => table.boolean(name, value == b"true"),
        b"" if number.is_none() => table.longstr(name, value),
        // The broker compares numbers by their value, whatever their width.
        _ => table.long(name, number?),
    };
    Some(table.finish())
}

// === impl Difference ===

impl Difference {
    /// As the setting `lenient` names it.
    pub fn name(&self) -> &[u8] {
        match self {
            Difference::Bit(QueueDeclare::DURABLE, _) => b"durable",
            Difference::Bit(QueueDeclare::AUTO_DELETE, _) => b"auto-delete",
            Difference::Bit(..) => b"exclusive",
            Difference::Argument(name, _) => name,
            Difference::IsStream => ONLY_IF_THERE,
        }
    }
}

// === impl Form ===

impl Form {
    #[must_use]
    pub fn corrected(&self, difference: Difference) -> Form {
        match difference {
            Difference::Bit(bit, is_set) => Form {
                bits: match is_set {
                    true => self.bits | bit,
                    false => self.bits & !bit,
                },
                arguments: self.arguments.clone(),
            },
            Difference::Argument(name, member) => {
                let table = Table(&self.arguments);
                let without = table.without(|other| other == name);
                let without = without.unwrap_or_else(|| self.arguments.clone());
                Form {
                    bits: self.bits,
                    arguments: [without, member.unwrap_or_default()].concat(),
                }
            }
            Difference::IsStream => self.clone(),
        }
    }
}
