//! A queue is made anew with other arguments, when it is empty and nobody is at work on what it had. Its clients are connected to this proxy,
//! and notice a pause.
//!
//! ```text
//! link up ─▶ claim it ─▶ write the order down, bind it ─▶ compare, try, test ─▶ Waiting for an empty queue ◀─────┐
//!                                                                        │                              not in time: all is as before
//!                                                                        ▼                                       │
//!  sessions hold ─▶ Draining ─▶ Proving ─▶ sessions settle, then cancel; the publisher pauses ─▶ Counting ─▶ Unbinding ─▶ Getting ─▶ Deleting
//!                                                                                                            │
//!                          Ended ◀─ Cleaning ◀─ sessions go on ◀─ Binding ◀─ Declaring ◀─ Vanishing ◀────────┘
//! ```
//! A backlog that nobody reads is moved aside instead of being waited for, and back (`moving.rs`): its clients wait for longer.
//!
//! ```text
//!  sessions hold ─▶ sessions cancel ─▶ Counting ─▶ Unbinding ─▶ Moving out ─▶ Deleting ─▶ … ─▶ Binding ─▶ Looking ─▶ Moving back ─▶ Clearing
//! ```
//! Other proxies of the vhost find the order, take part ([`Follower`]), and tell their sessions the same (`others.rs`).
//!
//! The order stands at the broker until the end ([`order`]). It is claimed by an exclusive queue: while that lives, nobody else works on it.
//! When it is gone, somebody finds the order and finishes it ([`Task::Finish`]): the queue is there as it was, or not at all, or anew.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::amqp::cursor::Cursor;
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{Deliver, MethodId, QueueDeclareOk};
use crate::amqp::reply;
use crate::dead_letter::RuleSettings;
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Effects as Fx, Flow, Mono, Now, Owner, Role};
use crate::mover::{Keep, Mover};
use crate::objects::Names;
use crate::session::Ready;
use crate::walk::Failure as LinkFailure;
use crate::walk::Once;

use self::awaited::Awaited;
pub use self::follower::Follower;
use self::moving::{Moving, Way};
pub use self::order::{Arguments, Binding, Made, Order, table};
use self::others::{Others, Word};
use self::state::State;

mod answers;
mod awaited;
mod follower;
mod moving;
pub mod order;
mod others;
pub mod plan;
mod state;
mod steps;
#[cfg(test)]
mod tests;

/// The argument that has the order.
pub const ORDER: &[u8] = b"x-dlx-proxy-order";
/// Limit of the broker's answers while clients go on.
const PATIENCE: Duration = Duration::from_secs(30);
/// For the other proxies to find the order: they look for one every 20 seconds.
const JOINING: Duration = Duration::from_secs(40);
/// From the pause of the clients to the delete: else all is undone. The rest takes a few round trips.
const COMMIT_WITHIN: Duration = Duration::from_millis(700);
/// Between questions for the number of messages, while clients wait and while they do not.
const QUICK: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(100);
/// For the last replica of a quorum queue to end. Up to 34 ms were seen (S12.14).
const VANISH: Duration = Duration::from_millis(200);
/// After an attempt, so that clients get on.
const REST: Duration = Duration::from_secs(1);
const UNREADABLE: &str = "the broker sent a delivery that cannot be read";
/// Of the claim, which all others say something to.
const CLAIM: ChannelId = ChannelId(1);

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub names: Names,
    pub order: Order,
    pub task: Task,
    pub rules: RuleSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Tries for that long, when as many other proxies take part.
    Alter {
        wait: Duration,
        others: usize,
        backlog: Backlog,
    },
    /// Another proxy alters the queue ([`Follower`]).
    Follow,
    /// An order that was left behind.
    Finish,
}

/// What is moved aside if the queue does not become empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Messages that can be moved while clients wait.
    pub most: u32,
    /// Messages on their way at a time.
    pub window: u16,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    Hold,
    Settle,
    Cancel,
    /// A backlog is moved: the publisher goes on pausing.
    Moving,
    Over(Made),
}

pub type Effects = Fx<Output>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// How long clients waited, at most.
    pub pause: Duration,
    pub attempts: u32,
    pub made: Made,
    /// Messages that came into the queue past this proxy in its last moment.
    pub lost: u32,
    /// Messages that were moved aside, and back.
    pub moved: u64,
    /// Bindings that could not be made again, in the broker's words.
    pub unbound: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    #[error(transparent)]
    Link(#[from] LinkFailure),
    #[error("another alteration of this queue is under way")]
    Claimed,
    #[error(
        "a look, a redrive or a purge may have messages of this queue: try again when it has ended"
    )]
    Walked,
    #[error("this alteration of the queue is finished")]
    Finished,
    #[error("the queue was not quiet in time: {0}. It is as it was")]
    Busy(String),
    #[error(
        "the queue could not be declared anew ({0}), and is back with the arguments that it had"
    )]
    Back(String),
    #[error(
        "the queue is there, but not all of its messages: {0}. The others wait in the queue {1}; the proxies go on moving them back"
    )]
    Aside(String, ShortStr),
}

/// The queue where a backlog waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aside {
    Missing,
    Empty,
    /// It may be there, with messages: the order must stay.
    MayWait,
}

#[derive(Debug)]
pub struct Alteration {
    settings: Settings,
    link: Link,
    state: State,
    channel: ChannelId,
    awaited: Awaited,
    mover: Mover<()>,
    moving: Option<Moving>,
    others: Others,
    /// Clients wait since.
    held: Option<Mono>,
    /// The queue, or a binding of it, may be missing.
    under_way: bool,
    /// This attempt moves a backlog.
    moves: bool,
    backlog: Aside,
    altered: Altered,
    busy: String,
    failure: Option<Failure>,
    /// When to ask for the number of messages again.
    ask_at: Option<Mono>,
    /// Limit of the state.
    until: Option<Mono>,
    /// How long to try from when all other proxies take part on.
    begins_with_all: Option<Duration>,
    ends: Mono,
    /// From when on a backlog is moved that somebody reads.
    moves_from: Mono,
    once: Once,
}

// === impl Alteration ===

impl Alteration {
    pub fn new(settings: Settings, now: Now) -> Alteration {
        Alteration {
            link: Link::new(Role::Walk, settings.login.clone()),
            state: State::Shut,
            channel: ChannelId(0),
            awaited: Awaited::default(),
            mover: Mover::new(CLAIM, 0),
            moving: None,
            others: Others::default(),
            held: None,
            under_way: false,
            moves: false,
            backlog: Aside::Missing,
            altered: Altered::default(),
            busy: String::new(),
            failure: None,
            ask_at: None,
            until: Some(now.mono.after(PATIENCE)),
            begins_with_all: match settings.task {
                Task::Alter { wait, .. } => Some(wait),
                Task::Finish | Task::Follow => None,
            },
            settings,
            ends: now.mono,
            moves_from: now.mono,
            once: Once::default(),
        }
    }

    fn order(&self) -> &Order {
        &self.settings.order
    }

    fn tell(&mut self, told: Told, fx: &mut Effects) {
        self.awaited.begin(told);
        fx.out.swap.push(told);
        self.say(Word::Told(told), fx);
    }

    fn give_back(&self, tag: DeliveryTag, fx: &mut Effects) {
        reply::nack(fx.broker.build(&[]), self.channel, tag, false, true);
    }

    /// Other proxies that do not take part yet.
    fn missing(&self) -> usize {
        match self.settings.task {
            Task::Alter { others, .. } => others.saturating_sub(self.others.count()),
            Task::Finish | Task::Follow => 0,
        }
    }

    /// Clients go on. Not while the queue may be missing: somebody else has to finish then.
    fn over(&mut self, now: Now, fx: &mut Effects) {
        if self.under_way {
            return;
        }
        if let Some(held) = self.held.take() {
            let pause = held.until(now.mono);
            self.altered.pause = self.altered.pause.max(pause);
            self.tell(Told::Over(self.altered.made), fx);
            self.others.release();
        }
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        if self.backlog == Aside::MayWait {
            return self.leave(failure, now, fx);
        }
        self.failure.get_or_insert(failure);
        self.clean(now, fx);
    }

    /// The order stays: whoever finds it goes on.
    fn leave(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure = Some(failure);
        self.under_way = false;
        self.enter(State::Ended, now, fx);
    }

    /// Nothing waits aside any more.
    fn clean(&mut self, now: Now, fx: &mut Effects) {
        let next = match self.backlog {
            Aside::Missing => State::Cleaning,
            Aside::Empty | Aside::MayWait => State::Clearing,
        };
        self.enter(next, now, fx);
    }

    /// This attempt was too long.
    fn undo(&mut self, busy: String, now: Now, fx: &mut Effects) {
        self.busy = busy;
        self.end_moving(fx);
        match self.state {
            State::Unbinding(_)
            | State::Proving { last: true }
            | State::Ending { last: true }
            | State::Recounting { last: true }
            | State::Moving(Way::Out)
            | State::Getting
            | State::Deleting => {
                self.enter(State::Undoing(0), now, fx);
            }
            _ => self.rest(now, fx),
        }
    }

    fn rest(&mut self, now: Now, fx: &mut Effects) {
        (self.under_way, self.moves) = (false, false);
        self.over(now, fx);
        if now.mono >= self.ends {
            let busy = std::mem::take(&mut self.busy);
            return self.fail(Failure::Busy(busy), now, fx);
        }
        self.state = State::Waiting;
        self.until = None;
        self.ask_at = Some(now.mono.after(REST));
    }
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
        self.enter(State::Claiming, now, fx);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        if let Some(moving) = self
            .moving
            .take_if(|moving| moving.channel() == frame.channel)
        {
            return self.moves(moving, frame, now, fx);
        }
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
            Some(MethodId::BASIC_DELIVER) if frame.channel == self.channel => {
                let given = Deliver::parse(frame.payload);
                let given = given.map_err(|_| UNREADABLE)?;
                self.give_back(given.delivery_tag, fx);
            }
            Some(MethodId::BASIC_GET_OK) => {
                let mut got = Cursor::new(frame.payload);
                let tag = got.take(4).and_then(|_| got.longlong());
                self.give_back(DeliveryTag(tag.map_err(|_| UNREADABLE)?), fx);
                self.got(false, now, fx);
            }
            Some(MethodId::BASIC_GET_EMPTY) => self.got(true, now, fx),
            Some(
                MethodId::BASIC_CONSUME_OK
                | MethodId::BASIC_CANCEL_OK
                | MethodId::QUEUE_BIND_OK
                | MethodId::QUEUE_UNBIND_OK,
            ) => self.done(now, fx),
            // Its binding is missing: whoever wrote it down ended before anything was changed.
            Some(MethodId::BASIC_RETURN) if self.state == State::Finding => {
                self.fail(Failure::Finished, now, fx);
            }
            _ => {}
        }
        if frame.channel == CLAIM
            && let Some(mut delivery) = self.mover.frame(frame, Keep::Whole)?
            && let Some(reply) = others::read(&mut delivery, &self.link)
        {
            self.hear(&reply, now, fx);
        }
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {}

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        self.awaited.hear(input);
        self.go_on(now, fx);
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        // What is under way takes a moment.
        if !self.under_way
            && !matches!(self.state, State::Clearing | State::Cleaning | State::Ended)
        {
            self.fail(Failure::Busy("the proxy ends".to_owned()), now, fx);
        }
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        let is_due = |at: &mut Mono| *at <= now.mono;
        if self.until.take_if(is_due).is_some() {
            self.late(now, fx);
        }
        if self.ask_at.take_if(is_due).is_some() {
            match self.state {
                State::Waiting | State::Draining => self.enter(self.state, now, fx),
                State::Moving(_) => self.look_again(now, fx),
                State::Vanishing => self.enter(State::Declaring { old: false }, now, fx),
                _ => {}
            }
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
