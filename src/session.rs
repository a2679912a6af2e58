//! A session: one client connection and its one broker connection, as a pure machine.
//!
//! ```text
//!            "AMQP 0-0-9-1"           open-ok                  close in either direction
//!   Greeting ─────────────▶ Watching ────────▶ Watching, open ───────────────────────▶ Raw
//!      │ any other header                           │ the client is gone, or the process ends
//!      ▼                                            ▼
//!     Raw                                        Leaving ── settled, or close-wait passed ──▶ Goodbye ──▶ (Parting) ──▶ Done
//! ```
//! Every frame passes as it is, except those few that take part in dead-lettering. The client leg is paused (`Hold`) where the order of
//! its commands behind a withheld reject matters; settling needs no read of either leg, which is what excludes deadlock.

mod behind;
mod changes;
mod channel;
mod declare;
mod ends;
mod frames;
mod intercept;
mod leaving;
mod observe;
mod outcomes;
mod peer;
mod probe;
mod refuse;
mod replies;
mod settle;
mod unacked;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::dead_letter::Rules;
use crate::machine::{
    Bound, Budget, Effects, Event, Flow, Input, Leg, LiveLimits, Machine, Mono, Now, Ticket,
};
use crate::registry::Registry;
use crate::registry::ended::Ended;
use crate::registry::intake_name::Names;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Mode;

use behind::Exchanges;
use channel::Channel;
use declare::Takeover;
use frames::Stream;
use leaving::Farewell;
use peer::Peer;
use verify::Verification;

/// What may wait for a client that does not read while one of its declares is probed (else both sides would wait for each other).
const PROBE_BACKLOG: usize = 1024 * 1024;

/// What a session is told of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `takeover` or `keep`, where no policy says otherwise.
    pub mode: Mode,
    /// Names of the proxy's objects at the broker.
    pub names: Names,
    /// The proxy's own policies, and what is known of the broker's.
    pub policies: LivePolicies,
    /// How dead letters look, by dialect of the broker.
    pub rules: Rules,
    /// Octets that all sessions together may retain.
    pub retained: Budget,
    /// Which queues have ended, as any session saw.
    pub ended: Ended,
    /// Those that may change meanwhile.
    pub limits: LiveLimits,
}

/// One client connection together with its one broker connection.
#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    phase: Phase,
    farewell: Farewell,
    /// Until when the connection must be open, while it is not.
    handshake_until: Option<Mono>,
    peer: Peer,
    client: Stream,
    broker: Stream,
    channels: BTreeMap<ChannelId, Channel>,
    registry: Registry,
    exchanges: Exchanges,
    tickets: BTreeMap<Ticket, (ChannelId, DeliveryTag)>,
    last_ticket: u64,
    /// Dead letters in flight; beyond, the client is not read.
    max_tickets: usize,
    /// Octets retained, also of withheld rejects.
    octets: usize,
    hold: Option<Hold>,
    /// While the client is not read, the broker hears of it from us.
    heartbeat_at: Option<Mono>,
    takeover: Option<Takeover>,
    verification: Option<Verification>,
    /// Frames of our own to the broker that wait for a frame boundary, and for the end of a content on their channel.
    waiting: Vec<(ChannelId, Vec<u8>)>,
    /// Channels whose acks are due.
    acks_due: BTreeSet<ChannelId>,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No protocol header yet.
    Greeting,
    /// AMQP 0-9-1: frames are looked at.
    Watching,
    /// Nothing is looked at any more.
    Raw,
    /// The client is gone; rejects are still withheld until then.
    Leaving(Mono),
    /// `connection.close` is sent in the client's stead; its answer is awaited until then.
    Goodbye(Mono),
    /// The client has said all: so does our stream to the broker end, and the broker's own end is awaited until then.
    HalfClosed(Mono),
    /// The broker leg is over; the client's answer to our `connection.close` is awaited until then.
    Parting(Mono),
    /// Over.
    Done,
}

/// Why the client is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Its next command must stay behind the withheld rejects of this channel (0: of all), until then.
    Withheld(ChannelId, Mono),
    /// Its next command depends on answers that are due on this channel; until then.
    Answers(ChannelId, Mono),
    /// As many dead letters are in flight as may be.
    Tickets,
    /// As many replies are due as may be.
    Replies,
    /// A declare is being probed, or a probe's channel is being closed.
    Probe,
}

/// What the code of a session works with during one call: the bytes that are being read, the time, the effects.
struct Turn<'a> {
    src: &'a [u8],
    now: Now,
    fx: &'a mut Effects,
    /// The client is told nothing any more.
    mute: bool,
}

// === impl Turn ===

impl Turn<'_> {
    fn pass(&mut self, from: Leg, range: Range<usize>) {
        if self.mute && from == Leg::Broker {
            return;
        }
        self.fx.wire(from.other()).pass(self.src, range);
    }

    /// Passes on what is built in the place of what came.
    fn replace(&mut self, from: Leg, build: impl FnOnce(&mut Vec<u8>)) {
        if self.mute && from == Leg::Broker {
            return;
        }
        build(self.build(from.other()));
    }

    fn build(&mut self, to: Leg) -> &mut Vec<u8> {
        self.fx.wire(to).build(self.src)
    }

    fn event(&mut self, event: Event) {
        self.fx.events.push(event);
    }
}

// === impl Session ===

impl Session {
    /// A session whose legs are both connected.
    pub fn new(settings: Arc<Settings>, now: Now) -> Session {
        let limits = settings.limits.now();
        Session {
            handshake_until: Some(now.mono.after(limits.handshake_timeout)),
            phase: Phase::Greeting,
            farewell: Farewell::None,
            peer: Peer::default(),
            client: Stream::default(),
            broker: Stream::default(),
            channels: BTreeMap::new(),
            registry: Registry::new(settings.ended.clone()),
            exchanges: Exchanges::default(),
            tickets: BTreeMap::new(),
            last_ticket: 0,
            max_tickets: limits.max_tickets,
            octets: 0,
            hold: None,
            heartbeat_at: None,
            takeover: None,
            verification: None,
            waiting: Vec::new(),
            acks_due: BTreeSet::new(),
            settings: settings.clone(),
        }
    }

    /// How many outcomes it may be owed.
    pub fn max_tickets(&self) -> usize {
        self.max_tickets
    }

    /// Dead letters in flight.
    pub fn withheld(&self) -> usize {
        self.tickets.len()
    }

    /// Octets retained.
    pub fn retained(&self) -> usize {
        self.octets
    }

    /// Open channels.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    fn stream(&mut self, leg: Leg) -> &mut Stream {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        }
    }

    /// Pauses the client leg; the frame at its front is looked at again afterwards.
    fn hold(&mut self, hold: Hold, turn: &Turn<'_>) -> usize {
        if self.hold.is_none() {
            self.heartbeat_at = self.peer.heartbeat().map(|half| turn.now.mono.after(half));
        }
        self.hold = Some(hold);
        0
    }

    /// Looks whether the reason for a pause has gone.
    fn release(&mut self) {
        let over = match self.hold {
            None => return,
            Some(Hold::Withheld(ChannelId(0), _)) => self.tickets.is_empty(),
            Some(Hold::Withheld(channel, _)) => self
                .channels
                .get(&channel)
                .is_none_or(|channel| !channel.unacked.any_withheld()),
            Some(Hold::Answers(channel, _)) => {
                let state = self.channels.get(&channel);
                state.is_none_or(|state| state.closing || state.due.is_empty())
            }
            Some(Hold::Tickets) => self.tickets.len() < self.max_tickets,
            Some(Hold::Replies) => self.replies_due() <= self.max_replies() / 2,
            Some(Hold::Probe) => !self.is_probing(),
        };
        if over {
            self.hold = None;
            self.heartbeat_at = None;
        }
    }

    fn give_back(&mut self, octets: usize) {
        self.octets -= octets.min(self.octets);
        self.settings.retained.give(octets);
    }
}

impl Machine for Session {
    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects) {}

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        let mut turn = Turn {
            src: bytes,
            now,
            fx,
            mute: self.is_mute(),
        };
        let mut at = 0;
        while at < bytes.len() && (from == Leg::Broker || self.hold.is_none()) {
            match self.step(from, at, &mut turn) {
                0 => break,
                len => at += len,
            }
        }
        if from == Leg::Broker {
            self.release();
            self.leave_when_settled(&mut turn);
        }
        at
    }

    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects) {
        let mut turn = Turn {
            src: &[],
            now,
            fx,
            mute: false,
        };
        match leg {
            Leg::Broker => self.let_go(now.mono),
            Leg::Client => self.leave(&mut turn),
        }
    }

    fn input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        let mut turn = Turn {
            src: &[],
            now,
            fx,
            mute: false,
        };
        match input {
            Input::Settled(outcomes) => self.settled(&outcomes, &mut turn),
            Input::Ensured(ensured) => self.ensured(&ensured, &mut turn),
            Input::Recalled(recalled) => self.recalled(&recalled, &mut turn),
            Input::Publish(..) | Input::Ensure(..) | Input::Changed(_) | Input::Surveyed(_) => {}
            Input::Drain => self.drain(&mut turn),
        }
        self.release();
        self.leave_when_settled(&mut turn);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        let mut turn = Turn {
            src: &[],
            now,
            fx,
            mute: false,
        };
        if let Some(at) = self.heartbeat_at.filter(|at| *at <= now.mono) {
            if self.may_inject(ChannelId(0)) {
                turn.build(Leg::Broker).extend_from_slice(&frame::HEARTBEAT);
            }
            self.heartbeat_at = self
                .peer
                .heartbeat()
                .map(|half| at.max(now.mono).after(half));
        }
        if let Some(Hold::Withheld(channel, until) | Hold::Answers(channel, until)) = self.hold
            && until <= now.mono
        {
            turn.event(Event::BoundMet(Bound::CloseWait));
            self.give_up(channel, &mut turn);
            self.flush_acks(&mut turn);
            if matches!(self.hold, Some(Hold::Answers(..))) {
                self.go_native(channel);
            }
            self.hold = None;
            self.heartbeat_at = None;
        }
        match self.phase {
            Phase::Leaving(until) if until <= now.mono => {
                turn.event(Event::BoundMet(Bound::CloseWait));
                self.give_up(ChannelId(0), &mut turn);
                self.say_goodbye(&mut turn);
            }
            Phase::Goodbye(until) | Phase::HalfClosed(until) if until <= now.mono => {
                self.let_go(now.mono);
            }
            Phase::Parting(until) if until <= now.mono => self.phase = Phase::Done,
            _ => {}
        }
        if self.handshake_until.is_some_and(|until| until <= now.mono) {
            turn.event(Event::BoundMet(Bound::HandshakeTimeout));
            self.phase = Phase::Done;
        }
        self.probe_timeout(&mut turn);
        self.verification_timeout(&mut turn);
        self.release();
        self.leave_when_settled(&mut turn);
    }

    fn deadline(&self) -> Option<Mono> {
        let hold = match self.hold {
            Some(Hold::Withheld(_, until) | Hold::Answers(_, until)) => Some(until),
            Some(Hold::Tickets | Hold::Replies | Hold::Probe) | None => None,
        };
        let leaving = match self.phase {
            Phase::Leaving(until)
            | Phase::Goodbye(until)
            | Phase::HalfClosed(until)
            | Phase::Parting(until) => Some(until),
            Phase::Greeting | Phase::Watching | Phase::Raw | Phase::Done => None,
        };
        let probe = self.takeover.as_ref().and_then(Takeover::until);
        let verification = self.verification.as_ref().and_then(Verification::until);
        [
            hold,
            leaving,
            probe,
            verification,
            self.heartbeat_at,
            self.handshake_until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        match leg {
            Leg::Client if self.is_answer_awaited() => match self.phase {
                Phase::Leaving(_) => backlog == 0,
                Phase::Goodbye(_) | Phase::Parting(_) => true,
                _ => false,
            },
            Leg::Client => {
                let heard = matches!(self.phase, Phase::Greeting | Phase::Watching | Phase::Raw);
                heard && self.hold.is_none() && backlog == 0
            }
            Leg::Broker => match self.phase {
                Phase::Leaving(_) | Phase::Goodbye(_) => true,
                Phase::Parting(_) | Phase::Done => false,
                _ if matches!(
                    self.hold,
                    Some(Hold::Probe | Hold::Replies | Hold::Answers(..))
                ) =>
                {
                    backlog < PROBE_BACKLOG
                }
                _ => backlog == 0,
            },
        }
    }

    fn flow(&self) -> Flow {
        match self.phase {
            Phase::Done => Flow::Finish,
            Phase::HalfClosed(_) => Flow::HalfClosed,
            Phase::Greeting
            | Phase::Watching
            | Phase::Raw
            | Phase::Leaving(_)
            | Phase::Goodbye(_)
            | Phase::Parting(_) => Flow::Open,
        }
    }
}

/// A session that ends, however, gives back what it retained.
impl Drop for Session {
    fn drop(&mut self) {
        self.settings.retained.give(self.octets);
    }
}
