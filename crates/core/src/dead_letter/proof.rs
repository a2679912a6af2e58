//! The proof that the proxy published a message itself, and what such a message says.
//!
//! A header proves nothing: whoever may publish may write it. The property `user-id` does, as the broker refuses one that is not the
//! publisher's own (S8.1), but for users with the tag `impersonator`. So where a header gives what a client could not have by itself, the
//! proxy publishes with `user-id` = its own user, and the user-id of before stands in [`USER_ID`]; without both, the header counts for nothing.
//!
//! What has the proof has the headers that the proxy gave it *with* the proof, as those of before are removed with it ([`prove`]), and
//! nobody can add one later: RabbitMQ dead-letters a message with the properties that it has. A client of the proxy cannot forge it, not even
//! as the proxy's own user: private names are removed from what it publishes. Past the proxy, that user can.

use bytes::Bytes;

use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, Value};

use super::headers::HeaderEdit;
use super::private::{RETRY, USER_ID};

/// The intended exchange of a parked message.
pub const PARKED_EXCHANGE: &[u8] = b"x-parked-exchange";
pub const PARKED_CAUSE: &[u8] = b"x-parked-cause";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original<'a>(pub Option<&'a [u8]>);

#[derive(Clone, Copy, Debug)]
pub struct Parked<'a> {
    pub exchange: &'a [u8],
    pub cause: &'a [u8],
}

/// Properties with the proof and the headers of parking, which replace older ones. Parked messages
/// have no TTL; only a returning message still had one. `None`: malformed.
pub fn prove(properties: &[u8], own_user: &[u8], parked: Option<Parked<'_>>) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let before = proven(&parsed, own_user);
    let mut edit = says(parked);
    edit.value(USER_ID, &original(&parsed, own_user).value());
    let table = Table(parsed.headers().unwrap_or_default());
    let goes = |name: &[u8]| claims(name) || name == RETRY && before.is_none();
    Some(parsed.edit(&Edit {
        headers: Change::Set(edit.apply(table, |name| !goes(name)).ok()?),
        expiration: expiration(parked),
        user_id: Change::Set(own_user.to_vec()),
        ..Edit::default()
    }))
}

/// The same without the proof: the broker knows the proxy's user by another name (OAuth 2).
pub fn unproven(properties: &[u8], own_user: &[u8], parked: Parked<'_>) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let user_id = proven(&parsed, own_user).map_or(Change::Keep, Original::put_back);
    let table = Table(parsed.headers().unwrap_or_default());
    let headers = says(Some(parked)).apply(table, |name| !claims(name)).ok()?;
    Some(parsed.edit(&Edit {
        headers: Change::Set(headers),
        expiration: expiration(Some(parked)),
        user_id,
        ..Edit::default()
    }))
}

pub fn proven<'a>(properties: &Properties<'a>, own_user: &[u8]) -> Option<Original<'a>> {
    if properties.get(Property::UserId) != Some(own_user) {
        return None;
    }
    let original: Value<'a> = Table(properties.headers()?).get(USER_ID).ok()??;
    match original.tag {
        b'V' => Some(Original(None)),
        _ => original
            .as_longstr()
            .filter(|user| user.len() <= 255)
            .map(|user| Original(Some(user))),
    }
}

/// The user-id that hides behind the proof, or would.
pub(super) fn original<'a>(properties: &Properties<'a>, own_user: &[u8]) -> Original<'a> {
    let proven = proven(properties, own_user);
    proven.unwrap_or_else(|| Original(properties.get(Property::UserId)))
}

/// Headers that count only as the proxy has just written them.
pub(super) fn claims(name: &[u8]) -> bool {
    [USER_ID, PARKED_EXCHANGE, PARKED_CAUSE].contains(&name)
}

/// Nothing expires in the parking queue. Dead letters have no TTL, but returning messages may.
fn expiration(parked: Option<Parked<'_>>) -> Change {
    match parked {
        Some(_) => Change::Remove,
        None => Change::Keep,
    }
}

fn says(parked: Option<Parked<'_>>) -> HeaderEdit<'static> {
    let mut edit = HeaderEdit::default();
    if let Some(Parked { exchange, cause }) = parked {
        edit.longstr(PARKED_EXCHANGE, exchange);
        edit.longstr(PARKED_CAUSE, cause);
    }
    edit
}

// === impl Original ===

impl<'a> Original<'a> {
    /// For [`USER_ID`].
    pub(super) fn value(self) -> Value<'a> {
        let none = Value {
            tag: b'V',
            data: &[],
        };
        self.0.map_or(none, Value::longstr)
    }

    pub fn put_back(self) -> Change {
        self.0
            .map_or(Change::Remove, |user| Change::Set(user.to_vec()))
    }
}
