//! Drives a session as `net/drive.rs` does, but for sockets: what was not consumed is offered again, bytes come in any pieces, the time is told.
//! What is always true of a session is checked at each step.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::ids::{ChannelId, ShortStr};
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply::{self, Arguments};
use dlx_proxy::amqp::table::TableBuilder;
use dlx_proxy::config::Config;
use dlx_proxy::dead_letter::{HistoryForm, RuleSettings};
use dlx_proxy::machine::{
    Budget, Event, Flow, Leg, Limits, LiveLimits, Machine, Mono, Now, Publication, Ticket, Wall,
};
use dlx_proxy::objects::Names;
use dlx_proxy::registry::lenient::Lenient;
use dlx_proxy::registry::live::LivePolicies;
use dlx_proxy::registry::policy::{Definition, Mode, Pattern, Policies, Policy};
use dlx_proxy::session::{Effects, Input, Session, Settings};

use super::trace::trace;

/// How large a frame of a client may be, and what may wait for a whole one.
const FRAME_MAX: u32 = 8192;
/// Dead letters in flight.
const TICKETS: usize = 3;
/// Octets retained.
const RETAINED: usize = 4000;

/// A session with what was said to it and by it.
pub(crate) struct Driver {
    session: Option<Session>,
    budget: Budget,
    now: Now,
    fx: Effects,
    /// At most so many octets at once; 0: as they come.
    piece: usize,
    rest: [Vec<u8>; 2],
    /// All that went to the client and to the broker.
    pub(crate) out: [Vec<u8>; 2],
    pub(crate) dead: Vec<(Ticket, Publication)>,
    pub(crate) ensure: Vec<ShortStr>,
    gone: bool,
    /// The process ends: who is told so is passed nothing more.
    pub(crate) draining: bool,
    /// Legs that broke the protocol.
    broken: [bool; 2],
}

fn method(channel: u16, id: MethodId, arguments: impl FnOnce(&mut Arguments<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, ChannelId(channel), id, arguments);
    out
}

/// `work` has a target by a policy of ours.
fn policies() -> LivePolicies {
    // Once: its pattern takes longer to build than a session to be played.
    static POLICIES: LazyLock<LivePolicies> = LazyLock::new(|| {
        LivePolicies::new(Policies::new(vec![Policy {
            pattern: Pattern::new("^work$").expect("sound"),
            definition: Definition {
                dead_letter_exchange: ShortStr::copy(b"dlx"),
                ..Definition::default()
            },
            ..Policy::default()
        }]))
    });
    POLICIES.clone()
}

/// For all machines: the defaults, but small where that is met.
fn limits() -> Limits {
    static DEFAULT: LazyLock<Limits> = LazyLock::new(|| Config::default().reloadable.limits);
    Limits {
        max_history: 4,
        nack_retries: 2,
        parked_retry: Duration::ZERO,
        intake_quiet: Duration::from_secs(60),
        max_intake_exchanges: 3,
        retained_bytes_per_connection: RETAINED,
        max_tickets_per_connection: TICKETS,
        ..DEFAULT.clone()
    }
}

// === impl Driver ===

impl Driver {
    /// A session that has seen nothing.
    pub(crate) fn new(mode: Mode, piece: usize) -> Driver {
        let now = Now {
            mono: Mono(0),
            wall: Wall::of_seconds(1000),
        };
        let budget = Budget::new(2 * RETAINED);
        let settings = Settings {
            user: ShortStr::copy(b"dlx-proxy").expect("short"),
            mode,
            lenient: Lenient::default(),
            names: Names::default(),
            policies: policies(),
            rules: RuleSettings {
                continue_history: true,
                history_form: HistoryForm::WRITTEN,
            },
            retained: budget.clone(),
            catalogue: Default::default(),
            channel_limits: Default::default(),
            delays: Default::default(),
            limits: LiveLimits::new(limits()),
        };
        Driver {
            session: Some(Session::new(Arc::new(settings), now)),
            budget,
            now,
            fx: Effects::default(),
            piece,
            rest: Default::default(),
            out: Default::default(),
            dead: Vec::new(),
            ensure: Vec::new(),
            gone: false,
            draining: false,
            broken: [false; 2],
        }
    }

    /// Plays the handshake with a broker of that version.
    pub(crate) fn open(&mut self, version: &[u8]) {
        let mut properties = TableBuilder::default();
        properties.longstr(b"version", version);
        let properties = properties.finish();
        let tune = |a: &mut Arguments<'_>| a.short(7).long(FRAME_MAX).short(60).end();
        self.read(Leg::Client, &frame::PROTOCOL);
        self.read(
            Leg::Broker,
            &method(0, MethodId::CONNECTION_START, |a| {
                a.short(9)
                    .longstr(&properties)
                    .longstr(b"PLAIN")
                    .longstr(b"en_US")
                    .end()
            }),
        );
        self.read(
            Leg::Client,
            &method(0, MethodId::CONNECTION_START_OK, |a| {
                a.longstr(b"")
                    .shortstr(b"PLAIN")
                    .longstr(b"\0guest\0guest")
                    .shortstr(b"en_US")
                    .end()
            }),
        );
        self.read(Leg::Broker, &method(0, MethodId::CONNECTION_TUNE, tune));
        self.read(Leg::Client, &method(0, MethodId::CONNECTION_TUNE_OK, tune));
        self.read(
            Leg::Client,
            &method(0, MethodId::CONNECTION_OPEN, |a| {
                a.shortstr(b"/").shortstr(b"").octet(0).end()
            }),
        );
        self.read(
            Leg::Broker,
            &method(0, MethodId::CONNECTION_OPEN_OK, |a| a.shortstr(b"").end()),
        );
        self.out = Default::default();
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("it lives as long as this")
    }

    pub(crate) fn flow(&mut self) -> Flow {
        self.session().flow()
    }

    /// Whether a leg broke the protocol, and what it says from there on is read and heard by the other.
    pub(crate) fn is_raw(&mut self, leg: Leg) -> bool {
        let heard = self.hears_client() && self.flow() == Flow::Open && !self.gone;
        self.broken[leg as usize] && heard && !self.draining
    }

    fn withheld(&mut self) -> usize {
        self.session().withheld()
    }

    fn retained(&mut self) -> usize {
        self.session().retained()
    }

    /// Whether the client is listened to, and nothing of what it said waits.
    fn hears_client(&mut self) -> bool {
        self.session().wants_read(Leg::Client, 0) && self.rest[Leg::Client as usize].is_empty()
    }

    /// Bytes come in on a leg.
    pub(crate) fn read(&mut self, leg: Leg, bytes: &[u8]) {
        if leg == Leg::Client && self.gone {
            return;
        }
        trace(
            if leg == Leg::Client {
                "client says"
            } else {
                "broker says"
            },
            bytes,
        );
        let piece = if self.piece == 0 {
            bytes.len().max(1)
        } else {
            self.piece
        };
        for piece in bytes.chunks(piece) {
            if self.flow() == Flow::Finish {
                return;
            }
            self.rest[leg as usize].extend_from_slice(piece);
            self.offer(leg);
        }
        self.offer(Leg::Client);
    }

    /// Offers what is kept of a leg, if it is wanted.
    fn offer(&mut self, leg: Leg) {
        let kept = &mut self.rest[leg as usize];
        if kept.is_empty()
            || !self
                .session
                .as_ref()
                .is_some_and(|session| session.wants_read(leg, 0))
        {
            return;
        }
        let mut bytes = std::mem::take(kept);
        let (now, session) = (self.now, self.session.as_mut().expect("alive"));
        let consumed = session.read(leg, &bytes, now, &mut self.fx);
        assert!(consumed <= bytes.len(), "consumed what was not offered");
        self.collect(&bytes);
        bytes.drain(..consumed);
        let waits = self.session().wants_read(leg, 0);
        let most = if leg == Leg::Client {
            128 * 1024 + 8
        } else {
            32 << 20
        };
        assert!(
            !waits || bytes.len() <= most,
            "{} octets wait for more",
            bytes.len()
        );
        self.rest[leg as usize] = bytes;
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.call(|session, now, fx| session.input(input.into(), now, fx));
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.call(Machine::drain);
    }

    fn call(&mut self, call: impl FnOnce(&mut Session, Now, &mut Effects)) {
        call(
            self.session.as_mut().expect("alive"),
            self.now,
            &mut self.fx,
        );
        self.collect(&[]);
        self.offer(Leg::Client);
    }

    /// A leg ends. A client that is gone says nothing more.
    pub(crate) fn closed(&mut self, leg: Leg) {
        if leg == Leg::Client && std::mem::replace(&mut self.gone, true) {
            return;
        }
        let now = self.now;
        self.session
            .as_mut()
            .expect("alive")
            .closed(leg, now, &mut self.fx);
        self.collect(&[]);
    }

    /// Time passes; each deadline on the way is met, and then it is another one.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now.mono.after(Duration::from_millis(millis));
        let mut rounds = 0;
        while self.flow() != Flow::Finish {
            let Some(at) = self.session().deadline().filter(|at| *at <= end) else {
                break;
            };
            self.now.mono = self.now.mono.max(at);
            let now = self.now;
            self.session
                .as_mut()
                .expect("alive")
                .timeout(now, &mut self.fx);
            self.collect(&[]);
            let ended = self.flow() == Flow::Finish;
            let next = self.session().deadline().filter(|_| !ended);
            assert!(
                next.is_none_or(|next| next > self.now.mono),
                "a deadline that stays is a busy loop"
            );
            self.offer(Leg::Client);
            rounds += 1;
            assert!(rounds < 10_000, "deadlines without end");
        }
        self.now.mono = end;
        self.now.wall = self.now.wall.after(Duration::from_millis(millis));
    }

    fn collect(&mut self, src: &[u8]) {
        for leg in [Leg::Client, Leg::Broker] {
            let (buffered, run) = self.fx.wire(leg).finish();
            let out = &mut self.out[leg as usize];
            let before = out.len();
            out.append(buffered);
            out.extend_from_slice(&src[run]);
            trace(
                if leg == Leg::Client {
                    "  -> client"
                } else {
                    "  -> broker"
                },
                &out[before..],
            );
        }
        self.dead.append(&mut self.fx.out.dead);
        self.ensure
            .extend(self.fx.out.ensure.drain(..).map(|ensure| ensure.exchange));
        for event in self.fx.events.drain(..) {
            if let Event::ProtocolFault { leg, .. } = event {
                self.broken[leg as usize] = true;
            }
        }
        let (withheld, retained) = (self.withheld(), self.retained());
        assert!(withheld <= TICKETS, "{withheld} dead letters in flight");
        assert!(retained <= RETAINED, "{retained} octets retained");
        assert_eq!(retained, self.budget.used(), "octets that nobody holds");
    }

    /// Ends it: nothing is kept.
    pub(crate) fn end(&mut self) {
        self.session = None;
        assert_eq!(self.budget.used(), 0, "octets that nobody holds");
    }
}
