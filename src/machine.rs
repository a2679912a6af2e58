//! The whole contract between the pure core and the shell: what a machine is told, and what it may ask for.
//!
//! A machine (session, publisher, intake) is a plain value. It is handed bytes, outcomes and the time, and writes what shall happen
//! into [`Effects`]. It never waits, reads no clock and owns no socket; `net/drive.rs` pumps it. Everything to the right of this
//! module knows it; it knows nothing of them but the words of `amqp`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;

mod event;
mod knowledge;
mod limits;
mod topology;
mod wire;

pub use event::{Bound, Event, Fallback, Role};
pub use knowledge::{Learned, Recall, Recalled};
pub use limits::{Limits, LiveLimits};
pub use topology::{Binding, Change, Destination, Exchange, Survey};
pub use wire::Wire;

// === time ===

/// A point of the monotonic clock: microseconds since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(pub u64);

/// Both clocks at one moment, as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub mono: Mono,
    /// For `x-death.time`: seconds since 1970.
    pub wall: u64,
}

impl Mono {
    /// The moment `micros` microseconds later; the far end of time instead of an overflow.
    pub fn after(self, wait: std::time::Duration) -> Mono {
        Mono(
            self.0
                .saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// How long from `self` until `later`; zero when that has passed.
    pub fn until(self, later: Mono) -> std::time::Duration {
        std::time::Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

// === legs and bytes ===

/// One side of a machine: the client's connection or the broker's. The proxy's own links have only the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// Towards the AMQP client.
    Client,
    /// Towards RabbitMQ.
    Broker,
}

impl Leg {
    /// The leg to which bytes of this one pass.
    pub fn other(self) -> Leg {
        match self {
            Leg::Client => Leg::Broker,
            Leg::Broker => Leg::Client,
        }
    }
}

// === tickets and publications ===

/// Ties one dead letter to the outcome of its publication. Unique within the machine that drew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A machine that hands publications to the publisher; the shell knows its inbox. Unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// Why a message died, in RabbitMQ's words (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// `basic.reject` or `basic.nack` with `requeue=false`.
    Rejected,
    /// The message's or the queue's TTL.
    Expired,
    /// The queue's length limit.
    Maxlen,
    /// A quorum queue's limit on deliveries.
    DeliveryLimit,
}

impl Reason {
    /// As in `x-death.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::Maxlen => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }

    /// The reason of that name.
    pub fn parse(name: &[u8]) -> Option<Reason> {
        Some(match name {
            b"rejected" => Reason::Rejected,
            b"expired" => Reason::Expired,
            b"maxlen" => Reason::Maxlen,
            b"delivery_limit" => Reason::DeliveryLimit,
            _ => return None,
        })
    }
}

/// A dead letter ready to be published. The publisher keeps it until its outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The dead-letter exchange; empty is the default exchange.
    pub exchange: ShortStr,
    /// The key it is routed by.
    pub routing_key: ShortStr,
    /// Edited properties and the body as it was.
    pub content: Content,
    /// The queue it died in: for order, metrics and the log.
    pub queue: ShortStr,
    /// Why it died: for metrics and the log.
    pub reason: Reason,
    /// From a queue with the strategy `at-least-once`: parked instead of dropped, whatever `on-unroutable` says.
    pub at_least_once: bool,
    /// Its history had more entries than `max-history`.
    pub history_cut: bool,
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker confirmed it at its target: the original may go.
    Confirmed,
    /// Confirmed in the parking queue instead: the original may go.
    Parked(Cause),
    /// Dropped by a rule that the operator chose or RabbitMQ has: the original may go.
    Dropped(Cause),
    /// It is nowhere, or nobody knows: the original must stay with the broker (forward the reject; reject the signal).
    Refused(Cause),
}

/// Why a dead letter did not simply reach its target. The label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Returned: no queue is bound for its key.
    Unroutable,
    /// The exchange does not exist.
    NoExchange,
    /// The proxy's user may not publish there (403); or the exchange is internal, and it may not be bound to a bridge.
    Forbidden,
    /// The target nacked it more than `nack-retries` times.
    Nacked,
    /// No confirm within `retry-for`.
    TimedOut,
    /// Larger than a frame of the link may be.
    TooBig,
    /// Its `user-id` is not the proxy's user.
    UserId,
    /// Publishing it closed the channel or the connection.
    Poison,
    /// An automatic cycle (S6.1).
    Cycle,
    /// A signal without a plausible death.
    Implausible,
    /// Too many dead letters of this target are waiting for a retry.
    TargetBusy,
    /// The publisher is blocked, away or ending.
    PublisherAway,
    /// The link is not up, or the intake objects could not be declared.
    IntakeAway,
}

impl Cause {
    /// As in metrics, logs and the header `x-parked-cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Unroutable => "unroutable",
            Cause::NoExchange => "no_exchange",
            Cause::Forbidden => "forbidden",
            Cause::Nacked => "nacked",
            Cause::TimedOut => "timed_out",
            Cause::TooBig => "too_big",
            Cause::UserId => "user_id",
            Cause::Poison => "poison",
            Cause::Cycle => "cycle",
            Cause::Implausible => "implausible",
            Cause::TargetBusy => "target_busy",
            Cause::PublisherAway => "publisher_away",
            Cause::IntakeAway => "intake_away",
        }
    }
}

// === budget ===

/// Octets that all machines together may retain: a shared counter, not a lock.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Octets>);

#[derive(Debug)]
struct Octets {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of so many octets.
    pub fn new(limit: usize) -> Budget {
        Budget(Arc::new(Octets {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
        }))
    }

    /// From now on so many. What is over it was taken before, and stays.
    pub fn set_limit(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Takes octets, if they are left.
    #[must_use]
    pub fn take(&self, octets: usize) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(octets).filter(|sum| *sum <= limit);
        self.0
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// Gives octets back.
    pub fn give(&self, octets: usize) {
        self.0.used.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Octets in use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}

// === topology ===

/// Asks for an intake exchange (and the objects behind it) to exist before a declare goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ensure {
    /// The name of the intake exchange.
    pub exchange: ShortStr,
}

/// The answer to [`Ensure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// The exchange that was asked for.
    pub exchange: ShortStr,
    /// True when it exists now; else the declare is left alone.
    pub ready: bool,
}

// === effects and inputs ===

/// What a machine wants done. Owned by the driver and reused, so that nothing is allocated per frame.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes for the client leg.
    pub client: Wire,
    /// Bytes for the broker leg.
    pub broker: Wire,
    /// Dead letters for the publisher. Their originals stay withheld until [`Input::Settled`] names the ticket.
    pub dead: Vec<(Ticket, Publication)>,
    /// Intake exchanges that must exist; each is answered by [`Input::Ensured`].
    pub ensure: Vec<Ensure>,
    /// From a session: what its client changed about exchanges and bindings, for the intake of the vhost.
    pub changes: Vec<Change>,
    /// From the intake: the vhost shall be surveyed. Answered by one [`Input::Surveyed`].
    pub survey: bool,
    /// What the broker told this session, for the others.
    pub learned: Vec<Learned>,
    /// Asks what the others know; each is answered by [`Input::Recalled`].
    pub recall: Vec<Recall>,
    /// From the publisher: outcomes for the machines that asked.
    pub settled: Vec<(Owner, Ticket, Outcome)>,
    /// From the intake: answers for the sessions that asked.
    pub ensured: Vec<(Owner, Ensured)>,
    /// Facts for the log and the metrics.
    pub events: Vec<Event>,
    /// Frames that were looked at, from the client and from the broker.
    pub frames: [u64; 2],
}

impl Effects {
    /// The wire of a leg.
    pub fn wire(&mut self, leg: Leg) -> &mut Wire {
        match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        }
    }
}

/// What reaches a machine besides the bytes of its legs.
#[derive(Debug)]
pub enum Input {
    /// Publications of this machine have an outcome.
    Settled(Vec<(Ticket, Outcome)>),
    /// An intake exchange was asked for.
    Ensured(Ensured),
    /// To a session: what was learned before, by whichever session.
    Recalled(Recalled),
    /// To the publisher: dead letters of one owner, in the order of their deaths.
    Publish(Owner, Vec<(Ticket, Publication)>),
    /// To the intake: a session needs an intake exchange.
    Ensure(Owner, Ensure),
    /// To the intake: a client changed these. Some may be missing: nothing is dropped because of them alone.
    Changed(Vec<Change>),
    /// To the intake: the vhost was surveyed; `None`: it could not be.
    Surveyed(Option<Survey>),
    /// The process is ending: finish what can be finished, take nothing new.
    Drain,
}

/// Whether a machine goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on with the legs that it has.
    Open,
    /// The client's stream has ended: end that to the broker, behind what is buffered, and go on with what the broker still says.
    HalfClosed,
    /// Write what is buffered, then close both legs: the machine has ended.
    Finish,
    /// A link: its connection is over, it wants a new one at this moment.
    Reconnect(Mono),
}

/// The one shape of session, publisher and intake.
pub trait Machine {
    /// The leg is connected. A session never hears it of its client.
    fn connected(&mut self, leg: Leg, now: Now, fx: &mut Effects);

    /// Bytes of a leg. Returns how many were consumed; the rest is offered again, with more behind it or after a pause.
    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize;

    /// The leg ended: by the peer (end of stream; it may still read) or by an error of the socket.
    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects);

    /// Something from another machine.
    fn input(&mut self, input: Input, now: Now, fx: &mut Effects);

    /// The deadline has come.
    fn timeout(&mut self, now: Now, fx: &mut Effects);

    /// When [`Machine::timeout`] wants to be called.
    fn deadline(&self) -> Option<Mono>;

    /// The only pause switch: whether this leg shall be read while `backlog` bytes wait to be written to the other one (for a link:
    /// to its own).
    fn wants_read(&self, leg: Leg, backlog: usize) -> bool;

    /// All that was buffered for the legs has been written.
    fn drained(&mut self, _now: Now, _fx: &mut Effects) {}

    /// Whether [`Machine::input`] may be called: false leaves inputs in the inbox, whose bound then slows those who fill it.
    fn accepts(&self) -> bool {
        true
    }

    /// Whether the machine goes on.
    fn flow(&self) -> Flow;
}
