//! A client that vanishes, or whose proxy ends: the rejects that are withheld are settled first, within `close-wait`.

use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::{CONNECTION_FORCED, REPLY_SUCCESS};
use crate::machine::Leg;

use super::channel::Consumer;
use super::frames::{Consumed, Header};
use super::lifecycle::{GOODBYE, Phase};
use super::{Session, Turn};

/// What RabbitMQ says to its clients when it is stopped.
const SHUTDOWN: &[u8] =
    b"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";

impl Session {
    /// The client is gone. What the broker still sends is read and goes nowhere.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        if self.life.knows_of_the_end() {
            self.life.answered();
        }
        let inside_frame = self.client.is_inside();
        match self.life.phase() {
            Phase::Leaving(_) if !inside_frame => return self.leave_when_settled(turn),
            Phase::Goodbye(_) | Phase::HalfClosed(_) | Phase::Parting(_) | Phase::Done => return,
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Leaving(_) => {}
        }
        self.pause.forget_hold();
        self.handshake_until = None;
        if self.life.is_watching() {
            self.count_crash(inside_frame, turn);
        }
        let settled = self.tickets.is_empty() && self.declares.declaring().is_none();
        if !self.life.is_watching() || settled || inside_frame {
            // Nothing to do for it, or the broker waits for the end of a frame that will never come: it returns all to the queues.
            let until = turn.now.mono.after(self.settings.limits.now().close_wait);
            self.broker.raw |= !self.life.is_watching();
            self.life.enter(Phase::HalfClosed(until));
            return;
        }
        self.settle_and_leave(turn);
    }

    fn settle_and_leave(&mut self, turn: &mut Turn<'_>) {
        let until = turn.now.mono.after(self.settings.limits.now().close_wait);
        self.life.enter(Phase::Leaving(until));
        self.leave_when_settled(turn);
        if !self.life.is_leaving() {
            return;
        }
        let heartbeat = self.peer.heartbeat();
        self.pause.keep_alive(heartbeat, turn.now.mono);
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

    /// Ends deliveries on a channel. What was delivered and is not withheld goes back to its queue.
    fn leave_channel(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        if state.unacked.is_publishing() || self.declares.declaring() == Some(channel) {
            // An auto-delete queue would go with its last consumer, and a reject that had to be forwarded would find nothing.
            let stays = |consumer: &Consumer| !self.registry.is_auto_delete(&consumer.queue);
            let consumers: Vec<ShortStr> = state
                .consumers
                .iter()
                .filter(|(_, consumer)| stays(consumer))
                .map(|(tag, _)| tag.clone())
                .collect();
            for consumer in consumers {
                self.inject(channel, turn, |out| {
                    reply::method(out, channel, MethodId::BASIC_CANCEL, |a| {
                        a.shortstr(&consumer).octet(1).end()
                    });
                });
            }
        } else if self.may_inject(channel) {
            reply::close(
                turn.build(Leg::Broker),
                channel,
                REPLY_SUCCESS,
                b"",
                MethodId(0, 0),
            );
            self.abandon(channel);
        }
    }

    /// The last withheld reject has been settled, the last declare decided, and what the client had begun is at its end.
    pub(super) fn leave_when_settled(&mut self, turn: &mut Turn<'_>) {
        if !self.life.is_leaving() {
            return;
        }
        let may_wait = self.life.is_answer_awaited();
        let sent = self.outbox.is_empty() && !self.client.is_inside();
        if self.tickets.is_empty() && self.declares.declaring().is_none() && (sent || !may_wait) {
            self.say_goodbye(turn);
        }
    }

    /// Closes the connection in order: the broker carries out what was sent last only if the connection does not break behind it.
    pub(super) fn say_goodbye(&mut self, turn: &mut Turn<'_>) {
        self.pause.end();
        let until = turn.now.mono.after(GOODBYE);
        if self.client.is_inside() {
            self.life.enter(Phase::HalfClosed(until));
            return;
        }
        let nobody = MethodId(0, 0);
        let out = turn.build(Leg::Broker);
        reply::close(out, ChannelId::CONNECTION, REPLY_SUCCESS, b"", nobody);
        self.life.enter(Phase::Goodbye(until));
    }

    /// The process is ending: rejects are settled, the client is told, both connections end in order. In the handshake nobody is told, as
    /// by the broker.
    pub(super) fn begin_drain(&mut self, turn: &mut Turn<'_>) {
        if self.handshake_until.is_some() {
            self.life.enter(Phase::Done);
            return;
        }
        if !self.life.is_watching() || self.client.raw {
            return self.leave(turn);
        }
        self.pause.forget_hold();
        self.life.owe_farewell();
        self.tell_if_due(turn);
        self.settle_and_leave(turn);
    }

    pub(super) fn tell_if_due(&mut self, turn: &mut Turn<'_>) {
        if !self.life.owes_farewell() || self.broker.is_inside() {
            return;
        }
        let out = turn.build(Leg::Client);
        reply::close(
            out,
            ChannelId::CONNECTION,
            CONNECTION_FORCED,
            SHUTDOWN,
            MethodId(0, 0),
        );
        self.life.farewell_said();
        turn.mute = true;
    }

    /// A client that is being closed: the contents that it has begun end (acks of their channels wait for that), its answer counts, and all
    /// else goes nowhere.
    pub(super) fn hear_out(&mut self, at: usize, turn: &mut Turn<'_>) -> Consumed {
        let rest = turn.src.get(at..).unwrap_or_default();
        let (head, payload) = match frame::front(rest) {
            Front::Short => return Consumed::Wait,
            Front::Unterminated(_) => return Consumed::Bytes(rest.len()),
            Front::Part(head) => (head, None),
            Front::Whole(head, payload, _) => (head, Some(payload)),
        };
        let begun = self
            .transfer(Leg::Client, head.channel)
            .is_some_and(|transfer| !transfer.is_idle());
        let ends = begun && self.life.is_leaving();
        match (head.kind, payload) {
            (Kind::Body, _) if ends => return self.begin(Leg::Client, head, at, turn),
            (Kind::Header, Some(payload)) if ends => {
                let header = Header {
                    from: Leg::Client,
                    channel: head.channel,
                    payload,
                    at,
                    len: head.whole(),
                };
                self.header(header, turn);
                return Consumed::Bytes(header.len);
            }
            (Kind::Header, None) if ends && head.whole() <= self.peer.frame_max() => {
                return Consumed::Wait;
            }
            (Kind::Method, Some(payload)) if head.channel == ChannelId::CONNECTION => {
                self.hear_answer(payload, turn)
            }
            (Kind::Method, None)
                if head.channel == ChannelId::CONNECTION
                    && head.whole() <= self.peer.frame_max() =>
            {
                return Consumed::Wait;
            }
            _ => {}
        }
        self.client.owed = head.size + 1;
        self.client.body = None;
        self.client.discard = true;
        Consumed::Bytes(frame::HEAD)
    }

    fn hear_answer(&mut self, payload: &[u8], turn: &mut Turn<'_>) {
        match MethodId::peek(payload) {
            Some(MethodId::CONNECTION_CLOSE_OK) => self.life.answered(),
            Some(MethodId::CONNECTION_CLOSE) if self.life.is_farewell_said() => {
                // Both have closed. It may wait for our answer instead.
                let out = turn.build(Leg::Client);
                reply::method(
                    out,
                    ChannelId::CONNECTION,
                    MethodId::CONNECTION_CLOSE_OK,
                    |_| {},
                );
                self.life.answered();
            }
            _ => {}
        }
    }
}
