//! Pumps one machine as `net/drive.rs` does, but in single moves of which a world picks the next: so every order that tasks and sockets
//! could bring about can come, and some more.

use std::collections::VecDeque;

use dlx_proxy::machine::{Effects, Flow, Input, Leg, Machine, Mono, Now};

use super::net::{End, Found, Micros, Net, TcpId};

/// A machine with its connections.
pub(crate) struct Pump<M> {
    pub machine: M,
    pub fx: Effects,
    pub inbox: VecDeque<Input>,
    client: Option<Pipe>,
    broker: Option<Pipe>,
    /// Not all that there was for the legs could be written.
    backlog: bool,
    last_words: Option<Mono>,
    pub done: bool,
}

/// One end of a connection, and what was read from it but not consumed.
struct Pipe {
    tcp: TcpId,
    end: End,
    rest: Vec<u8>,
    starved: bool,
    fin_read: bool,
    fin_sent: bool,
}

/// Something that a pump could do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Inbox,
    Read(Leg),
    Write,
    Timeout,
    HalfClose,
    Finish,
}

/// As long as the driver gives a machine that has ended.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) fn now(micros: Micros) -> Now {
    Now {
        mono: Mono(micros),
        wall: 1_700_000_000 + micros / 1_000_000,
    }
}

// === impl Pump ===

impl<M: Machine> Pump<M> {
    pub(crate) fn session(machine: M, client: TcpId, broker: TcpId) -> Pump<M> {
        Pump {
            client: Some(Pipe::new(client, End::Acceptor)),
            broker: Some(Pipe::new(broker, End::Dialer)),
            ..Pump::link(machine)
        }
    }

    pub(crate) fn link(machine: M) -> Pump<M> {
        Pump {
            machine,
            fx: Effects::default(),
            inbox: VecDeque::new(),
            client: None,
            broker: None,
            backlog: false,
            last_words: None,
            done: false,
        }
    }

    pub(crate) fn tcp(&self, leg: Leg) -> Option<TcpId> {
        self.pipe(leg).map(|pipe| pipe.tcp)
    }

    /// A link that wants a connection now.
    pub(crate) fn wants_connection(&self, at: Micros) -> bool {
        !self.done && matches!(self.machine.flow(), Flow::Reconnect(when) if when.0 <= at)
    }

    /// The connection that a link wanted; `None`: it could not be had.
    pub(crate) fn connected(&mut self, tcp: Option<TcpId>, at: Micros, net: &mut Net) {
        self.drop_leg(Leg::Broker, net);
        self.fx.broker = Default::default();
        match tcp {
            Some(tcp) => {
                self.broker = Some(Pipe::new(tcp, End::Dialer));
                self.machine.connected(Leg::Broker, now(at), &mut self.fx);
            }
            None => self.machine.closed(Leg::Broker, now(at), &mut self.fx),
        }
        self.write(&[], at, net);
    }

    /// All that could be done now.
    pub(crate) fn moves(&self, at: Micros, net: &Net, out: &mut Vec<Move>) {
        if self.done {
            return;
        }
        let can_write = |leg: Leg, buffered: usize| {
            let free = |pipe: &Pipe| net.writable(pipe.tcp, pipe.end);
            buffered > 0 && self.pipe(leg).is_none_or(free)
        };
        let can_write = can_write(Leg::Client, self.fx.client.buffered())
            || can_write(Leg::Broker, self.fx.broker.buffered());
        if self.machine.flow() == Flow::Finish {
            if can_write || self.last_words.is_none_or(|until| until.0 <= at) {
                out.push(Move::Finish);
            }
            return;
        }
        if !self.inbox.is_empty() && self.machine.accepts() {
            out.push(Move::Inbox);
        }
        for leg in [Leg::Broker, Leg::Client] {
            let Some(pipe) = self.pipe(leg).filter(|pipe| !pipe.fin_read) else {
                continue;
            };
            let held_back = !pipe.rest.is_empty() && !pipe.starved;
            if self.wants_read(leg) && (held_back || net.readable(pipe.tcp, pipe.end, at)) {
                out.push(Move::Read(leg));
            }
        }
        if can_write {
            out.push(Move::Write);
        }
        if self.machine.deadline().is_some_and(|due| due.0 <= at) {
            out.push(Move::Timeout);
        }
        if self.machine.flow() == Flow::HalfClosed
            && self.fx.broker.is_empty()
            && self.broker.as_ref().is_some_and(|pipe| !pipe.fin_sent)
        {
            out.push(Move::HalfClose);
        }
    }

    /// When it wants to be called without anything else happening.
    pub(crate) fn due(&self) -> Option<Micros> {
        let reconnect = match self.machine.flow() {
            Flow::Reconnect(at) => Some(at),
            _ => self.last_words,
        };
        let due = [self.machine.deadline(), reconnect];
        due.into_iter()
            .flatten()
            .map(|mono| mono.0)
            .min()
            .filter(|_| !self.done)
    }

    /// Does it; `most`: octets that one read may bring.
    pub(crate) fn do_move(&mut self, what: Move, most: usize, at: Micros, net: &mut Net) {
        match what {
            Move::Inbox => {
                if let Some(input) = self.inbox.pop_front() {
                    self.machine.input(input, now(at), &mut self.fx);
                    self.write(&[], at, net);
                }
            }
            Move::Read(leg) => self.read(leg, most, at, net),
            Move::Write => self.write(&[], at, net),
            Move::Timeout => {
                self.machine.timeout(now(at), &mut self.fx);
                self.write(&[], at, net);
            }
            Move::HalfClose => {
                if let Some(pipe) = &mut self.broker {
                    pipe.fin_sent = true;
                    net.finish(pipe.tcp, pipe.end);
                }
            }
            Move::Finish => self.finish(at, net),
        }
        if matches!(self.machine.flow(), Flow::Reconnect(_)) {
            self.drop_leg(Leg::Broker, net);
        }
    }

    fn read(&mut self, leg: Leg, most: usize, at: Micros, net: &mut Net) {
        let Some(pipe) = self.pipe_mut(leg) else {
            return;
        };
        let mut bytes = std::mem::take(&mut pipe.rest);
        if bytes.is_empty() || pipe.starved {
            match net.read(pipe.tcp, pipe.end, most, at) {
                Found::Nothing => {
                    pipe.rest = bytes;
                    return;
                }
                Found::Bytes(more) => bytes.extend(more),
                Found::Fin if leg == Leg::Client => {
                    pipe.rest = bytes;
                    pipe.fin_read = true;
                    self.machine.closed(leg, now(at), &mut self.fx);
                    return self.write(&[], at, net);
                }
                Found::Fin | Found::Reset => return self.leg_closed(leg, at, net),
            }
        }
        let consumed = self.machine.read(leg, &bytes, now(at), &mut self.fx);
        assert!(consumed <= bytes.len(), "it consumed more than there was");
        self.write(&bytes, at, net);
        bytes.drain(..consumed);
        let wants_read = self.wants_read(leg);
        if let Some(pipe) = self.pipe_mut(leg) {
            pipe.starved = wants_read && !bytes.is_empty();
            pipe.rest = bytes;
        }
    }

    /// Whether the machine wants this leg to be read; as in the driver, by what waits for the other one.
    fn wants_read(&self, leg: Leg) -> bool {
        let wire = match (leg, &self.client) {
            (Leg::Broker, Some(_)) => &self.fx.client,
            (Leg::Broker | Leg::Client, _) => &self.fx.broker,
        };
        self.machine.wants_read(leg, wire.buffered())
    }

    fn write(&mut self, src: &[u8], at: Micros, net: &mut Net) {
        for leg in [Leg::Broker, Leg::Client] {
            let pipe = match leg {
                Leg::Client => &self.client,
                Leg::Broker => &self.broker,
            };
            let (out, run) = self.fx.wire(leg).finish();
            out.extend_from_slice(src.get(run).unwrap_or_default());
            let Some(pipe) = pipe else {
                out.clear();
                continue;
            };
            match net.write(pipe.tcp, pipe.end, out) {
                Some(written) => drop(out.drain(..written)),
                None => self.leg_closed(leg, at, net),
            }
        }
        let left = self.buffered();
        if std::mem::replace(&mut self.backlog, left > 0) && left == 0 {
            self.machine.drained(now(at), &mut self.fx);
            if self.buffered() > 0 || !self.fx.broker.is_empty() {
                self.write(&[], at, net);
            }
        }
    }

    pub(crate) fn buffered(&self) -> usize {
        self.fx.client.buffered() + self.fx.broker.buffered()
    }

    fn leg_closed(&mut self, leg: Leg, at: Micros, net: &mut Net) {
        if self.drop_leg(leg, net) {
            self.machine.closed(leg, now(at), &mut self.fx);
            self.write(&[], at, net);
        }
    }

    fn drop_leg(&mut self, leg: Leg, net: &mut Net) -> bool {
        let gone = match leg {
            Leg::Client => self.client.take(),
            Leg::Broker => self.broker.take(),
        };
        if let Some(pipe) = &gone {
            net.close(pipe.tcp, pipe.end);
        }
        gone.is_some()
    }

    fn finish(&mut self, at: Micros, net: &mut Net) {
        self.write(&[], at, net);
        let until = *self
            .last_words
            .get_or_insert_with(|| Mono(at).after(LAST_WORDS));
        if self.buffered() == 0 || until.0 <= at {
            self.kill(net);
        }
    }

    /// Its process or task has ended: its sockets are closed.
    pub(crate) fn kill(&mut self, net: &mut Net) {
        for leg in [Leg::Broker, Leg::Client] {
            self.drop_leg(leg, net);
        }
        self.done = true;
    }

    fn pipe(&self, leg: Leg) -> Option<&Pipe> {
        match leg {
            Leg::Client => self.client.as_ref(),
            Leg::Broker => self.broker.as_ref(),
        }
    }

    fn pipe_mut(&mut self, leg: Leg) -> Option<&mut Pipe> {
        match leg {
            Leg::Client => self.client.as_mut(),
            Leg::Broker => self.broker.as_mut(),
        }
    }
}

// === impl Pipe ===

impl Pipe {
    fn new(tcp: TcpId, end: End) -> Pipe {
        Pipe {
            tcp,
            end,
            rest: Vec::new(),
            starved: false,
            fin_read: false,
            fin_sent: false,
        }
    }
}
