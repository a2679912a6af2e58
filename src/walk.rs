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

use crate::letter::Letter;
use crate::link::{Frame, Link, Linked, Loss};
use crate::machine::{Flow, Mono, Now, Outcome, Publication, Role, Ticket};

pub use self::ended::{Ended, Failure, QueueType, REORDERED, Stopped, Summary};
pub use self::moving::{MOST_AWAY, MOST_HELD, Moved};
pub(crate) use self::once::Once;
pub use self::readable::{Answers, Readable};
pub use self::settings::{Bodies, Bounds, Move, Settings, Task};

mod asking;
mod away;
mod channels;
mod ended;
mod gets;
mod message;
mod moving;
mod once;
mod passing;
mod readable;
mod rights;
mod settings;
mod shelf;
#[cfg(test)]
mod tests;
mod window;

use self::message::Arriving;
use self::moving::Moving;
use self::window::Window;

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
    /// The channel in use: each refusal closes one.
    channel: u16,
    arriving: Option<Arriving>,
    moving: Option<Moving>,
    window: Window,
    /// Somebody wants it to take nothing for a while: when it ends if that lasts until then.
    paused: Option<Mono>,
    /// Until when what it holds has to be put back.
    shelf: Option<Mono>,
    /// What it holds is put back, and then it goes on.
    restarts: bool,
    /// It gets messages, and does not consume them.
    gets: bool,
    /// It takes nothing now, so nothing is read.
    rests: bool,
    wake: Option<Mono>,
    summary: Summary,
    octets: u64,
    /// Messages that came, and those that were acked.
    delivered: u64,
    acked: u64,
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
    /// The last message had been somebody's before.
    last_had_come_back: bool,
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
            until: Some(now.mono.after(settings.bounds.time.min(BEGINNING))),
            ends: now.mono.after(settings.bounds.time),
            began: now.mono,
            since: now.mono,
            last_had_come_back: false,
            is_said_to_be_empty: false,
            window: Window::default(),
            shelf: None,
            restarts: false,
            gets: false,
            moving: match &settings.task {
                Task::Look(_) => None,
                Task::Move(wanted) => {
                    Some(Moving::new(Move::clone(wanted), settings.bounds.held, now))
                }
            },
            paused: None,
            rests: false,
            wake: None,
            settings,
            state: State::Shut,
            channel: 0,
            arriving: None,
            summary: Summary::default(),
            octets: 0,
            delivered: 0,
            acked: 0,
            quiet: None,
            once: Once::default(),
        }
    }

    /// How far it has come, and what became of the messages if they move.
    pub fn progress(&self) -> (&Summary, Option<&Moved>) {
        (&self.summary, self.moving.as_ref().map(Moving::moved))
    }

    /// The broker has let it in, and refuses nothing any more.
    pub fn is_under_way(&self) -> bool {
        matches!(
            self.state,
            State::Walking
                | State::Settling
                | State::Passing
                | State::Emptying
                | State::Cancelling
                | State::Closing
                | State::Shelved
                | State::Returning
        )
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
            State::Dismissed
            | State::Settling
            | State::Passing
            | State::Emptying
            | State::Cancelling
            | State::Closing
            | State::Returning
            | State::Ended => {}
        }
    }

    /// Somebody has seen enough: what waits for a publisher does so no longer.
    fn cancel(&mut self, why: Stopped, now: Now, fx: &mut Effects) {
        if let Some(moving) = &mut self.moving {
            moving.give_up();
        }
        self.stop(why, now, fx);
    }

    fn is_cancelled(&self) -> bool {
        self.moving.as_ref().is_some_and(Moving::is_given_up)
    }

    /// Nothing is on its way to it any more.
    fn take_leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Cancelling;
        self.quiet = None;
        self.until = Some(now.mono.after(self.patience()));
        match self.gets {
            // There is no consumer.
            true => self.set_prefetch(1, fx),
            false => self.put_cancel(fx),
        }
    }

    /// The broker has closed the channel, and puts back what that held. If nobody else takes messages, the queue counts all of them again soon.
    fn returning(&mut self, now: Now, fx: &mut Effects) {
        let waits = self.left().is_some() && self.summary.consumers == Some(0);
        if self.held() == 0 || !waits || self.summary.queue_type == QueueType::Stream {
            return self.leave(now, fx);
        }
        self.state = State::Returning;
        self.until = Some(now.mono.after(RETURN));
        self.open_channel(fx);
        self.ask_count(fx);
    }

    /// As many messages as the queue had when it began, without those that are gone.
    fn left(&self) -> Option<u64> {
        Some(self.summary.ready?.saturating_sub(self.acked))
    }

    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.once.fails(failure);
        self.leave(now, fx);
    }

    /// The broker has heard all that it is to hear.
    fn leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Ended;
        self.quiet = None;
        self.once.end(&mut self.link, now, fx);
    }

    /// Whether a message may be taken now; if not, nothing is read, so that the broker keeps what it has.
    fn rest(&mut self, now: Now) -> bool {
        let moving = self
            .moving
            .as_ref()
            .filter(|_| self.state == State::Walking);
        let rests = match moving {
            Some(_) if self.paused.is_some() => Some(None),
            moving => moving.and_then(|moving| moving.rests(now)),
        };
        self.wake = rests.flatten();
        match (
            std::mem::replace(&mut self.rests, rests.is_some()),
            self.rests,
        ) {
            (_, true) => self.quiet = None,
            (true, false) if self.state == State::Walking => self.wait(now),
            (_, false) => {}
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
        self.count(fx);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        Walk::frame(self, frame, now, fx)?;
        self.rest(now);
        Ok(())
    }

    fn lost(&mut self, _: Loss, _: Now, _: &mut Effects) {
        (self.arriving, self.state) = (None, State::Ended);
    }

    fn told(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Enough => self.cancel(Stopped::Enough, now, fx),
            Input::Pause(pause) => self.pause(pause, now, fx),
            Input::Settled(outcomes) => self.settled(outcomes, now, fx),
        }
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        self.cancel(Stopped::Enough, now, fx);
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.until.take_if(|at| *at <= now.mono).is_some() {
            match self.state {
                State::Walking => self.stop(Stopped::Time, now, fx),
                State::Passing => self.empty(now),
                State::Emptying => self.take_leave(now, fx),
                State::Returning => self.leave(now, fx),
                State::Ended | State::Shelved => {}
                // It goes on when the alarm is over.
                _ if self.restarts && self.is_blocked() => self.until = Some(now.mono.after(LAST)),
                _ if self.is_cancelled() && self.is_blocked() => self.cut(now, fx),
                _ if self.link.is_blocked() => self.fail(Failure::Blocked, now, fx),
                _ => self.fail(Failure::Silent, now, fx),
            }
        }
        if self.paused.take_if(|at| *at <= now.mono).is_some() {
            self.cancel(Stopped::Paused, now, fx);
        }
        if self.shelf.take_if(|at| *at <= now.mono).is_some() {
            self.shelf_is_due(now, fx);
        }
        if self.quiet.take_if(|at| *at <= now.mono).is_some() {
            match self.state {
                State::Passing | State::Emptying => self.take_leave(now, fx),
                _ => self.quiet(now, fx),
            }
        }
        if let Some(moving) = &mut self.moving {
            fx.out.publish.extend(moving.again(now));
        }
        self.miss_answers(now, fx);
        self.lighten(now, fx);
    }

    fn wake(&self) -> Option<Mono> {
        if self.state == State::Ended {
            return None;
        }
        let again = self.moving.as_ref().and_then(Moving::deadline);
        let own = [self.until, self.quiet, self.shelf, self.wake, again];
        own.into_iter().flatten().chain(self.paused).min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.take_stashed(now, fx);
        self.ask(now, fx);
        self.settle(now, fx);
        self.widen(fx);
        self.rest(now);
        if let Some(over) = self.once.over(fx) {
            if let Some(moving) = &self.moving {
                self.summary.moved = moving.moved().clone();
            }
            fx.out.ended = Some(over.map(|()| self.summary.clone()));
        }
    }

    /// While no message may be taken, only answers are read.
    fn reads(&self) -> bool {
        !self.rests || self.hears()
    }

    fn rests(&self) -> bool {
        self.rests
    }

    fn course(&self) -> Flow {
        self.once.course(&self.link)
    }
}
