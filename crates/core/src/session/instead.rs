//! What takes the place of a publication that cannot be made now: the one rule for everything that might be left to the broker.
//!
//! What is left to the broker must not be lost there, nor be counted or killed by it, nor come back at once for ever. Whoever gives something up (a
//! full budget, a refusal of the publisher, a wait that is over, a queue that nothing leads back to) asks [`instead`]; `testdata/instead.txt` has its
//! answers.

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::machine::{Cause, Fallback};
use crate::objects::QueueType;

/// Assumed limit of a quorum queue: the default from 4.0 on.
const DELIVERY_LIMIT: i64 = 20;
/// The proxy's returns use at most this part of it.
const OUR_SHARE: i64 = 4;

/// Facts about a delivery that cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) asked: Asked,
    pub(super) reject: Reject,
    pub(super) counts: Counts,
    pub(super) cause: Fallback,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Reject,
    /// Returned to a queue with retries.
    Return,
    /// Returned, but too large for a frame with the table of a retry: it dies.
    TooLarge,
}

/// The broker's action at a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// Dead-letters it, as without a proxy.
    DeadLetters,
    /// Discards it, and no target is known.
    Discards,
    /// Discards it, although a policy of the proxy has a target.
    Loses,
}

/// The effect of a `basic.nack` return on the broker's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Returns do not count in this queue.
    Never,
    /// Returns do not count, or the limit is far.
    Far,
    /// Few returns are left before the broker kills the message.
    Near,
}

/// The alternative to a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// Left to the broker now, as without a proxy.
    Forward,
    /// Unsettled; published again after a pause.
    Keep,
    /// Never publishable: unsettled, and returned after a pause; by closing its channel if a return
    /// would count too much.
    ReturnLater,
}

pub(super) fn instead(of: Facts) -> Instead {
    use Asked::{Return, TooLarge};
    use Fallback::{Budget, Exclusive, NameTooLong, Refused, Transaction, Unreadable};
    match (of.asked, of.cause) {
        (Asked::Reject, _) if of.reject != Reject::Loses => Instead::Forward,
        // Nothing leads back to its queue: returns are not delayed there, and the log says so.
        (Return, Exclusive | NameTooLong) if of.counts == Counts::Never => Instead::Forward,
        // A queue that is full takes back what it has delivered.
        (Return, Refused(Cause::QueueFull)) if of.counts != Counts::Near => Instead::Forward,
        // The broker can dead-letter what is too large to be published.
        (TooLarge, Refused(Cause::TooBig)) if of.reject == Reject::DeadLetters => Instead::Forward,
        // It is published otherwise the next time: as a dead letter, with another user-id.
        (Return, Refused(Cause::TooBig)) | (Asked::Reject, Refused(Cause::UserId)) => Instead::Keep,
        (_, Budget | Transaction | Unreadable | Exclusive | NameTooLong) => Instead::ReturnLater,
        (_, Refused(Cause::TooBig | Cause::UserId)) => Instead::ReturnLater,
        _ => Instead::Keep,
    }
}

/// How near a message is to a delivery limit. `limits`: of its queue; `properties`: its own.
///
/// Measured: classic queues never count; quorum queues count each return, except nack and recover
/// on 4.3. `x-delivery-count` is missing while it is 0 (3.10 writes it), and on classic queues. A
/// queue of unknown type may be either.
pub(super) fn counts(
    version: Option<Version>,
    queue_type: QueueType,
    limits: [Option<i64>; 2],
    properties: &[u8],
) -> Counts {
    if queue_type == QueueType::Classic {
        return Counts::Never;
    }
    if version.is_some_and(|version| version >= Version(4, 3, 0)) {
        return Counts::Far;
    }
    let unlimited = version.is_some_and(|version| version >= Version(4, 0, 0));
    let limits = limits.into_iter().flatten();
    let limit = limits.filter(|limit| *limit >= 0 || !unlimited).min();
    let limit = limit.unwrap_or(DELIVERY_LIMIT).min(DELIVERY_LIMIT);
    match delivery_count(properties) {
        Ok(count) if count < limit / OUR_SHARE => Counts::Far,
        Ok(_) | Err(Malformed) => Counts::Near,
    }
}

fn delivery_count(properties: &[u8]) -> Result<i64, Malformed> {
    let properties = Properties::parse(properties)?;
    let headers = Table(properties.headers().unwrap_or_default());
    let count = headers.get(b"x-delivery-count")?;
    Ok(count.and_then(|count| count.as_integer()).unwrap_or(0))
}
