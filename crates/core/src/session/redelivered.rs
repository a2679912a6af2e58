//! What a client is shown of a message that came back to its queue: its first exchange and key, and `redelivered` if a client had returned it. A
//! private header marks such a delivery. As that header comes behind the method, the method waits for it; nearly always both are read at once.

use bytes::Bytes;

use crate::amqp::content::{Content, PREFIX};
use crate::amqp::frame::{self, Front, Head, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::properties::Properties;
use crate::dead_letter::retry;
use crate::objects::{Names, OwnObject};

use super::Session;
use super::channel::Copying;
use super::frames::BROKER_FRAME_MAX;
use super::instead::Asked;
use super::retries::Retried;

/// What the content header behind a method says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// The header has not come yet.
    Awaited,
    Ordinary,
    /// A message that the proxy has put back into its queue, with the exchange and the key of its first publication. True: a client had returned it
    /// there; false: it is a dead letter that was sent back.
    CameBack(ShortStr, ShortStr, bool),
}

/// What counts of the deliveries of a message before this one, and how the client rejected it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) redelivered: bool,
    /// The client rejected it by `basic.nack`.
    pub(crate) nacked: bool,
}

/// Looks at the frame behind a method of that channel, where `rest` begins, for a message that came back to that queue.
fn behind(queue: &ShortStr, own_user: &[u8], channel: ChannelId, rest: &[u8]) -> Behind {
    let is_header = |head: Head| {
        let header = head.kind == Kind::Header && head.channel == channel;
        header && head.whole() <= BROKER_FRAME_MAX
    };
    match frame::front(rest) {
        Front::Short => Behind::Awaited,
        Front::Part(head) if is_header(head) => Behind::Awaited,
        Front::Whole(head, payload, _) if is_header(head) => {
            let properties = payload.get(PREFIX..).unwrap_or_default();
            came_back(properties, queue, own_user).unwrap_or(Behind::Ordinary)
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

// === impl Behind ===

impl Behind {
    /// A client had returned it to its queue.
    pub(super) fn was_returned(&self) -> bool {
        matches!(self, Behind::CameBack(_, _, true))
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

    /// Looks at what is behind a delivery from that queue: of hardly any it has to.
    pub(super) fn look_behind(
        &self,
        channel: ChannelId,
        queue: Option<&ShortStr>,
        way: (&[u8], &[u8]),
        rest: &[u8],
    ) -> Behind {
        let names = &self.settings.names;
        match queue.filter(|queue| may_have_come_back(names, queue, way)) {
            Some(queue) => behind(queue, &self.settings.user, channel, rest),
            None => Behind::Ordinary,
        }
    }
}
