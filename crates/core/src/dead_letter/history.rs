//! The list of deaths: reads x-death, records a death in it, merges two lists, writes it.
//!
//! Rules S4.1 to S4.4; `update_x_death_header` of 3.10 and `record_death` of `mc.erl`. Entries are carried as raw tables, so that what a
//! client put into one beside the known fields stays.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::amqp::table::{Array, ArrayBuilder, Table, TableBuilder, Value};
use crate::machine::Reason;

use super::Dialect;
use super::headers::longstrs;

/// The maximum of `max-history`. A parsed entry takes fifty times the memory of the smallest one in
/// a frame.
pub(super) const MOST_READ: usize = 100_000;

/// Room for the fields of most entries.
const ENTRY: usize = 256;

/// Queue and reason identify an entry. Client-made entries may lack either; RabbitMQ compares them
/// anyway.
type Key<'a> = (Option<Word<'a>>, Option<Word<'a>>);

/// A queue or reason as RabbitMQ compares it: by value, whatever its type (`x_death_event_key`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word<'a> {
    Text(&'a [u8]),
    Integer(i64),
    Other(u8, &'a [u8]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    queue: Option<Value<'a>>,
    reason: Option<Value<'a>>,
    count: Option<Count>,
    /// Unparsed; not changed by later deaths.
    routing_keys: Option<Array<'a>>,
    fields: Cow<'a, [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Number(i64),
    Odd,
}

/// Fields of a new {queue, reason} (S4.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDeath<'a> {
    pub(super) queue: &'a [u8],
    pub(super) reason: &'a [u8],
    pub(super) time: u64,
    pub(super) exchange: &'a [u8],
    /// Key first, then CC.
    pub(super) routing_keys: &'a [&'a [u8]],
    pub(super) original_expiration: Option<&'a [u8]>,
}

/// Entries of an x-death header, newest first. A value other than an array is an empty history.
/// Members other than tables would crash a queue of RabbitMQ 3.x, and are dropped (S4.4).
pub(super) fn read(x_death: Option<Value<'_>>) -> Vec<Entry<'_>> {
    let Some(array) = x_death.and_then(Value::as_array) else {
        return Vec::new();
    };
    array
        .values()
        .filter_map(|member| Entry::read(member.ok()?.as_table()?))
        .take(MOST_READ)
        .collect()
}

/// Keeps the first entry per {queue, reason}; without a count it gets the number of its duplicates
/// (S4.4).
pub(super) fn group(entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let mut fellows: BTreeMap<Key<'_>, i64> = BTreeMap::new();
    for entry in &entries {
        *fellows.entry(entry.key()).or_default() += 1;
    }
    let mut grouped = Vec::with_capacity(fellows.len());
    for mut entry in entries {
        if let Some(number) = fellows.remove(&entry.key()) {
            if entry.count.is_none() {
                entry.recount(number);
            }
            grouped.push(entry);
        }
    }
    grouped
}

/// 3.x groups two or more earlier entries at each death, and its fold reverses their order (S4.2).
/// A single entry stays, even without a count.
pub(super) fn group_as_3_x(entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    if entries.len() < 2 {
        return entries;
    }
    let mut grouped = group(entries);
    grouped.reverse();
    grouped
}

/// Counts a death of {queue, reason} and moves its entry to the front; other fields stay (S4.2).
///
/// 3.x sorts the fields of that entry by name, except in a message's first one (S4.3).
pub(super) fn record<'a>(
    dialect: Dialect,
    mut entries: Vec<Entry<'a>>,
    death: NewDeath<'a>,
) -> Vec<Entry<'a>> {
    let key = (
        Some(Word::Text(death.queue)),
        Some(Word::Text(death.reason)),
    );
    let sorted = dialect == Dialect::V3 && !entries.is_empty();
    let known = entries.iter().position(|entry| entry.key() == key);
    let mut entry = match known {
        Some(at) => {
            let mut entry = entries.remove(at);
            // `increment_xdeath_event_count`: an entry without a count begins anew. So does one that would crash a queue of 3.x (S4.4).
            let before = entry.number().unwrap_or(0);
            entry.recount(before.saturating_add(1));
            entry
        }
        None => Entry::new(dialect, death),
    };
    if sorted {
        entry.sort();
    }
    entries.insert(0, entry);
    entries
}

/// Whether `newer` is the broker's continuation of `older`: each entry of `older` that RabbitMQ
/// 3.13 accepts (S5.3) is there, with the same time and at least the same count. `died`: requires
/// an added death.
///
/// Does not compare routing keys: 3.13 rewrites those that are not UTF-8.
pub(super) fn extends(newer: &[Entry<'_>], older: &[Entry<'_>], died: bool) -> bool {
    let index = by_key(newer);
    let mut taken_over = None;
    for entry in older.iter().filter(|entry| entry.is_whole()) {
        let Some(now) = index.get(&entry.key()).and_then(|at| newer.get(*at)) else {
            return false;
        };
        let same = |name: &[u8]| entry.field(name) == now.field(name);
        if now.deaths() < entry.deaths() || !same(b"time") || !same(b"exchange") {
            return false;
        }
        taken_over = Some(entry.deaths().saturating_add(taken_over.unwrap_or(0)));
    }
    taken_over.is_some_and(|before| deaths(newer) > before || !died)
}

/// Merges lists of different deaths of one message, in the order of `newer`, then `older`. For an
/// entry in both, `older` gives exchange, keys, time and original-expiration, and the counts are
/// added.
pub(super) fn merge<'a>(newer: Vec<Entry<'a>>, older: Vec<Entry<'a>>) -> Vec<Entry<'a>> {
    let mut older: Vec<Option<Entry<'a>>> = older.into_iter().map(Some).collect();
    let mut index: BTreeMap<Key<'a>, usize> = BTreeMap::new();
    for (at, entry) in older.iter().enumerate() {
        if let Some(entry) = entry {
            index.entry(entry.key()).or_insert(at);
        }
    }
    let mut merged = Vec::with_capacity(newer.len() + older.len());
    for entry in newer {
        let known = index
            .remove(&entry.key())
            .and_then(|at| older.get_mut(at)?.take());
        merged.push(match known {
            None => entry,
            Some(mut known) => {
                known.recount(known.deaths().saturating_add(entry.deaths()));
                known
            }
        });
    }
    merged.extend(older.into_iter().flatten());
    merged
}

/// `newer`, whose counts include those of `older`, with the missing entries of `older`.
pub(super) fn complete<'a>(newer: Vec<Entry<'a>>, older: Vec<Entry<'a>>) -> Vec<Entry<'a>> {
    let index = by_key(&newer);
    let rest: Vec<Entry<'a>> = older
        .into_iter()
        .filter(|entry| !index.contains_key(&entry.key()))
        .collect();
    let mut all = newer;
    all.extend(rest);
    all
}

/// Entries of `newer` that are new or have a higher count.
pub(super) fn added<'a>(newer: &[Entry<'a>], older: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let index = by_key(older);
    newer
        .iter()
        .filter(|entry| {
            index
                .get(&entry.key())
                .and_then(|at| older.get(*at))
                .is_none_or(|known| known.deaths() < entry.deaths())
        })
        .cloned()
        .collect()
}

/// Drops the oldest entries. On 3.x these are in the middle, because each death reverses the older
/// ones (S4.2).
pub(super) fn cut(dialect: Dialect, entries: &mut Vec<Entry<'_>>, most: usize) {
    let behind = match dialect {
        Dialect::V3 => most / 2,
        Dialect::V3_13 | Dialect::V4 => 0,
    };
    if entries.len() > most {
        entries.drain(most - behind..entries.len() - behind);
    }
}

pub(super) fn deaths(entries: &[Entry<'_>]) -> i64 {
    entries
        .iter()
        .fold(0, |sum, entry| sum.saturating_add(entry.deaths()))
}

pub(super) fn write(entries: &[Entry<'_>]) -> ArrayBuilder {
    let mut array = ArrayBuilder::default();
    for entry in entries {
        array.raw_table(Table(&entry.fields));
    }
    array
}

fn by_key<'a>(entries: &[Entry<'a>]) -> BTreeMap<Key<'a>, usize> {
    let mut index = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        index.entry(entry.key()).or_insert(at);
    }
    index
}

// === impl NewDeath ===

impl NewDeath<'_> {
    /// 3.x puts `original-expiration` last, 3.13 and 4.x first (S4.3).
    pub(super) fn fields(&self, dialect: Dialect, count: i64) -> Vec<u8> {
        let is_last = dialect == Dialect::V3;
        let mut fields = TableBuilder::with_capacity(ENTRY);
        let expires = |fields: &mut TableBuilder| {
            if let Some(text) = self.original_expiration {
                fields.longstr(b"original-expiration", text);
            }
        };
        if !is_last {
            expires(&mut fields);
        }
        fields
            .long(b"count", count)
            .longstr(b"reason", self.reason)
            .longstr(b"queue", self.queue)
            .timestamp(b"time", self.time)
            .longstr(b"exchange", self.exchange)
            .array(b"routing-keys", &longstrs(self.routing_keys));
        if is_last {
            expires(&mut fields);
        }
        fields.finish()
    }
}

// === impl Word ===

impl<'a> Word<'a> {
    fn of(value: Value<'a>) -> Word<'a> {
        match (value.as_text(), value.as_integer()) {
            (Some(text), _) => Word::Text(text),
            (_, Some(integer)) => Word::Integer(integer),
            _ => Word::Other(value.tag, value.data),
        }
    }
}

// === impl Entry ===

impl<'a> Entry<'a> {
    fn read(table: Table<'a>) -> Option<Entry<'a>> {
        let mut entry = Entry {
            queue: None,
            reason: None,
            count: None,
            routing_keys: None,
            fields: Cow::Borrowed(table.0),
        };
        for field in table.fields() {
            let field = field.ok()?;
            match field.name {
                b"queue" => entry.queue = entry.queue.or(Some(field.value)),
                b"reason" => entry.reason = entry.reason.or(Some(field.value)),
                b"count" if entry.count.is_none() => {
                    let number = field.value.as_integer();
                    entry.count = Some(number.map_or(Count::Odd, Count::Number));
                }
                b"routing-keys" => {
                    entry.routing_keys = entry.routing_keys.or(field.value.as_array());
                }
                _ => {}
            }
        }
        Some(entry)
    }

    fn new(dialect: Dialect, death: NewDeath<'a>) -> Entry<'a> {
        Entry::of(death.queue, death.reason, 1, death.fields(dialect, 1))
    }

    pub(super) fn of(queue: &'a [u8], reason: &'a [u8], count: i64, fields: Vec<u8>) -> Entry<'a> {
        Entry {
            queue: Some(Value::longstr(queue)),
            reason: Some(Value::longstr(reason)),
            count: Some(Count::Number(count)),
            routing_keys: None,
            fields: Cow::Owned(fields),
        }
    }

    fn key(&self) -> Key<'a> {
        (self.queue.map(Word::of), self.reason.map(Word::of))
    }

    /// Only a longstr: with another type RabbitMQ finds no cycle.
    pub(super) fn queue(&self) -> Option<&'a [u8]> {
        self.queue.and_then(Value::as_longstr)
    }

    pub(super) fn into_fields(self) -> Cow<'a, [u8]> {
        self.fields
    }

    fn field(&self, name: &[u8]) -> Option<Value<'_>> {
        Table(&self.fields).get(name).ok().flatten()
    }

    fn number(&self) -> Option<i64> {
        match self.count? {
            Count::Number(number) => Some(number),
            Count::Odd => None,
        }
    }

    pub(super) fn deaths(&self) -> i64 {
        self.number().unwrap_or(1)
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
            .and_then(Value::as_longstr)
            .and_then(Reason::parse)
    }

    pub(super) fn is_rejected(&self) -> bool {
        self.reason() == Some(Reason::Rejected)
    }

    pub(super) fn exchange(&self) -> Option<&[u8]> {
        self.field(b"exchange").and_then(|value| value.as_longstr())
    }

    pub(super) fn routing_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.routing_keys
            .unwrap_or(Array(&[]))
            .values()
            .map_while(Result::ok)
            .filter_map(Value::as_longstr)
    }

    /// All six fields and an integer time, as `mc_amqpl:recover_deaths` of 3.13 requires (S5.3).
    pub(super) fn is_whole(&self) -> bool {
        self.queue().is_some()
            && self.reason.and_then(Value::as_longstr).is_some()
            && self.number().is_some()
            && self
                .field(b"routing-keys")
                .is_some_and(|keys| keys.as_array().is_some())
            && self.field(b"exchange").is_some()
            && self
                .field(b"time")
                .is_some_and(|time| time.as_timestamp().is_some() || time.as_integer().is_some())
    }

    /// In the place of the first count, else in front.
    fn recount(&mut self, count: i64) {
        let mut fields = TableBuilder::with_capacity(self.fields.len() + 15);
        let mut written = self.count.is_none();
        if written {
            fields.long(b"count", count);
        }
        for field in Table(&self.fields).fields().map_while(Result::ok) {
            if field.name == b"count" && !std::mem::replace(&mut written, true) {
                fields.long(b"count", count);
            } else {
                fields.raw(&field);
            }
        }
        self.count = Some(Count::Number(count));
        self.fields = Cow::Owned(fields.finish());
    }

    fn sort(&mut self) {
        let mut sorted: Vec<_> = Table(&self.fields).fields().map_while(Result::ok).collect();
        sorted.sort_by_key(|field| field.name);
        let mut fields = TableBuilder::with_capacity(self.fields.len());
        for field in &sorted {
            fields.raw(field);
        }
        self.fields = Cow::Owned(fields.finish());
    }
}
