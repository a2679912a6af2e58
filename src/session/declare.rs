//! The take-over of one `queue.declare`: ask, see whether the rewritten form fits, forward one of the two.
//!
//! ```text
//!  declare ──▶ Recalling: what do we know already, from this session or another?
//!                 │ no probe can be made ──▶ in doubt: as the queue was last seen, else the original
//!                 ▼
//!              Asking: may this user write to the exchange?   (original arguments, x-expires -1: creates nothing, S7.6)
//!                 │ yes, or nothing learned         │ 403
//!                 ▼                                 │
//!              Fitting: the rewritten form          │      at any time: probe-timeout (in doubt), the link away,
//!                 │ accepted   │ refused            │      the intake exchange refused
//!                 ▼            ▼                    ▼
//!              forward it   the broker's words tell: forward the rewritten form, or the original
//!                               ──▶ Closing: the probe's channel, then the takeover is over
//! ```
//! The client is not read meanwhile, and the rewritten form is tried only when its channel is quiet: what was sent on it before might fail,
//! and then no queue may come of this declare. The probe has a channel of its own beside the client's, on the client's connection, since
//! exclusive queues are visible only there.

use std::ops::Range;

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Bound, Ensure, Event, Fallback, Learned, Leg, Mono, Recall};
use crate::registry::arguments::{DeclareArguments, Wanted};
use crate::registry::intake_name::Intake;
use crate::registry::policy::{Queue, QueueType};
use crate::registry::{Declared, Form};

use super::channel::Reword;
use super::replies::{Expected, asked_for};
use super::{Hold, Session, Turn};

/// One declare on its way.
#[derive(Clone, Debug)]
pub(super) struct Takeover {
    pub(super) channel: ChannelId,
    /// The client's method, as it came.
    pub(super) payload: Vec<u8>,
    /// What its arguments say of dead letters.
    pub(super) said: Intake,
    pub(super) intake: ShortStr,
    /// Whether they say nothing but what we know. If not, the intake exchange is only there for the broker to compare.
    pub(super) understood: bool,
    pub(super) until: Mono,
    /// What was asked of the other sessions' knowledge.
    pub(super) about: Recall,
    /// Whether the queue has an intake exchange, as far as it was seen before.
    pub(super) seen_taken_over: Option<bool>,
    /// All that the client sent before on its channel has been answered.
    pub(super) quiet: bool,
    /// Whether the intake exchange is there.
    pub(super) ensured: Option<bool>,
    /// The probe's channel; 0: none yet.
    pub(super) probe: ChannelId,
    /// Whether the probe's channel is open, as far as the broker will see it.
    pub(super) open: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// What is known already was asked for; the broker has not been asked anything.
    Recalling,
    /// The original arguments were sent with x-expires -1. True: the rewritten ones (for a queue that the broker names).
    Asking(bool),
    /// Permission is known; the channel is not quiet or the intake exchange not there yet.
    Ready,
    /// Without an intake exchange, or where the arguments are not understood, only a queue that exists can be ours: a passive declare was sent.
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

    /// The client's method.
    pub(super) fn declare(&self) -> Option<QueueDeclare<'_>> {
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
        let stripped = without_line_breaks(payload);
        let payload = stripped.as_deref().unwrap_or(payload);
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
                self.remember_declared(channel, payload);
                turn.event(Event::DeclareLeft { queue, cause });
                None
            }
            Wanted::Keep(said) => Some(as_it_is(said, payload)),
            Wanted::TakeOver { .. } | Wanted::Compare { .. } if self.is_probing() => {
                return self.hold(Hold::Probe, turn);
            }
            Wanted::TakeOver { said, intake } => {
                self.begin_takeover(channel, payload, (said, intake), true, turn);
                return len;
            }
            Wanted::Compare { said, intake } => {
                self.begin_takeover(channel, payload, (said, intake), false, turn);
                return len;
            }
        };
        self.expect_declare(channel, payload, expected);
        self.pass_request(channel, MethodId::QUEUE_DECLARE, payload, range, turn);
        len
    }

    /// A declare goes to the broker. What is known of its queue once it is accepted.
    fn expect_declare(&mut self, channel: ChannelId, payload: &[u8], declared: Option<Declared>) {
        let declare = QueueDeclare::parse(payload).ok();
        let queue = declare.and_then(|declare| ShortStr::copy(declare.queue));
        let unseen = declare.is_some_and(|declare| declare.has(QueueDeclare::NO_WAIT));
        if let Some(state) = self.channels.get_mut(&channel) {
            state.expect(
                Expected::Declare(queue.unwrap_or_default(), declared),
                unseen,
            );
        }
    }

    fn wanted(&self, declare: &QueueDeclare<'_>) -> Wanted {
        let arguments = DeclareArguments::read(declare.arguments);
        let ours = self.settings.policies.ours();
        let policy = ours.matching(Queue {
            vhost: &self.peer.vhost,
            name: declare.queue,
            queue_type: arguments.queue_type(),
        });
        let mode = policy
            .and_then(|policy| policy.mode)
            .unwrap_or(self.settings.mode);
        match arguments.wanted(policy, mode, &self.settings.names) {
            // What the broker names is no queue that is there already.
            Wanted::Compare { .. } if declare.queue.is_empty() => {
                Wanted::Leave(Fallback::NotSupported)
            }
            wanted => wanted,
        }
    }

    fn begin_takeover(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        (said, intake): (Intake, ShortStr),
        understood: bool,
        turn: &mut Turn<'_>,
    ) {
        self.hold(Hold::Probe, turn);
        let Ok(declare) = QueueDeclare::parse(payload) else {
            return;
        };
        let about = Recall {
            queue: ShortStr::copy(declare.queue).unwrap_or_default(),
            exchange: DeclareArguments::read(declare.arguments).exchange(),
        };
        turn.fx.recall.push(about.clone());
        self.takeover = Some(Takeover {
            channel,
            payload: payload.to_vec(),
            said,
            intake,
            understood,
            until: turn
                .now
                .mono
                .after(self.settings.limits.now().probe_timeout),
            about,
            seen_taken_over: None,
            quiet: false,
            // Only a queue that is there already is of interest.
            ensured: (!understood).then_some(false),
            probe: ChannelId(0),
            open: false,
            stage: Stage::Recalling,
        });
    }

    /// What is known already is known: the broker is asked the rest.
    pub(super) fn begin_probe(&mut self, probe: ChannelId, may_write: bool, turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        takeover.probe = probe;
        if takeover.ensured.is_none() {
            turn.fx.ensure.push(Ensure {
                exchange: takeover.intake.clone(),
            });
        }
        takeover.quiet = true;
        if let Some(state) = self
            .channels
            .get_mut(&takeover.channel)
            .filter(|state| !state.is_quiet())
        {
            takeover.quiet = false;
            state.expect(Expected::Barrier, true);
            reply::channel_flow(turn.build(Leg::Broker), takeover.channel);
        }
        // What an operator's policy gives a queue needs no right of the client.
        let asked = may_write || takeover.about.exchange.is_none() || !takeover.understood;
        if asked && !takeover.about.queue.is_empty() {
            takeover.stage = Stage::Ready;
            self.try_fit(turn);
        } else {
            takeover.stage = Stage::Asking(asked);
            self.ask(turn);
        }
    }

    /// No probe tells which form fits. As the queue was last seen; of one that nobody saw the original goes on, unless the rewritten form
    /// has been sent on the probe's channel: that makes the queue.
    pub(super) fn forward_in_doubt(&mut self, cause: Fallback, turn: &mut Turn<'_>) {
        let Some(takeover) = &self.takeover else {
            return;
        };
        let sent = takeover.stage == Stage::Fitting;
        if takeover.seen_taken_over.unwrap_or(sent) {
            self.forward_rewritten(None, turn);
        } else {
            self.forward_original(cause, turn);
        }
    }

    /// The declare goes on as the client wrote it.
    pub(super) fn forward_original(&mut self, cause: Fallback, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let queue = takeover.about.queue.clone();
        let declared = as_it_is(takeover.said.clone(), &takeover.payload);
        let declared = Some(declared).filter(|_| takeover.understood);
        self.remember_declared(takeover.channel, &takeover.payload);
        self.expect_declare(takeover.channel, &takeover.payload, declared);
        let asking = asked_for(MethodId::QUEUE_DECLARE, &takeover.payload);
        frame::put(turn.build(Leg::Broker), 1, takeover.channel, |out| {
            out.extend_from_slice(asking.as_ref().unwrap_or(&takeover.payload))
        });
        turn.event(Event::DeclareLeft { queue, cause });
    }

    /// If the broker refuses this declare, its words may need to be the client's.
    fn remember_declared(&mut self, channel: ChannelId, payload: &[u8]) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.declared = Some(payload.to_vec());
        }
    }

    /// The declare goes on with the intake exchange in it. If the broker is known to refuse it, the client reads `text`.
    pub(super) fn forward_rewritten(&mut self, text: Option<Vec<u8>>, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let Some(declare) = takeover.declare() else {
            return;
        };
        let table = DeclareArguments::read(declare.arguments).rewritten(&takeover.intake);
        // As the intake will read it: for the rejects of a queue the same is true as for all else that dies there.
        let read = self.settings.names.decode(&takeover.intake);
        let (said, queue_type) = read.unwrap_or((takeover.said.clone(), QueueType::Default));
        let declared = Declared {
            said,
            queue_type,
            taken_over: true,
            form: form(declare.bits, &table),
        };
        self.remember_declared(takeover.channel, &takeover.payload);
        if let (Some(text), Some(state)) = (text, self.channels.get_mut(&takeover.channel)) {
            let declare = MethodId::QUEUE_DECLARE;
            state.reword = Some(Reword {
                sent: declare,
                code: 406,
                text,
                culprit: declare,
            });
        }
        self.expect_declare(takeover.channel, &takeover.payload, Some(declared));
        reply::queue_declare(
            turn.build(Leg::Broker),
            takeover.channel,
            &declare,
            declare.bits & !QueueDeclare::NO_WAIT,
            &table,
        );
    }

    /// A queue is managed from now on. Not while deliveries of an earlier one of that name are unsettled: to a classic queue their tags
    /// mean its own messages, so that only the broker can tell what dies.
    pub(super) fn manage(&mut self, queue: ShortStr, declared: Declared, turn: &mut Turn<'_>) {
        let mut channels = self.channels.values();
        if self.registry.get(&queue).is_none()
            && channels.any(|state| state.unacked.retains_of(&queue))
        {
            return;
        }
        turn.event(Event::QueueManaged {
            queue: queue.clone(),
            taken_over: declared.taken_over,
        });
        if declared.form.bits & QueueDeclare::EXCLUSIVE == 0 {
            let (queue, taken_over) = (queue.clone(), declared.taken_over);
            turn.fx.learned.push(Learned::Queue { queue, taken_over });
        }
        let most = self.settings.limits.now().max_queues;
        if !self.registry.insert(queue, declared, most, turn.now.mono) {
            turn.event(Event::BoundMet(Bound::Queues));
        }
    }

    /// Lets the client go on; the probe's channel is closed behind its back.
    fn end_takeover(&mut self, turn: &mut Turn<'_>) -> Option<Takeover> {
        let undecided = |takeover: &mut Takeover| takeover.stage != Stage::Closing;
        let takeover = self.takeover.take_if(undecided)?;
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

    /// The bound on probing has passed. An intake that does not answer is one that is away: the broker is given the same time once more.
    pub(super) fn probe_timeout(&mut self, turn: &mut Turn<'_>) {
        let late =
            |takeover: &&mut Takeover| takeover.until().is_some_and(|until| until <= turn.now.mono);
        let Some(takeover) = self.takeover.as_mut().filter(late) else {
            return;
        };
        turn.event(Event::BoundMet(Bound::ProbeTimeout));
        if takeover.stage == Stage::Ready && takeover.quiet && takeover.ensured.is_none() {
            takeover.ensured = Some(false);
            takeover.until = turn
                .now
                .mono
                .after(self.settings.limits.now().probe_timeout);
            self.try_fit(turn);
        } else {
            self.forward_in_doubt(Fallback::ProbeTimeout, turn);
        }
    }
}

/// The broker takes line breaks out of the name (`strip_cr_lf`): the declare without them, if it has any. One of nothing else stays: without
/// them it would be the wish for a name, which it is not.
fn without_line_breaks(payload: &[u8]) -> Option<Vec<u8>> {
    const NAME: usize = 6; // behind class, method and ticket
    let declare = QueueDeclare::parse(payload).ok()?;
    let mut name = declare.queue.to_vec();
    name.retain(|octet| !b"\r\n".contains(octet));
    let rest = payload.get(NAME + 1 + declare.queue.len()..)?;
    let stripped = [payload.get(..NAME)?, &[name.len() as u8], &name, rest].concat();
    (!name.is_empty() && name.len() < declare.queue.len()).then_some(stripped)
}

/// What is known of a queue whose declare goes on as the client wrote it.
fn as_it_is(said: Intake, payload: &[u8]) -> Declared {
    let (queue_type, form) = match QueueDeclare::parse(payload) {
        Ok(declare) => (
            DeclareArguments::read(declare.arguments).queue_type(),
            form(declare.bits, declare.arguments),
        ),
        Err(_) => (QueueType::Default, Form::default()),
    };
    Declared {
        said,
        queue_type,
        taken_over: false,
        form,
    }
}

fn form(bits: u8, arguments: &[u8]) -> Form {
    Form {
        bits: bits & !QueueDeclare::NO_WAIT,
        arguments: arguments.to_vec(),
    }
}
