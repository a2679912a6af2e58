//! What a client reads as `redelivered`. For most deliveries that is the bit that the broker sent. For a dead letter that the proxy published it is
//! the bit that a native dead letter would have (S3.6), and a message that came back to its queue has it set. A private header says which of
//! these a delivery is. As that header comes behind the method, the method waits for it; nearly always both are read at once.

use bytes::Bytes;

use crate::amqp::content::{Content, PREFIX};
use crate::amqp::frame::{self, Front, Head, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::properties::Properties;
use crate::dead_letter::redelivered::{self, Failures};
use crate::dead_letter::retry;
use crate::objects::{Names, OwnObject, QueueType};

use super::Session;
use super::channel::{Consumer, Copying};
use super::frames::BROKER_FRAME_MAX;
use super::instead::Asked;
use super::retries::Retried;
use super::unacked::Retained;

/// What the content header behind a method says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// The header has not come yet.
    Awaited,
    /// Nothing of interest.
    Ordinary,
    /// A dead letter of the proxy, published then, whose message had been delivered in vain.
    Failed(u64),
    /// A message that the proxy has put back into its queue, with the exchange and the key of its first publication. True: a client had returned it
    /// there; false: it is a dead letter that was sent back.
    CameBack(ShortStr, ShortStr, bool),
}

/// What to look for: hardly any delivery has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looking<'a> {
    pub(super) failures: Failures,
    /// The queue, if by its exchange and its key the message may have come back to it.
    pub(super) came_back_to: Option<&'a ShortStr>,
    pub(super) own_user: &'a [u8],
}

/// Looks at the frame behind a method of that channel, where `rest` begins.
pub(super) fn behind(looking: Looking<'_>, channel: ChannelId, rest: &[u8]) -> Behind {
    let Looking {
        failures,
        came_back_to,
        own_user,
    } = looking;
    let is_header = |head: Head| {
        let header = head.kind == Kind::Header && head.channel == channel;
        header && head.whole() <= BROKER_FRAME_MAX
    };
    match frame::front(rest) {
        _ if failures == Failures::Forgotten && came_back_to.is_none() => Behind::Ordinary,
        Front::Short => Behind::Awaited,
        Front::Part(head) if is_header(head) => Behind::Awaited,
        Front::Whole(head, payload, _) if is_header(head) => {
            let properties = payload.get(PREFIX..).unwrap_or_default();
            let came_back = came_back_to.and_then(|queue| came_back(properties, queue, own_user));
            let failed = || redelivered::published(properties).map(Behind::Failed);
            came_back.or_else(failed).unwrap_or(Behind::Ordinary)
        }
        Front::Part(_) | Front::Whole(..) | Front::Unterminated(_) => Behind::Ordinary,
    }
}

fn came_back(properties: &[u8], queue: &ShortStr, own_user: &[u8]) -> Option<Behind> {
    if !retry::may_have(properties) {
        return None;
    }
    let properties = Properties::parse(properties).ok()?;
    let (retry, _) = retry::back_in(queue, &properties, own_user)?;
    let was_returned = retry.attempts.all > 0;
    Some(Behind::CameBack(
        retry.exchange,
        retry.routing_key,
        was_returned,
    ))
}

/// Whether a delivery from that queue with this exchange and this key may have come back to it. With others it came there on a way of its own, whatever
/// it carries from an earlier time.
fn may_have_come_back(names: &Names, queue: &[u8], (exchange, key): (&[u8], &[u8])) -> bool {
    match exchange {
        [] => key == queue,
        exchange => names.parse(exchange) == Some(OwnObject::ReturnExchange(queue)),
    }
}

/// Gives a delivery that has come back to its queue the looks of before; what it says of its retries.
pub(super) fn before_retries(
    copied: &mut Copying,
    content: &mut Content,
    names: &Names,
    own_user: &[u8],
) -> Retried {
    let way = (copied.exchange.as_bytes(), copied.routing_key.as_bytes());
    if !retry::may_have(&content.properties) || !may_have_come_back(names, &copied.queue, way) {
        return Retried::default();
    }
    let properties = content.properties.clone();
    let Ok(properties) = Properties::parse(&properties) else {
        return Retried::default();
    };
    let Some((retry, original)) = retry::back_in(&copied.queue, &properties, own_user) else {
        return Retried::default();
    };
    let Ok(before) = retry.before(content, original) else {
        return Retried::default();
    };
    *content = before;
    (copied.exchange, copied.routing_key) = (retry.exchange, retry.routing_key);
    Retried {
        attempts: retry.attempts,
        deadline: retry.deadline,
        asked: Asked::Reject,
    }
}

impl Session {
    /// The properties of a delivery that has come back to its queue, as its consumer should see them, except for what is private.
    pub(super) fn shown_again(&mut self, channel: ChannelId, properties: &[u8]) -> Option<Bytes> {
        let queue = self.channels.get_mut(&channel)?.came_back.take()?;
        let parsed = Properties::parse(properties).ok()?;
        let (retry, original) = retry::back_in(&queue, &parsed, &self.settings.user)?;
        let shown = retry.shown(&parsed, original, self.counts_acquired());
        shown.ok()
    }

    /// Looks at what is behind a delivery from that queue.
    pub(super) fn look_behind(
        &self,
        channel: ChannelId,
        queue: Option<&ShortStr>,
        way: (&[u8], &[u8]),
        rest: &[u8],
    ) -> Behind {
        let names = &self.settings.names;
        let looking = Looking {
            failures: self.failures(),
            came_back_to: queue.filter(|queue| may_have_come_back(names, queue, way)),
            own_user: &self.settings.user,
        };
        behind(looking, channel, rest)
    }

    /// Which failed deliveries the broker counts.
    pub(super) fn failures(&self) -> Failures {
        Failures::of_version(self.peer.version)
    }

    /// Whether a delivery of a message that dies by its client's word has failed, this one or one before a retry.
    pub(super) fn has_failed(
        &self,
        retained: &Retained,
        content: &Content,
        queue_type: QueueType,
    ) -> bool {
        let failures = self.failures();
        let quorum = queue_type == QueueType::Quorum;
        let before_retries =
            failures == Failures::Everywhere && retained.retried.attempts.failed > 0;
        before_retries || failures.of_reject(&content.properties, retained.before, quorum)
    }

    /// Whether the client is shown, as a header says, that there was a delivery before this one.
    pub(super) fn shows(&self, behind: &Behind, consumer: Option<&Consumer>) -> bool {
        let (Behind::Failed(at), Some(consumer)) = (behind, consumer) else {
            return matches!(behind, Behind::CameBack(_, _, true));
        };
        let known = self.registry.queue_type(&consumer.queue);
        let quorum = known.map(|known| known == QueueType::Quorum);
        self.failures().are_shown(*at, quorum, consumer.since)
    }
}
