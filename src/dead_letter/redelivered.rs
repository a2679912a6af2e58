//! Whether a dead letter shows that it had been delivered before (S3.6).
//!
//! RabbitMQ from 4.0 on counts the deliveries of a message that failed (its annotation `delivery_count`), beyond its deaths, and shows a message
//! with such a count as `redelivered`. What the proxy publishes begins without one. So the publication says it in a private header
//! ([`private::REDELIVERED`](super::private::REDELIVERED)), and the session that delivers it sets the bit.

use memchr::memmem;

use crate::amqp::properties::{Properties, has_headers};
use crate::amqp::table::Table;
use crate::amqp::version::Version;

use super::private::REDELIVERED;

/// Which failures the broker counts, and where it shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failures {
    /// Before 4.0: a message begins anew at each death.
    #[default]
    Forgotten,
    /// 4.0 to 4.2: quorum queues count, and show what another quorum queue counted. Classic queues hand it on.
    InQuorumQueues,
    /// From 4.3 on: all queues. A reject by `basic.nack` is no failure, and a classic queue shows nothing to a consumer that waited.
    Everywhere,
}

/// What a delivery of a message that died says of the deliveries before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Its `redelivered`.
    pub redelivered: bool,
    /// The client rejected it by `basic.nack`.
    pub nacked: bool,
}

// === impl Failures ===

impl Failures {
    /// Of a broker of that version.
    pub fn of_version(version: Option<Version>) -> Failures {
        match version {
            Some(version) if version >= Version(4, 3, 0) => Failures::Everywhere,
            Some(version) if version >= Version(4, 0, 0) => Failures::InQuorumQueues,
            _ => Failures::Forgotten,
        }
    }

    /// Whether a delivery has failed of a message with these properties that a client has rejected; `quorum`: in a quorum queue.
    pub fn of_reject(self, properties: &[u8], before: Before, quorum: bool) -> bool {
        match self {
            Failures::Forgotten => false,
            Failures::InQuorumQueues => quorum,
            Failures::Everywhere => !before.nacked || self.before(properties, before.redelivered),
        }
    }

    /// Whether a delivery had failed before this one.
    ///
    /// A quorum queue says how many, from 4.3 on beside how often the message was taken. A classic queue only says that the message was delivered:
    /// that may have been returned by `basic.nack`, and be no failure; nobody can tell.
    pub fn before(self, properties: &[u8], redelivered: bool) -> bool {
        if self == Failures::Forgotten || !redelivered {
            return false;
        }
        let count = |name: &[u8]| {
            let properties = Properties::parse(properties).ok()?;
            Table(properties.headers()?).get(name).ok()??.as_integer()
        };
        match count(b"x-delivery-count") {
            Some(failed) => failed > 0,
            None => self == Failures::Everywhere && count(b"x-acquired-count").is_none(),
        }
    }

    /// Whether a queue shows what was published `at`. `quorum`: whether it is a quorum queue, if that is known; `since`: when its consumer began,
    /// none for a get. Both are seconds since 1970: in the same one a consumer counts as one that waited.
    pub fn are_shown(self, at: u64, quorum: Option<bool>, since: Option<u64>) -> bool {
        match self {
            Failures::Forgotten => false,
            // As good a guess as any: where it died was one.
            Failures::InQuorumQueues => quorum != Some(false),
            Failures::Everywhere => quorum == Some(true) || since.is_none_or(|since| at < since),
        }
    }
}

/// When a message with these properties was published as the dead letter of one whose delivery had failed.
pub fn published(properties: &[u8]) -> Option<u64> {
    if !has_headers(properties) || memmem::find(properties, REDELIVERED).is_none() {
        return None;
    }
    let properties = Properties::parse(properties).ok()?;
    Table(properties.headers()?)
        .get(REDELIVERED)
        .ok()??
        .as_timestamp()
}
