//! Whom the broker means when it closes a channel.

use crate::amqp::method::{Close, MethodId};
use crate::machine::Cause;

use super::{bridges, delays};

/// The broker's refusal of a publish to an internal exchange (S2.4).
const INTERNAL: &[u8] = b"cannot publish to internal exchange";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    Exchange(Cause),
    Internal,
    UserId,
    /// An unknown item in flight (S8.5).
    OneOfThem,
}

pub(super) fn is_publish(close: &Close<'_>) -> bool {
    (close.class, close.method) == (MethodId::BASIC_PUBLISH.0, MethodId::BASIC_PUBLISH.1)
}

/// `alone`: nothing else was in flight.
pub(super) fn blame(close: &Close<'_>, alone: bool) -> Blame {
    let says = |words: &[u8]| memchr::memmem::find(close.text, words).is_some();
    if let Some(cause) = bridges::blame(close).or_else(|| delays::blame(close)) {
        return Blame::Exchange(cause);
    }
    match close.code {
        403 if says(INTERNAL) => Blame::Internal,
        404 => Blame::Exchange(Cause::NoExchange),
        // A refused topic is a matter of the key: neighbours may have others.
        403 if alone || !says(b"topic") => Blame::Exchange(Cause::Forbidden),
        406 if says(b"user_id property") => Blame::UserId,
        _ => Blame::OneOfThem,
    }
}
