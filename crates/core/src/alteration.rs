//! A queue is made anew with other arguments, when it is empty and nobody is at work on what it had. Its clients are connected to this proxy,
//! and notice a pause.
//!
//! ```text
//! link up ─▶ write the order down ─▶ claim it ─▶ compare, try, test ─▶ Waiting for an empty queue ◀──────────────┐
//!                                                                        │                              not in time: all is as before
//!                                                                        ▼                                       │
//!  sessions hold ─▶ Draining ─▶ Proving ─▶ sessions settle, then cancel; the publisher pauses ─▶ Counting ─▶ Unbinding ─▶ Proving ─▶ Deleting
//!                                                                                                            │
//!                                        Ended ◀─ Cleaning ◀─ sessions go on ◀─ Binding ◀─ Declaring ◀────────┘
//! ```
//! The order stands at the broker until the end ([`order`]). It is claimed by an exclusive consumer: while that lives, nobody else works on it.
//! When it is gone, somebody finds the order and finishes it ([`Task::Finish`]): the queue is there as it was, or not at all, or anew.

use std::collections::BTreeSet;
use std::time::Duration;

use thiserror::Error;

use crate::amqp::cursor::Cursor;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Deliver, MethodId, QueueDeclare, QueueDeclareOk};
use crate::amqp::reply;
use crate::amqp::table::TableBuilder;
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Effects as Fx, Flow, Mono, Now, Owner, Role};
use crate::objects::Names;
use crate::session::Ready;
use crate::walk::Failure as LinkFailure;
use crate::walk::Once;

pub use self::order::{Arguments, Binding, Order, table};

pub mod order;
pub mod plan;
#[cfg(test)]
mod tests;

/// The argument that has the order.
pub const ORDER: &[u8] = b"x-dlx-proxy-order";
/// Limit of the broker's answers while clients go on.
const PATIENCE: Duration = Duration::from_secs(30);
/// From the pause of the clients to the delete: else all is undone. The rest takes a few round trips.
const COMMIT_WITHIN: Duration = Duration::from_millis(700);
/// Between questions for the number of messages, while clients wait and while they do not.
const QUICK: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(100);
/// After an attempt, so that clients get on.
const REST: Duration = Duration::from_secs(1);
const TAG: &[u8] = b"dlx-proxy";
const PROOF: &[u8] = b"dlx-proxy proof";
const LOWEST: i64 = -1_000_000;
const IF_EMPTY: u8 = 2;
const EXCLUSIVE: u8 = 4;

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub names: Names,
    pub order: Order,
    pub task: Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Tries for that long.
    Alter(Duration),
    /// An order that was left behind.
    Finish,
}

/// From the sessions and the publisher of the vhost.
#[derive(Debug)]
pub enum Input {
    /// These were told.
    Told(BTreeSet<Owner>),
    Ready(Owner, Ready),
    Gone(Owner),
    /// The publisher pauses.
    Paused,
}

#[derive(Debug, Default)]
pub struct Output {
    /// For the sessions; with a `Cancel` the publisher pauses, until it is over.
    pub swap: Vec<Told>,
    /// Comes once, last.
    pub ended: Option<Result<Altered, Failure>>,
}

/// What sessions are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Hold,
    Settle,
    Cancel,
    Over { anew: bool },
}

pub type Effects = Fx<Output>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// How long clients waited, at most.
    pub pause: Duration,
    pub attempts: u32,
    /// Messages that came into the queue past this proxy in its last moment.
    pub lost: u32,
    /// Bindings that could not be made again, in the broker's words.
    pub unbound: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    #[error(transparent)]
    Link(#[from] LinkFailure),
    #[error("another alteration of this queue is under way")]
    Claimed,
    #[error("{0} proxies work in this vhost: this takes a single one, which all clients use")]
    OtherProxies(u32),
    #[error("the queue was not quiet in time: {0}. It is as it was")]
    Busy(String),
    #[error(
        "the queue could not be declared anew ({0}), and is back with the arguments that it had"
    )]
    Back(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    Recording,
    Claiming,
    CountingProxies,
    Comparing,
    Trying,
    Withdrawing,
    /// Binds as it is bound: a right that is missing shows before anything is changed.
    Testing(usize),
    Waiting,
    Holding,
    Draining,
    Settling,
    Cancelling,
    Counting,
    Unbinding(usize),
    /// A quorum queue counts what it has written, and that may not be all that it was sent. A consumer is written itself, behind all of that. This one
    /// has the lowest priority and ends at once; what it is given goes back.
    Proving {
        last: bool,
    },
    Ending {
        last: bool,
    },
    Recounting {
        last: bool,
    },
    Deleting,
    Declaring {
        old: bool,
    },
    Binding(usize),
    /// An attempt has failed: what is unbound is bound again.
    Undoing(usize),
    Cleaning,
    Ended,
}

#[derive(Debug)]
pub struct Alteration {
    settings: Settings,
    link: Link,
    state: State,
    channel: ChannelId,
    /// Sessions that were told, and were not heard of.
    awaited: Option<BTreeSet<Owner>>,
    publisher_pauses: bool,
    /// Clients wait since.
    held: Option<Mono>,
    /// Whether the queue is another one.
    anew: bool,
    /// The queue, or a binding of it, may be missing.
    under_way: bool,
    altered: Altered,
    busy: String,
    failure: Option<Failure>,
    /// When to ask for the number of messages again.
    ask_at: Option<Mono>,
    /// Limit of the state.
    until: Option<Mono>,
    ends: Mono,
    once: Once,
}

// === impl Alteration ===

impl Alteration {
    pub fn new(settings: Settings, now: Now) -> Alteration {
        Alteration {
            link: Link::new(Role::Walk, settings.login.clone()),
            settings,
            state: State::Shut,
            channel: ChannelId(0),
            awaited: None,
            publisher_pauses: false,
            held: None,
            anew: false,
            under_way: false,
            altered: Altered::default(),
            busy: String::new(),
            failure: None,
            ask_at: None,
            until: Some(now.mono.after(PATIENCE)),
            ends: now.mono,
            once: Once::default(),
        }
    }

    fn order(&self) -> &Order {
        &self.settings.order
    }

    fn open(&mut self, fx: &mut Effects) {
        self.channel.0 += 1;
        reply::channel_open(fx.broker.build(&[]), self.channel);
    }

    fn declare(&self, queue: &[u8], bits: u8, arguments: &[u8], fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        reply::declare_queue(out, self.channel, queue, bits, arguments);
    }

    fn declare_as(&self, queue: &[u8], arguments: &Arguments, fx: &mut Effects) {
        let durable = if self.order().durable {
            QueueDeclare::DURABLE
        } else {
            0
        };
        let arguments = table(arguments).unwrap_or_default(); // a plan has checked it
        self.declare(queue, durable, &arguments, fx);
    }

    fn delete(&self, queue: &[u8], bits: u8, fx: &mut Effects) {
        reply::method(
            fx.broker.build(&[]),
            self.channel,
            MethodId::QUEUE_DELETE,
            |a| {
                a.short(0).shortstr(queue).octet(bits).end();
            },
        );
    }

    /// The name of the queue that has the order.
    fn place(&self) -> ShortStr {
        plan::place(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    /// Goes on with this, and asks the broker for it.
    fn enter(&mut self, state: State, now: Now, fx: &mut Effects) {
        self.state = state;
        let limit = match state {
            State::Holding | State::Draining | State::Cancelling | State::Counting => None,
            State::Unbinding(_) | State::Settling => None,
            State::Proving { .. } | State::Ending { .. } | State::Recounting { .. } => None,
            _ => Some(now.mono.after(PATIENCE)),
        };
        if limit.is_some() {
            self.until = limit;
        }
        let queue = self.order().queue.clone();
        let queue = queue.as_bytes();
        match state {
            State::Recording => {
                let mut arguments = TableBuilder::default();
                arguments.longstr(b"x-queue-type", b"quorum");
                arguments.longstr(ORDER, self.order().text().as_bytes());
                let place = self.place();
                self.declare(&place, QueueDeclare::DURABLE, &arguments.finish(), fx);
            }
            State::Claiming => {
                let place = self.place();
                let out = fx.broker.build(&[]);
                reply::method(out, self.channel, MethodId::BASIC_CONSUME, |a| {
                    let a = a.short(0).shortstr(&place).shortstr(TAG);
                    a.octet(EXCLUSIVE).longstr(&[]).end();
                });
            }
            State::CountingProxies => {
                let intake = self.settings.names.intake_queue().clone();
                self.declare(&intake, QueueDeclare::PASSIVE, &[], fx);
            }
            State::Comparing => self.declare_as(queue, &self.order().old, fx),
            State::Trying => self.declare_as(&self.trial(), &self.order().new, fx),
            State::Withdrawing => self.delete(&self.trial(), 0, fx),
            State::Waiting | State::Draining | State::Counting | State::Recounting { .. } => {
                self.declare(queue, QueueDeclare::PASSIVE, &[], fx);
            }
            State::Holding => {
                self.held = Some(now.mono);
                self.altered.attempts += 1;
                self.until = Some(now.mono.after(COMMIT_WITHIN));
                self.publisher_pauses = false;
                self.tell(Told::Hold, fx);
            }
            State::Settling => self.tell(Told::Settle, fx),
            State::Cancelling => self.tell(Told::Cancel, fx),
            State::Proving { .. } => {
                let mut arguments = TableBuilder::default();
                arguments.long(b"x-priority", LOWEST);
                let out = fx.broker.build(&[]);
                reply::qos(out, self.channel, 1);
                reply::consume(out, self.channel, queue, PROOF, &arguments.finish());
            }
            State::Ending { .. } => reply::cancel(fx.broker.build(&[]), self.channel, PROOF),
            State::Deleting => {
                self.under_way = true;
                let bits = if self.order().quorum { 0 } else { IF_EMPTY };
                self.delete(queue, bits, fx);
            }
            State::Declaring { old: false } => self.declare_as(queue, &self.order().new, fx),
            State::Declaring { old: true } => self.declare_as(queue, &self.order().old, fx),
            State::Testing(at) | State::Binding(at) | State::Undoing(at) => {
                self.bind(MethodId::QUEUE_BIND, at, now, fx);
            }
            State::Unbinding(at) => {
                self.under_way = true;
                self.bind(MethodId::QUEUE_UNBIND, at, now, fx);
            }
            State::Cleaning => {
                self.under_way = false;
                self.over(now, fx);
                let place = self.place();
                self.delete(&place, 0, fx);
            }
            State::Ended => {
                self.over(now, fx);
                self.once.end(&mut self.link, now, fx);
            }
            State::Shut => {}
        }
    }

    fn trial(&self) -> ShortStr {
        plan::trial(&self.settings.names, &self.order().queue).unwrap_or_default()
    }

    /// Binds or unbinds, or goes on behind the last one.
    fn bind(&mut self, id: MethodId, at: usize, now: Now, fx: &mut Effects) {
        let Some(binding) = self.order().bindings.get(at) else {
            return self.bound(now, fx);
        };
        let arguments = table(&binding.arguments).unwrap_or_default();
        let out = fx.broker.build(&[]);
        reply::method(out, self.channel, id, |a| {
            let a = a.short(0).shortstr(self.order().queue.as_bytes());
            let a = a.shortstr(binding.source.as_bytes());
            let a = a.shortstr(binding.routing_key.as_bytes());
            let a = match id {
                MethodId::QUEUE_BIND => a.octet(0),
                _ => a,
            };
            a.longstr(&arguments).end();
        });
    }

    fn bound(&mut self, now: Now, fx: &mut Effects) {
        match self.state {
            State::Testing(_) => {
                if let Task::Alter(wait) = self.settings.task {
                    self.ends = now.mono.after(wait);
                }
                self.enter(State::Waiting, now, fx);
            }
            State::Unbinding(_) => self.enter(State::Proving { last: true }, now, fx),
            State::Undoing(_) => self.rest(now, fx),
            _ => self.enter(State::Cleaning, now, fx),
        }
    }

    fn tell(&mut self, told: Told, fx: &mut Effects) {
        self.awaited = None;
        fx.out.swap.push(told);
    }

    /// Clients go on. Not while the queue may be missing: somebody else has to finish then.
    fn over(&mut self, now: Now, fx: &mut Effects) {
        if self.under_way {
            return;
        }
        if let Some(held) = self.held.take() {
            let pause = held.until(now.mono);
            self.altered.pause = self.altered.pause.max(pause);
            self.tell(Told::Over { anew: self.anew }, fx);
        }
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure.get_or_insert(failure);
        self.enter(State::Cleaning, now, fx);
    }

    /// This attempt was too long.
    fn undo(&mut self, busy: String, now: Now, fx: &mut Effects) {
        self.busy = busy;
        match self.state {
            State::Unbinding(_)
            | State::Proving { last: true }
            | State::Ending { last: true }
            | State::Recounting { last: true }
            | State::Deleting => {
                self.enter(State::Undoing(0), now, fx);
            }
            _ => self.rest(now, fx),
        }
    }

    fn rest(&mut self, now: Now, fx: &mut Effects) {
        self.under_way = false;
        self.over(now, fx);
        if now.mono >= self.ends {
            let busy = std::mem::take(&mut self.busy);
            return self.fail(Failure::Busy(busy), now, fx);
        }
        self.state = State::Waiting;
        self.until = None;
        self.ask_at = Some(now.mono.after(REST));
    }

    /// The broker's count of the queue.
    fn counted(&mut self, ok: QueueDeclareOk<'_>, now: Now, fx: &mut Effects) {
        let (messages, consumers) = (ok.message_count, ok.consumer_count);
        match self.state {
            State::CountingProxies if consumers > 1 => {
                self.fail(Failure::OtherProxies(consumers), now, fx);
            }
            State::CountingProxies => self.enter(State::Comparing, now, fx),
            State::Waiting if messages == 0 => self.enter(State::Holding, now, fx),
            State::Waiting if now.mono >= self.ends => {
                let busy = format!("{messages} messages are ready");
                self.fail(Failure::Busy(busy), now, fx);
            }
            State::Waiting => self.ask_at = Some(now.mono.after(SLOW)),
            State::Draining if messages == 0 && self.order().quorum => {
                self.enter(State::Proving { last: false }, now, fx);
            }
            State::Draining | State::Recounting { last: false } if messages == 0 => {
                self.enter(State::Settling, now, fx);
            }
            State::Draining | State::Recounting { last: false } => {
                self.state = State::Draining;
                self.busy = format!("{messages} messages were ready");
                self.ask_at = Some(now.mono.after(QUICK));
            }
            State::Counting | State::Recounting { .. } if messages > 0 => {
                self.undo(format!("{messages} messages came back to it"), now, fx);
            }
            State::Counting if consumers > 0 => {
                let busy = format!("{consumers} consumers read from it past this proxy");
                self.undo(busy, now, fx);
            }
            State::Counting if self.order().quorum => self.enter(State::Unbinding(0), now, fx),
            State::Counting | State::Recounting { .. } => self.enter(State::Deleting, now, fx),
            _ => {}
        }
    }

    /// Whether a `declare-ok` says that something is done.
    fn is_declaring(&self) -> bool {
        matches!(
            self.state,
            State::Recording | State::Comparing | State::Trying | State::Declaring { .. }
        )
    }

    /// The broker has done what was asked.
    fn done(&mut self, now: Now, fx: &mut Effects) {
        let next = match self.state {
            State::Recording => State::Claiming,
            State::Claiming if self.settings.task == Task::Finish => {
                State::Declaring { old: false }
            }
            State::Claiming => State::CountingProxies,
            State::Comparing => State::Trying,
            State::Trying => State::Withdrawing,
            State::Withdrawing => State::Testing(0),
            State::Testing(at) => State::Testing(at + 1),
            State::Unbinding(at) => State::Unbinding(at + 1),
            State::Proving { last } => State::Ending { last },
            State::Ending { last } => State::Recounting { last },
            State::Undoing(at) => State::Undoing(at + 1),
            State::Binding(at) => State::Binding(at + 1),
            State::Deleting => State::Declaring { old: false },
            State::Declaring { .. } => {
                self.anew = true;
                State::Binding(0)
            }
            State::Cleaning => State::Ended,
            _ => return,
        };
        self.enter(next, now, fx);
    }

    /// The broker has closed the channel.
    fn refused(&mut self, code: u16, text: String, now: Now, fx: &mut Effects) {
        self.open(fx);
        match self.state {
            State::Claiming => self.end(Failure::Claimed, now, fx),
            State::Recording => self.end(refusal(code, text), now, fx),
            State::CountingProxies => self.enter(State::Comparing, now, fx),
            State::Deleting => {
                self.undo("a message came in its last moment".to_owned(), now, fx);
            }
            State::Unbinding(_) => self.undo(text, now, fx),
            // A consumer of its clients is exclusive: it has got all there was.
            State::Proving { last: false } => self.enter(State::Settling, now, fx),
            State::Proving { last: true } => self.undo(text, now, fx),
            // It is there as it was.
            State::Declaring { old: false } if self.settings.task == Task::Finish => {
                self.enter(State::Binding(0), now, fx);
            }
            State::Declaring { old: false } => {
                self.failure = Some(Failure::Back(text));
                self.enter(State::Declaring { old: true }, now, fx);
            }
            State::Binding(at) => {
                self.altered.unbound.push(text);
                self.enter(State::Binding(at + 1), now, fx);
            }
            State::Undoing(at) => {
                self.altered.unbound.push(text);
                self.enter(State::Undoing(at + 1), now, fx);
            }
            State::Cleaning | State::Ended => self.enter(State::Ended, now, fx),
            _ => self.fail(refusal(code, text), now, fx),
        }
    }

    /// Nothing was begun.
    fn end(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure.get_or_insert(failure);
        self.enter(State::Ended, now, fx);
    }

    fn late(&mut self, now: Now, fx: &mut Effects) {
        let left = self.awaited.as_ref().map_or(0, BTreeSet::len);
        let busy = match self.state {
            State::Holding => format!("what {left} connections had published was not settled"),
            State::Cancelling if left == 0 => {
                "what the proxy had published was not confirmed".to_owned()
            }
            State::Settling => format!("{left} connections had messages of it unsettled"),
            State::Cancelling => format!("{left} connections could not end their consumers"),
            State::Draining => std::mem::take(&mut self.busy),
            State::Counting
            | State::Unbinding(_)
            | State::Proving { .. }
            | State::Ending { .. }
            | State::Recounting { .. } => "the broker was slow".to_owned(),
            _ => {
                self.once.fails(LinkFailure::Silent);
                return self.enter(State::Ended, now, fx);
            }
        };
        self.undo(busy, now, fx);
    }

    fn heard_of(&mut self, owner: Owner, now: Now, fx: &mut Effects) {
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(&owner);
        }
        self.go_on(now, fx);
    }

    /// Goes on when all that were told are as far.
    fn go_on(&mut self, now: Now, fx: &mut Effects) {
        let are_ready = self.awaited.as_ref().is_some_and(BTreeSet::is_empty);
        match self.state {
            State::Holding if are_ready => self.enter(State::Draining, now, fx),
            State::Settling if are_ready => self.enter(State::Cancelling, now, fx),
            State::Cancelling if are_ready && self.publisher_pauses => {
                self.enter(State::Counting, now, fx);
            }
            _ => {}
        }
    }
}

fn refusal(code: u16, text: String) -> Failure {
    Failure::Link(LinkFailure::Refused { code, text })
}

impl Linked for Alteration {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, now: Now, fx: &mut Effects) {
        self.open(fx);
        let first = match self.settings.task {
            Task::Alter(_) => State::Recording,
            Task::Finish => State::Claiming,
        };
        self.enter(first, now, fx);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        match frame.method() {
            Some(MethodId::CHANNEL_CLOSE) => {
                let (code, text) = frame.closed(fx);
                self.refused(code, text, now, fx);
            }
            Some(MethodId::QUEUE_DECLARE_OK) => {
                let ok = QueueDeclareOk::parse(frame.payload);
                let ok = ok.map_err(|_| "the broker sent an answer that cannot be read")?;
                match self.is_declaring() {
                    true => self.done(now, fx),
                    false => self.counted(ok, now, fx),
                }
            }
            Some(MethodId::QUEUE_DELETE_OK) => {
                if self.state == State::Deleting {
                    let mut ok = Cursor::new(frame.payload);
                    self.altered.lost = ok.take(4).and_then(|_| ok.long()).unwrap_or(0);
                }
                self.done(now, fx);
            }
            Some(MethodId::BASIC_DELIVER) => {
                let given = Deliver::parse(frame.payload);
                let given = given.map_err(|_| "the broker sent a delivery that cannot be read")?;
                let out = fx.broker.build(&[]);
                reply::nack(out, self.channel, given.delivery_tag, false, true);
            }
            Some(
                MethodId::BASIC_CONSUME_OK
                | MethodId::BASIC_CANCEL_OK
                | MethodId::QUEUE_BIND_OK
                | MethodId::QUEUE_UNBIND_OK,
            ) => self.done(now, fx),
            _ => {}
        }
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {}

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Told(owners) => {
                self.awaited = Some(owners);
                self.go_on(now, fx);
            }
            Input::Ready(owner, ready) => {
                let wanted = match self.state {
                    State::Holding => Ready::Held,
                    State::Settling => Ready::Settled,
                    _ => Ready::Cancelled,
                };
                if ready == wanted {
                    self.heard_of(owner, now, fx);
                }
            }
            Input::Gone(owner) => self.heard_of(owner, now, fx),
            Input::Paused => {
                self.publisher_pauses = true;
                self.go_on(now, fx);
            }
        }
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        // What is under way takes a moment.
        if !self.under_way && !matches!(self.state, State::Cleaning | State::Ended) {
            self.fail(Failure::Busy("the proxy ends".to_owned()), now, fx);
        }
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        let is_due = |at: &mut Mono| *at <= now.mono;
        if self.until.take_if(is_due).is_some() {
            self.late(now, fx);
        }
        if self.ask_at.take_if(is_due).is_some()
            && matches!(self.state, State::Waiting | State::Draining)
        {
            self.enter(self.state, now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        if self.state == State::Ended {
            return None;
        }
        [self.until, self.ask_at].into_iter().flatten().min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        if let Some(over) = self.once.over(fx) {
            self.over(now, fx);
            let altered = std::mem::take(&mut self.altered);
            fx.out.ended = Some(match (over, self.failure.take()) {
                (Err(lost), _) => Err(lost.into()),
                (Ok(()), Some(failure)) => Err(failure),
                (Ok(()), None) => Ok(altered),
            });
        }
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
