//! A session: one client connection and its one broker connection, as a pure machine.
//!
//! Every frame passes as it is, except those few that take part in dead-lettering. The client leg is paused (`Hold`) where the order of
//! its commands behind a withheld reject matters; settling needs no read of either leg, which is what excludes deadlock.

mod again;
mod channel;
mod contents;
mod declares;
mod external;
mod frames;
mod from_broker;
mod from_client;
mod input;
mod instead;
mod leaving;
mod lifecycle;
mod line;
mod ordering;
mod outbox;
mod outcomes;
mod output;
mod pause;
mod peer;
mod redelivered;
mod refuse;
mod replies;
mod retries;
mod settle;
mod teardown;
mod timers;
mod tx;
mod unacked;
mod unpublished;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::dead_letter::RuleSettings;
use crate::machine::{Budget, Event, Flow, Leg, LiveLimits, Machine, Mono, Now, Ticket};
use crate::objects::Names;
use crate::registry::Registry;
use crate::registry::catalogue::Catalogue;
use crate::registry::channel_limits::ChannelLimits;
use crate::registry::live::LivePolicies;
use crate::registry::policy::{self, Mode};

pub use self::external::External;
pub use self::input::Input;
pub use self::output::{Effects, Output};

use again::Again;
use channel::Channel;
use declares::Declares;
use frames::{Consumed, Handled, Stream};
use lifecycle::{Lifecycle, Phase};
use ordering::Exchanges;
use outbox::Outbox;
use pause::{Hold, Pause};
use peer::Peer;
use replies::Tally;
use timers::Timer;

/// What may wait for a client that does not read while one of its declares is probed (else both sides would wait for each other).
const PROBE_BACKLOG: usize = 1024 * 1024;

/// What a session is told of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `full` or `rejects-only`, where no policy says otherwise.
    pub mode: Mode,
    /// What becomes of a declare that differs from its queue only in where dead letters go, where no policy says otherwise.
    pub declares: policy::Declares,
    /// Names of the proxy's objects at the broker.
    pub names: Names,
    /// The user of the proxy's own links: what that one published may say more than others' messages (`dead_letter::proof`).
    pub user: ShortStr,
    /// The proxy's own policies, and what is known of the broker's.
    pub policies: LivePolicies,
    /// How dead letters look, by dialect of the broker.
    pub rules: RuleSettings,
    /// Octets that all sessions together may retain.
    pub retained: Budget,
    /// What all sessions know of queues.
    pub catalogue: Catalogue,
    /// Users that are not probed, as any session saw.
    pub channel_limits: ChannelLimits,
    /// Those that may change meanwhile.
    pub limits: LiveLimits,
}

/// One client connection together with its one broker connection.
#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    /// What becomes of EXTERNAL in the handshake.
    external: External,
    life: Lifecycle,
    /// Until when the connection must be open, while it is not.
    handshake_until: Option<Mono>,
    /// The client has said how it logs in, and it may.
    mechanism_is_chosen: bool,
    peer: Peer,
    client: Stream,
    broker: Stream,
    /// Boxed, since a map makes room for eleven values at once, and most connections have one channel.
    channels: BTreeMap<ChannelId, Box<Channel>>,
    /// The replies that the broker still has to send, on all channels.
    replies: Tally,
    registry: Registry,
    exchanges: Exchanges,
    tickets: BTreeMap<Ticket, (ChannelId, DeliveryTag)>,
    last_ticket: u64,
    /// Dead letters in flight; beyond, the client is not read.
    max_tickets: usize,
    /// When rejects that are kept from the broker are published again.
    again: Again,
    /// When those of which there is no copy go back to their queues.
    back: Again,
    /// Octets retained, also of withheld rejects.
    octets: usize,
    pause: Pause,
    declares: Declares,
    /// For the broker, once it may go.
    outbox: Outbox,
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
            external: External::default(),
            handshake_until: Some(now.mono.after(limits.handshake_timeout)),
            mechanism_is_chosen: false,
            life: Lifecycle::new(),
            peer: Peer::default(),
            client: Stream::default(),
            broker: Stream::default(),
            channels: BTreeMap::new(),
            replies: Tally::default(),
            registry: Registry::new(settings.catalogue.clone()),
            exchanges: Exchanges::default(),
            tickets: BTreeMap::new(),
            last_ticket: 0,
            max_tickets: limits.max_tickets_per_connection,
            again: Again::default(),
            back: Again::default(),
            octets: 0,
            pause: Pause::default(),
            declares: Declares::default(),
            outbox: Outbox::default(),
            settings: settings.clone(),
        }
    }

    /// The same, of a client with this address: who rejected a message is told with it.
    pub fn of_client(
        settings: Arc<Settings>,
        host: ShortStr,
        external: External,
        now: Now,
    ) -> Session {
        let mut session = Session::new(settings, now);
        session.peer.comes_from(host);
        session.external = external;
        session
    }

    /// How many outcomes it may be owed.
    pub fn max_tickets(&self) -> usize {
        self.max_tickets
    }

    /// Dead letters whose outcome is due.
    pub fn in_flight(&self) -> usize {
        self.tickets.len()
    }

    /// Rejects that the broker has not seen.
    pub fn withheld(&self) -> usize {
        self.tickets.len() + self.kept_idle()
    }

    pub fn retained(&self) -> usize {
        self.octets
    }

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
    fn hold(&mut self, hold: Hold, turn: &Turn<'_>) -> Handled {
        let heartbeat = self.peer.heartbeat();
        self.pause.begin(hold, heartbeat, turn.now.mono);
        Handled::Wait
    }

    /// Looks whether the reason for a pause has gone.
    fn release(&mut self) {
        let over = match self.pause.hold() {
            None => return,
            Some(Hold::Withheld(on, _)) => !self.awaits(on),
            Some(Hold::Answers(channel, _)) => {
                let state = self.channels.get(&channel);
                state.is_none_or(|state| state.closing || state.due.is_empty())
            }
            Some(Hold::Commit(channel, _)) => {
                let state = self.channels.get(&channel);
                state.is_none_or(|state| state.closing)
            }
            Some(Hold::Tickets) => self.tickets.len() < self.max_tickets,
            Some(Hold::Replies) => self.replies.due() <= self.max_replies() / 2,
            Some(Hold::Probe) => !self.declares.is_on_its_way(),
        };
        if over {
            self.pause.end();
        }
    }

    fn give_back(&mut self, octets: usize) {
        self.octets -= octets.min(self.octets);
        self.settings.retained.give(octets);
    }
}

impl Machine for Session {
    type Input = Input;
    type Output = Output;

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects) {}

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        let mut turn = Turn {
            src: bytes,
            now,
            fx,
            mute: self.life.is_mute(),
        };
        let mut at = 0;
        while at < bytes.len() && (from == Leg::Broker || self.pause.hold().is_none()) {
            match self.step(from, at, &mut turn) {
                Consumed::Bytes(len) => at += len,
                Consumed::Wait => break,
            }
        }
        if from == Leg::Broker {
            self.flush_acks(&mut turn);
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
            Leg::Broker => self.life.broker_is_gone(now.mono),
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
        }
        self.release();
        self.leave_when_settled(&mut turn);
    }

    fn drain(&mut self, now: Now, fx: &mut Effects) {
        let mut turn = Turn {
            src: &[],
            now,
            fx,
            mute: false,
        };
        self.begin_drain(&mut turn);
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
        self.forget_kept_unless_watching();
        for timer in Timer::ALL {
            if let Some(at) = self.due_at(timer).filter(|at| *at <= now.mono) {
                self.fire(timer, at, &mut turn);
            }
        }
        self.release();
        self.leave_when_settled(&mut turn);
    }

    fn deadline(&self) -> Option<Mono> {
        Timer::ALL
            .into_iter()
            .filter_map(|timer| self.due_at(timer))
            .min()
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        match leg {
            Leg::Client if self.life.is_answer_awaited() => match self.life.phase() {
                Phase::Leaving(_) => backlog == 0,
                Phase::Goodbye(_) | Phase::Parting(_) => true,
                _ => false,
            },
            Leg::Client => self.life.hears_client() && self.pause.hold().is_none() && backlog == 0,
            Leg::Broker => match self.life.phase() {
                Phase::Leaving(_) | Phase::Goodbye(_) => true,
                Phase::Parting(_) | Phase::Done => false,
                _ if self.pause.needs_the_broker() => backlog < PROBE_BACKLOG,
                _ => backlog == 0,
            },
        }
    }

    fn flow(&self) -> Flow {
        self.life.flow()
    }
}

/// A session that ends, however, gives back what it retained.
impl Drop for Session {
    fn drop(&mut self) {
        self.settings.retained.give(self.octets);
    }
}
