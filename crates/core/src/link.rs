//! A broker connection of the proxy's own, without IO: login, heartbeats, blocking, back-off. Publisher, intake and others each embed one (`linked.rs`).
//!
//! The machine that embeds it owns the channels; channel 0 belongs to the link. `step` takes one frame off the front of what was
//! read and says what it means; whatever ends the connection is a `Loss`, after which the link wants a new one (`flow`).

use std::time::Duration;

use bytes::Bytes;

use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, ShortStr, Vhost};
use crate::amqp::method::{Close, MethodId, Tune};
use crate::amqp::reply;
use crate::amqp::version::Version;
use crate::dead_letter::Dialect;
use crate::machine::{Effects, Event, Flow, Mono, Now, Role};

mod back_off;
mod handshake;
mod linked;
#[cfg(test)]
mod tests;

use self::back_off::BackOff;
pub(crate) use self::linked::Linked;
#[cfg(test)]
pub(crate) use self::tests::{peer, script};

/// TLS's answer to other protocols.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long `connection.close-ok` is awaited.
const GOODBYE: Duration = Duration::from_secs(2);
/// We never request larger frames.
const FRAME_MAX: usize = 1 << 20;
/// Limit for received frames, which may exceed the negotiated size (S8.4); larger messages are
/// dropped by the delivery limit.
const LARGEST_FRAME: usize = 32 << 20;
/// Our maximum heartbeat, also if the broker has none: a lost peer is noticed after twice that.
const HEARTBEAT: u16 = 30;
/// A connection of this length resets the back-off.
const STABLE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Login {
    pub vhost: Vhost,
    pub user: ShortStr,
    /// Never printed.
    pub password: Bytes,
    /// Of the process: for jitter of the back-off, and as its mark.
    pub seed: u64,
}

/// The result of processing the front bytes.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    More,
    Took(usize),
    /// Open after these bytes: channels may be used.
    Up(usize),
    Blocked(usize),
    /// A frame of a channel, with its length.
    Frame(usize, Frame<'a>),
    Down(Loss),
}

#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub(crate) kind: Kind,
    /// Never 0.
    pub(crate) channel: ChannelId,
    pub(crate) payload: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Cut, silent, refused, or closed for external reasons (shutdown, an operator).
    Lost,
    /// Closed by the broker because of our bytes: its code, and the method named, or 0 0.
    Fault(u16, MethodId),
}

/// ```text
/// Away ──connected──▶ Handshake ──open-ok──▶ Up ──goodbye──▶ Closing ──▶ Ended
///   ▲                     │                  │
///   └──── after a wait ───┴──────── loss ────┘
/// ```
#[derive(Debug)]
enum State {
    /// Not connected; connects at this time.
    Away(Mono),
    Handshake {
        awaits: MethodId,
        until: Mono,
    },
    Up {
        since: Mono,
    },
    Closing {
        until: Mono,
    },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    Nothing,
    Up,
    Down,
    Native,
}

#[derive(Debug)]
pub struct Link {
    role: Role,
    login: Login,
    state: State,
    reported: Reported,
    back_off: BackOff,
    version: Bytes,
    dialect: Dialect,
    tune: Tune,
    blocked: bool,
    ending: bool,
    heard: Mono,
    beat: Mono,
}

// === impl Login ===

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.user, self.vhost)
    }
}

impl Login {
    /// Of the process.
    pub fn mark(&self) -> String {
        format!("{:x}", self.seed)
    }

    /// Those that a proxy always has in a vhost have its mark.
    fn connection_name(&self, role: Role) -> String {
        let name = format!("dlx-proxy {} {}", role.as_str(), self.vhost);
        match role {
            Role::Walk => name,
            _ => format!("{name} {}", self.mark()),
        }
    }
}

/// Of the proxy that has a connection with this name. One of an earlier version has none, and its vhost stands for it.
pub fn mark_in(connection_name: &str) -> Option<&str> {
    let (role, name) = connection_name
        .strip_prefix("dlx-proxy ")?
        .split_once(' ')?;
    let is_marked = role != Role::Walk.as_str();
    is_marked.then(|| name.rsplit_once(' ').map_or(name, |(_, mark)| mark))
}

// === impl Frame ===

impl<'a> Frame<'a> {
    /// Its method, if it is one.
    pub(crate) fn method(&self) -> Option<MethodId> {
        let is_method = self.kind == Kind::Method;
        is_method.then(|| MethodId::peek(self.payload)).flatten()
    }

    /// A `channel.close`: it is answered. Its code is 0 if it cannot be read.
    pub(crate) fn close<O>(&self, fx: &mut Effects<O>) -> Close<'a> {
        reply::close_ok(fx.broker.build(&[]), self.channel);
        Close::parse(self.payload).unwrap_or_default()
    }

    /// The same: the broker's code and its words.
    pub(crate) fn closed<O>(&self, fx: &mut Effects<O>) -> (u16, String) {
        let close = self.close(fx);
        (close.code, String::from_utf8_lossy(close.text).into_owned())
    }
}

// === impl Link ===

impl Link {
    pub(crate) fn new(role: Role, login: Login) -> Link {
        Link {
            role,
            state: State::Away(Mono(0)),
            reported: Reported::Nothing,
            back_off: BackOff::new(login.seed),
            login,
            version: Bytes::new(),
            dialect: Dialect::V4,
            tune: Tune::default(),
            blocked: false,
            ending: false,
            heard: Mono(0),
            beat: Mono(0),
        }
    }

    pub(crate) fn user(&self) -> &ShortStr {
        &self.login.user
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// The broker has an alarm and does not read publishes (S8.3).
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The broker reads publishes, as far as known.
    pub(crate) fn is_open(&self) -> bool {
        self.is_up() && !self.blocked
    }

    /// The broker refuses this vhost to us, or is too old.
    pub(crate) fn is_refused(&self) -> bool {
        self.reported == Reported::Native
    }

    /// Valid after the first open-ok.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn version(&self) -> Option<Version> {
        Version::parse(&self.version)
    }

    /// Largest frame that we may send, in bytes.
    pub(crate) fn frame_max(&self) -> usize {
        self.tune.frame_max as usize
    }

    pub(crate) fn channel_max(&self) -> u16 {
        self.tune.channel_max
    }

    pub(crate) fn flow(&self) -> Flow {
        match self.state {
            State::Away(at) => Flow::Reconnect(at),
            State::Ended => Flow::Finish,
            State::Handshake { .. } | State::Up { .. } | State::Closing { .. } => Flow::Open,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Away(_) | State::Ended => None,
            State::Handshake { until, .. } | State::Closing { until } => Some(until),
            State::Up { .. } => Some(self.beat.min(self.silent())),
        }
    }

    pub(crate) fn connected<O>(&mut self, now: Now, fx: &mut Effects<O>) {
        self.heard = now.mono;
        self.state = State::Handshake {
            awaits: MethodId::CONNECTION_START,
            until: now.mono.after(HANDSHAKE),
        };
        fx.broker.put(&[], &frame::PROTOCOL);
    }

    /// The socket ended, or failed to connect.
    pub(crate) fn closed<O>(&mut self, now: Now, fx: &mut Effects<O>) -> Loss {
        let cause = match self.state {
            State::Away(_) => "the broker cannot be reached",
            _ => "the connection was cut",
        };
        self.lose(cause.into(), now, fx)
    }

    /// Bytes came, or are left unread on purpose: the peer is not silent.
    pub(crate) fn heard(&mut self, now: Now) {
        self.heard = now.mono;
    }

    pub(crate) fn last_heard(&self) -> Mono {
        self.heard
    }

    pub(crate) fn timeout<O>(&mut self, now: Now, fx: &mut Effects<O>) -> Option<Loss> {
        match self.state {
            State::Away(_) | State::Ended => None,
            State::Handshake { until, .. } => (until <= now.mono)
                .then(|| self.lose("the handshake took too long".into(), now, fx)),
            State::Closing { until } => {
                if until <= now.mono {
                    self.state = State::Ended;
                }
                None
            }
            State::Up { .. } if self.silent() <= now.mono => {
                Some(self.lose("the broker is silent".into(), now, fx))
            }
            State::Up { .. } => {
                // Not postponed by what else was written: eight bytes are cheaper than knowing.
                if self.beat <= now.mono {
                    fx.broker.put(&[], &frame::HEARTBEAT);
                    self.beat = now.mono.after(self.interval() / 2);
                }
                None
            }
        }
    }

    /// Sends `connection.close`; then [`Flow::Finish`].
    pub(crate) fn goodbye<O>(&mut self, now: Now, fx: &mut Effects<O>) {
        self.ending = true;
        match self.state {
            State::Up { .. } => {
                let out = fx.broker.build(&[]);
                reply::close(out, ChannelId(0), 200, b"Goodbye", MethodId(0, 0));
                self.state = State::Closing {
                    until: now.mono.after(GOODBYE),
                };
            }
            State::Away(_) | State::Handshake { .. } => self.state = State::Ended,
            State::Closing { .. } | State::Ended => {}
        }
    }

    /// Processes one frame at the front.
    pub(crate) fn step<'a, O>(
        &mut self,
        bytes: &'a [u8],
        now: Now,
        fx: &mut Effects<O>,
    ) -> Step<'a> {
        if matches!(self.state, State::Away(_) | State::Ended) {
            return if bytes.is_empty() {
                Step::More
            } else {
                Step::Took(bytes.len())
            };
        }
        if matches!(self.state, State::Handshake { .. }) && bytes.starts_with(&TLS_ALERT) {
            let cause =
                "the broker speaks TLS at this port: is `upstream` to begin with `amqps://`?";
            return Step::Down(self.lose(cause.into(), now, fx));
        }
        match frame::front(bytes) {
            Front::Short => Step::More,
            Front::Part(head) if head.size <= LARGEST_FRAME => Step::More,
            Front::Part(head) => {
                let cause = format!("the broker sent a frame of {} bytes", head.size);
                Step::Down(self.lose(cause, now, fx))
            }
            Front::Unterminated(_) => {
                Step::Down(self.lose("the broker sent a broken frame".into(), now, fx))
            }
            Front::Whole(head, payload, whole) if head.channel == ChannelId(0) => match head.kind {
                Kind::Method => self.method(payload, whole, now, fx),
                Kind::Heartbeat | Kind::Header | Kind::Body | Kind::Other(_) => Step::Took(whole),
            },
            Front::Whole(head, payload, whole) => {
                let frame = Frame {
                    kind: head.kind,
                    channel: head.channel,
                    payload,
                };
                match self.state {
                    State::Up { .. } => Step::Frame(whole, frame),
                    _ => Step::Took(whole),
                }
            }
        }
    }

    /// A violation that only the embedding machine can see.
    pub(crate) fn fault<O>(&mut self, what: &'static str, now: Now, fx: &mut Effects<O>) -> Loss {
        self.lose(what.into(), now, fx)
    }

    fn method<'a, O>(
        &mut self,
        payload: &[u8],
        whole: usize,
        now: Now,
        fx: &mut Effects<O>,
    ) -> Step<'a> {
        let id = MethodId::peek(payload).unwrap_or(MethodId(0, 0));
        match (id, &self.state) {
            (MethodId::CONNECTION_CLOSE, _) => Step::Down(self.told_to_close(payload, now, fx)),
            (MethodId::CONNECTION_CLOSE_OK, State::Closing { .. }) => {
                self.state = State::Ended;
                Step::Took(whole)
            }
            (_, &State::Handshake { awaits, until }) if awaits == id => {
                match self.advance(id, payload, until, now, fx) {
                    Some(true) => Step::Up(whole),
                    Some(false) => Step::Took(whole),
                    None => Step::Down(self.handshake_failed(now, fx)),
                }
            }
            (_, State::Handshake { .. }) => {
                Step::Down(self.lose("the broker broke the handshake".into(), now, fx))
            }
            (MethodId::CONNECTION_BLOCKED | MethodId::CONNECTION_UNBLOCKED, State::Up { .. }) => {
                self.block(id == MethodId::CONNECTION_BLOCKED, fx);
                Step::Blocked(whole)
            }
            _ => Step::Took(whole),
        }
    }

    /// The broker sent `connection.close`.
    fn told_to_close<O>(&mut self, payload: &[u8], now: Now, fx: &mut Effects<O>) -> Loss {
        reply::close_ok(fx.broker.build(&[]), ChannelId(0));
        let Ok(close) = Close::parse(payload) else {
            return self.lose("the broker closed the connection".into(), now, fx);
        };
        let text = String::from_utf8_lossy(close.text).into_owned();
        let cause = format!("{} {text}", close.code);
        match (&self.state, close.code) {
            // No such user, no such vhost, no rights in it. What counts connections will let us in later.
            (State::Handshake { .. }, 403 | 530) if !text.contains("limit") => {
                self.refuse(cause, now, fx)
            }
            // 320: an operator, or a shutdown.
            (State::Up { .. }, code) if code != 200 && code != 320 => {
                let method = MethodId(close.class, close.method);
                self.end(Loss::Fault(code, method), cause, now, fx)
            }
            _ => self.lose(cause, now, fx),
        }
    }

    /// The vhost stays native; retried now and then.
    fn refuse<O>(&mut self, cause: String, now: Now, fx: &mut Effects<O>) -> Loss {
        if self.reported != Reported::Native {
            self.reported = Reported::Native;
            fx.events.push(Event::VhostNative { cause });
        }
        let wait = self.back_off.next_after_refusal();
        self.leave(now.mono.after(wait), fx);
        Loss::Lost
    }

    fn lose<O>(&mut self, cause: String, now: Now, fx: &mut Effects<O>) -> Loss {
        self.end(Loss::Lost, cause, now, fx)
    }

    fn end<O>(&mut self, loss: Loss, cause: String, now: Now, fx: &mut Effects<O>) -> Loss {
        if let State::Up { since } = self.state
            && since.after(STABLE) <= now.mono
        {
            self.back_off.reset();
        }
        if self.reported != Reported::Down && !self.ending {
            self.reported = Reported::Down;
            fx.events.push(Event::LinkDown {
                role: self.role,
                cause,
            });
        }
        let wait = match loss {
            Loss::Lost => self.back_off.next(),
            Loss::Fault(..) => self.back_off.next_after_fault(),
        };
        self.leave(now.mono.after(wait), fx);
        loss
    }

    fn leave<O>(&mut self, until: Mono, fx: &mut Effects<O>) {
        self.block(false, fx);
        self.state = if self.ending {
            State::Ended
        } else {
            State::Away(until)
        };
    }

    fn block<O>(&mut self, blocked: bool, fx: &mut Effects<O>) {
        if self.blocked != blocked {
            self.blocked = blocked;
            fx.events.push(Event::Blocked(blocked));
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.tune.heartbeat))
    }

    /// When the peer counts as lost.
    fn silent(&self) -> Mono {
        self.heard.after(self.interval() * 2)
    }
}
