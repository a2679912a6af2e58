//! The take-over of one `queue.declare`: ask, see whether the rewritten form fits, forward one of the two.
//!
//! ```text
//!  declare ──▶ Asking: may this user write to the exchange?   (original arguments, x-expires -1: creates nothing, S7.6)
//!                 │ yes, or nothing learned         │ 403
//!                 ▼                                 │
//!              Fitting: the rewritten form          │      at any time: probe-timeout, the link away,
//!                 │ accepted   │ refused            │      the intake exchange refused
//!                 ▼            ▼                    ▼
//!              forward it   the broker's words tell: forward the rewritten form, or the original
//!                               ──▶ Closing: the probe's channel, then the takeover is over
//! ```
//! The client is not read meanwhile, and the rewritten form is tried only when its channel is quiet: what was sent on it before might fail,
//! and then no queue may come of this declare. The probe has a channel of its own beside the client's, on the client's connection, since
//! exclusive queues are visible only there.

use std::ops::Range;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::dead_letter::Target;
use crate::machine::{Ensure, Ensured, Event, Fallback, Leg, Mono};
use crate::registry::arguments::{DeclareArguments, Wanted};
use crate::registry::refusal::{self, Fit, Permission};

use super::channel::Reword;
use super::replies::{Declared, Expected};
use super::{Hold, Session, Turn};

/// One declare on its way.
#[derive(Clone, Debug)]
pub(super) struct Takeover {
    channel: ChannelId,
    /// The client's method, as it came.
    payload: Vec<u8>,
    target: Target,
    intake: ShortStr,
    until: Mono,
    /// All that the client sent before on its channel has been answered.
    quiet: bool,
    /// Whether the intake exchange is there.
    ensured: Option<bool>,
    probe: ChannelId,
    /// Whether the probe's channel is open, as far as the broker will see it.
    open: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The original arguments were sent with x-expires -1. True: the rewritten ones (for a queue that the broker names).
    Asking(bool),
    /// Permission is known; the channel is not quiet or the intake exchange not there yet.
    Ready,
    /// Without an intake exchange only a queue that exists can be ours: a passive declare was sent.
    Looking,
    /// The rewritten form was sent.
    Fitting,
    /// Decided; the probe's channel is being closed.
    Closing,
}

// === impl Takeover ===

impl Takeover {
    /// When it must have been decided, while it is not.
    pub(super) fn until(&self) -> Option<Mono> {
        (self.stage != Stage::Closing).then_some(self.until)
    }

    fn declare(&self) -> Option<QueueDeclare<'_>> {
        QueueDeclare::parse(&self.payload).ok()
    }
}

impl Session {
    /// A `queue.declare` of the client at `range`. Returns its length, or 0 when it has to wait for the end of another.
    pub(super) fn declare(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        let wanted = match (QueueDeclare::parse(payload), self.rules()) {
            (Ok(declare), Some(_)) if !declare.has(QueueDeclare::PASSIVE) => self.wanted(&declare),
            _ => Wanted::Nothing,
        };
        let queue = QueueDeclare::parse(payload)
            .ok()
            .and_then(|declare| ShortStr::copy(declare.queue))
            .unwrap_or_default();
        let expected = match wanted {
            Wanted::Nothing => None,
            Wanted::Leave(cause) => {
                turn.event(Event::DeclareLeft { queue, cause });
                None
            }
            Wanted::Keep(target) => Some(Declared {
                target,
                taken_over: false,
            }),
            Wanted::TakeOver { target, intake } => {
                if self.takeover.is_some() {
                    return self.hold(Hold::Probe, turn);
                }
                let probe = match self.free_channel() {
                    None => Err(Fallback::NoChannel),
                    Some(_) if !self.can_refuse(&queue, &target, &intake) => {
                        Err(Fallback::NotSupported)
                    }
                    Some(probe) => Ok(probe),
                };
                match probe {
                    Ok(probe) => {
                        self.begin_takeover(channel, payload, target, intake, probe, turn);
                        return len;
                    }
                    Err(cause) => {
                        turn.event(Event::DeclareLeft { queue, cause });
                        Some(Declared {
                            target,
                            taken_over: false,
                        })
                    }
                }
            }
        };
        self.pass_declare(channel, payload, Expected::Declare(expected));
        turn.pass(Leg::Client, range);
        len
    }

    fn wanted(&self, declare: &QueueDeclare<'_>) -> Wanted {
        let arguments = DeclareArguments::read(declare.arguments);
        let policy = self.settings.policies.matching(
            &self.peer.vhost,
            declare.queue,
            arguments.queue_type(),
        );
        let mode = policy
            .and_then(|policy| policy.mode)
            .unwrap_or(self.settings.mode);
        arguments.wanted(policy, mode, &self.settings.names)
    }

    /// Whether the broker survives refusing a probe: some versions cannot write every name.
    fn can_refuse(&self, queue: &[u8], target: &Target, intake: &[u8]) -> bool {
        self.peer.wording.is_some_and(|wording| {
            wording.can_refuse(queue, &self.peer.vhost, &target.exchange, intake)
        })
    }

    /// A number for the probe's channel: the broker counts channels, not numbers (S7.10).
    fn free_channel(&self) -> Option<ChannelId> {
        if self.channels.len() >= self.peer.channel_max() {
            return None;
        }
        (1..=u16::MAX)
            .rev()
            .map(ChannelId)
            .find(|channel| !self.channels.contains_key(channel))
    }

    fn begin_takeover(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        target: Target,
        intake: ShortStr,
        probe: ChannelId,
        turn: &mut Turn<'_>,
    ) {
        self.hold(Hold::Probe, turn);
        turn.fx.ensure.push(Ensure {
            exchange: intake.clone(),
        });
        let mut quiet = true;
        if let Some(state) = self
            .channels
            .get_mut(&channel)
            .filter(|state| !state.is_quiet())
        {
            quiet = false;
            state.expected.push_back(Expected::Barrier);
            state.unanswered = false;
            reply::channel_flow(turn.build(Leg::Broker), channel);
        }
        let until = turn.now.mono.after(self.settings.probe_timeout);
        // What an operator's policy gives a queue needs no right of the client.
        let asked = QueueDeclare::parse(payload)
            .ok()
            .and_then(|declare| DeclareArguments::read(declare.arguments).exchange())
            .is_none_or(|exchange| self.permitted.knows(&exchange, turn.now.mono));
        let stage = if asked {
            Stage::Ready
        } else {
            Stage::Asking(false)
        };
        let takeover = Takeover {
            channel,
            payload: payload.to_vec(),
            target,
            intake,
            until,
            quiet,
            ensured: None,
            probe,
            open: false,
            stage,
        };
        let named = takeover
            .declare()
            .is_some_and(|declare| !declare.queue.is_empty());
        let takeover = self.takeover.insert(takeover);
        if !asked || !named {
            takeover.stage = Stage::Asking(asked);
            self.ask(turn);
        }
    }

    /// Sends a form that creates nothing.
    fn ask(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = &self.takeover else {
            return;
        };
        let Some(declare) = takeover.declare() else {
            return;
        };
        let arguments = DeclareArguments::read(declare.arguments);
        let table = match takeover.stage {
            Stage::Asking(true) => arguments.permission_probe_rewritten(&takeover.intake),
            _ => arguments.permission_probe(),
        };
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        self.probe(bits, &table, turn);
    }

    /// Declares on the probe's channel, which is opened for it when it is not open.
    fn probe(&mut self, bits: u8, arguments: &[u8], turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        let out = turn.build(Leg::Broker);
        if !std::mem::replace(&mut takeover.open, true) {
            reply::channel_open(out, takeover.probe);
        }
        let probe = takeover.probe;
        if let Some(declare) = takeover.declare() {
            reply::queue_declare(out, probe, &declare, bits, arguments);
        }
    }

    /// Whether this channel is the probe's.
    pub(super) fn is_probe(&self, channel: ChannelId) -> bool {
        self.takeover
            .as_ref()
            .is_some_and(|takeover| takeover.probe == channel)
    }

    /// The broker answers the probe. The client never sees it.
    pub(super) fn probe_reply(&mut self, id: MethodId, payload: &[u8], turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        let refused = (id == MethodId::CHANNEL_CLOSE)
            .then(|| Close::parse(payload).ok())
            .flatten();
        if refused.is_some() {
            takeover.open = false;
            reply::close_ok(turn.build(Leg::Broker), takeover.probe);
        }
        match (takeover.stage, id) {
            (Stage::Closing, MethodId::CHANNEL_CLOSE_OK | MethodId::CHANNEL_CLOSE) => {
                self.takeover = None
            }
            (Stage::Asking(rewritten), MethodId::CHANNEL_CLOSE | MethodId::QUEUE_DECLARE_OK) => {
                let permission = refused.map_or(Permission::Unknown, |close| {
                    refusal::permission(close.code, close.text)
                });
                self.permission(rewritten, permission, turn);
            }
            (Stage::Looking, MethodId::QUEUE_DECLARE_OK) => self.fit(turn),
            (Stage::Looking, MethodId::CHANNEL_CLOSE) => {
                self.forward_original(Fallback::NoIntake, turn);
            }
            (Stage::Fitting, MethodId::QUEUE_DECLARE_OK) => self.forward_rewritten(None, turn),
            (Stage::Fitting, MethodId::CHANNEL_CLOSE) => {
                let close = refused.unwrap_or(Close {
                    code: 0,
                    text: b"",
                    class: 0,
                    method: 0,
                });
                let fit = match takeover.declare() {
                    Some(declare) => refusal::fit(
                        close.code,
                        close.text,
                        &DeclareArguments::read(declare.arguments),
                        &self.settings.names,
                    ),
                    None => Fit::Original,
                };
                match fit {
                    Fit::Rewritten => self.forward_rewritten(None, turn),
                    Fit::RewrittenAs(intake) => {
                        takeover.intake = intake;
                        self.forward_rewritten(None, turn);
                    }
                    Fit::Answer(text) => self.forward_rewritten(Some(text), turn),
                    Fit::Original if close.code == 403 => {
                        self.forward_original(Fallback::NoPermission, turn);
                    }
                    Fit::Original => self.forward_original(Fallback::NativeQueue, turn),
                }
            }
            _ => {}
        }
    }

    fn permission(&mut self, rewritten: bool, permission: Permission, turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        let named = takeover
            .declare()
            .is_some_and(|declare| !declare.queue.is_empty());
        match permission {
            Permission::Refused => return self.forward_original(Fallback::NoPermission, turn),
            Permission::Granted if !rewritten => {
                let exchange = takeover.target.exchange.clone();
                self.permitted.learn(exchange, turn.now.mono);
            }
            Permission::Granted | Permission::Unknown => {}
        }
        if named || rewritten {
            takeover.stage = Stage::Ready;
            self.try_fit(turn);
        } else {
            takeover.stage = Stage::Asking(true);
            self.ask(turn);
        }
    }

    /// The client's channel is quiet now.
    pub(super) fn barrier_passed(&mut self, turn: &mut Turn<'_>) {
        if let Some(takeover) = &mut self.takeover {
            takeover.quiet = true;
            self.try_fit(turn);
        }
    }

    /// The intake exchange is there, or cannot be had.
    pub(super) fn ensured(&mut self, ensured: &Ensured, turn: &mut Turn<'_>) {
        if let Some(takeover) = self
            .takeover
            .as_mut()
            .filter(|takeover| takeover.intake == ensured.exchange)
        {
            takeover.ensured = Some(ensured.ready);
            self.try_fit(turn);
        }
    }

    /// Goes on when all that must come first has come.
    fn try_fit(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self
            .takeover
            .as_mut()
            .filter(|takeover| takeover.stage == Stage::Ready && takeover.quiet)
        else {
            return;
        };
        let Some(declare) = QueueDeclare::parse(&takeover.payload).ok() else {
            return;
        };
        match takeover.ensured {
            None => {}
            Some(false) if declare.queue.is_empty() => {
                self.forward_original(Fallback::NoIntake, turn);
            }
            Some(false) => {
                takeover.stage = Stage::Looking;
                self.probe(QueueDeclare::PASSIVE, &[], turn);
            }
            // A name that the broker makes cannot be tried out: each try would make another queue.
            Some(true) if declare.queue.is_empty() => self.forward_rewritten(None, turn),
            Some(true) => self.fit(turn),
        }
    }

    /// Tries the rewritten form.
    fn fit(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        takeover.stage = Stage::Fitting;
        let Some(declare) = takeover.declare() else {
            return;
        };
        let table = DeclareArguments::read(declare.arguments).rewritten(&takeover.intake);
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        self.probe(bits, &table, turn);
    }

    /// The declare goes on as the client wrote it.
    fn forward_original(&mut self, cause: Fallback, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let queue = takeover
            .declare()
            .and_then(|declare| ShortStr::copy(declare.queue))
            .unwrap_or_default();
        let declared = Declared {
            target: takeover.target.clone(),
            taken_over: false,
        };
        self.pass_declare(
            takeover.channel,
            &takeover.payload,
            Expected::Declare(Some(declared)),
        );
        crate::amqp::frame::put(turn.build(Leg::Broker), 1, takeover.channel, |out| {
            out.extend_from_slice(&takeover.payload)
        });
        turn.event(Event::DeclareLeft { queue, cause });
    }

    /// The declare goes on with the intake exchange in it. When the broker refuses it, the client reads `text`.
    fn forward_rewritten(&mut self, text: Option<Vec<u8>>, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let Some(declare) = takeover.declare() else {
            return;
        };
        let declared = Declared {
            target: takeover.target.clone(),
            taken_over: true,
        };
        if let (Some(text), Some(state)) = (&text, self.channels.get_mut(&takeover.channel)) {
            let declare = MethodId::QUEUE_DECLARE;
            state.reword = Some(Reword {
                sent: declare,
                code: 406,
                text: text.clone(),
                culprit: declare,
            });
        }
        if declare.has(QueueDeclare::NO_WAIT) && text.is_none() {
            // It was tried out: there will be no reply to learn from.
            let queue = ShortStr::copy(declare.queue).unwrap_or_default();
            self.manage(queue, declared.clone(), turn);
        }
        self.pass_declare(
            takeover.channel,
            &takeover.payload,
            Expected::Declare(Some(declared)),
        );
        let table = DeclareArguments::read(declare.arguments).rewritten(&takeover.intake);
        reply::queue_declare(
            turn.build(Leg::Broker),
            takeover.channel,
            &declare,
            declare.bits,
            &table,
        );
    }

    /// Lets the client go on; the probe's channel is closed behind its back.
    fn end_takeover(&mut self, turn: &mut Turn<'_>) -> Option<Takeover> {
        let takeover = self
            .takeover
            .take()
            .filter(|takeover| takeover.stage != Stage::Closing)?;
        self.release();
        if takeover.open {
            reply::close(
                turn.build(Leg::Broker),
                takeover.probe,
                200,
                b"",
                MethodId(0, 0),
            );
            self.takeover = Some(Takeover {
                payload: Vec::new(),
                stage: Stage::Closing,
                ..takeover.clone()
            });
        }
        Some(takeover)
    }

    /// The client's channel is closed: no queue comes of its declare.
    pub(super) fn abandon_takeover(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        if self
            .takeover
            .as_ref()
            .is_some_and(|takeover| takeover.channel == channel)
        {
            self.end_takeover(turn);
        }
    }

    /// The bound on probing has passed.
    pub(super) fn probe_timeout(&mut self, turn: &mut Turn<'_>) {
        if self
            .takeover
            .as_ref()
            .and_then(Takeover::until)
            .is_some_and(|until| until <= turn.now.mono)
        {
            self.forward_original(Fallback::ProbeTimeout, turn);
        }
    }
}
