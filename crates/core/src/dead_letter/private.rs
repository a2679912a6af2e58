//! The headers that are nobody's business but the proxy's, and the edits that add, hide and remove them in messages that merely pass.
//!
//! Each edit looks for bytes first and gives `None`, without an allocation, when a message stays as it is: nearly always. What looks like
//! a name but is part of a value changes nothing. Properties that cannot be parsed are left to the broker.

use bytes::Bytes;
use memchr::memmem;

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::{Change, Edit, Properties, has_headers};
use crate::amqp::table::{Table, TableBuilder};

use super::copy_id::X_COPY_ID;
use super::headers::{self, HeaderEdit, X_DEATH, longstrs};
use super::proof::{self, Original};
use super::{Dialect, Rules, delivery_time, remembered};

pub const PREFIX: &[u8] = b"x-dlx-proxy-";
/// Deaths that RabbitMQ forgets from 3.13 on; see `remembered`.
pub const HISTORY: &[u8] = b"x-dlx-proxy-history";
/// Keys of a `BCC` header, which the broker removes at publish (S2.2, S3.4), after the routing key:
/// they count while the message has that key (S2.5).
pub const BCC: &[u8] = b"x-dlx-proxy-bcc";
/// A `CC` header that no longer counts, but is still shown by 3.13 and later (S3.3). Under its own
/// name the broker would route by it.
pub const CC: &[u8] = b"x-dlx-proxy-cc";
/// An `x-opt-delivery-time` disabled in a queue of the proxy; see `delivery_time`.
pub const DELIVERY_TIME: &[u8] = b"x-dlx-proxy-deliver";
/// The last change by a user; see `edited`.
pub const EDITED: &[u8] = b"x-dlx-proxy-edited";
/// Queues passed automatically; see `cycle`.
pub const LAP: &[u8] = b"x-dlx-proxy-lap";
/// Number of redrives, for people; see `redrive`.
pub const REDRIVEN: &[u8] = b"x-dlx-proxy-redriven";
/// Of a retried message; see `retry`.
pub const RETRY: &[u8] = b"x-dlx-proxy-retry";
/// The original user-id of a message with the proof; see `proof`.
pub const USER_ID: &[u8] = b"x-dlx-proxy-user-id";

/// For a client's publish: removes private names; keeps BCC keys, and an x-death that the broker
/// would forget, so that it continues (with `history = "broker"`: so that it is known as
/// forgotten). With stamps, a message that a client makes of another one is no copy of it.
pub fn on_publish(properties: &[u8], routing_key: &[u8], rules: &Rules) -> Option<Bytes> {
    let found = |name: &[u8]| memmem::find(properties, name).is_some();
    let concerns = has_headers(properties)
        && (found(PREFIX)
            || (rules.stamp && found(X_COPY_ID))
            || (rules.dialect != Dialect::V3 && found(X_DEATH))
            || found(headers::BCC));
    if !concerns {
        return None;
    }
    edit_headers(properties, |table, edit| {
        let mut changed = without_ours(table, edit, rules)?;
        let mut keys = headers::routes(table, headers::BCC)?;
        if !keys.is_empty() {
            keys.insert(0, routing_key);
            edit.array(BCC, &longstrs(&keys));
            changed = true;
        }
        if let Some(copy) = carried(table, rules)? {
            edit.member(HISTORY, &copy);
            changed = true;
        }
        Ok(changed)
    })
}

/// What to keep of a published x-death that the broker forgets; with `history = "broker"`, that it
/// is forgotten.
pub(super) fn carried(table: Table<'_>, rules: &Rules) -> Result<Option<TableBuilder>, Malformed> {
    let forget = match rules.dialect {
        Dialect::V3 => return Ok(None),
        // It forgets by itself what it does not take over (S5.3).
        Dialect::V3_13 if !rules.continue_history => return Ok(None),
        Dialect::V3_13 | Dialect::V4 => !rules.continue_history,
    };
    remembered::copy(table, forget, rules.history_form)
}

/// For a publish without room for additions: only removes what is the proxy's.
pub fn stripped(properties: &[u8], rules: &Rules) -> Option<Bytes> {
    let found = |name: &[u8]| memmem::find(properties, name).is_some();
    let concerns = found(PREFIX) || (rules.stamp && found(X_COPY_ID));
    concerns.then(|| edit_headers(properties, |table, edit| without_ours(table, edit, rules)))?
}

/// Whether there is something of the proxy's, which goes: its private names with each edit.
fn without_ours(
    table: Table<'_>,
    edit: &mut HeaderEdit<'_>,
    rules: &Rules,
) -> Result<bool, Malformed> {
    let has_id = rules.stamp && table.get(X_COPY_ID)?.is_some();
    if has_id {
        edit.remove(X_COPY_ID);
    }
    Ok(has_private(table)? || has_id)
}

/// For a delivery to a client. Removes private headers. Restores the whole x-death, a CC that no
/// longer counts, a disabled delivery time, and the original user-id if the message has the proof.
/// An empty header table stays: only `x-dlx-proxy-bcc` can have been alone in it, and the broker
/// also leaves an empty table when it removes `BCC`.
pub fn on_delivery(properties: &[u8], own_user: &[u8]) -> Option<Bytes> {
    if !has_headers(properties) || memmem::find(properties, PREFIX).is_none() {
        return None;
    }
    let timed = delivery_time::shown(properties);
    without_private(timed.as_deref().unwrap_or(properties), own_user).or(timed)
}

fn without_private(properties: &[u8], own_user: &[u8]) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let table = Table(parsed.headers()?);
    if !has_private(table).ok()? {
        return None;
    }
    let user_id = proof::proven(&parsed, own_user).map_or(Change::Keep, Original::put_back);
    let mut edit = HeaderEdit::default();
    remembered::restore(&mut edit, table).ok()?;
    let mut headers = edit.apply(table, |name| !name.starts_with(PREFIX)).ok()?;
    if let Some(shown) = table.get(CC).ok()?
        && table.get(headers::CC).ok()?.is_none()
    {
        headers = headers::with_sorted(Table(&headers), headers::CC, &shown).ok()?;
    }
    Some(parsed.edit(&Edit {
        headers: Change::Set(headers),
        user_id,
        ..Edit::default()
    }))
}

/// For a dead letter too large for a frame: empties its private history. `None`: it has none.
/// x-death begins anew at the next native death, as for any client of that broker.
pub fn without_history(properties: &[u8]) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let table = Table(parsed.headers()?);
    table.get(HISTORY).ok()??;
    let mut edit = HeaderEdit::default();
    edit.table(HISTORY, &TableBuilder::default());
    let headers = edit.apply(table, |_| true).ok()?;
    Some(parsed.with_headers(headers))
}

fn has_private(table: Table<'_>) -> Result<bool, Malformed> {
    // Not `any` alone: the whole table must be sound, or it is the broker's to refuse.
    table.fields().try_fold(false, |found, field| {
        Ok(found || field?.name.starts_with(PREFIX))
    })
}

/// Edits the header table, and removes private names that `change` does not set. `None`: no change.
fn edit_headers(
    properties: &[u8],
    change: impl for<'a> FnOnce(Table<'a>, &mut HeaderEdit<'a>) -> Result<bool, Malformed>,
) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let table = Table(parsed.headers()?);
    let mut edit = HeaderEdit::default();
    if !change(table, &mut edit).ok()? {
        return None;
    }
    let headers = edit.apply(table, |name| !name.starts_with(PREFIX)).ok()?;
    Some(parsed.with_headers(headers))
}
