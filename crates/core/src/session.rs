//! A session: one client connection and its one broker connection, as a pure machine.
//!
//! Every frame passes as it is, except those few that take part in dead-lettering. The client leg is paused (`Hold`) where the order of
//! its commands behind a withheld reject matters; settling needs no read of either leg, which is what excludes deadlock.

mod ack_timeout;
mod again;
mod channel;
mod confirms;
mod contents;
mod decide;
mod declares;
mod delayed_exchange;
mod delays;
mod external;
mod facts;
mod frames;
mod from_broker;
mod from_client;
mod input;
mod instead;
mod leaving;
mod ledger;
mod lifecycle;
mod line;
mod ordering;
mod outbox;
mod output;
mod pause;
mod peer;
mod presence;
mod redelivered;
mod refuse;
mod replies;
mod retries;
mod settle;
mod swap;
mod timers;
mod transit;
mod tx;
mod unacked;
mod unpublished;
mod verdicts;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::dead_letter::RuleSettings;
use crate::machine::{Budget, Event, Flow, Leg, LiveLimits, Machine, Mono, Now};
use crate::objects::Names;
use crate::registry::Registry;
use crate::registry::catalogue::Catalogue;
use crate::registry::channel_limits::ChannelLimits;
use crate::registry::delayed_exchanges::DelayedPublish;
use crate::registry::lenient::Lenient;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Mode;

pub use self::external::External;
pub use self::input::Input;
pub use self::output::{Effects, Output};
pub use self::swap::{Ready, Swap};

use channel::{Channels, await_rejects};
use declares::Declares;
use facts::Facts;
use frames::{Consumed, Handled};
use ledger::{Books, Ledger};
use lifecycle::Phase;
use line::Line;
use ordering::Exchanges;
use pause::Hold;
use peer::Peer;
use swap::Swapping;
use timers::TIMERS;
use transit::Transit;

/// Bytes that may wait for a client that does not read while its declare is probed: otherwise both
/// sides would wait for each other.
const PROBE_BACKLOG: usize = 1024 * 1024;

#[derive(Clone, Debug)]
pub struct Settings {
    pub mode: Mode,
    pub lenient: Lenient,
    pub names: Names,
    /// The user of the proxy's own links: its messages may carry private headers
    /// (`dead_letter::proof`).
    pub user: ShortStr,
    pub policies: LivePolicies,
    pub delays: DelayedPublish,
    pub rules: RuleSettings,
    pub retained: Budget,
    pub catalogue: Catalogue,
    /// Users that are not probed, shared by all sessions.
    pub channel_limits: ChannelLimits,
    pub limits: LiveLimits,
}

#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    peer: Peer,
    transit: Transit,
    channels: Channels,
    ledger: Ledger,
    registry: Registry,
    exchanges: Exchanges,
    /// Publishes that may be delayed, whose contents are not complete.
    open_publishes: BTreeMap<ChannelId, delays::Open>,
    declares: Declares,
    /// A queue is being made anew.
    swap: Option<Box<Swapping>>,
}

/// The context of one call: the bytes being read, the time, the effects.
struct Turn<'a> {
    src: &'a [u8],
    now: Now,
    fx: &'a mut Effects,
    /// Nothing more is sent to the client.
    mute: bool,
}

// === impl Turn ===

impl<'a> Turn<'a> {
    fn pass(&mut self, from: Leg, range: Range<usize>) {
        if self.mute && from == Leg::Broker {
            return;
        }
        self.fx.wire(from.other()).pass(self.src, range);
    }

    /// Sends what `build` writes instead of the received frame.
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
    fn turn<'a>(&self, src: &'a [u8], now: Now, fx: &'a mut Effects) -> Turn<'a> {
        Turn {
            src,
            now,
            fx,
            mute: self.transit.life.is_mute(),
        }
    }

    pub fn new(settings: Arc<Settings>, now: Now) -> Session {
        let limits = settings.limits.now();
        Session {
            peer: Peer::default(),
            transit: Transit {
                handshake_until: Some(now.mono.after(limits.handshake_timeout)),
                ..Transit::default()
            },
            channels: Channels::default(),
            ledger: Ledger::new(&settings),
            registry: Registry::new(settings.catalogue.clone(), limits.max_queues_per_connection),
            exchanges: Exchanges::default(),
            open_publishes: BTreeMap::new(),
            declares: Declares::default(),
            swap: None,
            settings: settings.clone(),
        }
    }

    pub fn of_client(
        settings: Arc<Settings>,
        host: ShortStr,
        external: External,
        now: Now,
    ) -> Session {
        let mut session = Session::new(settings, now);
        session.peer.comes_from(host);
        session.transit.external = external;
        session
    }

    pub fn max_tickets(&self) -> usize {
        self.ledger.max_tickets
    }

    pub fn in_flight(&self) -> usize {
        self.ledger.in_flight()
    }

    pub fn withheld(&self) -> usize {
        self.ledger.in_flight() + self.ledger.kept_idle(&self.channels)
    }

    pub fn retained(&self) -> usize {
        self.ledger.bytes
    }

    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            settings: &self.settings,
            peer: &self.peer,
            registry: &self.registry,
        }
    }

    fn line<'s, 't>(&'s mut self, turn: &'s mut Turn<'t>) -> (&'s mut Declares, Line<'s, 't>) {
        let line = Line {
            settings: &self.settings,
            peer: &self.peer,
            registry: &mut self.registry,
            channels: &mut self.channels,
            turn,
            transit: &mut self.transit,
        };
        (&mut self.declares, line)
    }

    fn books<'a, 't>(&'a mut self, turn: &'a mut Turn<'t>) -> Books<'a, 't> {
        Books {
            channels: &mut self.channels,
            ledger: &mut self.ledger,
            facts: Facts::of(&self.settings, &self.peer, &self.registry),
            transit: &mut self.transit,
            turn,
        }
    }

    /// Pauses the client leg; its front frame is processed again afterwards.
    fn hold(&mut self, hold: Hold, turn: &Turn<'_>) -> Handled {
        let (settings, peer) = (&self.settings, &self.peer);
        self.transit.hold(hold, settings, peer, turn.now.mono)
    }

    /// Ends a pause whose reason is gone, and the session once everything is settled.
    fn after(&mut self, turn: &mut Turn<'_>) {
        let open = |channel| self.channels.get(&channel).filter(|state| !state.closing);
        let over = match self.transit.pause.hold() {
            None => false,
            Some(Hold::Withheld(on)) => {
                !await_rejects(&self.channels, on)
                    && (on.is_some() || self.ledger.publishes.is_empty())
            }
            Some(Hold::Confirms(channel)) => {
                let confirms = open(channel).and_then(|state| state.confirms.as_ref());
                confirms.is_none_or(|confirms| !confirms.is_full())
            }
            Some(Hold::Answers(channel)) => open(channel).is_none_or(|state| state.due.is_empty()),
            Some(Hold::Exchange(channel)) => {
                open(channel).is_none_or(|state| !state.declares_delayed(None))
            }
            Some(Hold::Commit(channel)) => open(channel).is_none(),
            Some(Hold::Tickets) => !self.ledger.is_full(),
            Some(Hold::Replies) => {
                self.transit.replies.due()
                    <= self.settings.limits.now().max_replies_per_connection / 2
            }
            Some(Hold::Probe) => !self.declares.is_on_its_way(),
            Some(Hold::Swap) => self.swap.is_none(),
        };
        if over {
            self.transit.pause.end();
        }
        self.ledger
            .publishes
            .confirm(&mut self.channels, &self.transit, turn);
        self.leave_when_settled(turn);
        if self.swap.is_some() {
            self.tell_of_swap(turn);
        }
    }
}

impl Machine for Session {
    /// Boxed: an inbox allocates room for 32 at once, and most sessions are never told anything.
    type Input = Box<Input>;
    type Output = Output;

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects) {}

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        let mut turn = self.turn(bytes, now, fx);
        let mut at = 0;
        while at < bytes.len() && (from == Leg::Broker || self.transit.reads_client()) {
            match self.step(from, at, &mut turn) {
                Consumed::Bytes(len) => at += len,
                Consumed::Wait => break,
            }
        }
        if from == Leg::Broker {
            self.transit.flush_acks(&mut self.channels, &mut turn);
            self.after(&mut turn);
        } else if self.swap.is_some() {
            self.tell_of_swap(&mut turn);
        }
        at
    }

    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects) {
        let mut turn = self.turn(&[], now, fx);
        match leg {
            Leg::Broker => self.transit.life.broker_is_gone(now.mono),
            Leg::Client => self.leave(&mut turn),
        }
    }

    fn input(&mut self, input: Box<Input>, now: Now, fx: &mut Effects) {
        let mut turn = self.turn(&[], now, fx);
        match *input {
            Input::Settled(outcomes) => {
                self.books(&mut turn).settled(&outcomes);
                self.transit.flush_acks(&mut self.channels, &mut turn);
            }
            Input::Ensured(ensured) => {
                let (declares, mut line) = self.line(&mut turn);
                declares.ensured(&ensured, &mut line);
            }
            Input::Recorded(queue, is_recorded) => {
                let (declares, mut line) = self.line(&mut turn);
                declares.recorded(&queue, is_recorded, &mut line);
            }
            Input::LookedUp(queue) => {
                let (declares, mut line) = self.line(&mut turn);
                declares.looked_up(&queue, &mut line);
            }
            Input::Swap(swap) => self.swap(swap, &mut turn),
        }
        self.after(&mut turn);
    }

    fn drain(&mut self, now: Now, fx: &mut Effects) {
        let mut turn = self.turn(&[], now, fx);
        self.begin_drain(&mut turn);
        self.after(&mut turn);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        let mut turn = self.turn(&[], now, fx);
        if !self.transit.life.is_watching() {
            self.ledger.forget_kept();
        }
        for (at, fire) in TIMERS {
            if at(self).is_some_and(|at| at <= now.mono) {
                fire(self, &mut turn);
            }
        }
        self.after(&mut turn);
    }

    fn deadline(&self) -> Option<Mono> {
        TIMERS.into_iter().filter_map(|(at, _)| at(self)).min()
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        match leg {
            Leg::Client if self.transit.life.is_answer_awaited() => match self.transit.life.phase()
            {
                Phase::Leaving(_) => backlog == 0,
                Phase::Goodbye(_) | Phase::Parting(_) => true,
                _ => false,
            },
            Leg::Client => {
                self.transit.life.hears_client() && self.transit.reads_client() && backlog == 0
            }
            Leg::Broker => match self.transit.life.phase() {
                Phase::Leaving(_) | Phase::Goodbye(_) => true,
                Phase::Parting(_) | Phase::Done => false,
                _ if self.transit.pause.needs_the_broker() => backlog < PROBE_BACKLOG,
                _ => backlog == 0,
            },
        }
    }

    fn flow(&self) -> Flow {
        self.transit.life.flow()
    }
}
