//! The headers that are nobody's business but the proxy's, and the edits that add, hide and remove them in messages that merely pass.
//!
//! Each edit looks for bytes first and gives `None`, without an allocation, when a message stays as it is: nearly always. What looks like
//! a name but is part of a value changes nothing. Properties that cannot be parsed are left to the broker.

use bytes::Bytes;
use memchr::memmem;

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::{Change, Edit, Properties, has_headers};
use crate::amqp::table::{Table, TableBuilder};

use super::headers::{self, HeaderEdit, X_DEATH, longstrs};
use super::proof::{self, Original};
use super::{Dialect, Rules, delivery_time, history, remembered};

/// With which all of them begin.
pub const PREFIX: &[u8] = b"x-dlx-proxy-";
/// What RabbitMQ from 3.13 on forgets of a message's deaths; see `remembered`.
pub const HISTORY: &[u8] = b"x-dlx-proxy-history";
/// The keys of a `BCC` header, which the broker removes at publish (S2.2, S3.4), behind the routing key that they were published with: they
/// count as long as the message has that one (S2.5).
pub const BCC: &[u8] = b"x-dlx-proxy-bcc";
/// A `CC` header that no longer counts, but that 3.13 and later go on showing (S3.3). Under its own name the broker would route by it.
pub const CC: &[u8] = b"x-dlx-proxy-cc";
/// An `x-opt-delivery-time` that does not act, as the message is in a queue of the proxy's own; see `delivery_time`.
pub const DELIVERY_TIME: &[u8] = b"x-dlx-proxy-deliver";
/// The queues that a dead letter went through by itself; see `cycle`.
pub const LAP: &[u8] = b"x-dlx-proxy-lap";
/// How often a message was sent back out of a dead-letter queue, for people to read; see `redrive`.
pub const REDRIVEN: &[u8] = b"x-dlx-proxy-redriven";
/// Of a message that comes back to its queue, or has come back; see `retry`.
pub const RETRY: &[u8] = b"x-dlx-proxy-retry";
/// The user-id of a message whose property says that the proxy published it; see `proof`.
pub const USER_ID: &[u8] = b"x-dlx-proxy-user-id";

/// For a publish of a client: removes private names that it sends; remembers an x-death that the broker would forget, so that it goes on
/// counting (or, with `history = "broker"`, so that it is known to be forgotten), and BCC keys.
pub fn on_publish(properties: &[u8], routing_key: &[u8], rules: &Rules) -> Option<Bytes> {
    let found = |name: &[u8]| memmem::find(properties, name).is_some();
    let concerns = has_headers(properties)
        && (found(PREFIX)
            || (rules.dialect != Dialect::V3 && found(X_DEATH))
            || found(headers::BCC));
    if !concerns {
        return None;
    }
    edit_headers(properties, |table, edit| {
        let mut changed = has_private(table)?;
        let mut keys = headers::routes(table, headers::BCC)?;
        if !keys.is_empty() {
            keys.insert(0, routing_key);
            edit.array(BCC, &longstrs(&keys));
            changed = true;
        }
        if let Some(copy) = carried(table, rules)? {
            edit.table(HISTORY, &copy);
            changed = true;
        }
        Ok(changed)
    })
}

/// What has to be remembered of the x-death that a client publishes, because the broker forgets it; or, with `history = "broker"`, that it is to be
/// forgotten.
pub(super) fn carried(table: Table<'_>, rules: &Rules) -> Result<Option<TableBuilder>, Malformed> {
    let forget = match rules.dialect {
        Dialect::V3 => return Ok(None),
        // It forgets by itself what it does not take over (S5.3).
        Dialect::V3_13 if !rules.continue_history => return Ok(None),
        Dialect::V3_13 | Dialect::V4 => !rules.continue_history,
    };
    remembered::copy(table, forget)
}

/// For a publish of a client to which nothing can be added: removes private names. That always fits.
pub fn stripped(properties: &[u8]) -> Option<Bytes> {
    memmem::find(properties, PREFIX)?;
    edit_headers(properties, |table, _| has_private(table))
}

/// For a delivery to a client: removes what is private, shows x-death whole where the broker has only the newest part of it, shows a CC that no
/// longer counts and a time that does not act, and gives the message its user-id back, if it has the proof that the one it has is not its own. The header table stays even when
/// nothing is left in it: only `x-dlx-proxy-bcc` can have been alone there, and of a table with nothing but `BCC` the broker leaves an empty one.
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
    if let Some(whole) = remembered::restored(table).ok()? {
        edit.array(X_DEATH, &history::write(&whole.entries));
        for field in whole.first {
            edit.raw(field);
        }
    }
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

/// For a dead letter that does not fit into a frame: empties its private history. `None`: it has none. From the next native death on x-death
/// begins anew then, as it does for any client of that broker.
pub fn without_history(properties: &[u8]) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let table = Table(parsed.headers()?);
    table.get(HISTORY).ok()??;
    let mut edit = HeaderEdit::default();
    edit.table(HISTORY, &TableBuilder::default());
    Some(parsed.edit(&Edit {
        headers: Change::Set(edit.apply(table, |_| true).ok()?),
        ..Edit::default()
    }))
}

fn has_private(table: Table<'_>) -> Result<bool, Malformed> {
    // Not `any` alone: the whole table must be sound, or it is the broker's to refuse.
    table.fields().try_fold(false, |found, field| {
        Ok(found || field?.name.starts_with(PREFIX))
    })
}

/// The properties with their header table edited and every private name gone that `change` does not set; `None` when it says that nothing
/// changes.
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
    Some(parsed.edit(&Edit {
        headers: Change::Set(headers),
        ..Edit::default()
    }))
}
