//! Changes to a header table: what is not named stays as it is, byte for byte and in its place.

use std::ops::Range;

use crate::amqp::cursor::Malformed;
use crate::amqp::table::{ArrayBuilder, Field, Table, TableBuilder, Value};

pub(super) const X_DEATH: &[u8] = b"x-death";
pub(super) const X_FIRST_DEATH: [&[u8]; 3] = [
    b"x-first-death-reason",
    b"x-first-death-queue",
    b"x-first-death-exchange",
];
pub(super) const X_LAST_DEATH: [&[u8]; 3] = [
    b"x-last-death-reason",
    b"x-last-death-queue",
    b"x-last-death-exchange",
];
pub(super) const CC: &[u8] = b"CC";
pub(super) const BCC: &[u8] = b"BCC";

/// Added by a quorum queue to its deliveries: not copied (S3.6).
pub(super) const OF_THE_QUEUE: [&[u8]; 2] = [b"x-delivery-count", b"x-acquired-count"];

/// In bytes, enough for what most dead letters get.
const ROOM: usize = 768;

/// Edits by header name. Few, so a linear search per header is fast.
#[derive(Debug)]
pub(super) struct HeaderEdit<'a> {
    changes: Vec<(&'a [u8], Change)>,
    members: TableBuilder,
}

#[derive(Debug)]
enum Change {
    Remove,
    /// Replaces the first one; the range of its member.
    Set(Range<usize>),
    Written,
}

/// Naive search: a `memchr::memmem` searcher costs more than searching a small message.
pub(super) fn contains(properties: &[u8], word: &[u8]) -> bool {
    let Some((last, before)) = word.split_last() else {
        return true;
    };
    let until = |at| properties.get(..at).unwrap_or_default();
    memchr::memchr_iter(*last, properties).any(|at| until(at).ends_with(before))
}

/// Keys of a `CC` or `BCC` header: the longstr members of an array (`rabbit_basic:header_routes`);
/// else none.
pub(super) fn routes<'a>(headers: Table<'a>, name: &[u8]) -> Result<Vec<&'a [u8]>, Malformed> {
    let Some(array) = headers.get(name)?.and_then(|value| value.as_array()) else {
        return Ok(Vec::new());
    };
    array
        .values()
        .filter_map(|value| value.map(|value| value.as_longstr()).transpose())
        .collect()
}

/// Inserts before the first greater name: 4.x sorts headers.
pub(super) fn with_sorted(
    table: Table<'_>,
    name: &[u8],
    value: &Value<'_>,
) -> Result<Vec<u8>, Malformed> {
    let mut out = TableBuilder::with_capacity(table.0.len() + name.len() + value.data.len() + 6);
    let mut value = Some(value);
    for field in table.fields() {
        let field = field?;
        if field.name > name
            && let Some(value) = value.take()
        {
            out.value(name, value);
        }
        out.raw(&field);
    }
    if let Some(value) = value {
        out.value(name, value);
    }
    Ok(out.finish())
}

pub(super) fn longstrs(members: &[&[u8]]) -> ArrayBuilder {
    let mut array = ArrayBuilder::default();
    for member in members {
        array.longstr(member);
    }
    array
}

// === impl HeaderEdit ===

impl Default for HeaderEdit<'_> {
    fn default() -> Self {
        HeaderEdit {
            changes: Vec::with_capacity(16),
            members: TableBuilder::with_capacity(ROOM),
        }
    }
}

impl<'a> HeaderEdit<'a> {
    pub(super) fn remove(&mut self, name: &'a [u8]) {
        self.changes.push((name, Change::Remove));
    }

    pub(super) fn longstr(&mut self, name: &'a [u8], value: &[u8]) {
        self.set(name, |member| member.longstr(name, value));
    }

    pub(super) fn long(&mut self, name: &'a [u8], value: i64) {
        self.set(name, |member| member.long(name, value));
    }

    pub(super) fn array(&mut self, name: &'a [u8], value: &ArrayBuilder) {
        self.set(name, |member| member.array(name, value));
    }

    pub(super) fn table(&mut self, name: &'a [u8], value: &TableBuilder) {
        self.set(name, |member| member.table(name, value));
    }

    pub(super) fn value(&mut self, name: &'a [u8], value: &Value<'_>) {
        self.set(name, |member| member.value(name, value));
    }

    /// A table with that member alone.
    pub(super) fn member(&mut self, name: &'a [u8], of: &TableBuilder) {
        self.set(name, |member| member.members(of.as_table().0));
    }

    pub(super) fn raw(&mut self, field: Field<'a>) {
        self.set(field.name, |member| member.raw(&field));
    }

    fn set(&mut self, name: &'a [u8], build: impl Fn(&mut TableBuilder) -> &mut TableBuilder) {
        let start = self.members.as_table().0.len();
        let end = build(&mut self.members).as_table().0.len();
        self.changes.push((name, Change::Set(start..end)));
    }

    /// The edited table without names that `keep` refuses. A set member replaces the first one of
    /// its name, like `rabbit_misc:set_table_value`; duplicates stay. New members go to the end.
    ///
    /// # Errors
    /// When the table is malformed.
    pub(super) fn apply(
        self,
        table: Table<'_>,
        keep: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, Malformed> {
        if table.0.is_empty() {
            // As for most messages: all that was set, in its order, is there already.
            return Ok(self.members.finish());
        }
        let mut changes = self.changes;
        let members = self.members.as_table().0;
        let member = |at: Range<usize>| members.get(at).unwrap_or_default();
        let mut out = TableBuilder::with_capacity(table.0.len() + members.len());
        for field in table.fields() {
            let field = field?;
            let change = changes.iter_mut().find(|(name, _)| *name == field.name);
            match change.map(|(_, change)| change) {
                Some(Change::Remove) => {}
                Some(change @ Change::Set(_)) => {
                    if let Change::Set(at) = std::mem::replace(change, Change::Written) {
                        out.members(member(at));
                    }
                }
                Some(Change::Written) | None => {
                    if keep(field.name) {
                        out.raw(&field);
                    }
                }
            }
        }
        for (_, change) in changes {
            if let Change::Set(at) = change {
                out.members(member(at));
            }
        }
        Ok(out.finish())
    }
}
