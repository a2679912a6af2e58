//! A walk along a queue, without IO: takes its messages one after another, the oldest first, and puts them back in their places, or moves them.
//!
//! ```text
//! link up ─▶ count ─▶ consume, as if it were a stream ─▶ it is one ────────────────┐
//!                                  └─ 406 says its type ─▶ consume as what it is ──┴▶ look at messages ─▶ put them back ─▶ end
//! ```
//! It goes in the name of a user, so that the broker says what that user may see. Its connection is its own, and does not come back.
//!
//! **How messages come back to their places** (S12.1, S12.2): a classic queue keeps its order whatever is done. A quorum queue keeps it when the
//! channel is closed, which counts as a delivery of each message; up to 4.2 a `basic.nack` may put a message behind all others. From 4.3 on a
//! `basic.nack` of all, behind `basic.cancel`, keeps the order and does not count. They may be in the queue only a little after the broker has said
//! that the channel is closed, so a walk ends when the queue counts them again. Of messages that a quorum queue has got back before, a walk
//! takes all or none, where that costs nothing (S12.9).

use std::time::Duration;

use crate::amqp::frame::Kind;
use crate::letter::{Filter, Letter};
use crate::link::{Frame, Link, Linked, Loss};
use crate::machine::{Flow, Mono, Now, Outcome, Publication, Role, Ticket};
use crate::mover::Keep;

pub use self::ended::{Ended, Failure, Progress, QueueType, REORDERED, Stopped, Summary};
pub use self::moving::{MOST_AWAY, MOST_HELD, Moved};
pub(crate) use self::once::Once;
pub use self::readable::{AT_ONCE, Answers, Readable};
pub use self::settings::{Bodies, Bounds, Move, Settings, Task};

mod away;
mod channel;
mod ended;
mod frames;
mod held;
mod moving;
mod once;
mod readable;
mod rights;
mod settings;
#[cfg(test)]
mod tests;
mod window;

use self::channel::Channel;
use self::moving::Moving;

/// Silence before the number of messages is queried.
const PAUSE: Duration = Duration::from_millis(300);
/// The same for a user without that right: then the queue counts as empty.
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// Timeout of login and first questions.
const BEGINNING: Duration = Duration::from_secs(30);
/// Silence, despite messages in the queue, that is reported.
const STARVES: Duration = Duration::from_secs(10);
/// How long, and how often, to wait until the broker counts requeued messages. Otherwise the next
/// walk may miss some.
const RETURN: Duration = Duration::from_secs(2);
const RETURN_PAUSE: Duration = Duration::from_millis(20);
/// Timeout at the end of a walk. Then the connection is cut, which also requeues everything.
const LAST: Duration = Duration::from_secs(5);
/// First window, if the number of messages to pass is unknown.
const FIRST: u64 = 16;
const FACTOR: u64 = 4;
/// Memory held during a lasting memory alarm of the broker.
const HEAVY: u64 = 64 << 20;
const ALARM: Duration = Duration::from_secs(30);

/// From the owner of the walk.
#[derive(Debug)]
pub enum Input {
    /// Requeue everything, and end.
    Enough,
    /// Take no messages for a while, or go on.
    Pause(bool),
    Settled(Vec<(Ticket, Outcome)>),
}

#[derive(Debug, Default)]
pub struct Output {
    /// Browsed messages, in the order of the queue.
    pub letters: Vec<Letter>,
    pub publish: Vec<(Ticket, Publication)>,
    /// Comes once, last.
    pub ended: Option<Ended>,
}

pub type Effects = crate::machine::Effects<Output>;

/// ```text
/// Shut ─▶ Counting ─▶ Testing ─▶ Asking ─▶ Comparing ─▶ Asking ─▶ Walking ─▶ Settling ─▶ Passing ─▶ Emptying ─▶ Cancelling ─▶ Closing ─▶ Returning ─▶ Ended
///                                  ▲                                                          └─▶ Shelved ─┐
///                                  └───────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    Counting,
    /// Tests the permission to publish.
    Testing,
    /// Tests whether the queue goes with its last consumer.
    Comparing {
        durable: bool,
    },
    Asking {
        /// With an argument for streams only.
        as_stream: bool,
    },
    Walking,
    /// The broker cancelled the consumer; checks whether the queue exists.
    Dismissed,
    /// Takes nothing more, while outcomes are pending.
    Settling,
    /// Requeued messages would come behind others that were requeued before: takes these too
    /// (S12.9).
    Passing,
    /// Takes nothing more, while deliveries are in flight. After a cancel now, a quorum queue would
    /// requeue them before those held (S12.6).
    Emptying,
    /// `basic.cancel` is sent. Deliveries still count.
    Cancelling,
    Closing,
    Shelved,
    /// Requeued messages are not counted yet.
    Returning,
    Ended,
}

#[derive(Debug)]
pub struct Walk {
    settings: Settings,
    link: Link,
    state: State,
    channel: Channel,
    moving: Moving,
    /// Paused by the owner; ends at this time.
    paused: Option<Mono>,
    /// When held messages must be requeued.
    put_back_at: Option<Mono>,
    /// Held messages are requeued, and the walk goes on.
    restarts: bool,
    /// Takes nothing now, so nothing is read.
    rests: bool,
    wake: Option<Mono>,
    summary: Summary,
    /// When silence leads to a query.
    quiet: Option<Mono>,
    /// Deadline of the walk, or of the broker's last answers.
    until: Option<Mono>,
    /// Deadline of the walk, once it is under way.
    ends: Mono,
    /// Begin of consuming, or of holding nothing.
    began: Mono,
    since: Mono,
    /// The broker counted none since the last message.
    is_said_to_be_empty: bool,
    once: Once,
}

// === impl Walk ===

impl Walk {
    pub fn new(settings: Settings, now: Now) -> Walk {
        Walk {
            link: Link::new(Role::Walk, settings.login.clone()),
            state: State::Shut,
            channel: Channel::new(settings.queue.clone()),
            moving: Moving::new(settings.task.clone(), settings.bounds, now),
            paused: None,
            put_back_at: None,
            restarts: false,
            rests: false,
            wake: None,
            summary: Summary::default(),
            quiet: None,
            until: Some(now.mono.after(settings.bounds.time.min(BEGINNING))),
            ends: now.mono.after(settings.bounds.time),
            began: now.mono,
            since: now.mono,
            is_said_to_be_empty: false,
            once: Once::default(),
            settings,
        }
    }

    pub fn progress(&self) -> Progress {
        let is_beginning = matches!(
            self.state,
            State::Shut
                | State::Counting
                | State::Testing
                | State::Comparing { .. }
                | State::Asking { .. }
                | State::Dismissed
        );
        Progress {
            under_way: !is_beginning && self.state != State::Ended,
            blocked: self.is_blocked(),
            summary: Summary {
                queue_type: self.channel.queue_type,
                taken: self.channel.taken,
                moved: self.moving.moved.clone(),
                ..self.summary.clone()
            },
        }
    }

    fn is_blocked(&self) -> bool {
        self.link.is_blocked() && self.moving.rights.has_questions()
    }

    /// A new channel: the broker has requeued the messages of the last one.
    fn open(&mut self, fx: &mut Effects) {
        self.channel.open(fx.broker.build(&[]));
        self.moving.mover.forget(self.channel.id());
    }

    fn stop(&mut self, why: Stopped, now: Now, fx: &mut Effects) {
        match self.state {
            // The broker may be delivering already: to close now would count as failed deliveries.
            State::Walking | State::Asking { as_stream: false } => {
                self.summary.stopped = why;
                self.state = State::Settling;
                // What has an outcome in time is known to have gone; what has none may be there twice.
                (self.until, self.quiet) = (None, None);
            }
            State::Shut
            | State::Counting
            | State::Testing
            | State::Comparing { .. }
            | State::Asking { as_stream: true }
            | State::Shelved => {
                self.summary.stopped = why;
                self.leave(now, fx);
            }
            // It was to go on behind that.
            _ if self.restarts => {
                self.summary.stopped = why;
                self.restarts = false;
            }
            // It ends already.
            _ => {}
        }
    }

    /// Ends early: nothing waits for a publisher any more.
    fn cancel(&mut self, why: Stopped, now: Now, fx: &mut Effects) {
        self.moving.give_up();
        self.stop(why, now, fx);
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.once.fails(failure);
        self.leave(now, fx);
    }

    /// The broker has all settlements.
    fn leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Ended;
        self.flush(fx);
        self.quiet = None;
        self.once.end(&mut self.link, now, fx);
    }

    fn late(&mut self, now: Now, fx: &mut Effects) {
        let is_cancelled = self.moving.given_up;
        match self.state {
            State::Walking => self.stop(Stopped::Time, now, fx),
            State::Passing => self.take_no_more(now),
            State::Emptying => self.take_leave(now, fx),
            State::Returning => self.leave(now, fx),
            State::Ended | State::Shelved => {}
            // It goes on when the alarm is over.
            _ if self.restarts && self.is_blocked() => self.until = Some(now.mono.after(LAST)),
            // The broker cannot be told to put anything back. It does when it notices that the connection has ended.
            _ if is_cancelled && self.is_blocked() => {
                let quorum = self.channel.queue_type == QueueType::Quorum;
                self.summary.counted |= quorum && self.channel.held() > 0;
                self.leave(now, fx);
            }
            _ if self.link.is_blocked() => self.fail(Failure::Blocked, now, fx),
            _ => self.fail(Failure::Silent, now, fx),
        }
    }

    fn move_on(&mut self, now: Now, fx: &mut Effects) {
        let moving = &mut self.moving;
        moving.again(now, &mut fx.out);
        let has_alarm = moving
            .waits_since
            .is_some_and(|at| at.after(ALARM) <= now.mono);
        // An answer that does not come ends the walk; but an alarm is waited for, as the publisher does.
        if moving.rights.is_late(now.mono) && moving.waits_for_answer() {
            match (self.link.is_blocked(), self.channel.has_room()) {
                (true, true) => {}
                (true, false) => self.fail(Failure::Blocked, now, fx),
                (false, _) => self.fail(Failure::Silent, now, fx),
            }
        }
        // The alarm may be about the memory for what is held.
        if has_alarm && self.state == State::Walking && self.channel.weight() >= HEAVY {
            self.cancel(Stopped::Bytes, now, fx);
        }
    }

    /// Whether a message may be taken now; otherwise nothing is read, so the broker keeps the
    /// messages.
    fn rest(&mut self, now: Now) -> bool {
        let rests = match self.state {
            State::Walking if self.paused.is_some() => Some(None),
            State::Walking => self.moving.rests(now),
            _ => None,
        };
        self.wake = rests.flatten();
        let rested = std::mem::replace(&mut self.rests, rests.is_some());
        if self.rests {
            self.quiet = None;
        } else if rested && self.state == State::Walking {
            self.wait(now);
        }
        self.rests
    }
}

impl Linked for Walk {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn heard(&mut self, now: Now) {
        self.rest(now);
    }

    fn up(&mut self, _: Now, fx: &mut Effects) {
        self.state = State::Counting;
        self.open(fx);
        self.channel.count(fx.broker.build(&[]));
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        let keep = match self.settings.task {
            Task::Look(Bodies::Begin) => Keep::Begin(Filter::SEARCHED),
            Task::Look(Bodies::Whole) | Task::Move(_) => Keep::Begin(usize::MAX),
        };
        if let Some(delivery) = self.moving.mover.frame(frame, keep)? {
            self.channel.came(delivery);
            if let State::Passing | State::Emptying = self.state {
                self.quiet = Some(now.mono.after(PAUSE));
            }
        }
        if frame.kind == Kind::Method {
            self.method(frame, now, fx)?;
        }
        self.take(now, fx);
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {
        self.state = State::Ended;
    }

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Enough => self.cancel(Stopped::Enough, now, fx),
            Input::Pause(pause) => self.pause(pause, now, fx),
            Input::Settled(outcomes) => {
                let dialect = self.link.dialect();
                for (ticket, outcome) in outcomes {
                    if let Some(tag) = self.moving.settled(ticket, outcome, dialect, now) {
                        self.ack(tag);
                    }
                }
                self.end_at_bound(now, fx);
            }
        }
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        self.cancel(Stopped::Enough, now, fx);
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        let is_due = |at: &mut Mono| *at <= now.mono;
        if self.until.take_if(is_due).is_some() {
            self.late(now, fx);
        }
        if self.paused.take_if(is_due).is_some() {
            self.cancel(Stopped::Paused, now, fx);
        }
        if self.put_back_at.take_if(is_due).is_some() {
            self.put_back_due(now, fx);
        }
        if self.quiet.take_if(is_due).is_some() {
            match self.state {
                State::Passing | State::Emptying => self.take_leave(now, fx),
                // The user may not ask whether there are any messages still.
                _ if self.summary.ready.is_none() => self.stop(Stopped::End, now, fx),
                _ => self.channel.count(fx.broker.build(&[])),
            }
        }
        self.move_on(now, fx);
    }

    fn wake(&self) -> Option<Mono> {
        if self.state == State::Ended {
            return None;
        }
        let again = self.moving.deadline();
        let own = [self.until, self.quiet, self.put_back_at, self.wake, again];
        own.into_iter().flatten().chain(self.paused).min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.take(now, fx);
        if self.state != State::Ended {
            self.flush(fx);
        }
        if let State::Walking | State::Settling = self.state {
            let until = now.mono.after(BEGINNING);
            self.moving.rights.ask(until, fx.broker.build(&[]));
        }
        self.settle(now, fx);
        self.widen(fx);
        self.rest(now);
        if let Some(over) = self.once.over(fx) {
            fx.out.ended = Some(over.map(|()| self.progress().summary));
        }
    }

    /// While no message may be taken, an answer is read anyway, if there is room for messages
    /// before it.
    fn reads(&self) -> bool {
        !self.rests || self.moving.rights.has_questions() && self.channel.has_room()
    }

    fn rests(&self) -> bool {
        self.rests
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
