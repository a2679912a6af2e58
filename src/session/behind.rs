//! What has to stay behind withheld rejects: commands that end things, and whatever could make the broker close the channel. Behind a reject
//! that it has not seen it would return the message, though its dead letter is on its way.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::reply;
use crate::machine::Mono;

use super::replies::Expected;
use super::{Hold, Session, Turn};

/// How long an exchange is believed to be there.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many are; beyond, all are forgotten.
const MOST: usize = 1000;
const IMMEDIATE: u8 = 2;

/// The exchanges that this client has published to, or declared, and until when they are believed to be there; and the default exchange.
#[derive(Debug, Default)]
pub(super) struct Exchanges(BTreeMap<ShortStr, Mono>);

// === impl Exchanges ===

impl Exchanges {
    /// It is there.
    pub(super) fn learn(&mut self, exchange: ShortStr, now: Mono) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(exchange, now.after(BELIEVED));
    }

    /// It is deleted.
    pub(super) fn forget(&mut self, exchange: &[u8]) {
        self.0.remove(exchange);
    }

    fn knows(&self, exchange: &[u8], now: Mono) -> bool {
        exchange.is_empty() || self.0.get(exchange).is_some_and(|until| *until > now)
    }
}

impl Session {
    /// Whether a request neither ends anything nor can make the broker close the channel. Of those that clients send often in between
    /// these are `basic.get` of a queue, and `basic.publish` to an exchange, that is known to be there.
    pub(super) fn cannot_fail(
        &self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        turn: &Turn<'_>,
    ) -> bool {
        match id {
            MethodId::BASIC_GET => self
                .begins_to_read(channel, id, payload)
                .is_some_and(|queue| self.registry.get(&queue).is_some()),
            MethodId::BASIC_PUBLISH => Publish::parse(payload).is_ok_and(|publish| {
                publish.bits & IMMEDIATE == 0
                    && self.exchanges.knows(publish.exchange, turn.now.mono)
            }),
            _ => false,
        }
    }

    /// A publish has passed, to an exchange that may be missing, on a channel that may reject: the broker is asked, once, to say when it has
    /// carried it out. So a publish to this exchange need not wait for rejects before it again.
    pub(super) fn prove(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        turn: &mut Turn<'_>,
    ) {
        if id != MethodId::BASIC_PUBLISH || self.cannot_fail(channel, id, payload, turn) {
            return;
        }
        let exchange = Publish::parse(payload)
            .ok()
            .and_then(|publish| ShortStr::copy(publish.exchange));
        let state = self.channels.get_mut(&channel);
        if let (Some(exchange), Some(state)) = (exchange, state)
            && state.unacked.retains_any()
        {
            let proof = Expected::Published(exchange);
            if !state.due.iter().any(|due| due.what == proof) {
                state.expect(proof, true);
                self.inject(channel, turn, |out| reply::channel_flow(out, channel));
            }
        }
    }

    /// Pauses the client until the broker has answered all requests of a channel.
    pub(super) fn hold_answers(&mut self, channel: ChannelId, turn: &mut Turn<'_>) -> usize {
        self.hold(
            Hold::Answers(
                channel,
                turn.now.mono.after(self.settings.limits.now().close_wait),
            ),
            turn,
        )
    }

    /// Pauses the client until the withheld rejects of a channel (0: all) are settled, or `close-wait` has passed.
    pub(super) fn hold_withheld(&mut self, channel: ChannelId, turn: &mut Turn<'_>) -> usize {
        self.hold(
            Hold::Withheld(
                channel,
                turn.now.mono.after(self.settings.limits.now().close_wait),
            ),
            turn,
        )
    }
}
