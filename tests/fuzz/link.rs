//! Drives a machine with one leg, the broker's, as `net/drive.rs` does, but for sockets. What is always true of a link is checked at each step.

use std::time::Duration;

use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply::{self, Arguments};
use dlx_proxy::amqp::table::TableBuilder;
use dlx_proxy::machine::{Effects, Flow, Leg, Machine, Mono, Now, Wall};

use super::input::Input;
use super::trace::trace;

/// A machine, its effects, the time.
pub(crate) struct Link<M: Machine> {
    pub(crate) machine: M,
    pub(crate) fx: Effects<M::Output>,
    pub(crate) now: Now,
    piece: usize,
    rest: Vec<u8>,
    /// All that it sent, over all connections.
    pub(crate) out: Vec<u8>,
    /// What of it has been looked at.
    heard: usize,
    pub(crate) connected: bool,
    /// The handshake with this connection was played.
    pub(crate) open: bool,
}

/// What a machine sent: a frame that is neither a heartbeat nor of channel 0.
pub(crate) struct Sent {
    pub(crate) kind: Kind,
    pub(crate) channel: u16,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn method(
    channel: u16,
    id: MethodId,
    arguments: impl FnOnce(&mut Arguments<'_>),
) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, ChannelId(channel), id, arguments);
    out
}

pub(crate) fn close(channel: u16, code: u16, text: &[u8], failed: MethodId) -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(&mut out, ChannelId(channel), code, text, failed);
    out
}

// === impl Link ===

impl<M: Machine> Link<M> {
    pub(crate) fn new(piece: usize, machine: impl FnOnce(Now) -> M) -> Link<M> {
        let now = Now {
            mono: Mono(1_000_000),
            wall: Wall::of_seconds(1_700_000_000),
        };
        Link {
            machine: machine(now),
            fx: Effects::default(),
            now,
            piece,
            rest: Vec::new(),
            out: Vec::new(),
            heard: 0,
            connected: false,
            open: false,
        }
    }

    /// Connects, if it wants that and the time has come, or comes; true if it did.
    pub(crate) fn connect(&mut self) -> bool {
        let Flow::Reconnect(at) = self.machine.flow() else {
            return false;
        };
        let wait = self.now.mono.until(at);
        self.pass(wait.as_millis() as u64 + 1);
        if !matches!(self.machine.flow(), Flow::Reconnect(at) if at <= self.now.mono) {
            return false;
        }
        self.rest.clear();
        self.fx.broker = Default::default();
        (self.connected, self.open) = (true, false);
        self.machine.connected(Leg::Broker, self.now, &mut self.fx);
        self.collect();
        true
    }

    /// One frame that no broker says here, perhaps of one of these methods, perhaps cut short, perhaps before the handshake.
    pub(crate) fn broker_says_anything(&mut self, input: &mut Input<'_>, ids: &[MethodId]) {
        if input.flag() {
            self.connect();
        }
        let (kind, channel) = (input.below(5) as u8, ChannelId(input.below(4) as u16));
        let MethodId(class, id) = input.pick(ids);
        let mut out = Vec::new();
        frame::put(&mut out, kind, channel, |out| {
            if kind == 1 {
                out.extend([class.to_be_bytes(), id.to_be_bytes()].concat());
            }
            out.extend_from_slice(input.text());
        });
        out.truncate(out.len() - usize::from(input.byte() == 255));
        self.broker(&out);
    }

    /// Connects and plays the handshake.
    pub(crate) fn up(&mut self, version: &[u8], frame_max: u32, channel_max: u16) {
        if !self.connect() {
            return;
        }
        let mut properties = TableBuilder::default();
        properties.longstr(b"version", version);
        let properties = properties.finish();
        self.broker(&method(0, MethodId::CONNECTION_START, |a| {
            a.short(9)
                .longstr(&properties)
                .longstr(b"PLAIN")
                .longstr(b"en_US")
                .end()
        }));
        self.broker(&method(0, MethodId::CONNECTION_TUNE, |a| {
            a.short(channel_max).long(frame_max).short(60).end()
        }));
        // Not yet: what the handshake says is of channel 0, and nobody's business here.
        self.open = true;
        self.broker(&method(0, MethodId::CONNECTION_OPEN_OK, |a| {
            a.shortstr(b"").end()
        }));
    }

    /// The broker sends these bytes.
    pub(crate) fn broker(&mut self, bytes: &[u8]) {
        if !self.connected {
            return;
        }
        trace("broker says", bytes);
        let piece = if self.piece == 0 {
            bytes.len().max(1)
        } else {
            self.piece
        };
        for piece in bytes.chunks(piece) {
            self.rest.extend_from_slice(piece);
            self.offer();
        }
    }

    fn offer(&mut self) {
        if self.rest.is_empty() || !self.connected || !self.machine.wants_read(Leg::Broker, 0) {
            return;
        }
        let mut bytes = std::mem::take(&mut self.rest);
        let taken = self
            .machine
            .read(Leg::Broker, &bytes, self.now, &mut self.fx);
        assert!(taken <= bytes.len(), "took what was not offered");
        bytes.drain(..taken);
        assert!(
            bytes.len() <= 32 << 20,
            "{} octets wait for more",
            bytes.len()
        );
        self.rest = bytes;
        self.collect();
    }

    pub(crate) fn input(&mut self, input: M::Input) {
        if self.machine.accepts() {
            self.machine.input(input, self.now, &mut self.fx);
            self.collect();
            self.offer();
        }
    }

    pub(crate) fn drain(&mut self) {
        self.machine.drain(self.now, &mut self.fx);
        self.collect();
        self.offer();
    }

    pub(crate) fn cut(&mut self) {
        if std::mem::replace(&mut self.connected, false) {
            self.open = false;
            self.machine.closed(Leg::Broker, self.now, &mut self.fx);
            self.collect();
        }
    }

    /// Time passes; each deadline on the way is met, and then it is another one.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now.mono.after(Duration::from_millis(millis));
        let mut rounds = 0;
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.now.mono = self.now.mono.max(at);
            self.machine.timeout(self.now, &mut self.fx);
            self.collect();
            let next = self.machine.deadline();
            assert!(
                next.is_none_or(|next| next > self.now.mono),
                "a deadline that stays is a busy loop"
            );
            rounds += 1;
            assert!(rounds < 100_000, "deadlines without end");
        }
        self.now.mono = end;
    }

    fn collect(&mut self) {
        let before = self.out.len();
        let (bytes, _) = self.fx.broker.finish();
        self.out.append(bytes);
        assert!(self.fx.client.is_empty(), "a link has no client");
        // What is written is written; the machine hears of it.
        self.machine.drained(self.now, &mut self.fx);
        let (bytes, _) = self.fx.broker.finish();
        self.out.append(bytes);
        trace("  -> broker", &self.out[before..]);
        if !matches!(self.machine.flow(), Flow::Open) {
            (self.connected, self.open) = (false, false);
        }
    }

    /// What it sent since the last call on channels of its own.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            let rest = &self.out[self.heard..];
            if rest.starts_with(&frame::PROTOCOL) {
                self.heard += frame::PROTOCOL.len();
                continue;
            }
            let Front::Whole(head, payload, length) = frame::front(rest) else {
                assert!(rest.is_empty(), "a broken frame: {}", rest.escape_ascii());
                return sent;
            };
            if head.channel != ChannelId(0) {
                sent.push(Sent {
                    kind: head.kind,
                    channel: head.channel.0,
                    payload: payload.to_vec(),
                });
            }
            self.heard += length;
        }
    }
}

// === impl Sent ===

impl Sent {
    pub(crate) fn method(&self) -> Option<MethodId> {
        MethodId::peek(&self.payload).filter(|_| self.kind == Kind::Method)
    }
}
