//! The signal of a death in a queue to which the message had come back: as if it had never been away.

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::{ArrayBuilder, Table, TableBuilder, Value};

use super::headers::{self, HeaderEdit, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH};
use super::retry::{self, Retry};

const EXCHANGE: &[u8] = b"exchange";

/// The signal of a death after a retry, as if the message had never been delayed: content and key.
/// `None`: it had not come back to that queue.
pub fn signalled(
    content: &Content,
    routing_key: &[u8],
    own_user: &[u8],
) -> Option<(Content, ShortStr)> {
    if !retry::may_have(&content.properties) {
        return None;
    }
    let properties = Properties::parse(&content.properties).ok()?;
    let table = Table(properties.headers()?);
    let newest = table
        .get(X_DEATH)
        .ok()??
        .as_array()?
        .values()
        .next()?
        .ok()?
        .as_table()?;
    let queue = newest.get(b"queue").ok()??.as_longstr()?;
    let (retry, original) = retry::died_in(queue, &properties, own_user)?;
    let before = retry.before(content, original).ok()?;
    let parsed = Properties::parse(&before.properties).ok()?;
    let headers = retry.with_deaths_of_before(Table(parsed.headers()?)).ok()?;
    let properties = parsed.edit(&Edit {
        headers: Change::Set(headers),
        expiration: Change::Remove,
        ..Edit::default()
    });
    // Another key than its queue's a policy of the broker has set on the way.
    let key = match routing_key == retry.queue.as_bytes() {
        true => retry.routing_key.clone(),
        false => ShortStr::copy(routing_key)?,
    };
    Some((content.with_properties(properties), key))
}

impl Retry<'_> {
    /// Restores the original exchange, keys and expiration in the newest death, if its entry is
    /// new: 3.x and 3.13 keep those of an earlier one (S4.2).
    fn with_deaths_of_before(&self, table: Table<'_>) -> Result<Vec<u8>, Malformed> {
        let mut edit = HeaderEdit::default();
        let [_, _, last] = X_LAST_DEATH;
        if table.get(last)?.is_some() {
            edit.longstr(last, &self.exchange);
        }
        let deaths = table.get(X_DEATH)?.and_then(Value::as_array);
        let mut members = deaths.into_iter().flat_map(|deaths| deaths.values());
        let newest = members.next().transpose()?.and_then(Value::as_table);
        if let Some(newest) = newest.filter(|newest| is_new(*newest)) {
            let mut all = ArrayBuilder::default();
            all.table(&self.entry_of_before(newest, table)?);
            let mut is_alone = true;
            for member in members {
                all.value(&member?);
                is_alone = false;
            }
            edit.array(X_DEATH, &all);
            let [_, _, first] = X_FIRST_DEATH;
            if is_alone && table.get(first)?.is_some() {
                edit.longstr(first, &self.exchange);
            }
        }
        edit.apply(table, |_| true)
    }

    fn entry_of_before(
        &self,
        entry: Table<'_>,
        headers: Table<'_>,
    ) -> Result<TableBuilder, Malformed> {
        let mut keys = vec![self.routing_key.as_bytes()];
        if self.cc_counts {
            keys.extend(headers::routes(headers, headers::CC)?);
        }
        let mut out = TableBuilder::default();
        for field in entry.fields() {
            let field = field?;
            match (field.name, self.expiration) {
                (EXCHANGE, _) => out.longstr(EXCHANGE, &self.exchange),
                (b"routing-keys", _) => out.array(field.name, &headers::longstrs(&keys)),
                (b"original-expiration", Some(expiration)) => out.longstr(field.name, expiration),
                // The TTL was its queue's.
                (b"original-expiration", None) => &mut out,
                _ => out.raw(&field),
            };
        }
        Ok(out)
    }
}

fn is_new(entry: Table<'_>) -> bool {
    let count = entry.get(b"count").ok().flatten();
    count.and_then(Value::as_integer) == Some(1)
}
