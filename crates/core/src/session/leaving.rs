//! What ends: a client that vanishes, or whose proxy ends (withheld rejects are settled first, within `close-wait`); a connection, a channel.

use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::REPLY_SUCCESS;
use crate::machine::Leg;

use super::channel::consumer_ends;
use super::frames::Consumed;
use super::lifecycle::{Farewell, Phase};
use super::{Session, Turn};

impl Session {
    /// The client is gone. Drops further bytes from the broker.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        if self.transit.life.knows_of_the_end() {
            self.transit.life.answered();
        }
        let inside_frame = self.transit.client.is_inside();
        match self.transit.life.phase() {
            Phase::Leaving(_) if !inside_frame => return self.leave_when_settled(turn),
            Phase::Goodbye(_) | Phase::HalfClosed(_) | Phase::Parting(_) | Phase::Done => return,
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Leaving(_) => {}
        }
        self.transit.pause.forget_hold();
        self.transit.handshake_until = None;
        if self.transit.life.is_watching() {
            self.books(turn).count_crash(inside_frame);
        }
        let settled = self.ledger.in_flight() == 0 && self.declares.declaring().is_none();
        if !self.transit.life.is_watching() || settled || inside_frame {
            // Nothing to do for it, or the broker waits for the end of a frame that will never come: it returns all to the queues.
            let until = turn.now.mono.after(self.settings.limits.now().close_wait);
            self.transit.broker.raw |= !self.transit.life.is_watching();
            self.transit.life.enter(Phase::HalfClosed(until));
            return;
        }
        self.settle_and_leave(turn);
    }

    fn settle_and_leave(&mut self, turn: &mut Turn<'_>) {
        let until = turn.now.mono.after(self.settings.limits.now().close_wait);
        self.transit.life.enter(Phase::Leaving(until));
        self.leave_when_settled(turn);
        if !self.transit.life.is_leaving() {
            return;
        }
        let heartbeat = self.peer.heartbeat();
        self.transit.pause.keep_alive(heartbeat, turn.now.mono);
        let channels: Vec<ChannelId> = self
            .channels
            .iter()
            .filter(|(_, state)| !state.closing)
            .map(|(channel, _)| *channel)
            .collect();
        for channel in channels {
            self.leave_channel(channel, turn);
        }
    }

    /// Ends deliveries on a channel, and requeues those not withheld.
    fn leave_channel(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        if state.unacked.is_publishing() || self.declares.declaring() == Some(channel) {
            // An auto-delete queue would go with its last consumer, and a reject that had to be forwarded would find nothing.
            let goes = |queue: &ShortStr| self.registry.is_auto_delete(queue);
            let consumers = state.consumers.iter();
            for (tag, _) in consumers.filter(|(_, consumer)| !goes(&consumer.queue)) {
                self.transit.inject(channel, Some(state), turn, |out| {
                    reply::method(out, channel, MethodId::BASIC_CANCEL, |a| {
                        a.shortstr(tag).octet(1).end()
                    });
                });
            }
        } else if self.transit.may_inject(Some(state)) {
            let out = turn.build(Leg::Broker);
            reply::close(out, channel, REPLY_SUCCESS, b"", MethodId(0, 0));
            self.abandon(channel);
        }
    }

    /// Ends when rejects are settled, the last declare is decided, and unfinished contents are
    /// complete.
    pub(super) fn leave_when_settled(&mut self, turn: &mut Turn<'_>) {
        if !self.transit.life.is_leaving() {
            return;
        }
        let may_wait = self.transit.life.is_answer_awaited();
        let sent = self.transit.outbox.is_empty() && !self.transit.client.is_inside();
        if self.ledger.in_flight() == 0
            && self.declares.declaring().is_none()
            && (sent || !may_wait)
        {
            self.transit.say_goodbye(turn);
        }
    }

    /// Drains: settles rejects, notifies the client, closes both connections. During the handshake
    /// nobody is notified, as with a broker.
    pub(super) fn begin_drain(&mut self, turn: &mut Turn<'_>) {
        if self.transit.handshake_until.is_some() {
            self.transit.life.enter(Phase::Done);
            return;
        }
        if !self.transit.life.is_watching() || self.transit.client.raw {
            return self.leave(turn);
        }
        self.transit.pause.forget_hold();
        self.transit.life.farewell = Farewell::Due;
        self.transit.tell_if_due(turn);
        self.settle_and_leave(turn);
    }

    /// Reads from a client that is being closed: completes contents (acks of their channels wait
    /// for that), takes its answer, drops the rest.
    pub(super) fn hear_out(&mut self, at: usize, turn: &mut Turn<'_>) -> Consumed {
        let rest = turn.src.get(at..).unwrap_or_default();
        let (head, payload) = match frame::front(rest) {
            Front::Short => return Consumed::Wait,
            Front::Unterminated(_) => return Consumed::Bytes(rest.len()),
            Front::Part(head) => (head, None),
            Front::Whole(head, payload, _) => (head, Some(payload)),
        };
        let state = self.channels.get(&head.channel);
        let begun = state.is_some_and(|state| !state.publishing.is_idle());
        let ends = begun && self.transit.life.is_leaving();
        let on_connection = head.channel == ChannelId::CONNECTION;
        match (head.kind, payload) {
            (Kind::Body, _) if ends => return self.begin(Leg::Client, head, at, turn),
            (Kind::Header, Some(payload)) if ends => {
                let range = at..at + head.whole();
                self.header(Leg::Client, head.channel, payload, range, turn);
                return Consumed::Bytes(head.whole());
            }
            (Kind::Method, Some(payload)) if on_connection => {
                self.transit.hear_answer(payload, turn);
            }
            (Kind::Header, None) if ends && !self.peer.is_too_large(head) => {
                return Consumed::Wait;
            }
            (Kind::Method, None) if on_connection && !self.peer.is_too_large(head) => {
                return Consumed::Wait;
            }
            _ => {}
        }
        self.transit.client.owed = head.size + 1;
        self.transit.client.body = None;
        self.transit.client.discard = true;
        Consumed::Bytes(frame::HEAD)
    }

    /// The channel is closing: the broker requeues its unsettled deliveries (S9.4).
    pub(super) fn abandon(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let ended = self.ledger.abandon(state);
        self.forget_publishes(channel);
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
