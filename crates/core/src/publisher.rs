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
//! What was in flight when the broker closed the connection is handed to a second, careful publisher, which has a link of its own (`holds`).
//! Here is what the shell may do to it; `traffic` has what goes over the channels, `outcomes` the table of outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::amqp::ids::ShortStr;
use crate::dead_letter::copy_id::CopyIds;
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{
    Cause, Event, Limit, LiveLimits, Mono, Now, Outcome, Owner, Publication, Purpose, Role, Ticket,
};
use crate::objects::Names;
use crate::registry::existing_delays::ExistingDelays;

use self::answers::Answers;
use self::away::Away;
use self::bridges::Known;
use self::clock::Clock;
use self::delays::Delays;
use self::holds::Holds;
use self::item::{Item, Place, Stage};
use self::quota::Quota;
use self::store::Store;
use self::traffic::Doubt;

mod answers;
mod away;
mod blame;
mod bridges;
mod channel;
mod channels;
mod clock;
mod delays;
mod edits;
mod holds;
mod item;
mod outcomes;
mod output;
mod quota;
mod returns;
mod store;
#[cfg(test)]
mod tests;
mod traffic;

pub(crate) use edits::is_foreign;
pub use output::{Effects, Input, Output};
pub use quota::Load;

const TICK: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnroutable {
    Park,
    /// As RabbitMQ does; never those of `at-least-once` queues.
    Drop,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub names: Names,
    pub on_unroutable: OnUnroutable,
    pub limits: LiveLimits,
    /// The intake: its dead letters must not all wait for one target.
    pub intake: Option<Owner>,
    pub existing_delays: ExistingDelays,
    /// How many signals the intake holds; `intake-bytes` bounds their bytes.
    pub prefetch: usize,
    /// The careful publisher: it publishes one at a time what the other publisher hands over, and
    /// reports the outcomes to it.
    pub careful: bool,
}

#[derive(Debug)]
pub struct Publisher {
    settings: Settings,
    link: Link,
    store: Store,
    internal: Known,
    delays: Delays,
    copy_ids: CopyIds,
    clock: Clock,
    tick: Option<Mono>,
    away: Away,
    draining: bool,
    holds: Holds,
    doubt: Doubt,
    answers: Answers,
    /// A confirm arrived on this link.
    proven: bool,
    /// Links lost in a row with something in flight and nothing confirmed.
    fruitless_losses: u32,
    /// Channels that the broker is known to allow our user.
    channels: usize,
    /// Queues that refuse messages coming back.
    full: BTreeMap<ShortStr, outcomes::Full>,
    foreign_refused: bool,
    /// The broker did not refuse our user-id on this link, so parked messages can have the proof.
    provable: bool,
    pause: Pause,
    pauses_until: Option<Mono>,
}

/// While a queue is made anew, nothing may be on its way into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pause {
    #[default]
    No,
    /// What was published is not confirmed yet.
    Begun,
    Told,
}

/// A pause ends by itself: what is published then at a queue that is missing is returned, and parked.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

// === impl Settings ===

impl Settings {
    /// Whether the proxy stamped it. A client's header of the same name stays.
    fn is_stamped(&self, publication: &Publication) -> bool {
        publication.by.is_some() && self.limits.now().stamp
    }
}

// === impl Publisher ===

impl Publisher {
    pub fn new(settings: Settings, now: Now) -> Publisher {
        let role = match settings.careful {
            true => Role::Careful,
            false => Role::Publisher,
        };
        Publisher {
            link: Link::new(role, settings.login.clone()),
            store: Store::new(settings.names.parking().clone(), Quota::new(&settings)),
            internal: Known::new(settings.names.clone()),
            delays: Delays::new(settings.names.clone(), settings.existing_delays.clone()),
            copy_ids: CopyIds::new(settings.login.seed, &settings.login.vhost, now.mono),
            away: Away::new(now, settings.careful),
            holds: Holds::new(settings.names.parking().clone()),
            settings,
            clock: Clock::new(now.mono),
            tick: None,
            draining: false,
            doubt: Doubt::default(),
            answers: Answers::default(),
            proven: false,
            fruitless_losses: 0,
            channels: usize::MAX,
            full: BTreeMap::new(),
            foreign_refused: false,
            provable: true,
            pause: Pause::No,
            pauses_until: None,
        }
    }

    pub fn held(&self) -> usize {
        self.store.items.len()
    }

    pub fn needs_careful(&self) -> bool {
        self.holds.any_handed()
    }

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
        // The careful publisher gets what has one.
        if self.settings.limits.now().stamp && !self.settings.careful {
            self.copy_ids.put(&mut publication, self.link.frame_max());
        }
        if of_intake && !self.settings.careful && (self.draining || self.away.handed_over) {
            // It returns it to its queue.
            return self.hand_over(now, fx);
        }
        let hopeless = self.link.is_blocked()
            || self.link.is_refused()
            || self.store.is_full(&self.settings.limits);
        let is_shut = self.draining || self.away.refusing && hopeless;
        let foreign = is_foreign(&publication, self.link.user());
        let mut item = Item::new(owner, ticket, publication, self.clock.stood(now.mono));
        item.foreign = foreign;
        let busy = self.store.quota.is_busy(&item);
        let purpose = item.publication.purpose;
        if purpose == Purpose::Tail {
            item.stage = Stage::Parking(Cause::Poison);
        } else if delays::leads_to(&self.settings.names, &item.publication).is_some() {
            item.bridge = item.publication.exchange.clone();
            item.stage = Stage::Bridge;
        } else if let Some(bridge) = self.internal.bridge(&item.publication.exchange) {
            item.bridge = bridge.clone();
            item.stage = Stage::Bridge;
        }
        let is_parking = item.stage.is_parking();
        let key = self.store.items.insert(item);
        if is_shut && !of_intake && !self.settings.careful {
            self.finish(key, Outcome::Refused(Cause::PublisherAway), fx);
        } else if let Purpose::Park(cause) = purpose {
            self.park(key, cause);
        } else if foreign && self.foreign_refused {
            self.refuse_user(key, fx);
        } else if busy && !is_parking {
            self.give_up(key, Cause::TargetBusy, now, fx);
        } else {
            self.store.enqueue(key);
        }
    }

    fn was_tried(&mut self, of: (Owner, Ticket), outcome: Outcome, now: Now, fx: &mut Effects) {
        let Some((target, key)) = self.holds.taken(of) else {
            return;
        };
        let of_intake = self.settings.intake == Some(of.0);
        match outcome {
            // It had no link for it, and here is one.
            Outcome::Refused(Cause::PublisherAway) => {
                self.store.move_to(key, Place::Held);
                self.holds.put_back(&target, key);
            }
            Outcome::Refused(Cause::QueueFull) if of_intake => {
                self.give_up(key, Cause::TargetBusy, now, fx);
            }
            outcome => self.finish(key, outcome, fx),
        }
        let is_well = match outcome {
            Outcome::Parked(_) => target.0 == *self.settings.names.parking(),
            outcome => outcome == Outcome::Confirmed,
        };
        if is_well {
            self.holds.passed(&target, key);
        }
        let is_poison = matches!(
            outcome,
            Outcome::Parked(Cause::Poison) | Outcome::Refused(Cause::Poison)
        );
        // Then others of that target may do the same.
        while is_poison
            && !is_well
            && let Some(key) = self.holds.next(&target)
        {
            if self.store.is_at(key, Place::Held) {
                let uptime = self.clock.at(now.mono);
                let handed = self.holds.hand(&mut self.store, key, uptime);
                return fx.out.careful.extend(handed);
            }
        }
        let mut free = self.holds.free(&target);
        free.retain(|key| self.store.is_at(*key, Place::Held));
        self.store.enqueue_in_front(&free);
    }

    fn reachable(&mut self, now: Now) {
        let is_open = self.link.is_open();
        self.clock.run(is_open, now.mono);
        self.away.set(self.link.is_up(), is_open, now.mono);
    }

    /// Leaves the intake queue to other proxies, and forgets its signals.
    fn hand_over(&mut self, now: Now, fx: &mut Effects) {
        if !self.settings.careful && !self.away.leave(now.mono) {
            return;
        }
        for key in self.store.of_intake(true) {
            if let Some(item) = self.store.remove(key)
                && let Some((target, _)) = self.holds.taken((item.owner, item.ticket))
            {
                let free = self.holds.free(&target);
                self.store.enqueue_in_front(&free);
            }
        }
        self.store.channels.forget_ended(&self.store.items);
        if !self.settings.careful {
            let intake = self.settings.intake.map(|intake| (intake, false));
            fx.out.takes.extend(intake);
            if self.holds.any_handed() {
                fx.out.careful.push(Input::HandOver);
            }
        }
    }

    /// Refuses items of sessions, in the order of their deaths; a careful publisher gives back all.
    fn refuse(&mut self, fx: &mut Effects, which: impl Fn(&Item) -> bool) {
        let mut keys = self.store.of_intake(false);
        if self.settings.careful {
            keys.extend(self.store.of_intake(true));
        }
        keys.retain(|key| self.store.items.get(*key).is_some_and(&which));
        for &key in &keys {
            let item = self.store.items.get(key);
            let may_have_arrived = item.is_some_and(|item| {
                let is_redriven = item.publication.purpose == Purpose::Redrive;
                item.sent && is_redriven && !self.settings.careful
            });
            let cause = match may_have_arrived {
                true => Cause::Unconfirmed,
                false => Cause::PublisherAway,
            };
            self.finish(key, Outcome::Refused(cause), fx);
        }
        if !keys.is_empty() {
            self.store.channels.forget_ended(&self.store.items);
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
        self.proven = false;
        self.foreign_refused = false;
        self.provable = true;
        let channels = usize::from(self.link.channel_max()).min(self.channels);
        self.store.channels.limit(channels);
        self.reachable(now);
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

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
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
            Input::Careful(outcomes) => {
                for (owner, ticket, outcome) in outcomes {
                    self.was_tried((owner, ticket), outcome, now, fx);
                }
            }
            Input::Pause(pauses) => {
                self.pause = if pauses { Pause::Begun } else { Pause::No };
                self.pauses_until = pauses.then(|| now.mono.after(LONGEST_PAUSE));
            }
        }
        if self.store.is_full(&self.settings.limits) && !self.draining {
            fx.events.push(Event::LimitMet(Limit::PublisherBytes));
        }
    }

    fn ends(&mut self, _: Now, _: &mut Effects) {
        self.draining = true;
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.away.still(now.mono) {
            self.hand_over(now, fx);
        }
        if self.pauses_until.take_if(|at| *at <= now.mono).is_some() {
            self.pause = Pause::No;
        }
        self.store.try_again(now.mono);
        let due = self.holds.due(now.mono);
        self.store.enqueue_in_front(&due);
        if self.tick.is_some_and(|tick| tick <= now.mono) {
            self.look(now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        let deadlines = [
            self.holds.deadline(),
            self.tick,
            self.store.next_try(),
            self.away.deadline(),
            self.pauses_until,
        ];
        deadlines.into_iter().flatten().min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        if self.away.handed_over && self.link.is_open() && !self.draining {
            // Takes the intake's dead letters again, as they can leave.
            self.away.handed_over = false;
            let intake = self.settings.intake.map(|intake| (intake, true));
            fx.out.takes.extend(intake);
        }
        match self.pause {
            Pause::No => self.pump(now, fx),
            Pause::Begun if self.store.in_flight == 0 && !self.holds.any_handed() => {
                self.pause = Pause::Told;
                fx.out.paused = true;
            }
            Pause::Begun | Pause::Told => {}
        }
        // A vhost that does not let us in will not do so soon: the broker should deal with all that is here.
        let shut_out = self.link.is_refused();
        self.away.refusing |= shut_out && !self.settings.careful;
        if self.settings.careful {
            if self.away.refusing || self.draining {
                self.refuse(fx, |_| true);
                self.away.begin_again(now.mono);
            }
        } else if self.away.refusing && (shut_out || self.draining) {
            self.refuse(fx, |_| true);
        } else if self.draining {
            self.refuse(fx, |item| {
                matches!(item.place, Place::Held | Place::Careful)
            });
        }
        if self.draining && (self.away.refusing || self.needs_careful()) {
            self.hand_over(now, fx);
        }
        if self.draining && self.store.items.len() == 0 {
            self.link.goodbye(now, fx);
        }
        let waits = self.store.in_flight > 0
            || self.holds.any_waiting()
            || !self.clock.runs() && self.store.items.len() > 0;
        if waits && self.tick.is_none() {
            self.tick = Some(now.mono.after(TICK));
        }
    }

    fn takes(&self) -> bool {
        // While it refuses: what of the intake's waits is bounded by the intake.
        // And what a careful one is handed is bounded by who hands it over.
        self.draining
            || self.away.refusing
            || self.settings.careful
            || !self.store.is_full(&self.settings.limits)
    }
}
