//! What ends with a channel, a consumer, or the certainty about outstanding tags.

use crate::amqp::ids::ChannelId;

use super::Session;
use super::channel::consumer_ends;

impl Session {
    /// The channel is closing: the broker requeues its unsettled deliveries (S9.4).
    pub(super) fn abandon(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let ended = self.ledger.abandon(state);
        self.transit.outbox.forget(channel);
        for consumer in ended.consumers.values() {
            let queue = &consumer.queue;
            consumer_ends(&self.channels, queue, &mut self.registry);
        }
    }

    /// Either side closes the connection: no more decisions. Hidden replies may still come:
    /// unwanted ones, and answers to a probe.
    pub(super) fn connection_closes(&mut self) {
        self.transit.handshake_until = None;
        let channels: Vec<ChannelId> = self.channels.keys().copied().collect();
        for channel in channels {
            self.abandon(channel);
        }
        self.declares.give_up(&mut self.channels);
        let unseen = self.channels.values().any(|state| state.expects_unseen());
        match self.transit.life.hears_client() && unseen {
            true => self.transit.client.raw = true,
            false => self.transit.life.connection_closes(),
        }
    }

    /// The channel number is free again.
    pub(super) fn forget_channel(&mut self, channel: ChannelId) {
        self.abandon(channel);
        self.channels.remove(&channel);
    }
}
