//! The topology channel: declares our own objects when the link comes up, and intake exchanges when sessions ask for them; both again when
//! the broker may have lost them, because with the intake queue go its bindings, and clients do not ask twice.
//!
//! Everything is pipelined; the broker answers in order, so `awaiting` says what an answer is about, and whose fault a closed channel is.

use std::collections::VecDeque;
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::dead_letter::Dialect;
use crate::intake::Effects;
use crate::machine::{Ensure, Event, LiveLimits, Mono, Now, Owner};

use super::TOPOLOGY;
use super::exchanges::{Exchanges, Need};
use super::objects::{Object, Objects};

/// Who asks waits so long for a link that comes back, or for a channel.
const PATIENCE: Duration = Duration::from_secs(4);
/// The consumer stopped: the objects are declared anew, but no sooner after the last time.
const AGAIN: Duration = Duration::from_secs(1);
/// The objects cannot be had: tried again after this.
const REFUSED: Duration = Duration::from_secs(60);

/// ```text
/// Shut ──link up──▶ Declaring ──all objects are there──▶ Ready
///   ▲                │  ▲ ▲                                │
///   │    one refused │  │ └──── the consumer stopped ──────┘
///   │                ▼  │ a minute
/// link lost         Refused
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No channel.
    Shut,
    Declaring,
    Ready,
    /// An object can neither be declared nor used.
    Refused,
}

/// The channel.
#[derive(Debug)]
pub(super) struct Topology {
    objects: Objects,
    state: State,
    /// What the next answers are about.
    awaiting: VecDeque<Object>,
    /// Objects that exist with other arguments, or may not be declared by us: they are used as they are.
    passive: Vec<Object>,
    /// Those that cannot be had, and need not.
    without: Vec<Object>,
    /// The last of those that are being declared.
    last: Object,
    exchanges: Exchanges,
    /// Those of which the broker's words were told: it is asked again in each life of the link, but that is no news.
    told: Vec<Object>,
    /// When the objects were declared last.
    declared: Mono,
    /// When all objects are declared anew.
    again: Option<Mono>,
    /// Until when those who ask may wait; later they are refused at once.
    patience: Option<Mono>,
    /// It was said that this vhost stays native.
    said_native: bool,
}

// === impl Topology ===

impl Topology {
    /// Nothing is declared yet.
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
            said_native: false,
        }
    }

    /// The link is up, at a broker of that generation.
    pub(super) fn begin(&mut self, dialect: Dialect, now: Now, fx: &mut Effects) {
        self.objects.at(dialect);
        self.passive.clear();
        self.without.clear();
        self.open(now, fx);
    }

    /// All objects are there.
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// The link is lost.
    pub(super) fn lost(&mut self, now: Now) {
        if self.state != State::Shut {
            self.patience = Some(now.mono.after(PATIENCE));
        }
        self.state = State::Shut;
        self.awaiting.clear();
        self.again = None;
        self.exchanges.unanswered();
        self.exchanges.doubt();
    }

    /// The consumer stopped: perhaps its queue is gone.
    pub(super) fn again(&mut self, now: Now) {
        if self.state != State::Shut {
            let soonest = self.declared.after(AGAIN).max(now.mono);
            self.again.get_or_insert(soonest);
            self.exchanges.doubt();
        }
    }

    /// A session needs an intake exchange.
    pub(super) fn ensure(&mut self, owner: Owner, ensure: Ensure, now: Now, fx: &mut Effects) {
        let need = self.exchanges.ask(owner, &ensure, now.mono, fx);
        match self.state {
            State::Ready if need == Need::Declare => self.declare_intake(&ensure.exchange, fx),
            State::Ready => {}
            State::Declaring | State::Shut if self.patience.is_some() => {}
            State::Declaring | State::Shut | State::Refused => self.exchanges.give_up(fx),
        }
    }

    /// An answer on the channel. True when the last of our objects is there.
    pub(super) fn reply(&mut self, id: MethodId, now: Now, fx: &mut Effects) -> bool {
        if !matches!(
            id,
            MethodId::EXCHANGE_DECLARE_OK | MethodId::QUEUE_DECLARE_OK | MethodId::QUEUE_BIND_OK
        ) {
            return false;
        }
        match self.awaiting.pop_front() {
            Some(object) if object == self.last && self.state == State::Declaring => {
                self.ready(fx);
                return true;
            }
            Some(Object::IntakeBinding(exchange)) if self.state == State::Declaring => {
                self.exchanges.outdated(&exchange);
            }
            Some(Object::IntakeBinding(exchange)) => {
                self.exchanges.declared(&exchange, now.mono, fx);
            }
            _ => {}
        }
        false
    }

    /// The broker closed the channel over what it would have answered next. True when that is worth telling.
    pub(super) fn closed(&mut self, code: u16, cause: &str, now: Now, fx: &mut Effects) -> bool {
        let culprit = self.awaiting.pop_front();
        self.awaiting.clear();
        self.exchanges.unanswered();
        let mut news = true;
        match culprit {
            Some(Object::IntakeBinding(exchange)) if code == 404 => {
                self.exchanges.missed(&exchange, fx);
            }
            Some(Object::IntakeExchange(exchange) | Object::IntakeBinding(exchange)) => {
                self.exchanges.refused(&exchange, fx);
            }
            Some(object) if !self.passive.contains(&object) => {
                news = !self.told.contains(&object);
                if news {
                    self.told.push(object.clone());
                }
                self.passive.push(object);
            }
            Some(object) if object.is_for_retries() => self.without.push(object),
            _ => {
                self.refuse(code, cause, now, fx);
                return true;
            }
        }
        self.open(now, fx);
        news
    }

    fn refuse(&mut self, code: u16, cause: &str, now: Now, fx: &mut Effects) {
        if code == 403 && !std::mem::replace(&mut self.said_native, true) {
            let cause = cause.into();
            fx.events.push(Event::VhostNative { cause });
        }
        self.state = State::Refused;
        self.again = Some(now.mono.after(REFUSED));
        self.passive.clear();
        self.exchanges.give_up(fx);
    }

    /// What is due.
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

    /// Lets nobody wait any longer, as nobody can say when the exchanges could be declared.
    pub(super) fn give_up(&mut self, fx: &mut Effects) {
        self.patience = None;
        self.exchanges.give_up(fx);
    }

    /// When [`Topology::timeout`] wants to be called.
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
            let passive = self.passive.contains(&object);
            if passive && object.is_binding() || self.without.contains(&object) {
                continue;
            }
            self.last = object.clone();
            self.declare(object, passive, fx);
        }
    }

    fn ready(&mut self, fx: &mut Effects) {
        self.state = State::Ready;
        self.patience = None;
        self.said_native = false;
        for exchange in self.exchanges.due() {
            self.declare_intake(&exchange, fx);
        }
    }

    fn declare_intake(&mut self, exchange: &ShortStr, fx: &mut Effects) {
        self.declare(Object::IntakeExchange(exchange.clone()), false, fx);
        self.declare(Object::IntakeBinding(exchange.clone()), false, fx);
        self.exchanges.declaring(exchange);
    }

    fn declare(&mut self, object: Object, passive: bool, fx: &mut Effects) {
        let out = fx.broker.build(&[]);
        self.objects.declare(&object, passive, out);
        self.awaiting.push_back(object);
    }
}
