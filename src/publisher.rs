//! Puts dead letters out, on a link of its own: every publish mandatory and confirmed, every outcome told to the owner of its ticket.
//!
//! ```text
//!              ┌────────────── again ──────────────┐
//!              ▼                                   │
//! Publish ─▶ Waiting ─▶ InFlight ─ nack, timeout ─▶ BackingOff        a link that is lost: InFlight ─▶ Waiting, in front
//!              ▲           │
//!              │           ├─ confirmed ───────────────────▶ Confirmed | Parked
//!              │           └─ returned, 404, 403, given up ▶ Dropped, or:
//!              └── once more, at the parking exchange ◀──────┘              and if that fails too: Refused
//! ```
//! What an internal exchange refuses is published again over a bridge to it (`bridges`).
//! Here is what the shell and the broker may do to it; `send` has the way out, `receive` what comes back,
//! `outcomes` the table of outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{
    Cause, Event, Limit, LiveLimits, Mono, Now, Outcome, Owner, Publication, Purpose, Role, Ticket,
};
use crate::objects::Names;
use crate::registry::existing_delays::ExistingDelays;

use self::away::Away;
use self::books::Books;
use self::bridges::Known;
use self::clock::{Clock, Uptime};
use self::delays::Delays;
use self::item::{Item, Items, Key, Stage};
use self::lanes::Lanes;
use self::quarantine::Quarantine;
use self::quota::Quota;

mod away;
mod blame;
mod books;
mod bridges;
mod clock;
mod delays;
mod given_up;
mod input;
mod item;
mod lane;
mod lanes;
mod liveness;
mod outcomes;
mod output;
mod parked;
mod quarantine;
mod quota;
mod receive;
mod returns;
mod send;
mod stalled;
#[cfg(test)]
mod tests;
mod turns;
mod users;

pub use input::Input;
pub use output::{Effects, Output};
pub use quota::Load;

/// How often `confirm-timeout` is looked after, and who has waited for too long.
const TICK: Duration = Duration::from_millis(250);
/// Publications held at most; beyond it the inbox is not read.
const MOST_HELD: usize = 65_536;

/// What to do with a dead letter that nothing routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnroutable {
    /// Put it into the parking queue.
    Park,
    /// Drop it, as RabbitMQ does; never those of `at-least-once` queues.
    Drop,
}

/// The settings of a publisher.
#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    /// Names of the proxy's objects.
    pub names: Names,
    pub on_unroutable: OnUnroutable,
    /// `confirm-timeout`, `nack-retries`, `retry-for` and `publisher-bytes`.
    pub limits: LiveLimits,
    /// The owner whose dead letters must not all wait for one target: the intake.
    pub intake: Option<Owner>,
    /// The delay queues that there are, as far as the management API tells of them.
    pub existing_delays: ExistingDelays,
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
    delays: Delays,
    quota: Quota,
    /// Who backs off, and until when.
    backing_off: BTreeSet<(Mono, Key)>,
    books: Books,
    clock: Clock,
    tick: Option<Mono>,
    away: Away,
    draining: bool,
    /// Targets that may close the connection.
    quarantine: Quarantine,
    /// When the last publish left, and when the newest one that has an answer did.
    sent: Uptime,
    answered: Uptime,
    /// Was too much for its target, and the first to be parked: queues answer if its confirm comes.
    witness: Option<Key>,
    /// A confirm came since the link is up.
    proven: bool,
    /// How many links in a row were lost with something in flight and nothing confirmed.
    fruitless_losses: u32,
    /// As many channels as the broker is known to allow our user.
    channels: usize,
    /// Queues that did not take what comes back to them.
    full: BTreeMap<ShortStr, given_up::Full>,
    /// A foreign user-id was refused since the link is up.
    foreign_refused: bool,
    /// Its own user-id was not refused since the link is up: what it parks can have the proof.
    provable: bool,
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
            quota: Quota::new(settings.intake, settings.prefetch, settings.limits.clone()),
            internal: Known::new(settings.names.clone()),
            delays: Delays::new(settings.names.clone(), settings.existing_delays.clone()),
            settings,
            items: Items::default(),
            lanes: Lanes::new(),
            backing_off: BTreeSet::new(),
            books: Books::default(),
            clock: Clock::new(now.mono),
            tick: None,
            away: Away::new(now),
            draining: false,
            quarantine: Quarantine::default(),
            sent: Uptime::default(),
            answered: Uptime::default(),
            witness: None,
            proven: false,
            fruitless_losses: 0,
            channels: usize::MAX,
            full: BTreeMap::new(),
            foreign_refused: false,
            provable: true,
        }
    }

    /// Publications without an outcome.
    pub fn held(&self) -> usize {
        self.items.len()
    }

    /// Nothing new of the sessions' is accepted.
    fn is_shut(&self) -> bool {
        let hopeless = self.link.is_blocked() || self.link.is_refused() || self.is_full();
        self.draining || self.away.refusing && hopeless
    }

    /// One dead letter from an owner.
    fn accept(
        &mut self,
        owner: Owner,
        ticket: Ticket,
        mut publication: Publication,
        now: Now,
        fx: &mut Effects,
    ) {
        let of_intake = self.settings.intake == Some(owner);
        if let Purpose::Delay(delay) = publication.purpose {
            self.delays.address(&mut publication, delay);
        }
        if of_intake && (self.draining || self.away.handed_over) {
            // It returns it to its queue.
            return self.hand_over(now, fx);
        }
        let away = !of_intake && self.is_shut();
        let foreign = is_foreign(&publication, self.link.user());
        let mut item = Item::new(owner, ticket, publication, self.clock.stood(now.mono));
        item.foreign = foreign;
        let busy = self.quota.is_busy(&item);
        let purpose = item.publication.purpose;
        if purpose == Purpose::Tail {
            item.stage = Stage::Apart;
        } else if delays::leads_to(&self.settings.names, &item.publication).is_some() {
            item.bridge = item.publication.exchange.clone();
            item.stage = Stage::Bridge;
        } else if let Some(bridge) = self.internal.bridge(&item.publication.exchange) {
            item.bridge = bridge.clone();
            item.stage = Stage::Bridge;
        }
        let key = self.items.insert(item);
        if away {
            self.finish(key, Outcome::Refused(Cause::PublisherAway), fx);
        } else if let Purpose::Park(cause) = purpose {
            self.park(key, cause);
        } else if foreign && self.foreign_refused {
            self.refuse_user(key, fx);
        } else if busy
            && !self
                .items
                .get(key)
                .is_some_and(|item| item.stage.is_parking())
        {
            self.give_up(key, Cause::TargetBusy, now, fx);
        } else {
            self.enqueue(key);
        }
    }

    fn up(&mut self, now: Now) {
        self.proven = false;
        self.foreign_refused = false;
        self.provable = true;
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
        self.take_over(fx);
        self.pump(now, fx);
        // A vhost that does not let us in will not do so soon: the broker should deal with all that is here.
        let shut_out = self.link.is_refused();
        self.away.refusing |= shut_out;
        if self.away.refusing && (shut_out || self.draining) {
            self.refuse(fx, |_| true);
        }
        if self.away.refusing && self.draining {
            self.hand_over(now, fx);
        }
        if self.draining && self.items.len() == 0 {
            self.link.goodbye(now, fx);
        }
        let waits = self.books.in_flight > 0 || !self.clock.runs() && self.items.len() > 0;
        if waits && self.tick.is_none() {
            self.tick = Some(now.mono.after(TICK));
        }
    }
}

impl Linked for Publisher {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn heard(&mut self, now: Now) {
        if !self.clock.runs() {
            self.reachable(now);
        }
    }

    fn up(&mut self, now: Now, _: &mut Effects) {
        Publisher::up(self, now);
    }

    fn blocked(&mut self, now: Now, _: &mut Effects) {
        self.reachable(now);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        Publisher::frame(self, frame, now, fx)
    }

    fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects) {
        Publisher::lost(self, loss, now, fx);
    }

    fn told(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Publish(owner, batch) => {
                for (ticket, publication) in batch {
                    if publication.history_cut {
                        fx.events.push(Event::LimitMet(Limit::History));
                    }
                    self.accept(owner, ticket, publication, now, fx);
                }
            }
            Input::HandOver => self.hand_over(now, fx),
        }
        if self.is_full() && !self.draining {
            fx.events.push(Event::LimitMet(Limit::PublisherBytes));
        }
    }

    fn ends(&mut self, _: Now, _: &mut Effects) {
        self.draining = true;
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        self.still_away(now, fx);
        while let Some(&(until, key)) = self.backing_off.first()
            && until <= now.mono
        {
            self.backing_off.pop_first();
            self.try_again(key);
        }
        if self.tick.is_some_and(|tick| tick <= now.mono) {
            if self.is_heard(now, fx) {
                self.find_stalled(now, fx);
                self.overdue(now, fx);
            }
            self.relieve(now, fx);
            self.tick = None;
        }
    }

    fn wake(&self) -> Option<Mono> {
        let turns = if self.is_reachable() {
            self.quarantine.wake()
        } else {
            None
        };
        let deadlines = [
            turns,
            self.tick,
            self.backing_off.first().map(|(until, _)| *until),
            self.away.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        Publisher::after(self, now, fx);
    }

    fn takes(&self) -> bool {
        // While it refuses: what of the intake's waits is bounded by the intake.
        self.draining || self.away.refusing || !self.is_full()
    }
}
