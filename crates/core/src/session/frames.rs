//! Frames as they pass: bodies in pieces, methods and headers whole; and where between them a frame of our own may go.

use std::ops::Range;

use crate::amqp::content::{PREFIX, body_size};
use crate::amqp::frame::{self, Front, HEAD, Head, Kind};
use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::machine::{Event, Leg};

use super::facts::Facts;
use super::lifecycle::Phase;
use super::pause::Hold;
use super::replies::asked_for;
use super::{Session, Turn};

/// Larger frames of the broker pass in pieces, unparsed: no header made by a broker is near this
/// size.
pub(super) const BROKER_FRAME_MAX: usize = 32 * 1024 * 1024;
/// The beginning of a TLS handshake.
const TLS: [u8; 2] = [0x16, 0x03];
const UNTERMINATED: &str = "a frame without its end byte";

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Remaining bytes of the current frame with its end; 0: at a frame boundary.
    pub(super) owed: usize,
    /// The channel of the passing body frame.
    pub(super) body: Option<(ChannelId, u64)>,
    /// Drop the rest of the frame.
    pub(super) discard: bool,
    /// Unparsed: this peer violated the protocol, and the other one answers.
    pub(super) raw: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Method<'a> {
    pub(super) from: Leg,
    pub(super) channel: ChannelId,
    pub(super) id: MethodId,
    pub(super) payload: &'a [u8],
    /// Offset of its frame in the bytes being read.
    pub(super) at: usize,
    pub(super) len: usize,
}

pub(super) enum Consumed {
    /// This number of bytes is processed.
    Bytes(usize),
    /// Retry with more bytes, or after a pause.
    Wait,
}

pub(super) enum Handled {
    Done,
    /// Retry after a pause, or with more bytes behind it.
    Wait,
    /// A violation of the protocol.
    Broken(&'static str),
}

// === impl Method ===

impl Method<'_> {
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

// === impl Turn ===

impl Turn<'_> {
    pub(super) fn pass_request(&mut self, method: Method<'_>) {
        match asked_for(method.id, method.payload) {
            Some(asking) => frame::put(self.build(Leg::Broker), 1, method.channel, |out| {
                out.extend_from_slice(&asking)
            }),
            None => self.pass(Leg::Client, method.range()),
        }
    }

    pub(super) fn pass_method(&mut self, method: Method<'_>) -> Handled {
        self.pass(method.from, method.range());
        Handled::Done
    }
}

// === impl Stream ===

impl Stream {
    /// The other peer has the beginning of a frame.
    pub(super) fn is_inside(&self) -> bool {
        self.owed > 0 && !self.discard
    }
}

impl Session {
    pub(super) fn step(&mut self, from: Leg, at: usize, turn: &mut Turn<'_>) -> Consumed {
        let Some(rest) = turn.src.get(at..) else {
            return Consumed::Wait;
        };
        if from == Leg::Client
            && self.transit.life.knows_of_the_end()
            && self.transit.client.owed == 0
        {
            return self.hear_out(at, turn);
        }
        if from == Leg::Client && self.transit.life.phase() == Phase::Done {
            return Consumed::Bytes(rest.len());
        }
        if self.transit.life.phase() == Phase::Raw || self.transit.stream(from).raw {
            turn.pass(from, at..turn.src.len());
            return Consumed::Bytes(rest.len());
        }
        if self.transit.life.phase() == Phase::Greeting {
            return self.greeting(from, at, turn);
        }
        if self.transit.stream(from).owed > 0 {
            return self.piece(from, at, turn);
        }
        match frame::front(rest) {
            Front::Part(head) | Front::Whole(head, ..) | Front::Unterminated(head)
                if from == Leg::Client && self.declares.blocks(head.channel, &self.channels) =>
            {
                self.hold(Hold::Probe, turn);
                Consumed::Wait
            }
            Front::Short => Consumed::Wait,
            Front::Part(head) | Front::Whole(head, ..)
                if from == Leg::Client && self.peer.is_too_large(head) =>
            {
                self.broken(from, "a frame larger than frame_max", at, turn)
            }
            Front::Part(head) => self.part(from, head, at, turn),
            Front::Whole(head, payload, len) => {
                self.whole(from, (head, payload), at..at + len, turn)
            }
            Front::Unterminated(_) => self.broken(from, UNTERMINATED, at, turn),
        }
    }

    fn whole(
        &mut self,
        from: Leg,
        (head, payload): (Head, &[u8]),
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> Consumed {
        let (at, len, channel) = (range.start, range.len(), head.channel);
        match (head.kind, MethodId::peek(payload)) {
            (Kind::Method, Some(id)) => {
                let method = Method {
                    from,
                    channel,
                    id,
                    payload,
                    at,
                    len,
                };
                self.method(method, turn)
            }
            (Kind::Header, _) => {
                let is_asked = from == Leg::Client && !self.open_publishes.is_empty();
                if is_asked && matches!(self.publish_header(channel, payload, turn), Handled::Wait)
                {
                    return Consumed::Wait;
                }
                self.header(from, channel, payload, range, turn);
                Consumed::Bytes(len)
            }
            (Kind::Body, _) => {
                if !self.discards(from, channel) {
                    turn.pass(from, range);
                }
                self.body(from, channel, payload, Some(head.size as u64), turn);
                self.boundary(turn);
                Consumed::Bytes(len)
            }
            _ => self.begin(from, head, at, turn),
        }
    }

    fn method(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Consumed {
        let Method { from, at, len, .. } = method;
        let handled = match (from, method.channel) {
            (Leg::Client, ChannelId::CONNECTION) => self.client_connection(method, turn),
            (Leg::Client, _) => self.client_method(method, turn),
            (Leg::Broker, ChannelId::CONNECTION) => self.broker_connection(method, turn),
            (Leg::Broker, _) => self.broker_method(method, turn),
        };
        match handled {
            Handled::Done => Consumed::Bytes(len),
            Handled::Wait => Consumed::Wait,
            Handled::Broken(what) => self.broken(from, what, at, turn),
        }
    }

    pub(super) fn header(
        &mut self,
        from: Leg,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) {
        let bytes = body_size(payload).unwrap_or(0);
        if from == Leg::Client && self.is_undecided(channel) {
            // The client has gone before this was decided.
            self.drop_publish(channel);
        }
        let facts = Facts::of(&self.settings, &self.peer, &self.registry);
        let mut state = self.channels.get_mut(&channel);
        let mut discard = false;
        if let Some(state) = &mut state {
            let transfer = state.transfer(from);
            discard = transfer.discards();
            transfer.header(bytes);
            if from == Leg::Broker {
                self.ledger.begin_copy(state, payload, facts, turn);
            }
        }
        if !discard {
            let (prefix, properties) = payload.split_at_checked(PREFIX).unwrap_or((payload, &[]));
            match facts.edited(state, from, properties, turn) {
                Some(edited) => turn.replace(from, |out| {
                    frame::put(out, 2, channel, |out| {
                        out.extend_from_slice(prefix);
                        out.extend_from_slice(&edited);
                    })
                }),
                None => turn.pass(from, range),
            }
        }
        if bytes == 0 {
            if from == Leg::Broker
                && let Some(state) = self.channels.get_mut(&channel)
            {
                self.ledger.copied(state, &self.settings, turn.now.mono);
            }
            if from == Leg::Client && !self.open_publishes.is_empty() {
                self.publish_complete(channel, turn);
            }
            self.boundary(turn);
        }
    }

    /// The client's first eight bytes select the protocol.
    fn greeting(&mut self, from: Leg, at: usize, turn: &mut Turn<'_>) -> Consumed {
        let rest = turn.src.get(at..).unwrap_or_default();
        let known = rest.len().min(frame::PROTOCOL.len());
        if from == Leg::Broker || rest.get(..known) != frame::PROTOCOL.get(..known) {
            if self.transit.guards_unseen(turn) {
                return Consumed::Bytes(rest.len());
            }
            if from == Leg::Client && rest.starts_with(&TLS) {
                let what = "TLS where none is spoken: a client with `amqps://` has to come to `listen-tls`";
                turn.event(Event::ProtocolFault { leg: from, what });
            }
            // Another protocol, or a broker that speaks first: its own affair.
            self.transit.handshake_until = None;
            self.transit.life.enter(Phase::Raw);
            return self.step(from, at, turn);
        }
        if known < frame::PROTOCOL.len() {
            return Consumed::Wait;
        }
        self.transit.life.enter(Phase::Watching);
        turn.pass(from, at..at + known);
        Consumed::Bytes(known)
    }

    /// An incomplete frame: bodies pass in pieces, methods and headers are awaited up to the limit.
    fn part(&mut self, from: Leg, head: Head, at: usize, turn: &mut Turn<'_>) -> Consumed {
        match head.kind {
            // A broker that does not speak our protocol answers with its own header and hangs up.
            Kind::Other(b'A') if from == Leg::Broker => {
                self.broken(from, "no AMQP 0-9-1", at, turn)
            }
            Kind::Method | Kind::Header
                if from == Leg::Client || head.whole() <= BROKER_FRAME_MAX =>
            {
                Consumed::Wait
            }
            Kind::Method | Kind::Header | Kind::Body | Kind::Heartbeat | Kind::Other(_) => {
                self.begin(from, head, at, turn)
            }
        }
    }

    /// From now on the other peer must judge this peer's bytes.
    fn broken(
        &mut self,
        from: Leg,
        what: &'static str,
        at: usize,
        turn: &mut Turn<'_>,
    ) -> Consumed {
        self.transit.fault(from, what, turn);
        if from == Leg::Client && self.transit.guards_unseen(turn) {
            return Consumed::Bytes(turn.src.len() - at);
        }
        self.step(from, at, turn)
    }

    /// Begins a frame that passes in pieces.
    pub(super) fn begin(
        &mut self,
        from: Leg,
        head: Head,
        at: usize,
        turn: &mut Turn<'_>,
    ) -> Consumed {
        let mut discard = false;
        let mut body = None;
        if head.kind == Kind::Body {
            body = Some((head.channel, head.size as u64));
            discard = self.discards(from, head.channel);
        }
        let stream = self.transit.stream(from);
        stream.owed = head.size + 1;
        stream.body = body;
        stream.discard = discard;
        if !discard {
            turn.pass(from, at..at + HEAD);
        }
        Consumed::Bytes(HEAD)
    }

    fn piece(&mut self, from: Leg, at: usize, turn: &mut Turn<'_>) -> Consumed {
        let stream = self.transit.stream(from);
        let len = stream.owed.min(turn.src.len() - at);
        stream.owed -= len;
        let (ended, body, discard) = (stream.owed == 0, stream.body, stream.discard);
        if !discard {
            turn.pass(from, at..at + len);
        }
        if let Some((channel, bytes)) = body {
            let payload = turn.src.get(at..at + len - usize::from(ended));
            let whole = ended.then_some(bytes);
            self.body(from, channel, payload.unwrap_or_default(), whole, turn);
        }
        let heard_out = from == Leg::Client && self.transit.life.knows_of_the_end();
        if ended && !heard_out && turn.src.get(at + len - 1) != Some(&frame::END) {
            self.transit.fault(from, UNTERMINATED, turn);
            if from == Leg::Client {
                self.transit.guards_unseen(turn);
            }
        } else if ended {
            self.boundary(turn);
        }
        Consumed::Bytes(len)
    }

    fn discards(&mut self, from: Leg, channel: ChannelId) -> bool {
        let state = self.channels.get_mut(&channel);
        state.is_some_and(|state| state.transfer(from).discards())
    }

    /// A piece of a body frame. `whole`: the frame's size, at its end.
    fn body(
        &mut self,
        from: Leg,
        channel: ChannelId,
        piece: &[u8],
        whole: Option<u64>,
        turn: &mut Turn<'_>,
    ) {
        let is_delayed = from == Leg::Client && !self.open_publishes.is_empty();
        if is_delayed {
            self.publish_body(channel, piece);
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if let Some(copying) = state.copying.as_mut().filter(|_| from == Leg::Broker) {
            copying.body(piece);
        }
        if let Some(bytes) = whole {
            state.transfer(from).body(bytes);
            if from == Leg::Broker {
                self.ledger.copied(state, &self.settings, turn.now.mono);
            }
            if is_delayed {
                self.publish_complete(channel, turn);
            }
        }
    }

    /// At the end of a frame: sends what waited for it.
    pub(super) fn boundary(&mut self, turn: &mut Turn<'_>) {
        self.transit.flush(&mut self.channels, turn);
        self.ledger
            .publishes
            .confirm(&mut self.channels, &self.transit, turn);
        self.leave_when_settled(turn);
    }
}
