//! By which keys a dead letter is routed: the set key, or those of the hop before (S2.2, S2.5); and what its expiration becomes (S3.2).

use std::borrow::Cow;

use crate::amqp::cursor::Malformed;
use crate::amqp::table::Table;

use super::headers::{CC, routes};
use super::private;
use super::remembered::Past;
use super::{Death, Dialect, Rules, Target};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys<'a> {
    pub(super) routing_key: &'a [u8],
    pub(super) cc: Vec<&'a [u8]>,
    /// Removed by the broker.
    pub(super) bcc: Vec<&'a [u8]>,
}

/// The value of `original-expiration`: 3.x keeps the client's text, others the number (S3.2).
pub(super) fn original_expiration(dialect: Dialect, expiration: &[u8]) -> Cow<'_, [u8]> {
    if dialect == Dialect::V3 {
        return Cow::Borrowed(expiration);
    }
    // `string:to_integer`, of what the broker accepted as a number that is not negative (S8.1).
    let digits = match expiration {
        [b'+' | b'-', digits @ ..] => digits,
        digits => digits,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Cow::Borrowed(expiration);
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    match digits.get(zeros..) {
        Some(number) if !number.is_empty() => Cow::Borrowed(number),
        _ => Cow::Borrowed(b"0"),
    }
}

// === impl Keys ===

impl<'a> Keys<'a> {
    /// The message's keys at its death.
    ///
    /// Nothing shows whether `CC` still counts: 3.x removes the header with the key, 3.13 and 4.x
    /// leave it. It counts if nothing died since the publication that brought it, or while the
    /// deaths since show the same keys. `BCC` keys are stored with the routing key beside which
    /// they count.
    pub(super) fn of_death(
        death: &Death<'a>,
        headers: Table<'a>,
        past: &Past<'a>,
        rules: &Rules,
    ) -> Result<Keys<'a>, Malformed> {
        let mut cc = routes(headers, CC)?;
        let mut bcc = routes(headers, private::BCC)?;
        let same_key = past
            .whole
            .since()
            .iter()
            .all(|entry| entry.routing_keys().next() == Some(death.routing_key));
        let same_cc = past
            .whole
            .since()
            .first()
            .is_none_or(|newest| newest.routing_keys().skip(1).eq(cc.iter().copied()));
        if rules.dialect != Dialect::V3 && !(same_key && same_cc) {
            cc.clear();
        }
        match bcc.first() {
            Some(key) if *key == death.routing_key => drop(bcc.remove(0)),
            _ => bcc.clear(),
        }
        Ok(Keys {
            routing_key: death.routing_key,
            cc,
            bcc,
        })
    }

    /// Keys for the next hop: the dead-letter routing key alone, or all previous keys.
    pub(super) fn towards(self, target: &'a Target) -> Keys<'a> {
        match &target.routing_key {
            None => self,
            Some(key) => Keys {
                routing_key: key,
                cc: Vec::new(),
                bcc: Vec::new(),
            },
        }
    }

    /// Removes keys; `None` when none is left. Another key may become the routing key.
    pub(super) fn without(&self, drop: impl Fn(&[u8]) -> bool) -> Option<Keys<'a>> {
        let left = |keys: &[&'a [u8]]| -> Vec<&'a [u8]> {
            keys.iter().copied().filter(|key| !drop(key)).collect()
        };
        let mut keys = Keys {
            routing_key: self.routing_key,
            cc: left(&self.cc),
            bcc: left(&self.bcc),
        };
        if drop(keys.routing_key) {
            let others = if keys.cc.is_empty() {
                &mut keys.bcc
            } else {
                &mut keys.cc
            };
            if others.is_empty() {
                return None;
            }
            keys.routing_key = others.remove(0);
        }
        Some(keys)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        std::iter::once(self.routing_key)
            .chain(self.cc.iter().copied())
            .chain(self.bcc.iter().copied())
    }

    /// For x-death: the key, then CC; BCC stays hidden (S3.4).
    pub(super) fn visible(&self) -> Vec<&'a [u8]> {
        std::iter::once(self.routing_key)
            .chain(self.cc.iter().copied())
            .collect()
    }
}
