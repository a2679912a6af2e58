//! A walk along a queue, without IO: takes its messages one after another, the oldest first, and puts them back in their places.
//!
//! ```text
//! link up ─▶ count ─▶ consume, as if it were a stream ─▶ it is one ────────────────┐
//!                                  └─ 406 says its type ─▶ consume as what it is ──┴▶ look at messages ─▶ put them back ─▶ end
//! ```
//! It goes in the name of a user, so that the broker says what that user may see. Its connection is its own, and does not come back.
//!
//! **How messages come back to their places** (measured on 3.10.8, 4.0.5, 4.3.6; S9.1): a classic queue keeps its order whatever is done. A
//! quorum queue keeps it when the channel of its one consumer is closed, which counts as a failed delivery of each message; up to 4.2 a
//! `basic.nack` may put a message behind all others. From 4.3 on a `basic.nack` of all, behind `basic.cancel`, keeps the order and does not count.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::letter::Letter;
use crate::link::{Link, Login, Step};
use crate::machine::{Event, Flow, Leg, Machine, Mono, Now, Role};

pub use self::ended::{Ended, Failure, QueueType, Stopped, Summary};

mod channels;
mod ended;
mod message;
#[cfg(test)]
mod tests;

use self::message::Arriving;

/// After so long without a message it is asked whether there is one.
const PAUSE: Duration = Duration::from_millis(300);
/// The same for a user who may not ask that: then there is none.
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// For so long it is waited for what the broker says at the end of a walk. Then the connection is cut, which puts all back, too.
const LAST: Duration = Duration::from_secs(5);
/// Deliveries that a consumer may hold, at most: a number of two octets.
const MOST_HELD: u64 = u16::MAX as u64;

/// Where to go, and how far.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The vhost, and in whose name.
    pub login: Login,
    /// Along which queue.
    pub queue: ShortStr,
    /// How far.
    pub bounds: Bounds,
    /// Octets of each body that are kept.
    pub body: usize,
}

/// How far a walk goes. Whatever is met first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// So many messages.
    pub messages: u64,
    /// So many octets of messages.
    pub octets: u64,
    /// So long, from the first call on.
    pub time: Duration,
}

/// From whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Enough was seen: put back what was taken, and end.
    Enough,
}

/// What a walk has for whoever watches.
#[derive(Debug, Default)]
pub struct Output {
    /// Messages, in the order of the queue.
    pub letters: Vec<Letter>,
    /// How it ended: comes once, last.
    pub ended: Option<Ended>,
}

/// All that it wants done.
pub type Effects = crate::machine::Effects<Output>;

/// ```text
/// Shut ─▶ Counting ─▶ Asking ─▶ Walking ─▶ Cancelling ─▶ Closing ─▶ Ended
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not connected yet.
    Shut,
    /// `queue.declare`, passive, is sent.
    Counting,
    /// `basic.consume` is sent.
    Asking {
        /// With an argument that only streams know.
        as_stream: bool,
    },
    /// Messages come.
    Walking,
    /// `basic.cancel` is sent. What still comes was taken, too.
    Cancelling,
    /// `channel.close` is sent.
    Closing,
    /// All is put back.
    Ended,
}

/// The walk.
#[derive(Debug)]
pub struct Walk {
    settings: Settings,
    link: Link,
    state: State,
    /// The channel in use: each refusal closes one.
    channel: u16,
    arriving: Option<Arriving>,
    summary: Summary,
    octets: u64,
    /// Without a message for so long, it is asked whether there is one.
    quiet: Option<Mono>,
    /// Until when: the bound on time, or on the farewell.
    until: Mono,
    failure: Option<Failure>,
    told: bool,
}

// === impl Walk ===

impl Walk {
    /// A walk that wants its connection.
    pub fn new(settings: Settings, now: Now) -> Walk {
        Walk {
            link: Link::new(Role::Walk, settings.login.clone()),
            until: now.mono.after(settings.bounds.time),
            settings,
            state: State::Shut,
            channel: 0,
            arriving: None,
            summary: Summary::default(),
            octets: 0,
            quiet: None,
            failure: None,
            told: false,
        }
    }

    /// Puts back what was taken.
    fn stop(&mut self, why: Stopped, now: Now, fx: &mut Effects) {
        match self.state {
            // The broker may be delivering already: to close now would count as failed deliveries.
            State::Walking | State::Asking { as_stream: false } => {
                self.summary.stopped = why;
                self.state = State::Cancelling;
                self.put_cancel(fx);
            }
            State::Shut | State::Counting | State::Asking { as_stream: true } => {
                self.summary.stopped = why;
                self.leave(now, fx);
            }
            State::Cancelling | State::Closing | State::Ended => return,
        }
        self.quiet = None;
        self.until = now.mono.after(LAST);
    }

    /// It cannot go on.
    fn fail(&mut self, failure: Failure, now: Now, fx: &mut Effects) {
        self.failure.get_or_insert(failure);
        self.leave(now, fx);
    }

    /// The broker has heard all that it is to hear.
    fn leave(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Ended;
        self.quiet = None;
        self.link.goodbye(now, fx);
    }

    /// What every call ends with. A link tells its troubles as events; those of a walk are for whoever wants to see the queue.
    fn after(&mut self, fx: &mut Effects) {
        for event in std::mem::take(&mut fx.events) {
            if let Event::LinkDown { cause, .. } | Event::VhostNative { cause } = event {
                self.failure.get_or_insert(Failure::of_connection(cause));
            }
        }
        if self.state == State::Ended && !std::mem::replace(&mut self.told, true) {
            fx.out.ended = Some(match self.failure.take() {
                Some(failure) => Err(failure),
                None => Ok(self.summary.clone()),
            });
        }
    }

    fn lost(&mut self) {
        self.arriving = None;
        self.state = State::Ended;
    }

    fn prefetch(&self) -> u16 {
        let messages = self.settings.bounds.messages.clamp(1, MOST_HELD);
        u16::try_from(messages).unwrap_or(u16::MAX)
    }
}

impl Machine for Walk {
    type Input = Input;
    type Output = Output;

    fn connected(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.connected(now, fx);
    }

    fn read(&mut self, _: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        self.link.heard(now);
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..) {
            match self.link.step(rest, now, fx) {
                Step::More => break,
                Step::Took(n) | Step::Blocked(n) => taken += n,
                Step::Up(n) => {
                    taken += n;
                    self.count(fx);
                }
                Step::Frame(n, frame) => {
                    taken += n;
                    if let Err(what) = self.frame(frame, now, fx) {
                        self.fail(Failure::Connection(what.to_owned()), now, fx);
                    }
                }
                Step::Down(_) => {
                    self.lost();
                    taken = bytes.len();
                }
            }
        }
        self.after(fx);
        taken
    }

    fn closed(&mut self, _: Leg, now: Now, fx: &mut Effects) {
        self.link.closed(now, fx);
        self.lost();
        self.after(fx);
    }

    fn input(&mut self, Input::Enough: Input, now: Now, fx: &mut Effects) {
        self.stop(Stopped::Enough, now, fx);
        self.after(fx);
    }

    fn drain(&mut self, now: Now, fx: &mut Effects) {
        self.stop(Stopped::Enough, now, fx);
        self.after(fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        if self.link.timeout(now, fx).is_some() {
            self.lost();
        }
        if self.until <= now.mono && self.state != State::Ended {
            match self.state {
                State::Walking => self.stop(Stopped::Time, now, fx),
                _ => self.fail(Failure::Silent, now, fx),
            }
        }
        if self.quiet.take_if(|at| *at <= now.mono).is_some() {
            self.quiet(now, fx);
        }
        self.after(fx);
    }

    fn deadline(&self) -> Option<Mono> {
        let until = (self.state != State::Ended).then_some(self.until);
        let deadlines = [self.link.deadline(), until, self.quiet];
        deadlines.into_iter().flatten().min()
    }

    fn wants_read(&self, _: Leg, _: usize) -> bool {
        true
    }

    fn flow(&self) -> Flow {
        match self.link.flow() {
            Flow::Reconnect(_) if self.told => Flow::Finish,
            flow => flow,
        }
    }
}
