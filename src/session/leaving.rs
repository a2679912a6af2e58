//! A client that vanishes, or whose proxy ends: the rejects that are withheld are settled first, within `close-wait`.

use std::time::Duration;

use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::{Leg, Mono};

use super::channel::Consumer;
use super::{Phase, Session, Turn};

const REPLY_SUCCESS: u16 = 200;
const CONNECTION_FORCED: u16 = 320;
/// How long `connection.close-ok` is waited for.
const GOODBYE: Duration = Duration::from_secs(2);
/// What RabbitMQ says to its clients when it is stopped.
const SHUTDOWN: &[u8] =
    b"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";

/// What a client knows of the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// The process does not end.
    None,
    /// `connection.close` goes behind the frame that is passing to it.
    Due,
    /// `connection.close` is sent.
    Said,
    /// And answered, or the client's stream has ended.
    Answered,
}

impl Session {
    /// The client is gone. What the broker still sends is read and goes nowhere.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        if self.knows_of_the_end() {
            self.answered();
        }
        let inside_frame = self.client.is_inside();
        match self.phase {
            Phase::Leaving(_) if !inside_frame => return self.leave_when_settled(turn),
            Phase::Goodbye(_) | Phase::HalfClosed(_) | Phase::Parting(_) | Phase::Done => return,
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Leaving(_) => {}
        }
        self.hold = None;
        self.handshake_until = None;
        let settled = self.tickets.is_empty() && self.declaring().is_none();
        if self.phase != Phase::Watching || settled || inside_frame {
            // Nothing to do for it, or the broker waits for the end of a frame that will never come: it returns all to the queues.
            let until = turn.now.mono.after(self.settings.limits.now().close_wait);
            self.broker.raw |= self.phase != Phase::Watching;
            self.phase = Phase::HalfClosed(until);
            return;
        }
        self.settle_and_leave(turn);
    }

    fn settle_and_leave(&mut self, turn: &mut Turn<'_>) {
        self.phase = Phase::Leaving(turn.now.mono.after(self.settings.limits.now().close_wait));
        self.leave_when_settled(turn);
        if !matches!(self.phase, Phase::Leaving(_)) {
            return;
        }
        self.heartbeat_at = self.peer.heartbeat().map(|half| turn.now.mono.after(half));
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

    /// Nothing more shall be delivered: what was, and is not withheld, goes back.
    fn leave_channel(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let Some(state) = self.channels.get(&channel) else {
            return;
        };
        if state.unacked.any_withheld() || self.declaring() == Some(channel) {
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
        let Phase::Leaving(_) = self.phase else {
            return;
        };
        let may_wait = self.is_answer_awaited();
        let sent = self.acks_due.is_empty() && self.waiting.is_empty() && !self.client.is_inside();
        if self.tickets.is_empty() && self.declaring().is_none() && (sent || !may_wait) {
            self.say_goodbye(turn);
        }
    }

    /// Closes the connection in order: the broker carries out what was sent last only if the connection does not break behind it.
    pub(super) fn say_goodbye(&mut self, turn: &mut Turn<'_>) {
        self.heartbeat_at = None;
        let until = turn.now.mono.after(GOODBYE);
        if self.client.is_inside() {
            self.phase = Phase::HalfClosed(until);
            return;
        }
        let nobody = MethodId(0, 0);
        let out = turn.build(Leg::Broker);
        reply::close(out, ChannelId(0), REPLY_SUCCESS, b"", nobody);
        self.phase = Phase::Goodbye(until);
    }

    /// The broker leg is over. A client that was told the end may still answer: were its last bytes unread, the system would reset the
    /// connection, and the client might lose what it was told.
    pub(super) fn let_go(&mut self, now: Mono) {
        self.phase = match self.phase {
            Phase::Parting(until) => Phase::Parting(until),
            _ if self.farewell == Farewell::Said => Phase::Parting(now.after(GOODBYE)),
            _ => Phase::Done,
        };
    }

    /// The process is ending: rejects are settled, the client is told, both connections end in order. In the handshake nobody is told, as
    /// by the broker.
    pub(super) fn drain(&mut self, turn: &mut Turn<'_>) {
        if self.handshake_until.is_some() {
            self.phase = Phase::Done;
            return;
        }
        if self.phase != Phase::Watching || self.client.raw {
            return self.leave(turn);
        }
        self.hold = None;
        self.farewell = Farewell::Due;
        self.tell_if_due(turn);
        self.settle_and_leave(turn);
    }

    pub(super) fn tell_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.farewell != Farewell::Due || self.broker.is_inside() {
            return;
        }
        let out = turn.build(Leg::Client);
        reply::close(
            out,
            ChannelId(0),
            CONNECTION_FORCED,
            SHUTDOWN,
            MethodId(0, 0),
        );
        self.farewell = Farewell::Said;
        turn.mute = true;
    }

    /// Nothing of the broker's is passed on any more.
    pub(super) fn is_mute(&self) -> bool {
        match self.farewell {
            Farewell::Due => false,
            // Whatever the phase: nothing follows `connection.close`.
            Farewell::Said | Farewell::Answered => true,
            Farewell::None => matches!(
                self.phase,
                Phase::Leaving(_) | Phase::Goodbye(_) | Phase::Parting(_)
            ),
        }
    }

    pub(super) fn knows_of_the_end(&self) -> bool {
        self.farewell != Farewell::None
    }

    pub(super) fn is_answer_awaited(&self) -> bool {
        matches!(self.farewell, Farewell::Due | Farewell::Said)
    }

    /// A client that is being closed: the contents that it has begun end (acks of their channels wait for that), its answer counts, and all
    /// else goes nowhere.
    pub(super) fn hear_out(&mut self, at: usize, turn: &mut Turn<'_>) -> usize {
        let rest = turn.src.get(at..).unwrap_or_default();
        let (head, payload) = match frame::front(rest) {
            Front::Short => return 0,
            Front::Unterminated(_) => return rest.len(),
            Front::Part(head) => (head, None),
            Front::Whole(head, payload, _) => (head, Some(payload)),
        };
        let begun = self
            .transfer(Leg::Client, head.channel)
            .is_some_and(|transfer| !transfer.is_idle());
        let ends = begun && matches!(self.phase, Phase::Leaving(_));
        match (head.kind, payload) {
            (Kind::Body, _) if ends => return self.begin(Leg::Client, head, at, turn),
            (Kind::Header, Some(payload)) if ends => {
                let range = at..at + head.whole();
                return self.header(Leg::Client, head.channel, payload, range, turn);
            }
            (Kind::Header, None) if ends && head.whole() <= self.peer.frame_max() => return 0,
            (Kind::Method, Some(payload)) if head.channel == ChannelId(0) => {
                self.hear_answer(payload, turn)
            }
            (Kind::Method, None)
                if head.channel == ChannelId(0) && head.whole() <= self.peer.frame_max() =>
            {
                return 0;
            }
            _ => {}
        }
        self.client.owed = head.size + 1;
        self.client.body = None;
        self.client.discard = true;
        frame::HEAD
    }

    fn hear_answer(&mut self, payload: &[u8], turn: &mut Turn<'_>) {
        match MethodId::peek(payload) {
            Some(MethodId::CONNECTION_CLOSE_OK) => self.answered(),
            Some(MethodId::CONNECTION_CLOSE) if self.farewell == Farewell::Said => {
                // Both have closed. It may wait for our answer instead.
                let out = turn.build(Leg::Client);
                reply::method(out, ChannelId(0), MethodId::CONNECTION_CLOSE_OK, |_| {});
                self.answered();
            }
            _ => {}
        }
    }

    fn answered(&mut self) {
        self.farewell = Farewell::Answered;
        if matches!(self.phase, Phase::Parting(_)) {
            self.phase = Phase::Done;
        }
    }
}
