//! The private history as one string. A broker parses, keeps and writes a table at every hop; a string it only carries.
//!
//! ```text
//! 1
//! 2|rejected|orders|1764313433|shop|60000|orders.new|copy
//! 1|expired|wait|1764313400|||wait
//! ```
//!
//! `1` is the version. A line for each death follows: count, reason, queue, time, exchange, `original-expiration`, routing keys. `x-first-death-*`
//! is that of the last line, or, where it differs, stands behind the version: `1expired|wait|shop`.
//!
//! Only what comes back byte for byte is written so. The rest stays a table: what a client put into an entry, names with a `|` or a line break.

use std::io::Write as _;

use crate::amqp::table::{ArrayBuilder, Table, TableBuilder, Value};

use super::Dialect;
use super::headers::{X_DEATH, X_FIRST_DEATH};
use super::history::{self, Entry, NewDeath};

const VERSION: &[u8] = b"1";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compact<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    /// In the order of `X_FIRST_DEATH`.
    pub(super) first: [&'a [u8]; 3],
}

/// The private history of these headers, as a string. `None`: it has to be a table, or there is none.
pub(super) fn write(headers: Table<'_>) -> Option<Vec<u8>> {
    let [reason, queue, exchange] = X_FIRST_DEATH;
    let [x_death, first @ ..] = headers.find([X_DEATH, reason, queue, exchange]).ok()?;
    let [reason, queue, exchange] = first.map(|value| value.and_then(Value::as_longstr));
    let first = [reason?, queue?, exchange?];
    let x_death = x_death?.as_array()?;
    let mut text = Vec::with_capacity(VERSION.len() + x_death.0.len());
    text.extend_from_slice(VERSION);
    let (mut oldest, mut number) = (None, 0);
    for entry in x_death.values() {
        text.push(b'\n');
        oldest = Some(write_line(entry.ok()?.as_table()?, &mut text)?);
        number += 1;
    }
    let mut is_sound = number <= history::MOST_READ;
    if oldest? != first {
        let head = first.join(&b'|');
        is_sound &= marks(&head) == 2;
        text.splice(VERSION.len()..VERSION.len(), head);
    }
    is_sound.then_some(text)
}

/// Returns reason, queue and exchange. `None`: not all is as [`NewDeath::fields`] writes it.
fn write_line<'a>(entry: Table<'a>, line: &mut Vec<u8>) -> Option<[&'a [u8]; 3]> {
    let mut fields = entry.fields().peekable();
    let first = fields.peek()?.as_ref().ok()?;
    let expires = first.name == b"original-expiration";
    let mut value = |name: &[u8], tag| {
        let field = fields.next()?.ok()?;
        (field.name == name && field.value.tag == tag).then_some(field.value)
    };
    let expiration = match expires {
        true => value(b"original-expiration", b'S')?.data,
        false => b"",
    };
    let count = value(b"count", b'l')?.as_integer()?;
    let reason = value(b"reason", b'S')?.data;
    let queue = value(b"queue", b'S')?.data;
    let time = value(b"time", b'T')?.as_timestamp()?;
    let exchange = value(b"exchange", b'S')?.data;
    let routing_keys = value(b"routing-keys", b'A')?.as_array()?;
    if fields.next().is_some() || expires && expiration.is_empty() {
        return None;
    }
    write!(line, "{count}").ok()?;
    // The time is one.
    let (begins, mut parts) = (line.len(), 1);
    let mut put = |line: &mut Vec<u8>, part: &[u8]| {
        line.push(b'|');
        line.extend_from_slice(part);
        parts += 1;
    };
    put(line, reason);
    put(line, queue);
    write!(line, "|{time}").ok()?;
    put(line, exchange);
    put(line, expiration);
    for key in routing_keys.values() {
        put(line, key.ok()?.as_longstr()?);
    }
    (marks(line.get(begins..)?) == parts).then_some([reason, queue, exchange])
}

/// How many octets of a text would divide it.
fn marks(text: &[u8]) -> usize {
    let divides = |octet: &&u8| matches!(octet, b'|' | b'\n');
    text.iter().filter(divides).count()
}

/// `None`: it is not of this version, or not what [`write()`] writes.
pub(super) fn read(text: &[u8]) -> Option<Compact<'_>> {
    let mut lines = text.split(|octet| *octet == b'\n');
    let head = lines.next()?.strip_prefix(VERSION)?;
    let (mut entries, mut oldest) = (Vec::new(), None);
    for line in lines.take(history::MOST_READ) {
        let mut fields = line.split(|octet| *octet == b'|');
        let count = number(fields.next()?)?;
        let [reason, queue] = [fields.next()?, fields.next()?];
        let time = number(fields.next()?)?;
        let exchange = fields.next()?;
        let expiration = fields.next()?;
        let routing_keys: Vec<&[u8]> = fields.collect();
        let death = NewDeath {
            queue,
            reason,
            time,
            exchange,
            routing_keys: &routing_keys,
            original_expiration: (!expiration.is_empty()).then_some(expiration),
        };
        let fields = death.fields(Dialect::V4, count);
        entries.push(Entry::of(queue, reason, count, fields));
        oldest = Some([reason, queue, exchange]);
    }
    let first = match head {
        [] => oldest?,
        _ => {
            let fields: Vec<&[u8]> = head.split(|octet| *octet == b'|').collect();
            let first = fields.try_into().ok()?;
            oldest.filter(|oldest| *oldest != first).and(Some(first))?
        }
    };
    Some(Compact { entries, first })
}

/// Only as it is written: no sign, no zeros in front.
fn number<N: std::str::FromStr + ToString>(digits: &[u8]) -> Option<N> {
    let digits = str::from_utf8(digits).ok()?;
    let number: N = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

// === impl Compact ===

impl Compact<'_> {
    pub(super) fn x_death(&self) -> ArrayBuilder {
        history::write(&self.entries)
    }

    pub(super) fn table(&self) -> TableBuilder {
        let mut table = TableBuilder::default();
        table.array(X_DEATH, &self.x_death());
        for (name, value) in X_FIRST_DEATH.into_iter().zip(self.first) {
            table.longstr(name, value);
        }
        table
    }
}
