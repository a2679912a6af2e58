//! What is asked before a probe and on its channel, and what the answers mean: one stage of a take-over after the other.
//!
//! The probe has a channel of its own beside the client's, on the client's connection, since exclusive queues are visible only there.
//! The client never sees it.

use memchr::memmem;

use crate::amqp::ids::ChannelId;
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Ensured, Fallback, Learned, Leg, Recalled};
use crate::registry::arguments::DeclareArguments;
use crate::registry::refusal::{self, Fit, Permission};

use super::channel::Channel;
use super::declare::Stage;
use super::verify::Verification;
use super::{Session, Turn};

impl Session {
    /// What is known already.
    pub(super) fn recalled(&mut self, recalled: &Recalled, turn: &mut Turn<'_>) {
        if self.verification.is_some() {
            return self.verification_recalled(recalled, turn);
        }
        let Some(takeover) = self.takeover.as_mut().filter(|takeover| {
            takeover.stage == Stage::Recalling && takeover.about == recalled.about
        }) else {
            return;
        };
        // An exclusive queue is known to this session alone.
        takeover.seen_taken_over = recalled.taken_over.or_else(|| {
            let known = self.registry.get(&takeover.about.queue)?;
            Some(known.declared.taken_over)
        });
        let can_refuse = self.peer.wording.is_some_and(|wording| {
            let exchange = takeover.about.exchange.as_deref().unwrap_or_default();
            let queue = &takeover.about.queue;
            wording.can_refuse(queue, &self.peer.vhost, exchange, &takeover.intake)
        });
        match self.free_channel() {
            // The broker would not survive refusing the probe: some versions cannot write every name.
            _ if !can_refuse => self.forward_in_doubt(Fallback::NotSupported, turn),
            _ if recalled.channel_limit => self.forward_in_doubt(Fallback::ChannelLimit, turn),
            None => self.forward_in_doubt(Fallback::NoChannel, turn),
            Some(probe) => self.begin_probe(probe, recalled.may_write, turn),
        }
    }

    /// A number for a probe's channel: the broker counts channels, not numbers (S7.10).
    pub(super) fn free_channel(&self) -> Option<ChannelId> {
        if self.channels.len() >= self.peer.channel_max() {
            return None;
        }
        (1..=u16::MAX)
            .rev()
            .map(ChannelId)
            .find(|channel| !self.channels.contains_key(channel))
    }

    /// Whether a probe is on its way, or its channel is still being closed.
    pub(super) fn is_probing(&self) -> bool {
        self.takeover.is_some() || self.verification.is_some()
    }

    /// The channel on which a declare of the client's is with us, undecided.
    pub(super) fn declaring(&self) -> Option<ChannelId> {
        let takeover = self.takeover.as_ref()?;
        (takeover.stage != Stage::Closing).then_some(takeover.channel)
    }

    /// The connection is closed, and nobody asks any more. What comes on a probe's channel is nothing for the client all the same.
    pub(super) fn hide_probes(&mut self) {
        let takeover = self.takeover.take().map(|takeover| takeover.probe);
        let verification = self.verification.take().map(|of| of.probe());
        let opened = takeover.into_iter().chain(verification);
        for probe in opened.filter(|probe| *probe != ChannelId(0)) {
            let hidden = Channel {
                hidden: true,
                ..Channel::default()
            };
            self.channels.insert(probe, hidden);
        }
    }

    /// Whether what the client says on a channel must wait until the probe's is closed. The broker counts that one as open until then: a
    /// further one could be refused, though the client has not as many as it may have. And the number might be the probe's own.
    pub(super) fn waits_for_probe(&self, channel: ChannelId) -> bool {
        self.is_probing() && channel != ChannelId(0) && !self.channels.contains_key(&channel)
    }

    /// Sends a form that creates nothing.
    pub(super) fn ask(&mut self, turn: &mut Turn<'_>) {
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

    /// Whether this channel is a probe's.
    pub(super) fn is_probe(&self, channel: ChannelId) -> bool {
        let takeover = self.takeover.as_ref().map(|takeover| takeover.probe);
        let verification = self.verification.as_ref().map(Verification::probe);
        takeover == Some(channel) || verification == Some(channel)
    }

    /// The broker answers a probe. The client never sees it.
    pub(super) fn probe_reply(&mut self, id: MethodId, payload: &[u8], turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return self.verification_reply(id, turn);
        };
        let refused = (id == MethodId::CHANNEL_CLOSE)
            .then(|| Close::parse(payload).ok())
            .flatten();
        if refused.is_some() {
            takeover.open = false;
            let probe = takeover.probe;
            // If it crossed our own close, the client goes on already, and may be within a frame.
            self.inject(probe, turn, |out| reply::close_ok(out, probe));
        }
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        match (takeover.stage, id) {
            // A close of the broker that crossed ours: ours is answered all the same.
            (Stage::Closing, MethodId::CHANNEL_CLOSE_OK) => self.takeover = None,
            (Stage::Asking(rewritten), MethodId::CHANNEL_CLOSE | MethodId::QUEUE_DECLARE_OK) => {
                let permission = refused.map_or(Permission::Unknown, |close| {
                    refusal::permission(close.code, close.text)
                });
                self.permission(rewritten, permission, turn);
            }
            (Stage::Looking, MethodId::QUEUE_DECLARE_OK) => self.fit(turn),
            (Stage::Looking, MethodId::CHANNEL_CLOSE) => {
                let cause = match takeover.understood {
                    true => Fallback::NoIntake,
                    false => Fallback::NotSupported,
                };
                self.forward_original(cause, turn);
            }
            (Stage::Fitting, MethodId::QUEUE_DECLARE_OK) => {
                self.forward_rewritten(None, turn);
            }
            (Stage::Fitting, MethodId::CHANNEL_CLOSE) => {
                let close = refused.unwrap_or(Close {
                    code: 0,
                    text: b"",
                    class: 0,
                    method: 0,
                });
                self.fit_refused(&close, turn);
            }
            _ => {}
        }
    }

    /// The rewritten form was refused.
    fn fit_refused(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) {
        let Some(takeover) = &mut self.takeover else {
            return;
        };
        let fit = match (takeover.declare(), self.peer.wording) {
            (Some(declare), Some(wording)) => refusal::fit(
                close.code,
                close.text,
                &DeclareArguments::read(declare.arguments),
                &self.settings.names,
                wording,
            ),
            _ => Fit::Original,
        };
        match fit {
            Fit::Rewritten => self.forward_rewritten(None, turn),
            Fit::RewrittenAs(intake) => {
                takeover.intake = intake;
                self.forward_rewritten(None, turn);
            }
            Fit::Answer(text) => self.forward_rewritten(Some(text), turn),
            Fit::Original if close.code == 403 => {
                let about_intake = memmem::find(close.text, &takeover.intake).is_some();
                let cause = if about_intake {
                    Fallback::NoPermission
                } else {
                    Fallback::Forbidden
                };
                self.forward_original(cause, turn);
            }
            Fit::Original => self.forward_original(Fallback::NativeQueue, turn),
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
            // Of a queue that the broker names both forms are asked: the second is about the intake exchange.
            Permission::Refused if rewritten => {
                return self.forward_original(Fallback::NoPermission, turn);
            }
            Permission::Refused => return self.forward_original(Fallback::Forbidden, turn),
            Permission::Granted if !rewritten => {
                let exchange = takeover.about.exchange.clone();
                turn.fx.learned.extend(exchange.map(Learned::MayWrite));
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
    pub(super) fn try_fit(&mut self, turn: &mut Turn<'_>) {
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
            Some(true) if declare.queue.is_empty() => {
                self.forward_rewritten(None, turn);
            }
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
}
