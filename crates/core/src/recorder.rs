//! The recorder of a vhost, without IO: writes down at the broker where dead letters go of queues that were declared otherwise than they are
//! (the setting `lenient`), and reads there what it, or another proxy, wrote before.
//!
//! ```text
//! link up ─▶ declare the stream ─▶ consume it from its first message on, and publish a mark ─▶ the mark comes: current ─▶ consume on
//!                                                                                               │
//!                        sessions ── "this queue's entry has changed" ── publish it ─▶ it comes ─▶ "it is recorded"
//! ```
//! A stream, as it gives the same to all who read it, in one order, and takes nothing away. It tells nobody where it ends, and nothing when it
//! is empty: hence the mark. What counts is in [`LivePolicies`] at once; the stream follows. Whatever is missing there (the link was away, the
//! stream was deleted, the broker lost a publish) is written when that is seen. What comes back from the stream needs no confirm.
//!
//! The stream is bounded by bytes, and drops what is oldest. Whoever may write to the default exchange may fill it. So all bytes that are read
//! are counted, and an entry is written again before the stream drops it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Event, Flow, Mono, Now, Owner, Role};
use crate::mover::Mover;
use crate::registry::lenient::Lenient;
use crate::registry::live::LivePolicies;
use crate::registry::redeclared::Entry;

use self::entries::Waiting;

mod entries;
mod message;
mod stream;
#[cfg(test)]
mod tests;

const CHANNEL: ChannelId = ChannelId(1);
const TAG: &[u8] = b"dlx-proxy";
/// Deliveries before an ack. Streams require a bound.
const PREFETCH: u16 = 1000;
/// Bytes that the stream keeps. It drops whole segments, so the last one may exceed this by a few
/// messages.
const KEEPS: i64 = 200_000_000;
const SEGMENT: i64 = 20_000_000;
/// An entry this far before the end of the stream is written again: early enough for slow readers.
const FAR: u64 = KEEPS as u64 / 2;
/// Upper bound for what a message takes beside properties and body: annotations and its share of a
/// chunk.
const BESIDE: u64 = 500;
/// How long others wait for a record.
const PATIENCE: Duration = Duration::from_secs(30);
/// Retry interval after a refusal: a new stream cannot be consumed at once (3.10, 4.0: measured).
/// See also [`SELDOM`].
const AGAIN: Duration = Duration::from_secs(1);
/// Retry interval when nothing waits for the record any longer.
const SELDOM: Duration = Duration::from_secs(60);
/// An entry that was not read back in this time is written again.
const COMES: Duration = Duration::from_secs(5);
/// At shutdown: how long confirms are awaited.
const LAST: Duration = Duration::from_secs(2);
/// Lasting refusals: access refused; no streams (a feature flag).
const FINAL: [u16; 2] = [403, 540];
const MOST_WAITING: usize = 1000;

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub stream: ShortStr,
    pub lenient: Lenient,
    /// Where entries count, and what is written comes from.
    pub policies: LivePolicies,
}

/// From the sessions of the vhost.
#[derive(Debug)]
pub enum Input {
    /// A declare, or the end of the queue, made this entry, which counts already. The session that
    /// waits is answered when it is recorded.
    Record(ShortStr, Entry, Option<Owner>),
    /// This session no longer waits: other declares may follow.
    GaveUp(Owner),
    /// A policy may have set `lenient`.
    PoliciesChanged,
}

/// For the sessions and the intake of the vhost.
#[derive(Debug, Default)]
pub struct Output {
    /// For waiting sessions: whether their entry is recorded, or cannot be now.
    pub recorded: Vec<(Owner, ShortStr, bool)>,
    /// For the intake: whether all recorded entries count.
    pub current: Option<bool>,
}

/// Effects of a recorder.
pub type Effects = crate::machine::Effects<Output>;

/// ```text
/// Shut ──link up──▶ Declaring ──declare-ok──▶ Reading ──our mark──▶ Current
///   ▲                 │    ▲                     │                     │
///   │         refused ▼    │ a minute            │                     │
///   │              Refused ◀──── channel closed ─┴─────────────────────┤
///   └──────────────────────────── link lost ───────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    Declaring,
    Reading,
    Current,
    Refused,
}

#[derive(Debug)]
pub struct Recorder {
    settings: Settings,
    link: Link,
    state: State,
    wanted: bool,
    passive: bool,
    laps: u64,
    mover: Mover<()>,
    /// Entries that were read and do not count yet.
    read: Vec<(ShortStr, Entry)>,
    /// The mark was read, but the entries before it do not count yet.
    marked: bool,
    /// The newest entry of each queue in the stream, and its place.
    stands: BTreeMap<ShortStr, (Entry, u64)>,
    /// Bytes of the stream read so far.
    end: u64,
    /// No entry is rewritten before the stream is this long.
    rewrite_from: u64,
    /// Messages that no proxy wrote.
    foreign: u64,
    waiting: Vec<Waiting>,
    told: bool,
    refusal: Option<String>,
    patience: Option<Mono>,
    again: Option<Mono>,
    /// Until when a draining recorder awaits confirms.
    last: Option<Mono>,
}

// === impl Settings ===

impl Settings {
    fn keep_record(&self) -> bool {
        self.lenient.follows_targets() || self.policies.ours().any_follows_targets()
    }
}

// === impl Recorder ===

impl Recorder {
    pub fn new(settings: Settings, now: Now) -> Recorder {
        let wanted = settings.keep_record();
        Recorder {
            wanted,
            told: !wanted,
            refusal: None,
            patience: wanted.then(|| now.mono.after(PATIENCE)),
            link: Link::new(Role::Recorder, settings.login.clone()),
            settings,
            state: State::Shut,
            passive: false,
            laps: 0,
            mover: Mover::new(CHANNEL, 0),
            read: Vec::new(),
            marked: false,
            stands: BTreeMap::new(),
            end: 0,
            rewrite_from: 0,
            foreign: 0,
            waiting: Vec::new(),
            again: None,
            last: None,
        }
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    fn shut(&mut self) {
        self.mover.forget(CHANNEL);
        self.marked = false;
        self.again = None;
        self.stands.clear();
        (self.end, self.rewrite_from) = (0, 0);
    }

    fn tell(&mut self, current: bool, now: Now, fx: &mut Effects) {
        if std::mem::replace(&mut self.told, current) != current {
            fx.out.current = Some(current);
            self.patience = (!current).then(|| now.mono.after(PATIENCE));
        }
    }

    fn is_given_up(&self) -> bool {
        self.told && self.state != State::Current
    }

    fn do_without(&mut self, now: Now, fx: &mut Effects) {
        if !self.told {
            let refusal = self.refusal.clone();
            let cause = refusal.unwrap_or_else(|| "it takes too long".to_owned());
            fx.events.push(Event::RecordUnread { cause });
        }
        self.tell(true, now, fx);
        for waiting in self.waiting.drain(..) {
            fx.out.recorded.push((waiting.owner, waiting.queue, false));
        }
    }

    fn again(&mut self, now: Now, fx: &mut Effects) {
        match self.state {
            State::Refused => self.open(fx),
            State::Current => self.write_missing(now, fx),
            State::Reading => self.write_mark(now, fx),
            State::Shut | State::Declaring => {}
        }
    }

    /// Others have waited too long. During an alarm nothing can be published, so a waiting intake
    /// misses nothing.
    fn lose_patience(&mut self, now: Now, fx: &mut Effects) {
        match self.link.is_blocked() {
            true => self.patience = Some(now.mono.after(PATIENCE)),
            false => self.do_without(now, fx),
        }
    }
}

impl Linked for Recorder {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn up(&mut self, _: Now, fx: &mut Effects) {
        self.open(fx);
    }

    fn blocked(&mut self, now: Now, fx: &mut Effects) {
        self.write_missing(now, fx);
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        Recorder::frame(self, frame, now, fx)
    }

    fn lost(&mut self, _: Loss, now: Now, fx: &mut Effects) {
        self.state = State::Shut;
        self.shut();
        self.passive = false;
        self.tell(false, now, fx);
    }

    fn on_input(&mut self, input: Input, now: Now, fx: &mut Effects) {
        match input {
            Input::Record(queue, entry, owner) => self.record(queue, entry, owner, now, fx),
            Input::GaveUp(owner) => {
                self.waiting.retain(|waiting| waiting.owner != owner);
            }
            Input::PoliciesChanged => {}
        }
        self.wanted |= self.settings.keep_record();
    }

    fn ends(&mut self, now: Now, _: &mut Effects) {
        self.last = Some(now.mono.after(LAST));
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        let is_due = |at: &mut Mono| *at <= now.mono;
        if self.again.take_if(is_due).is_some() {
            self.again(now, fx);
        }
        if self.patience.take_if(is_due).is_some() {
            self.lose_patience(now, fx);
        }
        if self.last.take_if(is_due).is_some() {
            self.link.goodbye(now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        let deadlines = [self.again, self.patience, self.last];
        deadlines.into_iter().flatten().min()
    }

    fn course(&self) -> Flow {
        match self.link.flow() {
            Flow::Reconnect(_) if !self.wanted => Flow::Open,
            flow => flow,
        }
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        if !self.read.is_empty() {
            let read = std::mem::take(&mut self.read);
            self.settings
                .policies
                .learn(&self.settings.login.vhost, &read);
            self.answer(&read, now, fx);
        }
        let some_came = self.mover.flush(fx) > 0;
        if self.foreign > 0 {
            let messages = std::mem::take(&mut self.foreign);
            fx.events.push(Event::RecordForeign { messages });
        }
        if std::mem::take(&mut self.marked) && self.state == State::Reading {
            self.state = State::Current;
            (self.refusal, self.again) = (None, None);
            self.answer_standing(fx);
            self.write_missing(now, fx);
            self.tell(true, now, fx);
        }
        if some_came {
            self.rewrite(fx);
        }
        if self.last.is_some() && self.missing().is_empty() {
            self.last = None;
            self.link.goodbye(now, fx);
        }
    }
}
