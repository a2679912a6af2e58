//! What ends with a channel, a consumer, or the certainty about outstanding tags.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::machine::Ticket;

use super::Session;
use super::channel::Channel;

impl Session {
    /// The channel is closing: what was unsettled on it goes back to its queues by itself (S9.4).
    pub(super) fn abandon(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let copying = state
            .copying
            .take()
            .map_or(0, |copying| copying.method.octets);
        let octets = state.unacked.octets() + copying;
        let read: Vec<ShortStr> = state
            .consumers
            .values()
            .map(|consumer| consumer.queue.clone())
            .collect();
        let tickets: Vec<Ticket> = state.unacked.tickets().collect();
        **state = Channel {
            closing: true,
            publishing: state.publishing,
            delivering: state.delivering,
            due: std::mem::take(&mut state.due),
            last_queue: std::mem::take(&mut state.last_queue),
            ..Default::default()
        };
        for ticket in tickets {
            self.tickets.remove(&ticket);
        }
        self.outbox.forget(channel);
        self.give_back(octets);
        for queue in read {
            self.consumer_ends(&queue);
        }
    }

    /// As if every channel closed.
    pub(super) fn abandon_all(&mut self) {
        let channels: Vec<ChannelId> = self.channels.keys().copied().collect();
        for channel in channels {
            self.abandon(channel);
        }
    }

    /// Either side closes the connection: nothing that follows matters to dead letters. But what the client must not see may still be on
    /// its way: replies that it did not want, answers to a probe.
    pub(super) fn connection_closes(&mut self) {
        self.handshake_until = None;
        self.abandon_all();
        self.declares.give_up(&mut self.channels);
        let unseen = self.channels.values().any(|state| state.expects_unseen());
        match self.life.hears_client() && unseen {
            true => self.client.raw = true,
            false => self.life.connection_closes(),
        }
    }

    /// The channel's number is free again.
    pub(super) fn forget_channel(&mut self, channel: ChannelId) {
        self.abandon(channel);
        self.channels.remove(&channel);
    }

    /// One consumer less: an auto-delete queue may go with its last one, and then what it delivered does not die any more.
    pub(super) fn consumer_ends(&mut self, queue: &ShortStr) {
        let goes = self.registry.is_auto_delete(queue);
        let mut consumers = self
            .channels
            .values()
            .flat_map(|state| state.consumers.values());
        if goes && !consumers.any(|other| other.queue == *queue && !other.ending) {
            self.registry.leave(queue);
        }
    }

    /// The broker has, or will have, settled all that was delivered on this channel up to now.
    pub(super) fn settle_all(&mut self, channel: ChannelId) {
        if let Some(state) = self.channels.get_mut(&channel) {
            let unacked = state.unacked.take_all();
            for ticket in unacked.tickets() {
                self.tickets.remove(&ticket);
            }
            self.give_back(unacked.octets());
        }
    }

    /// From here on all settlements of this channel are the broker's.
    pub(super) fn go_native(&mut self, channel: ChannelId) {
        self.settle_all(channel);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.native = true;
        }
    }
}
