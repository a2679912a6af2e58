//! What has to wait for withheld rejects: commands that end something, and whatever could make the broker close the channel. If such a command
//! overtook a withheld reject, the broker would return that message to its queue, although its dead letter is on its way.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::reply;
use crate::machine::Mono;
use crate::registry::catalogue::fnv1a;

use super::frames::{Handled, Method};
use super::pause::Hold;
use super::replies::Expected;
use super::{Session, Turn};

/// How long an exchange is believed to be there.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many exchanges are believed to be there. When there is no room for another one, all are forgotten.
const MOST: usize = 1000;
const IMMEDIATE: u8 = 2;

/// The exchanges that this client has published to, or declared, and until when they are believed to be there; and the default exchange.
/// Of their names only a hash is kept: a client that finds two of one hash delays nobody's rejects but its own.
#[derive(Debug, Default)]
pub(super) struct Exchanges(BTreeMap<u64, Mono>);

/// On which channels something has to wait for withheld rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channels {
    One(ChannelId),
    All,
}

// === impl Channels ===

impl Channels {
    /// Whether this channel is one of them.
    pub(super) fn has(self, channel: ChannelId) -> bool {
        match self {
            Channels::One(one) => one == channel,
            Channels::All => true,
        }
    }
}

// === impl Exchanges ===

impl Exchanges {
    /// Believes that the exchange is there.
    pub(super) fn learn(&mut self, exchange: &[u8], now: Mono) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(fnv1a(exchange), now.after(BELIEVED));
    }

    /// Forgets an exchange that is deleted.
    pub(super) fn forget(&mut self, exchange: &[u8]) {
        self.0.remove(&fnv1a(exchange));
    }

    fn knows(&self, exchange: &[u8], now: Mono) -> bool {
        let until = || self.0.get(&fnv1a(exchange));
        exchange.is_empty() || until().is_some_and(|until| *until > now)
    }
}

impl Session {
    /// Whether a request neither ends anything nor can make the broker close the channel. Of those that clients send often in between
    /// these are `basic.get` of a queue, and `basic.publish` to an exchange, that is known to be there.
    pub(super) fn cannot_fail(&self, method: Method<'_>, now: Mono) -> bool {
        match method.id {
            MethodId::BASIC_GET => self
                .begins_to_read(method)
                .is_some_and(|queue| self.registry.get(&queue).is_some()),
            MethodId::BASIC_PUBLISH => Publish::parse(method.payload).is_ok_and(|publish| {
                publish.bits & IMMEDIATE == 0 && self.exchanges.knows(publish.exchange, now)
            }),
            _ => false,
        }
    }

    /// A publish has passed, to an exchange that may be missing, on a channel that may reject: the broker is asked, once, to say when it has
    /// carried it out. So a publish to this exchange need not wait for rejects before it again.
    pub(super) fn prove(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        if method.id != MethodId::BASIC_PUBLISH || self.cannot_fail(method, turn.now.mono) {
            return;
        }
        let channel = method.channel;
        let exchange = Publish::parse(method.payload)
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

    /// Whether a request has to wait for withheld rejects.
    pub(super) fn awaits(&self, on: Channels) -> bool {
        let mut states = self.channels.values();
        match on {
            Channels::One(channel) => self
                .channels
                .get(&channel)
                .is_some_and(|state| state.unacked.awaits()),
            Channels::All => states.any(|state| state.unacked.awaits()),
        }
    }

    /// A settlement has waited for answers for too long: from here on all settlements of the channel are the broker's. Where that could be
    /// a loss, or would settle what is kept, only this one goes on, as far as its tags are known.
    pub(super) fn lose_patience(&mut self, channel: ChannelId) {
        let keeps = self.knows_any_to_keep();
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        match keeps || state.unacked.first_withheld().is_some() {
            true => state.impatient = true,
            false => self.go_native(channel),
        }
    }

    /// Pauses the client until the broker has answered all requests of a channel.
    pub(super) fn hold_answers(&mut self, channel: ChannelId, turn: &mut Turn<'_>) -> Handled {
        let until = turn.now.mono.after(self.settings.limits.now().close_wait);
        self.hold(Hold::Answers(channel, until), turn)
    }

    /// Pauses the client until withheld rejects are settled, or `close-wait` has passed.
    pub(super) fn hold_withheld(&mut self, on: Channels, turn: &mut Turn<'_>) -> Handled {
        let until = turn.now.mono.after(self.settings.limits.now().close_wait);
        self.hold(Hold::Withheld(on, until), turn)
    }
}
