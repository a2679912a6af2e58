//! What passes: both directions of frames, why one of them rests, what waits for its place between frames, and how near the end is. It knows no
//! queue.

use crate::amqp::frame;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::{CONNECTION_FORCED, REPLY_SUCCESS};
use crate::machine::{Event, Leg, Mono};

use super::channel::{Channel, Channels};
use super::external::External;
use super::frames::{Handled, Stream};
use super::lifecycle::{Farewell, GOODBYE, Lifecycle, Phase};
use super::outbox::Outbox;
use super::pause::{Hold, Pause};
use super::peer::Peer;
use super::replies::Tally;
use super::{Settings, Turn};

/// RabbitMQ's text for clients at shutdown.
const SHUTDOWN: &[u8] =
    b"CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";

#[derive(Debug, Default)]
pub(super) struct Transit {
    pub(super) client: Stream,
    pub(super) broker: Stream,
    pub(super) life: Lifecycle,
    /// The treatment of EXTERNAL in the handshake.
    pub(super) external: External,
    pub(super) mechanism_is_chosen: bool,
    pub(super) handshake_until: Option<Mono>,
    pub(super) pause: Pause,
    pub(super) outbox: Outbox,
    pub(super) replies: Tally,
}

// === impl Transit ===

impl Transit {
    pub(super) fn stream(&mut self, leg: Leg) -> &mut Stream {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        }
    }

    /// Pauses the client leg; its front frame is processed again afterwards.
    pub(super) fn hold(
        &mut self,
        hold: Hold,
        settings: &Settings,
        peer: &Peer,
        now: Mono,
    ) -> Handled {
        let patience = settings.limits.now().close_wait;
        self.pause.begin(hold, patience, peer.heartbeat(), now);
        Handled::Wait
    }

    /// A pause begins where a frame ends: what the client waits for may have to go behind its frame.
    pub(super) fn reads_client(&self) -> bool {
        self.pause.hold().is_none() || self.client.is_inside()
    }

    /// From now on the other peer must judge this peer's bytes.
    pub(super) fn fault(&mut self, from: Leg, what: &'static str, turn: &mut Turn<'_>) {
        turn.event(Event::ProtocolFault { leg: from, what });
        self.stream(from).raw = true;
    }

    /// Whether a method of the proxy may be sent to the broker now.
    pub(super) fn may_inject(&self, state: Option<&Channel>) -> bool {
        let is_idle = |state: &Channel| state.publishing.is_idle();
        !self.client.is_inside() && state.is_none_or(is_idle)
    }

    /// Sends a method of the proxy, now or at the next frame boundary.
    pub(super) fn inject(
        &mut self,
        channel: ChannelId,
        state: Option<&Channel>,
        turn: &mut Turn<'_>,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.may_inject(state) {
            build(turn.build(Leg::Broker));
        } else {
            let mut frame = Vec::new();
            build(&mut frame);
            self.outbox.push(channel, frame);
        }
    }

    /// At the end of a frame: sends what waited for it.
    pub(super) fn flush(&mut self, channels: &mut Channels, turn: &mut Turn<'_>) {
        if !self.outbox.is_empty() && !self.client.is_inside() {
            let idle = |channel| {
                channels
                    .get(&channel)
                    .is_none_or(|state| state.publishing.is_idle())
            };
            for frame in self.outbox.take_frames(idle) {
                turn.build(Leg::Broker).extend_from_slice(&frame);
            }
            self.flush_acks(channels, turn);
        }
        self.tell_if_due(turn);
    }

    /// To the broker, while the client is not read.
    pub(super) fn heartbeat(&mut self, peer: &Peer, turn: &mut Turn<'_>) {
        if !self.client.is_inside() {
            turn.build(Leg::Broker).extend_from_slice(&frame::HEARTBEAT);
        }
        self.pause.keep_alive(peer.heartbeat(), turn.now.mono);
    }

    /// Sends due acks on channels that may send a method now. Not in tx mode: the client might roll
    /// them back.
    pub(super) fn flush_acks(&mut self, channels: &mut Channels, turn: &mut Turn<'_>) {
        if !self.outbox.has_acks() || self.client.is_inside() {
            return;
        }
        let ready = self.outbox.take_acks(|channel| {
            let state = channels.get(&channel);
            state.is_none_or(|state| state.tx.is_none() && state.publishing.is_idle())
        });
        for channel in ready {
            let state = channels.get_mut(&channel);
            if let Some(state) = state.filter(|state| !state.closing) {
                state.unacked.take_acks(|tag, multiple| {
                    reply::ack(turn.build(Leg::Broker), channel, tag, multiple)
                });
            }
        }
    }

    /// Notifies the client of the shutdown at a frame boundary.
    pub(super) fn tell_if_due(&mut self, turn: &mut Turn<'_>) {
        if self.life.farewell != Farewell::Due || self.broker.is_inside() {
            return;
        }
        let out = turn.build(Leg::Client);
        let nobody = MethodId(0, 0);
        reply::close(
            out,
            ChannelId::CONNECTION,
            CONNECTION_FORCED,
            SHUTDOWN,
            nobody,
        );
        self.life.farewell = Farewell::Said;
        turn.mute = true;
    }

    /// Closes the connection in order, so that the broker executes the last methods.
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

    /// The client's answer to a `connection.close`.
    pub(super) fn hear_answer(&mut self, payload: &[u8], turn: &mut Turn<'_>) {
        match MethodId::peek(payload) {
            Some(MethodId::CONNECTION_CLOSE_OK) => self.life.answered(),
            Some(MethodId::CONNECTION_CLOSE) if self.life.farewell == Farewell::Said => {
                // Both have closed. It may wait for our answer instead.
                let out = turn.build(Leg::Client);
                let ok = MethodId::CONNECTION_CLOSE_OK;
                reply::method(out, ChannelId::CONNECTION, ok, |_| {});
                self.life.answered();
            }
            _ => {}
        }
    }
}
