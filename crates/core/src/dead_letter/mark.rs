//! How often a message was sent back out of a dead-letter queue.
//!
//! It stands in a private header ([`REDRIVEN`]). Retries, deaths and the parking queue leave that as it is; clients of the proxy are not shown it, as
//! they are shown no private header, and cannot publish it. Past the proxy anybody can. So it is only for people to read.

use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::Wall;

use super::private::REDRIVEN;

const COUNT: &[u8] = b"count";
const TIME: &[u8] = b"time";
const BY: &[u8] = b"by";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    pub count: u64,
    /// The last time: seconds since 1970.
    pub time: Option<u64>,
    pub by: Option<&'a [u8]>,
}

pub(super) fn counted(headers: Table<'_>, by: &[u8], now: Wall) -> TableBuilder {
    let before = Mark::read(headers).map_or(0, |mark| mark.count);
    let count = i64::try_from(before.saturating_add(1)).unwrap_or(i64::MAX);
    let mut mark = TableBuilder::default();
    mark.long(COUNT, count)
        .timestamp(TIME, now.seconds())
        .longstr(BY, by);
    mark
}

// === impl Mark ===

impl<'a> Mark<'a> {
    pub fn read(headers: Table<'a>) -> Option<Mark<'a>> {
        let table = headers.get(REDRIVEN).ok()??.as_table()?;
        let value = |name: &[u8]| table.get(name).ok().flatten();
        let count = value(COUNT)?.as_integer()?.try_into().ok()?;
        Some(Mark {
            count,
            time: value(TIME).and_then(Value::as_timestamp),
            by: value(BY).and_then(Value::as_longstr),
        })
    }
}
