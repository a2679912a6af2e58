//! A parked message on its way back: where it was meant to go, and what it looked like.
//!
//! Only what has the [`proof`] that the proxy parked it can go by itself, or whoever may write into the parking queue would publish with the
//! proxy's rights. And not what would only come back (a cycle would go on, what closed a channel would close it again, and an
//! exchange that delays would deliver once more), nor what nobody can
//! believe to have died. What had no target when it died goes where its queue's dead letters go by now.

use bytes::Bytes;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::Table;
use crate::machine::{Cause, Wall};

use super::headers::{BCC, CC, HeaderEdit, OF_THE_QUEUE, X_DEATH};
use super::private::{self, USER_ID};
use super::proof::{self, PARKED_CAUSE, PARKED_EXCHANGE};
use super::{Lookup, Target, history, retry};

/// Permanent causes. For an implausible signal only its route is known, which any user with write
/// permission on an intake exchange can choose.
const FOR_GOOD: [Cause; 4] = [
    Cause::Cycle,
    Cause::Delayed,
    Cause::Poison,
    Cause::Implausible,
];
const WITHOUT_TARGET: [Cause; 2] = [Cause::NoTarget, Cause::TargetUnknown];

/// The intended target of a parked message, and its original properties. `None`: it has to stay.
/// `lookup`: the current target of a queue.
///
/// A message returning after a retry keeps the proof, without which its table would not count. Its
/// TTL has continued.
pub fn unparked(
    properties: &[u8],
    own_user: &[u8],
    now: Wall,
    lookup: impl Fn(&[u8]) -> Lookup,
) -> Option<(Target, Bytes)> {
    let parsed = Properties::parse(properties).ok()?;
    let original = proof::proven(&parsed, own_user)?;
    let table = Table(parsed.headers()?);
    let said = |name| table.get(name).ok()?.and_then(|value| value.as_longstr());
    let exchange = ShortStr::copy(said(PARKED_EXCHANGE)?)?;
    let cause = said(PARKED_CAUSE)?;
    let is = |causes: &[Cause]| causes.iter().any(|of| of.as_str().as_bytes() == cause);
    let target = if is(&FOR_GOOD) {
        return None;
    } else if is(&WITHOUT_TARGET) {
        let deaths = history::read(table.get(X_DEATH).ok()?);
        match lookup(deaths.first()?.queue()?) {
            Lookup::Target(target) => target,
            Lookup::KeyUnknown | Lookup::Unknown | Lookup::NoExchange => return None,
        }
    } else {
        Target {
            exchange,
            routing_key: None,
            at_least_once: true,
        }
    };
    let retry = retry::read(&parsed, own_user).map(|(retry, _)| retry);
    let added = |name: &[u8]| {
        [PARKED_EXCHANGE, PARKED_CAUSE].contains(&name)
            || name == USER_ID && retry.is_none()
            // A set key counts alone (S2.2).
            || target.routing_key.is_some() && [CC, BCC, private::BCC].contains(&name)
    };
    let rest = |deadline: Wall| now.until(deadline).as_millis().to_string().into_bytes();
    let headers = HeaderEdit::default()
        .apply(table, |name| !added(name) && !OF_THE_QUEUE.contains(&name))
        .ok()?;
    let headers = match headers.is_empty() {
        true => Change::Remove,
        false => Change::Set(headers),
    };
    let properties = parsed.edit(&Edit {
        headers,
        expiration: match retry.as_ref().and_then(|retry| retry.deadline) {
            Some(deadline) => Change::Set(rest(deadline)),
            None => Change::Keep,
        },
        user_id: match retry {
            Some(_) => Change::Keep,
            None => original.put_back(),
        },
        ..Edit::default()
    });
    Some((target, properties))
}

/// For a message that stays parked: removes headers of its queue.
pub fn of_itself(properties: &Bytes) -> Bytes {
    let edited = || {
        let parsed = Properties::parse(properties).ok()?;
        let table = Table(parsed.headers()?);
        let added = |name: &[u8]| table.get(name).is_ok_and(|value| value.is_some());
        if !OF_THE_QUEUE.iter().any(|name| added(name)) {
            return None;
        }
        let own = |name: &[u8]| !OF_THE_QUEUE.contains(&name);
        let headers = HeaderEdit::default().apply(table, own).ok()?;
        Some(parsed.with_headers(headers))
    };
    edited().unwrap_or_else(|| properties.clone())
}

/// For a message that stays parked, whose user-id the proxy may not publish: the user-id becomes a
/// header without meaning. `None`: it has none.
pub fn without_user_id(properties: &[u8]) -> Option<Bytes> {
    let parsed = Properties::parse(properties).ok()?;
    let user = parsed.get(Property::UserId)?;
    let mut edit = HeaderEdit::default();
    edit.longstr(USER_ID, user);
    let table = Table(parsed.headers().unwrap_or_default());
    Some(parsed.edit(&Edit {
        headers: Change::Set(edit.apply(table, |_| true).ok()?),
        user_id: Change::Remove,
        ..Edit::default()
    }))
}
