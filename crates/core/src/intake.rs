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

/// A message that a classic queue could lose is returned after this time.
const RETURNED_AFTER: Duration = Duration::from_secs(10);
/// At shutdown: waiting ends after this time without an outcome (an alarm, a lost link).
const PATIENCE: Duration = Duration::from_secs(5);
const TOPOLOGY: ChannelId = ChannelId(1);
const CONSUMER: ChannelId = ChannelId(2);
const PARKED: ChannelId = ChannelId(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// Replicated; drops a message that crashes each delivery (S10.2).
    Quorum,
    /// Faster, on one node; drops nothing.
    Classic,
}

/// From the sessions and the publisher of the vhost.
#[derive(Debug)]
pub enum Input {
    /// Outcomes of its dead letters.
    Settled(Vec<(Ticket, Outcome)>),
    Ensure(Owner, Ensure),
    /// Whether the publisher accepts dead letters. False: its link is lost, and it has forgotten
    /// the intake's.
    Publisher(bool),
    /// Whether all recorded entries count. False: no new consumer until they do.
    Record(bool),
    /// An object of the vhost is gone: all are made again.
    Missing,
}

/// For the publisher and the sessions of the vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For the publisher. Signals stay unsettled until the outcome of their ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// For the publisher: its items from here return to their queue. Nothing follows until it has
    /// answered.
    pub hand_over: bool,
    /// For sessions that requested an intake exchange.
    pub ensured: Vec<(Owner, Ensured)>,
}

pub type Effects = crate::machine::Effects<Output>;

#[derive(Debug)]
pub struct Intake {
    settings: Settings,
    link: Link,
    topology: Topology,
    consumer: Consumer,
    parked: Parked,
    /// What returns to the intake queue, and when, in order.
    returning: VecDeque<(Mono, Ticket)>,
    /// Last report on this link: it works, or the broker's words.
    said: Option<Result<(), String>>,
    /// The broker refused a foreign user-id, so these are hidden.
    hide_users: bool,
    /// The queue is left to others until the publisher accepts more.
    handed_over: bool,
    /// Recorded entries do not count yet.
    awaits_record: bool,
    draining: bool,
    /// Draining: how long to wait for the next outcome.
    patience: Option<Mono>,
}

// === impl Intake ===

impl Intake {
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

    pub fn held(&self) -> usize {
        self.consumer.mover.count() + self.parked.held()
    }

    /// Consumes, or consumes again.
    fn begin(&mut self, fx: &mut Effects) {
        let may = !self.draining && !self.handed_over && !self.awaits_record;
        if self.topology.is_ready() && may {
            self.consumer.begin(fx);
        }
    }

    fn deliver(&mut self, mut delivery: Delivery, now: Now, fx: &mut Effects) {
        let (tag, bytes) = (delivery.tag, delivery.bytes());
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
                let ticket = mover.hold(tag, bytes, now.mono, spare);
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

    /// A copy, in case the broker refuses its user-id (S8.1).
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

    /// Reports a change: everything exists and is consumed, or the broker refuses a part. Short
    /// stops, like a new leader, are not reported.
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

    /// End of the allowed quiet period.
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

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
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
        let room = most.saturating_sub(self.consumer.mover.bytes);
        self.parked.after(room, now, fx);
        if self.draining && self.held() == 0 {
            self.link.goodbye(now, fx);
        }
    }

    /// False while unsettled signals reach their limit.
    fn reads(&self) -> bool {
        self.consumer.mover.bytes < self.settings.limits.now().intake_bytes
    }
}
