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

use crate::amqp::frame::Kind;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::dead_letter::Rules;
use crate::link::{Frame, Link, Login, Loss, Step};
use crate::machine::{
    Bound, Cause, Effects, Ensured, Event, Flow, Input, Leg, LiveLimits, Machine, Mono, Now,
    Outcome, Publication, Role, Ticket,
};
use crate::publisher;
use crate::registry::intake_name::Names;
use crate::registry::live::LivePolicies;

use self::consumer::Consumer;
use self::cycles::{Cycles, Verdict};
use self::objects::Objects;
use self::signals::Decision;
use self::topology::Topology;

mod consumer;
mod cycles;
mod exchanges;
mod ledger;
mod objects;
mod signals;
#[cfg(test)]
mod tests;
mod topology;

/// The channel of the topology.
const TOPOLOGY: ChannelId = ChannelId(1);
/// The channel of the consumer.
const CONSUMER: ChannelId = ChannelId(2);

/// The type of the intake and the parking queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// Replicated, and able to shed a message that crashes each delivery (S10.2).
    Quorum,
    /// Faster, on one node, sheds nothing.
    Classic,
}

/// The settings of an intake.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Vhost and user.
    pub login: Login,
    /// The names of its objects.
    pub names: Names,
    /// For queues whose target is not in the name of their intake exchange.
    pub policies: LivePolicies,
    /// `intake-queue-type`.
    pub queue_type: QueueType,
    /// `intake-prefetch`.
    pub prefetch: u16,
    /// `max-intake-exchanges`, `intake-bytes` and `max-history`.
    pub limits: LiveLimits,
    /// How dead letters look; the dialect is that of the broker.
    pub rules: Rules,
    /// Surveys are answered: there is a management URL.
    pub surveyed: bool,
}

/// The intake of one vhost.
#[derive(Debug)]
pub struct Intake {
    settings: Settings,
    link: Link,
    topology: Topology,
    consumer: Consumer,
    cycles: Cycles,
    /// Foreign user-ids are hidden: the broker refused one.
    hide_users: bool,
    draining: bool,
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
            cycles: Cycles::new(settings.surveyed, settings.prefetch),
            settings,
            hide_users: false,
            draining: false,
        }
    }

    /// Signals without an outcome.
    pub fn held(&self) -> usize {
        self.consumer.ledger.held()
    }

    fn up(&mut self, now: Now, fx: &mut Effects) {
        self.settings.rules.dialect = self.link.dialect();
        self.hide_users = false;
        self.topology.begin(self.link.dialect(), now, fx);
        self.cycles.begin(now, fx);
    }

    fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects) {
        self.topology.lost(now);
        if self.link.is_refused() {
            self.topology.give_up(fx);
        }
        self.consumer_lost(loss != Loss::Lost, fx);
    }

    fn consumer_lost(&mut self, by_broker: bool, fx: &mut Effects) {
        self.consumer.lost(by_broker, fx);
        self.cycles.forget();
    }

    /// # Errors
    /// What the broker did wrong.
    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        let id = (frame.kind == Kind::Method)
            .then(|| MethodId::peek(frame.payload))
            .flatten();
        match (frame.channel, id) {
            (TOPOLOGY, Some(MethodId::CHANNEL_CLOSE)) => {
                let (code, cause) = closed(frame, fx);
                if self.topology.closed(code, &cause, now, fx) {
                    tell(cause, fx);
                }
            }
            (TOPOLOGY, Some(id)) => {
                let ready = self.topology.reply(id, now, fx);
                if ready && !self.draining {
                    self.consumer.begin(fx);
                }
            }
            (CONSUMER, Some(MethodId::CHANNEL_CLOSE)) => {
                tell(closed(frame, fx).1, fx);
                self.consumer_lost(false, fx);
                self.topology.again(now);
            }
            (CONSUMER, Some(MethodId::BASIC_CANCEL)) => {
                // The queue was deleted or lost its leader: it is declared anew, and what is held stays settleable.
                self.consumer.cancelled(fx);
                self.topology.again(now);
            }
            (CONSUMER, _) => {
                if let Some(delivery) = self.consumer.frame(frame, id, fx)? {
                    self.deliver(delivery, now, fx);
                    if !self.reads() {
                        fx.events.push(Event::BoundMet(Bound::IntakeBytes));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// One signal, whole.
    fn deliver(&mut self, delivery: consumer::Delivery, now: Now, fx: &mut Effects) {
        let tag = delivery.tag;
        let decision = signals::decide(&self.settings, &delivery, now.wall);
        match decision {
            Decision::Publish(publication) => {
                let ticket = self.consumer.ledger.ticket(tag);
                let publication = match self.consumer.is_careful() {
                    true => Some(publication), // Whatever is held now holds up all that is behind it.
                    false => self.cycles.pass(ticket, publication, now, fx),
                };
                if let Some(publication) = publication {
                    self.hand_over(tag, publication, fx);
                }
            }
            Decision::Drop(event) => {
                if let Event::DeadLetter { exchange, .. } = &event {
                    self.cycles.late(exchange, now, fx);
                }
                self.drop_signal(tag, event, fx);
            }
            Decision::Park(event) => self.park(tag, event, fx),
        }
    }

    /// Those that seemed to be cycles: they are, or are not.
    fn decided(&mut self, verdicts: Vec<Verdict>, fx: &mut Effects) {
        for verdict in verdicts {
            let Some(tag) = self.consumer.ledger.tag(verdict.ticket) else {
                continue;
            };
            let publication = verdict.publication;
            if !verdict.cycle {
                self.hand_over(tag, publication, fx);
            } else if publication.at_least_once {
                let event = signals::ended(&publication, Outcome::Parked(Cause::Cycle));
                self.park(tag, event, fx);
            } else {
                let event = signals::ended(&publication, Outcome::Dropped(Cause::Cycle));
                self.drop_signal(tag, event, fx);
            }
        }
    }

    /// A rule of RabbitMQ drops the message.
    fn drop_signal(&mut self, tag: u64, event: Event, fx: &mut Effects) {
        fx.events.push(event);
        self.consumer.ledger.ack(tag);
    }

    fn park(&mut self, tag: u64, event: Event, fx: &mut Effects) {
        fx.events.push(event);
        self.consumer.reject(tag, fx);
    }

    fn hand_over(&mut self, tag: u64, mut publication: Publication, fx: &mut Effects) {
        if publisher::is_foreign(&publication, self.link.user()) {
            if self.hide_users {
                signals::hide_user(&mut publication);
            } else {
                // Kept, should the broker refuse its user-id (S8.1).
                self.consumer.ledger.spare(tag, publication.clone());
            }
        }
        fx.dead
            .push((self.consumer.ledger.ticket(tag), publication));
    }

    fn settle(&mut self, ticket: Ticket, outcome: Outcome, fx: &mut Effects) {
        let Some(tag) = self.consumer.ledger.tag(ticket) else {
            return;
        };
        match outcome {
            Outcome::Confirmed | Outcome::Parked(_) | Outcome::Dropped(_) => {
                self.consumer.ledger.ack(tag);
            }
            Outcome::Refused(cause) => {
                let spare = self.consumer.ledger.take_spare(tag);
                match spare.filter(|_| cause == Cause::UserId) {
                    Some(publication) => {
                        self.hide_users = true;
                        self.hand_over(tag, publication, fx);
                    }
                    None => self.consumer.reject(tag, fx),
                }
            }
        }
    }

    /// What every call ends with.
    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.consumer.flush(fx);
        if self.draining && self.held() == 0 {
            self.link.goodbye(now, fx);
        }
    }
}

/// Answers the close of a channel; the broker's words.
fn closed(frame: Frame<'_>, fx: &mut Effects) -> (u16, String) {
    reply::close_ok(fx.broker.build(&[]), frame.channel);
    let (code, text) = match Close::parse(frame.payload) {
        Ok(close) => (close.code, String::from_utf8_lossy(close.text).into_owned()),
        Err(_) => (0, String::new()),
    };
    (code, format!("{code} {text}"))
}

fn tell(cause: String, fx: &mut Effects) {
    let role = Role::Intake;
    fx.events.push(Event::ChannelClosed { role, cause });
}

impl Machine for Intake {
    fn connected(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.connected(now, fx);
    }

    fn read(&mut self, _: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        self.link.heard(now);
        let mut taken = 0;
        while self.reads()
            && let Some(rest) = bytes.get(taken..)
        {
            match self.link.step(rest, now, fx) {
                Step::More => break,
                Step::Took(n) | Step::Blocked(n) => taken += n,
                Step::Up(n) => {
                    taken += n;
                    self.up(now, fx);
                }
                Step::Frame(n, frame) => {
                    taken += n;
                    if let Err(what) = self.frame(frame, now, fx) {
                        let loss = self.link.fault(what, now, fx);
                        self.lost(loss, now, fx);
                        taken = bytes.len();
                    }
                }
                Step::Down(loss) => {
                    self.lost(loss, now, fx);
                    taken = bytes.len();
                }
            }
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
            Input::Settled(outcomes) => {
                for (ticket, outcome) in outcomes {
                    self.settle(ticket, outcome, fx);
                }
            }
            Input::Ensure(owner, ensure) if self.draining => {
                let exchange = ensure.exchange;
                let ready = false;
                fx.ensured.push((owner, Ensured { exchange, ready }));
            }
            Input::Ensure(owner, ensure) => self.topology.ensure(owner, ensure, now, fx),
            Input::Changed(changes) => self.cycles.changed(changes),
            Input::Surveyed(survey) => {
                let verdicts = self.cycles.surveyed(survey, now, fx);
                self.decided(verdicts, fx);
            }
            Input::Drain => {
                self.draining = true;
                self.consumer.end(fx);
            }
            Input::Ensured(_) | Input::Recalled(_) | Input::Publish(..) => {}
        }
        self.after(now, fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        if !self.reads() {
            // What the broker sends meanwhile is not read: that is no silence.
            self.link.heard(now);
        }
        if let Some(loss) = self.link.timeout(now, fx) {
            self.lost(loss, now, fx);
        }
        self.topology.timeout(now, fx);
        let released = self.cycles.timeout(now, fx);
        self.decided(released, fx);
        self.after(now, fx);
    }

    fn deadline(&self) -> Option<Mono> {
        let deadlines = [
            self.link.deadline(),
            self.topology.deadline(),
            self.cycles.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn wants_read(&self, _: Leg, _: usize) -> bool {
        self.reads()
    }

    fn flow(&self) -> Flow {
        self.link.flow()
    }
}

impl Intake {
    /// False while signals without an outcome fill their bound.
    fn reads(&self) -> bool {
        self.consumer.ledger.bytes() < self.settings.limits.now().intake_bytes
    }
}
