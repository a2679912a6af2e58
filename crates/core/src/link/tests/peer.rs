//! The broker of the unit tests: builds what a broker sends, reads what a machine sent. It decides nothing: the test is the script.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, name};
use crate::amqp::method::MethodId;
use crate::amqp::table::TableBuilder;
use crate::link::Login;
use crate::machine::{Effects, Event, Leg, Machine, Mono, Now, Wall};

#[path = "broker_says.rs"]
mod broker_says;

pub(crate) use broker_says::{close, method, open_ok, start, tune};

/// Of the proxy's own user.
pub(crate) fn login() -> Login {
    Login {
        vhost: name("/"),
        user: name("proxy"),
        password: Bytes::from_static(b"secret"),
        seed: 1,
    }
}

/// A frame that the machine sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) kind: Kind,
    pub(crate) channel: u16,
    pub(crate) payload: Vec<u8>,
}

/// One machine, its effects, and the time.
pub(crate) struct Rig<M: Machine> {
    pub(crate) machine: M,
    pub(crate) fx: Effects<M::Output>,
    pub(crate) now: Now,
    /// What the socket took, and whether it takes anything.
    taken: Vec<u8>,
    pub(crate) takes: bool,
}

/// Header and body frames behind a method.
pub(crate) fn content(mut method: Vec<u8>, channel: u16, content: &Content) -> Vec<u8> {
    content.put(&mut method, ChannelId(channel), 4096);
    method
}

/// Properties with this header table and nothing else.
pub(crate) fn with_headers(headers: TableBuilder, body: &str) -> Content {
    let headers = headers.finish();
    let mut properties = vec![0x20, 0];
    properties.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    properties.extend_from_slice(&headers);
    Content {
        properties: properties.into(),
        body: body.as_bytes().to_vec().into(),
    }
}

// === impl Sent ===

impl Sent {
    pub(crate) fn method(&self) -> Option<MethodId> {
        (self.kind == Kind::Method)
            .then(|| MethodId::peek(&self.payload))
            .flatten()
    }

    pub(crate) fn is(&self, channel: u16, id: MethodId) -> bool {
        self.channel == channel && self.method() == Some(id)
    }
}

// === impl Rig ===

impl<M: Machine> Rig<M> {
    pub(crate) fn new(machine: M) -> Rig<M> {
        Rig {
            machine,
            fx: Effects::default(),
            now: Now {
                mono: Mono(1_000_000),
                wall: Wall::of_seconds(1_700_000_000),
            },
            taken: Vec::new(),
            takes: true,
        }
    }

    /// The broker sends these bytes; the machine must take all of them.
    pub(crate) fn broker(&mut self, bytes: &[u8]) {
        let taken = self
            .machine
            .read(Leg::Broker, bytes, self.now, &mut self.fx);
        assert_eq!(taken, bytes.len(), "bytes taken");
    }

    /// Connected, and the handshake with a broker of that version played to its end.
    pub(crate) fn up(&mut self, version: &str) {
        self.up_with(version, 2047);
    }

    /// The same where the broker allows so many channels.
    pub(crate) fn up_with(&mut self, version: &str, channels: u16) {
        self.machine.connected(Leg::Broker, self.now, &mut self.fx);
        let header = self.fx.broker.finish().0.split_off(0);
        assert_eq!(header, frame::PROTOCOL);
        self.broker(&start(version));
        self.broker(&tune(channels, 131_072, 60));
        assert_eq!(self.sent().len(), 3, "start-ok, tune-ok, open");
        self.broker(&open_ok());
    }

    pub(crate) fn input(&mut self, input: M::Input) {
        self.machine.input(input, self.now, &mut self.fx);
    }

    pub(crate) fn drain(&mut self) {
        self.machine.drain(self.now, &mut self.fx);
    }

    /// Time passes; each deadline on the way is met.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = Mono(self.now.mono.0 + millis * 1000);
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.write();
            self.now.mono = self.now.mono.max(at);
            self.machine.timeout(self.now, &mut self.fx);
            let next = self.machine.deadline();
            assert!(next != Some(at), "a deadline that stays is a busy loop");
        }
        self.now.mono = end;
    }

    fn write(&mut self) {
        if self.takes {
            self.taken.append(self.fx.broker.finish().0);
        }
    }

    /// What the socket took since the last call.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        self.write();
        std::mem::take(&mut self.taken)
    }

    /// The same, heartbeats left out.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let bytes = self.bytes();
        let mut rest = bytes.as_slice();
        let mut sent = Vec::new();
        while !rest.is_empty() {
            let Front::Whole(head, payload, whole) = frame::front(rest) else {
                panic!("a broken frame was sent: {rest:?}");
            };
            if head.kind != Kind::Heartbeat {
                sent.push(Sent {
                    kind: head.kind,
                    channel: head.channel.0,
                    payload: payload.to_vec(),
                });
            }
            rest = &rest[whole..];
        }
        sent
    }

    /// Which methods it sent since the last call, with their channels.
    pub(crate) fn methods(&mut self) -> Vec<(u16, MethodId)> {
        let sent = self.sent();
        sent.iter()
            .filter_map(|sent| Some((sent.channel, sent.method()?)))
            .collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.fx.events)
    }
}
