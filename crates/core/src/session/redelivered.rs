//! What a client is shown of a message that came back to its queue: its first exchange and key, and `redelivered` if a client had returned it. A
//! private header marks such a delivery. As that header comes behind the method, the method waits for it; nearly always both are read at once.

use bytes::Bytes;

use crate::amqp::content::PREFIX;
use crate::amqp::frame::{self, Front, Head, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::Deliver;
use crate::amqp::properties::Properties;
use crate::dead_letter::retry;
use crate::objects::{Names, OwnObject};

use super::Settings;
use super::channel::Channel;
use super::facts::Facts;
use super::frames::BROKER_FRAME_MAX;
use super::unacked::Retained;

/// From the content header after a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Awaited,
    Ordinary,
    /// A message that the proxy put back into its queue, with its original exchange and key. True:
    /// after a return; false: after a redrive.
    CameBack(ShortStr, ShortStr, bool),
}

/// Checks the frame at `rest`, after a method of that channel, for a message that came back to that
/// queue.
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

/// Whether exchange and key fit a message that came back to that queue. Otherwise it came another
/// way, whatever headers it still has.
fn may_have_come_back(names: &Names, queue: &[u8], (exchange, key): (&[u8], &[u8])) -> bool {
    match exchange {
        [] => key == queue,
        exchange => names.parse(exchange) == Some(OwnObject::ReturnExchange(queue)),
    }
}

/// Restores the original form of a returning delivery, with its retries.
pub(super) fn before_retries(of: &mut Retained, names: &Names, own_user: &[u8]) {
    let way = (of.exchange.as_bytes(), of.routing_key.as_bytes());
    let properties = of.content.properties.clone();
    if !retry::may_have(&properties) || !may_have_come_back(names, &of.queue, way) {
        return;
    }
    if let Ok(properties) = Properties::parse(&properties)
        && let Some((retry, original)) = retry::back_in(&of.queue, &properties, own_user)
        && let Ok(before) = retry.before(&of.content, original)
    {
        of.content = before;
        (of.exchange, of.routing_key) = (retry.exchange, retry.routing_key);
        (of.attempts, of.deadline) = (retry.attempts, retry.deadline);
    }
}

/// Properties of a returning delivery for its consumer, private headers included.
pub(super) fn shown_again(
    state: &mut Channel,
    facts: Facts<'_>,
    properties: &[u8],
) -> Option<Bytes> {
    let queue = state.came_back.take()?;
    let parsed = Properties::parse(properties).ok()?;
    let (retry, original) = retry::back_in(&queue, &parsed, &facts.settings.user)?;
    let shown = retry.shown(&parsed, original, facts.counts_acquired());
    shown.ok()
}

// === impl Behind ===

impl Behind {
    pub(super) fn of(
        settings: &Settings,
        channel: ChannelId,
        queue: &ShortStr,
        said: &Deliver<'_>,
        rest: &[u8],
    ) -> Behind {
        let way = (said.exchange, said.routing_key);
        match may_have_come_back(&settings.names, queue, way) {
            true => behind(queue, &settings.user, channel, rest),
            false => Behind::Ordinary,
        }
    }
}
