//! The topology channel: declares our own objects when the link comes up, and intake exchanges when sessions ask for them; both again when
//! the broker may have lost them, because with the intake queue go its bindings, and clients do not ask twice.
//!
//! Everything is pipelined; the broker answers in order, so `awaiting` says what an answer is about, and whose fault a closed channel is.

use std::collections::VecDeque;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::amqp::reply_code::ACCESS_REFUSED;
use crate::dead_letter::Dialect;
use crate::intake::Effects;
use crate::machine::{Ensure, LiveLimits, Mono, Now, Owner};

use super::TOPOLOGY;
use super::exchanges::Exchanges;
use super::objects::{Object, Objects};

/// How long sessions wait for a lost link or channel.
const PATIENCE: Duration = Duration::from_secs(4);
/// After a consumer stopped, objects are declared again, at most this often.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval after a refusal: starts at [`AGAIN`], doubles up to this.
const REFUSED: Duration = Duration::from_secs(60);

/// ```text
/// Shut ──link up──▶ Declaring ──all objects are there──▶ Ready
///   ▲                │  ▲ ▲                                │
///   │    one refused │  │ └──── the consumer stopped ──────┘
///   │                ▼  │ a while
/// link lost         Refused
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Shut,
    Declaring,
    Ready,
    /// An object can neither be declared nor used.
    Refused,
}

pub(super) type Words = (u16, String);

#[derive(Debug)]
pub(super) struct Topology {
    objects: Objects,
    state: State,
    /// Objects of the next answers.
    awaiting: VecDeque<Object>,
    /// Objects that exist with other arguments, or that we may not declare: used as they are.
    passive: Vec<(Object, Words)>,
    /// Unavailable objects that are not required.
    without: Vec<Object>,
    /// The last object of the current declares.
    last: Object,
    exchanges: Exchanges,
    /// Objects whose refusal was reported. Each link asks again, but that is not news.
    told: Vec<Object>,
    declared: Mono,
    /// When all objects are declared again.
    again: Option<Mono>,
    /// Until when sessions may wait; later they are refused at once.
    patience: Option<Mono>,
    refusals: u32,
    refusal: Option<Words>,
}

// === impl Topology ===

impl Topology {
    pub(super) fn new(objects: Objects, limits: LiveLimits, now: Now) -> Topology {
        Topology {
            objects,
            state: State::Shut,
            awaiting: VecDeque::new(),
            passive: Vec::new(),
            without: Vec::new(),
            last: Object::IntakeQueue,
            exchanges: Exchanges::new(limits),
            told: Vec::new(),
            declared: Mono(0),
            again: None,
            patience: Some(now.mono.after(PATIENCE)),
            refusals: 0,
            refusal: None,
        }
    }

    pub(super) fn begin(&mut self, dialect: Dialect, now: Now, fx: &mut Effects) {
        self.objects.at(dialect);
        self.passive.clear();
        self.without.clear();
        self.open(now, fx);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(super) fn lost(&mut self, now: Now) {
        if self.state != State::Shut {
            self.patience = Some(now.mono.after(PATIENCE));
        }
        self.state = State::Shut;
        self.awaiting.clear();
        (self.again, self.refusal) = (None, None);
        self.exchanges.doubt();
    }

    /// The consumer stopped: its queue may be gone.
    pub(super) fn again(&mut self, now: Now) {
        if self.state != State::Shut {
            let soonest = self.declared.after(AGAIN).max(now.mono);
            self.again.get_or_insert(soonest);
            self.exchanges.doubt();
        }
    }

    pub(super) fn refusal(&self) -> Option<&Words> {
        self.refusal.as_ref()
    }

    pub(super) fn works(&mut self) {
        self.refusals = 0;
    }

    pub(super) fn not_consumed(&mut self, refusal: Words, now: Now) {
        self.exchanges.doubt();
        self.refused(refusal, now);
    }

    pub(super) fn ensure(&mut self, owner: Owner, ensure: Ensure, now: Now, fx: &mut Effects) {
        if !self.exchanges.ask(owner, &ensure, now.mono, fx) {
            return;
        }
        match self.state {
            State::Ready => {
                let binding = Object::IntakeBinding(ensure.exchange.clone());
                if !self.awaiting.contains(&binding) {
                    self.declare_intake(&ensure.exchange, fx);
                }
            }
            State::Declaring | State::Shut if self.patience.is_some() => {}
            State::Declaring | State::Shut | State::Refused => self.exchanges.give_up(fx),
        }
    }

    /// An answer on the channel. True: all own objects exist.
    pub(super) fn reply(&mut self, id: MethodId, now: Now, fx: &mut Effects) -> bool {
        if !matches!(
            id,
            MethodId::EXCHANGE_DECLARE_OK | MethodId::QUEUE_DECLARE_OK | MethodId::QUEUE_BIND_OK
        ) {
            return false;
        }
        match self.awaiting.pop_front() {
            Some(object) if object == self.last && self.state == State::Declaring => {
                self.ready(now, fx);
                return true;
            }
            // Too late if all is declared again: it was bound to a queue that may be gone by now.
            Some(Object::IntakeBinding(exchange)) if self.state != State::Declaring => {
                self.exchanges.declared(&exchange, now.mono, fx);
            }
            _ => {}
        }
        false
    }

    /// The broker closed the channel instead of its next answer. True: worth reporting.
    pub(super) fn closed(&mut self, code: u16, cause: &str, now: Now, fx: &mut Effects) -> bool {
        let culprit = self.awaiting.pop_front();
        self.awaiting.clear();
        let mut news = true;
        match culprit {
            Some(Object::IntakeBinding(exchange)) if code == 404 => {
                self.exchanges.missed(&exchange, fx);
            }
            Some(Object::IntakeExchange(exchange) | Object::IntakeBinding(exchange)) => {
                self.exchanges.refused(&exchange, fx);
            }
            Some(object) if self.first_refusal(&object).is_none() => {
                news = !self.told.contains(&object);
                if news {
                    self.told.push(object.clone());
                }
                self.passive.push((object, (code, cause.into())));
            }
            Some(object) if object.is_for_retries() => self.without.push(object),
            culprit => {
                // Where it was refused for want of a permission, and is not there (404), the permission is what is missing.
                let first = culprit.and_then(|object| self.first_refusal(&object).cloned());
                self.refuse(first.unwrap_or((code, cause.into())), now, fx);
                return true;
            }
        }
        self.open(now, fx);
        news
    }

    fn first_refusal(&self, object: &Object) -> Option<&Words> {
        let mut passive = self.passive.iter();
        passive.find_map(|(other, words)| (other == object).then_some(words))
    }

    fn refuse(&mut self, refusal: Words, now: Now, fx: &mut Effects) {
        self.state = State::Refused;
        self.refused(refusal, now);
        self.passive.clear();
        self.exchanges.give_up(fx);
    }

    fn refused(&mut self, refusal: Words, now: Now) {
        let wait = AGAIN.saturating_mul(1 << self.refusals.min(16));
        self.refusals = self.refusals.saturating_add(1);
        self.again = Some(now.mono.after(wait.min(REFUSED)));
        self.refusal = Some(refusal);
    }

    pub(super) fn timeout(&mut self, now: Now, fx: &mut Effects) {
        if self.again.is_some_and(|again| again <= now.mono) {
            self.again = None;
            match self.state {
                State::Shut => {}
                State::Refused => self.open(now, fx),
                State::Declaring | State::Ready => {
                    // Also what was bound since the consumer stopped.
                    self.exchanges.doubt();
                    self.declare_objects(now, fx);
                }
            }
        }
        if self.patience.is_some_and(|until| until <= now.mono) {
            self.give_up(fx);
        }
    }

    /// Refuses all waiting sessions: it is unknown when exchanges can be declared.
    pub(super) fn give_up(&mut self, fx: &mut Effects) {
        self.patience = None;
        self.exchanges.give_up(fx);
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        [self.again, self.patience].into_iter().flatten().min()
    }

    fn open(&mut self, now: Now, fx: &mut Effects) {
        reply::channel_open(fx.broker.build(&[]), TOPOLOGY);
        self.declare_objects(now, fx);
    }

    fn declare_objects(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Declaring;
        self.declared = now.mono;
        self.patience = Some(now.mono.after(PATIENCE));
        for object in Object::OF_EACH_VHOST {
            let passive = self.first_refusal(&object).is_some();
            if passive && object.is_binding() || self.without.contains(&object) {
                continue;
            }
            self.last = object.clone();
            self.declare(object, passive, fx);
        }
    }

    fn ready(&mut self, now: Now, fx: &mut Effects) {
        self.state = State::Ready;
        (self.patience, self.refusal) = (None, None);
        // A queue that is bound already works without it, but not whoever has no right to bind it: that takes the right to publish to it, too.
        let is_refused =
            |(object, (code, _)): &(Object, Words)| object.is_binding() && *code == ACCESS_REFUSED;
        if let Some((_, words)) = self.passive.iter().find(|it| is_refused(it)).cloned() {
            self.passive.retain(|it| !is_refused(it));
            self.refused(words, now);
        }
        for exchange in self.exchanges.due() {
            self.declare_intake(&exchange, fx);
        }
    }

    fn declare_intake(&mut self, exchange: &ShortStr, fx: &mut Effects) {
        self.declare(Object::IntakeExchange(exchange.clone()), false, fx);
        self.declare(Object::IntakeBinding(exchange.clone()), false, fx);
    }

    fn declare(&mut self, object: Object, passive: bool, fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        self.objects.declare(&object, passive, out);
        self.awaiting.push_back(object);
    }
}
