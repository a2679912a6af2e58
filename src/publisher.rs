//! Puts dead letters out, on a link of its own: every publish mandatory and confirmed, every outcome told to the owner of its ticket.
//!
//! ```text
//!              ┌────────────── again ──────────────┐
//!              ▼                                   │
//! Publish ─▶ Waiting ─▶ Flying ─ nack, timeout ─▶ Resting        a link that is lost: Flying ─▶ Waiting, in front
//!              ▲           │
//!              │           ├─ confirmed ───────────────────▶ Confirmed | Parked
//!              │           └─ returned, 404, 403, given up ▶ Dropped, or:
//!              └── once more, at the parking exchange ◀──────┘              and if that fails too: Refused
//! ```
//! What an internal exchange refuses is published again over a bridge to it (`bridges`).
//! Here is what the shell and the broker may do to it; `send` has the way out, `receive` what comes back,
//! `outcomes` the table of outcomes.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::dead_letter::Bridges;
use crate::link::{Link, Login, Step};
use crate::machine::{
    Bound, Cause, Effects, Event, Flow, Input, Leg, LiveLimits, Machine, Mono, Now, Outcome, Owner,
    Publication, Role, Ticket,
};

use self::bridges::Known;
use self::clock::{Clock, Uptime};
use self::item::{Item, Items, Key, Stage};
use self::lanes::Lanes;
use self::window::Window;

mod bridges;
mod clock;
mod item;
mod lane;
mod lanes;
mod outcomes;
mod overtaken;
mod parked;
mod receive;
mod returns;
mod send;
mod silence;
#[cfg(test)]
mod tests;
mod window;

pub use window::Load;

/// Blocked for longer than this: what is new is refused at once, so that its owner can do without us. Without a link for longer than this: what
/// is new is refused when it has waited for as long. Not before: a client that is back sooner than the link comes from a broker that has just
/// started, and what such a broker hands on by itself can be lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often `confirm-timeout` is looked after.
const TICK: Duration = Duration::from_millis(250);
/// Publications held at most; beyond it the inbox is not read.
const MOST_HELD: usize = 65_536;

/// What to do with a dead letter that nothing routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnroutable {
    /// Put it into the parking queue.
    Park,
    /// Drop it, as RabbitMQ does; never those of `at-least-once` queues.
    Drop,
}

/// The settings of a publisher.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Vhost and user.
    pub login: Login,
    /// The parking exchange.
    pub parking: ShortStr,
    /// Names of the bridges to internal exchanges.
    pub bridges: Bridges,
    /// `on-unroutable`.
    pub on_unroutable: OnUnroutable,
    /// `confirm-timeout`, `nack-retries`, `retry-for` and `publisher-bytes`.
    pub limits: LiveLimits,
    /// The owner whose dead letters must not all wait for one target: the intake.
    pub intake: Option<Owner>,
    /// How many signals that owner can hold, as many octets of them as `intake-bytes` says.
    pub prefetch: usize,
}

/// The publisher of one vhost.
#[derive(Debug)]
pub struct Publisher {
    settings: Settings,
    link: Link,
    items: Items,
    lanes: Lanes,
    internal: Known,
    window: Window,
    /// Who rests, and until when.
    resting: BTreeSet<(Mono, Key)>,
    /// Items in place `Waiting`.
    waiting: usize,
    /// Items in place `Flying`, and their octets.
    flying: usize,
    flying_bytes: usize,
    clock: Clock,
    tick: Option<Mono>,
    /// Since when it cannot publish.
    away: Option<Mono>,
    /// It is away for too long: what is new gets no more than its own patience, or none.
    refusing: bool,
    /// What came since then, and when: never sent.
    patient: VecDeque<(Mono, Key)>,
    draining: bool,
    /// Something unnamed closed the connection: only suspects fly, one at a time, until they are through.
    careful: bool,
    /// When the last publish left, and when the newest one that has an answer did.
    sent: Uptime,
    answered: Uptime,
    /// Was parked to see whether anything is answered.
    probe: Option<Key>,
    /// A confirm came since the link is up.
    proven: bool,
    /// How many links in a row were lost with something in flight and nothing confirmed.
    barren: u32,
    /// As many channels as the broker is known to allow our user.
    channels: usize,
    /// A foreign user-id was refused since the link is up.
    foreign_refused: bool,
}

/// Whether its user-id is another's than `user`: hardly any message has the property, and none is parsed without its flag.
pub(crate) fn is_foreign(publication: &Publication, user: &ShortStr) -> bool {
    let properties = &publication.content.properties;
    let flagged = |flags: &u8| flags & 1 << Property::UserId as u8 != 0;
    properties.get(1).is_some_and(flagged)
        && Properties::parse(properties)
            .ok()
            .and_then(|properties| properties.get(Property::UserId))
            .is_some_and(|name| name != user.as_bytes())
}

// === impl Publisher ===

impl Publisher {
    /// A publisher that wants its link at once.
    pub fn new(settings: Settings, now: Now) -> Publisher {
        Publisher {
            link: Link::new(Role::Publisher, settings.login.clone()),
            window: Window::new(settings.intake, settings.prefetch, settings.limits.clone()),
            internal: Known::new(settings.bridges.clone()),
            settings,
            items: Items::default(),
            lanes: Lanes::new(),
            resting: BTreeSet::new(),
            waiting: 0,
            flying: 0,
            flying_bytes: 0,
            clock: Clock::default(),
            tick: None,
            away: Some(now.mono),
            refusing: false,
            patient: VecDeque::new(),
            draining: false,
            careful: false,
            sent: Uptime::default(),
            answered: Uptime::default(),
            probe: None,
            proven: false,
            barren: 0,
            channels: usize::MAX,
            foreign_refused: false,
        }
    }

    /// Publications without an outcome.
    pub fn held(&self) -> usize {
        self.items.len()
    }

    /// Nothing new is accepted.
    fn is_shut(&self) -> bool {
        let hopeless = self.link.is_blocked() || self.link.is_refused();
        self.draining || self.refusing && hopeless
    }

    /// One dead letter from an owner.
    fn accept(
        &mut self,
        owner: Owner,
        ticket: Ticket,
        publication: Publication,
        now: Now,
        fx: &mut Effects,
    ) {
        let away = self.is_shut();
        let foreign = is_foreign(&publication, self.link.user());
        let mut item = Item::new(owner, ticket, publication);
        item.foreign = foreign;
        let busy = self.window.is_busy(&item);
        if let Some(bridge) = self.internal.bridge(&item.publication.exchange) {
            item.bridge = bridge.clone();
            item.stage = Stage::Bridge;
        }
        let key = self.items.insert(item);
        if away {
            self.finish(key, Outcome::Refused(Cause::PublisherAway), fx);
        } else if foreign && self.foreign_refused {
            self.finish(key, Outcome::Refused(Cause::UserId), fx);
        } else if busy {
            self.park(key, Cause::TargetBusy);
        } else {
            if self.refusing {
                self.patient.push_back((now.mono, key));
            }
            self.enqueue(key);
        }
    }

    /// Refuses what has waited long enough for a link.
    fn lose_patience(&mut self, now: Now, fx: &mut Effects) {
        while let Some(&(since, key)) = self.patient.front()
            && since.after(PATIENCE) <= now.mono
        {
            self.patient.pop_front();
            self.finish(key, Outcome::Refused(Cause::PublisherAway), fx);
        }
    }

    /// The broker reads what we publish, as far as it is known.
    fn is_reachable(&self) -> bool {
        self.link.is_up() && !self.link.is_blocked()
    }

    /// The link is up, down, blocked or unblocked, or was silent.
    fn reachable(&mut self, now: Now) {
        let reachable = self.is_reachable();
        self.clock.run(reachable, now.mono);
        if reachable {
            self.away = None;
            self.refusing = false;
            self.patient.clear();
        } else {
            self.away.get_or_insert(now.mono);
        }
    }

    fn up(&mut self, now: Now) {
        self.proven = false;
        self.foreign_refused = false;
        let channels = usize::from(self.link.channel_max());
        self.lanes.limit(channels.min(self.channels));
        self.reachable(now);
    }

    fn is_full(&self) -> bool {
        let most = self.settings.limits.now().publisher_bytes;
        self.items.len() >= MOST_HELD || self.items.bytes() >= most
    }

    /// What every call ends with.
    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.pump(now, fx);
        // A vhost that does not let us in will not do so soon: the broker shall deal with all that is here.
        let shut_out = self.link.is_refused();
        self.refusing |= shut_out;
        if self.refusing && (shut_out || self.draining) {
            for key in self.items.keys() {
                self.finish(key, Outcome::Refused(Cause::PublisherAway), fx);
            }
        }
        if self.draining && self.items.len() == 0 {
            self.link.goodbye(now, fx);
        }
    }
}

impl Machine for Publisher {
    fn connected(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.connected(now, fx);
    }

    fn read(&mut self, _: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        self.link.heard(now);
        if !self.clock.runs() {
            self.reachable(now);
        }
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..) {
            let loss = match self.link.step(rest, now, fx) {
                Step::More => break,
                Step::Took(n) => {
                    taken += n;
                    continue;
                }
                Step::Up(n) => {
                    taken += n;
                    self.up(now);
                    continue;
                }
                Step::Blocked(n) => {
                    taken += n;
                    self.reachable(now);
                    continue;
                }
                Step::Frame(n, frame) => {
                    taken += n;
                    match self.frame(frame, now, fx) {
                        Ok(()) => continue,
                        Err(what) => self.link.fault(what, now, fx),
                    }
                }
                Step::Down(loss) => loss,
            };
            self.lost(loss, now, fx);
            taken = bytes.len();
        }
        self.after(now, fx);
        taken
    }

    fn closed(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        let loss = self.link.closed(now, fx);
        self.lost(loss, now, fx);
        self.after(now, fx);
    }

    fn input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Publish(owner, batch) => {
                for (ticket, publication) in batch {
                    if publication.history_cut {
                        fx.events.push(Event::BoundMet(Bound::History));
                    }
                    self.accept(owner, ticket, publication, now, fx);
                }
                if self.is_full() && !self.draining {
                    fx.events.push(Event::BoundMet(Bound::PublisherBytes));
                }
            }
            Input::Drain => self.draining = true,
            Input::Settled(_)
            | Input::Ensured(_)
            | Input::Recalled(_)
            | Input::Ensure(..)
            | Input::Changed(_)
            | Input::Surveyed(_) => {}
        }
        self.after(now, fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        if let Some(loss) = self.link.timeout(now, fx) {
            self.lost(loss, now, fx);
        }
        if self
            .away
            .is_some_and(|since| since.after(PATIENCE) <= now.mono)
        {
            self.refusing = true;
        }
        self.lose_patience(now, fx);
        while let Some(&(until, key)) = self.resting.first()
            && until <= now.mono
        {
            self.resting.pop_first();
            self.rested(key);
        }
        if self.tick.is_some_and(|tick| tick <= now.mono) {
            if self.is_heard(now, fx) {
                self.overtaken(now, fx);
                self.overdue(now, fx);
            }
            self.tick = (self.flying > 0).then(|| now.mono.after(TICK));
        }
        self.after(now, fx);
    }

    fn deadline(&self) -> Option<Mono> {
        let patience = self.away.filter(|_| !self.refusing);
        let deadlines = [
            self.link.deadline(),
            self.tick,
            self.resting.first().map(|(until, _)| *until),
            patience.map(|since| since.after(PATIENCE)),
            self.patient.front().map(|(since, _)| since.after(PATIENCE)),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn wants_read(&self, _: Leg, _: usize) -> bool {
        true
    }

    fn drained(&mut self, now: Now, fx: &mut Effects) {
        self.after(now, fx);
    }

    fn accepts(&self) -> bool {
        self.is_shut() || !self.is_full()
    }

    fn flow(&self) -> Flow {
        self.link.flow()
    }
}
