//! Takes in what died at the broker: owns the topology of its vhost, consumes the intake queue, and settles a signal only when its dead
//! letter has an outcome.
//!
//! ```text
//! link up ─▶ topology (channel 1): parking, intake queue ─▶ consumer (channel 2): deliver ─▶ signal ─▶ plan ─▶ publisher
//!                 │                                             ▲                                            │
//!                 └─ intake exchanges, when sessions ask        └───── ack, or reject into parking ◀─────────┘
//! ```
//! Two channels, because a refused declare closes the one that it was made on. What cannot be dealt with is rejected, and the intake
//! queue's own dead-letter exchange parks it: so nothing is ever stuck here, and nothing is lost.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::amqp::ids::ChannelId;
use crate::amqp::version::Version;
use crate::link::{Frame, Link, Linked, Loss};
use crate::machine::{
    Cause, Ensure, Ensured, Event, Mono, Now, Outcome, Owner, Publication, Role, Ticket,
};
use crate::mover::Delivery;
use crate::publisher;

pub use self::settings::Settings;

use self::consumer::Consumer;
use self::objects::Objects;
use self::parked::Parked;
use self::signals::Decision;
use self::topology::Topology;

mod consumer;
mod exchanges;
mod frames;
mod leaving;
mod objects;
mod parked;
mod resting;
mod settings;
mod signals;
#[cfg(test)]
mod tests;
mod topology;

/// What a classic queue could lose is returned after so long.
const RETURNED_AFTER: Duration = Duration::from_secs(10);
/// At the end of the process: without an outcome for so long (an alarm, a link that is away) none is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The channel of the topology.
const TOPOLOGY: ChannelId = ChannelId(1);
/// The channel of the consumer.
const CONSUMER: ChannelId = ChannelId(2);
/// The channel on which parked messages are fetched.
const PARKED: ChannelId = ChannelId(3);

/// The type of the intake and the parking queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Replicated, and able to shed a message that crashes each delivery (S10.2).
    Quorum,
    /// Faster, on one node, sheds nothing.
    Classic,
}

/// What an intake is told besides the bytes of its link, by the sessions and the publisher of its vhost.
#[derive(Debug)]
pub enum Input {
    /// Its dead letters have an outcome.
    Settled(Vec<(Ticket, Outcome)>),
    /// A session needs an intake exchange.
    Ensure(Owner, Ensure),
    /// Whether the publisher takes dead letters. False: its link is away, and it has forgotten all that it had of the intake's.
    Publisher(bool),
    /// Whether all counts that was recorded of redeclared queues. False: nothing is consumed anew until it does.
    Record(bool),
    /// An object of the vhost's is gone: all are made again.
    Missing,
}

/// What an intake has for the publisher and the sessions of its vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the publisher: dead letters. Their signals stay unsettled until its outcome names the ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// For the publisher: what it was handed goes back to its queue, or is there again. Behind this comes nothing until it has answered.
    pub hand_over: bool,
    /// For the sessions that asked for an intake exchange.
    pub ensured: Vec<(Owner, Ensured)>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;

/// The intake of one vhost.
#[derive(Debug)]
pub struct Intake {
    settings: Settings,
    link: Link,
    topology: Topology,
    consumer: Consumer,
    parked: Parked,
    /// What goes back to the intake queue, and when, in that order.
    returning: VecDeque<(Mono, Ticket)>,
    /// What was said last in this life of the link: that it works, or the broker's words.
    said: Option<Result<(), String>>,
    /// Foreign user-ids are hidden: the broker refused one.
    hide_users: bool,
    /// The queue is left to others until the publisher says that it takes more.
    handed_over: bool,
    /// What was recorded of redeclared queues does not count yet.
    awaits_record: bool,
    draining: bool,
    /// Until when a draining intake waits for the next outcome.
    patience: Option<Mono>,
}

// === impl Intake ===

impl Intake {
    /// An intake that wants its link at once.
    pub fn new(settings: Settings, now: Now) -> Intake {
        Intake {
            link: Link::new(Role::Intake, settings.login.clone()),
            topology: Topology::new(
                Objects::new(settings.names.clone(), settings.queue_type),
                settings.limits.clone(),
                now,
            ),
            consumer: Consumer::new(settings.names.intake_queue().clone(), settings.prefetch),
            parked: Parked::new(
                settings.names.parking().clone(),
                settings.names.lock().clone(),
                now,
            ),
            awaits_record: settings.recorded,
            settings,
            returning: VecDeque::new(),
            said: None,
            hide_users: false,
            handed_over: false,
            draining: false,
            patience: None,
        }
    }

    /// Signals without an outcome.
    pub fn held(&self) -> usize {
        self.consumer.mover.count() + self.parked.held()
    }

    /// The queue is there, or may be consumed again.
    fn begin(&mut self, fx: &mut Effects) {
        let may = !self.draining && !self.handed_over && !self.awaits_record;
        if self.topology.is_ready() && may {
            self.consumer.begin(fx);
        }
    }

    fn deliver(&mut self, mut delivery: Delivery, now: Now, fx: &mut Effects) {
        let (tag, octets) = (delivery.tag, delivery.octets());
        let content = delivery.content();
        if self.handed_over {
            // It was on its way when the consumer was cancelled.
            return self.consumer.return_one(tag, fx);
        }
        let limits = self.settings.limits.now();
        let (dialect, rules) = (self.link.dialect(), self.settings.rules);
        let rules = rules.at(dialect, limits.max_history, limits.stamp);
        let decision = signals::decide(
            &self.settings,
            &rules,
            &delivery,
            content.as_ref(),
            now.wall,
        );
        match decision {
            Decision::Publish(mut publication) => {
                let spare = self.spare(&mut publication);
                let mover = &mut self.consumer.mover;
                let ticket = mover.hold(tag, octets, now.mono, spare);
                fx.out.dead.push((ticket, publication));
            }
            Decision::Drop(event) => {
                fx.events.push(event);
                self.consumer.mover.ack(tag);
            }
            Decision::Reject(event) => {
                fx.events.push(event);
                self.consumer.reject(tag, fx);
            }
        }
    }

    /// Another one is kept, should the broker refuse its user-id (S8.1).
    fn spare(&self, publication: &mut Publication) -> Option<Box<Publication>> {
        let user = self.link.user();
        if !publisher::is_foreign(publication, user) {
            return None;
        }
        if self.hide_users {
            signals::hide_user(publication, user);
            return None;
        }
        Some(Box::new(publication.clone()))
    }

    fn settle(&mut self, ticket: Ticket, outcome: Outcome, now: Now, fx: &mut Effects) {
        let own_user = &self.settings.login.user;
        if self.parked.settle(ticket, outcome, own_user, fx) {
            return;
        }
        let Some((tag, spare)) = self.consumer.mover.of(ticket) else {
            return;
        };
        match outcome {
            Outcome::Confirmed | Outcome::Parked(_) | Outcome::Dropped(_) => {
                self.consumer.mover.ack(tag);
            }
            // Our queue has it as safe as any: it is never parked for that.
            Outcome::Refused(Cause::PublisherAway) => self.consumer.return_one(tag, fx),
            // What is rejected moves at most once out of a classic queue: lost, as the parking queue refuses it.
            Outcome::Refused(Cause::ParkingBusy)
                if self.settings.queue_type == QueueType::Classic =>
            {
                self.returning
                    .push_back((now.mono.after(RETURNED_AFTER), ticket));
            }
            Outcome::Refused(cause) => match spare.take_if(|_| cause == Cause::UserId) {
                // It goes back anyway.
                Some(_) if self.handed_over => {}
                Some(mut publication) => {
                    self.hide_users = true;
                    signals::hide_user(&mut publication, self.link.user());
                    fx.out.dead.push((ticket, *publication));
                }
                None => self.consumer.reject(tag, fx),
            },
        }
    }

    /// Says whether it works, when that changes: all objects are there and are consumed, or the broker refuses one of these. What stops for a moment,
    /// as where a leader changes, changes nothing.
    fn say(&mut self, fx: &mut Effects) {
        let (now, event) = if let Some((code, cause)) = self.topology.refusal().cloned() {
            (Err(cause.clone()), Event::IntakeRefused { code, cause })
        } else if self.topology.is_ready() && self.consumer.is_consuming() {
            self.topology.works();
            (Ok(()), Event::IntakeWorks)
        } else {
            return;
        };
        if self.said.replace(now.clone()) != Some(now) {
            fx.events.push(event);
        }
    }

    /// Until when the consumer may hear nothing.
    fn quiet_until(&self) -> Option<Mono> {
        let most = self.settings.limits.now().intake_quiet;
        self.consumer.quiet_until(most)
    }
}

impl Linked for Intake {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, now: Now, fx: &mut Effects) {
        let quorum = self.settings.queue_type == QueueType::Quorum;
        let newer = self.link.version().is_some_and(|it| it >= Version(4, 3, 0));
        self.consumer.may_say_how_long(quorum && newer);
        self.hide_users = false;
        self.topology.begin(self.link.dialect(), now, fx);
        if !self.handed_over {
            self.parked.begin(now);
        }
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        Intake::frame(self, frame, now, fx)
    }

    fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects) {
        self.topology.lost(now);
        self.said = None;
        if self.link.is_refused() {
            self.topology.give_up(fx);
        }
        self.consumer_lost(loss != Loss::Lost, fx);
        self.parked.fault(loss != Loss::Lost, now);
        self.parked_lost(now, fx);
    }

    fn told(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Settled(outcomes) => {
                for (ticket, outcome) in outcomes {
                    self.settle(ticket, outcome, now, fx);
                }
                if self.draining {
                    self.patience = Some(now.mono.after(PATIENCE));
                }
            }
            Input::Ensure(owner, ensure) if self.draining => {
                let exchange = ensure.exchange;
                let ready = false;
                fx.out.ensured.push((owner, Ensured { exchange, ready }));
            }
            Input::Ensure(owner, ensure) => self.topology.ensure(owner, ensure, now, fx),
            Input::Record(current) => {
                self.awaits_record = !current;
                self.begin(fx);
            }
            Input::Missing => self.topology.again(now),
            Input::Publisher(false) => self.leave_queue(fx),
            Input::Publisher(true) => {
                self.handed_over = false;
                self.begin(fx);
                if self.link.is_up() {
                    self.parked.begin(now);
                }
            }
        }
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        self.draining = true;
        self.patience = Some(now.mono.after(PATIENCE));
        self.consumer.end(fx);
        self.parked.end();
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.patience.is_some_and(|until| until <= now.mono) {
            self.patience = None;
            self.leave_queue(fx);
            fx.out.hand_over = true;
        }
        self.hand_over_due(now.mono, fx);
        if self.quiet_until().is_some_and(|until| until <= now.mono) {
            self.consumer.renew(fx);
        }
        self.return_due(now.mono, fx);
        self.topology.timeout(now, fx);
        let every = self.settings.limits.now().parked_retry;
        let changes = self.settings.policies.changes();
        self.parked.timeout(every, changes, now, fx);
    }

    fn wake(&self) -> Option<Mono> {
        let deadlines = [
            self.topology.deadline(),
            self.patience,
            self.returning.front().map(|(due, _)| *due),
            self.quiet_until(),
            self.may_hold_until(),
            self.parked
                .deadline(self.settings.limits.now().parked_retry),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.say(fx);
        self.consumer.flush(fx);
        self.consumer.listen(now.mono);
        let most = self.settings.limits.now().intake_bytes / 4;
        let room = most.saturating_sub(self.consumer.mover.octets);
        self.parked.after(room, now, fx);
        if self.draining && self.held() == 0 {
            self.link.goodbye(now, fx);
        }
    }

    /// False while signals without an outcome fill their bound.
    fn reads(&self) -> bool {
        self.consumer.mover.octets < self.settings.limits.now().intake_bytes
    }
}
