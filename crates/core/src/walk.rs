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
pub use self::readable::{Answers, Readable};
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

/// After so long without a message it is asked whether there is one.
const PAUSE: Duration = Duration::from_millis(300);
/// The same for a user who may not ask that: then there is none.
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// For so long it is waited until the broker has let it in, and answered what is asked first.
const BEGINNING: Duration = Duration::from_secs(30);
/// Without a message for so long, though there are some, it says so.
const STARVES: Duration = Duration::from_secs(10);
/// For so long it is waited until the broker counts all that was put back, and so often it is asked. Without that the next walk may miss some.
const RETURN: Duration = Duration::from_secs(2);
const RETURN_PAUSE: Duration = Duration::from_millis(20);
/// For so long it is waited for what the broker says at the end of a walk. Then the connection is cut, which puts all back, too.
const LAST: Duration = Duration::from_secs(5);
/// The first window, where it is not known how many messages have to be passed.
const FIRST: u64 = 16;
/// Each window is so many times larger than the one before.
const FACTOR: u64 = 4;
/// While the broker may have an alarm about its memory, if that lasts for so long, so much of it is held.
const HEAVY: u64 = 64 << 20;
const ALARM: Duration = Duration::from_secs(30);

/// What a walk is told besides the bytes of its link.
#[derive(Debug)]
pub enum Input {
    /// Enough: put back what was taken, and end.
    Enough,
    /// Take nothing more for a while, or go on.
    Pause(bool),
    /// What became of publications.
    Settled(Vec<(Ticket, Outcome)>),
}

/// What a walk has for whoever watches.
#[derive(Debug, Default)]
pub struct Output {
    /// Messages that were looked at, in the order of the queue.
    pub letters: Vec<Letter>,
    pub publish: Vec<(Ticket, Publication)>,
    /// How it ended: comes once, last.
    pub ended: Option<Ended>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;

/// ```text
/// Shut ─▶ Counting ─▶ Testing ─▶ Asking ─▶ Comparing ─▶ Asking ─▶ Walking ─▶ Settling ─▶ Passing ─▶ Emptying ─▶ Cancelling ─▶ Closing ─▶ Returning ─▶ Ended
///                                  ▲                                                          └─▶ Shelved ─┐
///                                  └───────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    /// `queue.declare`, passive, is sent.
    Counting,
    /// Whether the user may publish there.
    Testing,
    /// Whether the queue goes with its last consumer is asked.
    Comparing {
        /// It is declared as a durable one.
        durable: bool,
    },
    /// `basic.consume` is sent.
    Asking {
        /// With an argument that only streams know.
        as_stream: bool,
    },
    Walking,
    /// The broker has cancelled the consumer; whether the queue is there is asked.
    Dismissed,
    /// No message is taken any more, but some have no outcome yet.
    Settling,
    /// What is put back would come to stand behind others that had come back before: these are taken, too (S12.9).
    Passing,
    /// Nothing is taken any more, but messages are on their way. A quorum queue would put them in front of those that are here if it were cancelled
    /// now (S12.6).
    Emptying,
    /// `basic.cancel` is sent. What still comes was taken, too.
    Cancelling,
    /// `channel.close` is sent.
    Closing,
    /// It holds nothing until it may go on.
    Shelved,
    /// What was put back is on its way into the queue.
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
    /// Somebody wants it to take nothing for a while: when it ends if that lasts until then.
    paused: Option<Mono>,
    /// Until when what it holds has to be put back.
    shelf: Option<Mono>,
    /// What it holds is put back, and then it goes on.
    restarts: bool,
    /// It takes nothing now, so nothing is read.
    rests: bool,
    wake: Option<Mono>,
    summary: Summary,
    /// Without a message for so long, it is asked whether there is one.
    quiet: Option<Mono>,
    /// Until when: the bound on time, or on what the broker is to say at the end.
    until: Option<Mono>,
    /// The bound on time, once it is under way.
    ends: Mono,
    /// When it began to consume, or held nothing that stays.
    began: Mono,
    /// When the last message came.
    since: Mono,
    /// Since the last message the broker has counted none.
    is_said_to_be_empty: bool,
    once: Once,
}

// === impl Walk ===

impl Walk {
    /// A walk that wants its connection.
    pub fn new(settings: Settings, now: Now) -> Walk {
        Walk {
            link: Link::new(Role::Walk, settings.login.clone()),
            state: State::Shut,
            channel: Channel::new(settings.queue.clone()),
            moving: Moving::new(settings.task.clone(), settings.bounds, now),
            paused: None,
            shelf: None,
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

    /// Another channel: what was held on the last one is in the queue again.
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

    /// Somebody has seen enough: what waits for a publisher does so no longer.
    fn cancel(&mut self, why: Stopped, now: Now, fx: &mut Effects) {
        self.moving.give_up();
        self.stop(why, now, fx);
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.once.fails(failure);
        self.leave(now, fx);
    }

    /// The broker has heard all that it is to hear.
    fn leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Ended;
        self.flush(fx);
        self.quiet = None;
        self.once.end(&mut self.link, now, fx);
    }

    /// Something has to have happened by now.
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

    /// Messages that move have their own times.
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
            self.cancel(Stopped::Octets, now, fx);
        }
    }

    /// Whether a message may be taken now; if not, nothing is read, so that the broker keeps what it has.
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

    fn told(&mut self, input: Input, now: Now, fx: &mut Effects) {
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
        if self.shelf.take_if(is_due).is_some() {
            self.shelf_is_due(now, fx);
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
        let own = [self.until, self.quiet, self.shelf, self.wake, again];
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

    /// While no message may be taken, an answer is read all the same, if there is room for what comes before it.
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
