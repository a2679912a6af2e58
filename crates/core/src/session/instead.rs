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

/// The delivery limit of a quorum queue of which none is known: the default from 4.0 on.
const DELIVERY_LIMIT: i64 = 20;
/// Returns of ours use up this part of it.
const OUR_SHARE: i64 = 4;

/// What is known of a delivery that cannot be dealt with as its client asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// What was to become of it.
    pub(super) asked: Asked,
    /// What the broker would do with a reject.
    pub(super) reject: Reject,
    /// What the broker would do with a return.
    pub(super) counts: Counts,
    /// Why it cannot be published.
    pub(super) cause: Fallback,
}

/// What is to become of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The client rejected it: it dies.
    #[default]
    Reject,
    /// The client returned it to a queue with retries.
    Return,
    /// The same, and with what a delay writes into it, it does not fit a frame: it dies.
    TooLarge,
}

/// What the broker does with a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// It knows a dead-letter exchange: as much as it would do without a proxy.
    DeadLetters,
    /// It discards the message, and nobody knows better.
    Discards,
    /// The same, but a policy of ours says where it was to go.
    Loses,
}

/// What a return by `basic.nack` counts at the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// No return of this queue counts.
    Never,
    /// The message may be returned: it does not count, or a limit is far.
    Far,
    /// A few more, and the broker would kill the message.
    Near,
}

/// What takes the place of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// The broker deals with it now, as it would without a proxy.
    Forward,
    /// It stays unsettled, and is published again after a pause.
    Keep,
    /// It can never be published: it stays unsettled, and is returned after a pause; where that would count too much, with its channel.
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

/// How near a message is to a limit on its deliveries. `limits`: those of its queue; `properties`: its own.
///
/// Measured: classic queues never count; quorum queues count each return, but for 4.3, where a nack (and a recover) is not counted.
/// `x-delivery-count` is missing while it is 0 (3.10 writes it), and on classic queues. A queue whose type nobody saw may be either.
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
