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

/// A private history that is a table, as a string. `None`: it has to stay a table.
pub(super) fn write(table: Table<'_>) -> Option<Vec<u8>> {
    let value = |name: &[u8]| table.get(name).ok().flatten();
    let first = X_FIRST_DEATH.map(|name| value(name).and_then(Value::as_longstr));
    let [Some(reason), Some(queue), Some(exchange)] = first else {
        return None;
    };
    let first = [reason, queue, exchange];
    let x_death = value(X_DEATH)?.as_array()?;
    let (mut lines, mut oldest) = (Vec::new(), None);
    for entry in x_death.values() {
        let entry = entry.ok()?.as_table()?;
        let text = |name: &[u8]| entry.get(name).ok()??.as_longstr();
        let count = entry.get(b"count").ok()??.as_integer()?;
        let time = entry.get(b"time").ok()??.as_timestamp()?;
        let [reason, queue, exchange] = [text(b"reason")?, text(b"queue")?, text(b"exchange")?];
        let (count, time) = (count.to_string(), time.to_string());
        let expiration = text(b"original-expiration").unwrap_or_default();
        let (count, time) = (count.as_bytes(), time.as_bytes());
        let mut line = vec![count, reason, queue, time, exchange, expiration];
        for key in entry.get(b"routing-keys").ok()??.as_array()?.values() {
            line.push(key.ok()?.as_longstr()?);
        }
        lines.push(b'\n');
        lines.extend(line.join(&b'|'));
        oldest = Some([reason, queue, exchange]);
    }
    let mut out = VERSION.to_vec();
    if oldest != Some(first) {
        out.extend(first.join(&b'|'));
    }
    out.extend(lines);
    let back = read(&out)?;
    let same = back.x_death().as_array().0 == x_death.0 && back.first == first;
    same.then_some(out)
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
