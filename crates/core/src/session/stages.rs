//! What is asked before a probe and on its channel, and what the answers mean: one stage of a take-over after the other.
//!
//! The probe has a channel of its own beside the client's, on the client's connection, since exclusive queues are visible only there.
//! The client never sees it.

use memchr::memmem;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Ensure, Ensured, Fallback, Mono};
use crate::registry::arguments::DeclareArguments;
use crate::registry::refusal::{self, Fit, Permission, Presence};

use super::channel::Channel;
use super::frames::Method;
use super::probe::Probe;
use super::replies::Expected;
use super::takeover::{Aim, Stage, Then};
use super::{Session, Turn};

/// How often a queue is looked for that comes and goes.
const MOST_COMPARED: u8 = 2;
const UNREADABLE: Close<'_> = Close {
    code: 0,
    text: b"",
    class: 0,
    method: 0,
};

impl Session {
    /// What is known already tells whether the broker can be asked.
    pub(super) fn begin_probing(&mut self, turn: &mut Turn<'_>) {
        let channel = self.probes_channel(turn.now.mono);
        let Some(takeover) = self.probe.takeover() else {
            return;
        };
        let can_refuse = self.peer.wording.is_some_and(|wording| {
            let exchange = takeover.exchange.as_deref().unwrap_or_default();
            wording.can_refuse(
                &takeover.queue,
                &self.peer.vhost,
                exchange,
                &takeover.intake,
            )
        });
        match channel {
            // The broker would not survive refusing the probe: some versions cannot write every name.
            _ if !can_refuse => self.forward_in_doubt(Fallback::NotSupported, turn),
            Err(cause) => self.forward_in_doubt(cause, turn),
            Ok(probe) => self.begin_probe(probe, turn),
        }
    }

    /// A channel for a probe, or why there is none.
    pub(super) fn probes_channel(&self, now: Mono) -> Result<ChannelId, Fallback> {
        let limits = &self.settings.channel_limits;
        let is_limited = |user: &ShortStr| limits.has(user, now);
        if self.peer.user.as_ref().is_some_and(is_limited) {
            return Err(Fallback::ChannelLimit);
        }
        self.free_channel().ok_or(Fallback::NoChannel)
    }

    /// First all that the client sent before is answered.
    fn begin_probe(&mut self, probe: ChannelId, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        takeover.probe = Some(probe);
        takeover.stage = Stage::Quieting;
        let channel = takeover.channel;
        match self.channels.get_mut(&channel) {
            Some(state) if !state.is_quiet() => {
                state.expect(Expected::Barrier, true);
                self.inject(channel, turn, |out| reply::channel_flow(out, channel));
            }
            _ => self.barrier_passed(turn),
        }
    }

    /// The client's channel is quiet now.
    pub(super) fn barrier_passed(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let Some(takeover) = self
            .probe
            .takeover_mut()
            .filter(|takeover| takeover.stage == Stage::Quieting)
        else {
            return;
        };
        match takeover.aim {
            Aim::TakeOver => {}
            Aim::Native | Aim::Match => return self.try_form(Stage::Trying, turn),
            Aim::Compare => {
                takeover.stage = Stage::Looking;
                return self.probe(QueueDeclare::PASSIVE, &[], turn);
            }
        }
        takeover.permitted = self.permitted.get(&takeover.intake, now).is_some();
        match takeover.permitted {
            true => self.ensure(Then::Fit, turn),
            false => self.compare(turn),
        }
    }

    /// A number for a probe's channel: the broker counts channels, not numbers (S7.10).
    fn free_channel(&self) -> Option<ChannelId> {
        if self.channels.len() >= self.peer.channel_max() {
            return None;
        }
        (1..=u16::MAX)
            .rev()
            .map(ChannelId)
            .find(|channel| !self.channels.contains_key(channel))
    }

    /// The connection is closed, and nobody asks any more. What comes on a probe's channel is nothing for the client all the same.
    pub(super) fn hide_probe(&mut self) {
        if let Some(probe) = std::mem::take(&mut self.probe).channel() {
            let hidden = Channel {
                hidden: true,
                ..Channel::default()
            };
            self.channels.insert(probe, Box::new(hidden));
        }
    }

    /// Whether what the client says on a channel must wait until the probe's is closed. The broker counts that one as open until then: a
    /// further one could be refused, though the client has not as many as it may have. And the number might be the probe's own.
    pub(super) fn waits_for_probe(&self, channel: ChannelId) -> bool {
        self.probe.is_on_its_way()
            && channel != ChannelId::CONNECTION
            && !self.channels.contains_key(&channel)
    }

    /// Declares one of the forms on the probe's channel.
    fn try_form(&mut self, stage: Stage, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        takeover.stage = stage;
        let Some(declare) = takeover.declare() else {
            return;
        };
        let arguments = DeclareArguments::read(declare.arguments);
        let table = match stage {
            Stage::Trying => declare.arguments.to_vec(),
            Stage::Asking => arguments.permission_probe(),
            Stage::Fitting => arguments.rewritten(&takeover.intake),
            _ => arguments.rewritten_if_there(&takeover.intake),
        };
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        self.probe(bits, &table, turn);
    }

    /// Whether there is such a queue.
    fn compare(&mut self, turn: &mut Turn<'_>) {
        if let Some(takeover) = self.probe.takeover_mut() {
            takeover.compared += 1;
        }
        self.try_form(Stage::Comparing, turn);
    }

    /// Declares on the probe's channel, which is opened for it when it is not open.
    pub(super) fn probe(&mut self, bits: u8, arguments: &[u8], turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        let Some(probe) = takeover.probe else {
            return;
        };
        let mut frames = Vec::new();
        if !std::mem::replace(&mut takeover.open, true) {
            reply::channel_open(&mut frames, probe);
        }
        if let Some(declare) = takeover.declare() {
            reply::queue_declare(&mut frames, probe, &declare, bits, arguments);
        }
        self.inject(probe, turn, |out| out.extend_from_slice(&frames));
    }

    /// The broker answers a probe. The client never sees it.
    pub(super) fn probe_reply(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        match (&self.probe, method.id) {
            (Probe::Takeover(_), _) => self.takeover_reply(method, turn),
            (Probe::Verification(_), _) => self.verification_reply(method, turn),
            (Probe::Closing(_), MethodId::CHANNEL_CLOSE_OK) => self.probe = Probe::None,
            // A close of the broker that crossed ours: ours is answered all the same.
            (Probe::Closing(probe), MethodId::CHANNEL_CLOSE) => {
                let probe = *probe;
                self.inject(probe, turn, |out| reply::close_ok(out, probe));
            }
            (Probe::Closing(_) | Probe::Lookup(_) | Probe::None, _) => {}
        }
    }

    /// The bound on probing has passed.
    pub(super) fn probe_timeout(&mut self, turn: &mut Turn<'_>) {
        match &self.probe {
            Probe::Takeover(_) => self.takeover_timeout(turn),
            Probe::Verification(_) => self.verification_timeout(turn),
            Probe::Lookup(lookup) => {
                let queue = lookup.queue.clone();
                self.looked_up(&queue, turn);
                self.release();
            }
            Probe::Closing(_) | Probe::None => {}
        }
    }

    fn takeover_reply(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        let (probe, id) = (method.channel, method.id);
        let refused = (id == MethodId::CHANNEL_CLOSE)
            .then(|| Close::parse(method.payload).ok())
            .flatten();
        if refused.is_some() {
            takeover.open = false;
            // If it crossed our own close, the client goes on already, and may be within a frame.
            self.inject(probe, turn, |out| reply::close_ok(out, probe));
        }
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        let (stage, is_native) = (takeover.stage, takeover.aim == Aim::Native);
        let may_match = matches!(
            stage,
            Stage::Trying | Stage::Comparing | Stage::Fitting | Stage::Matching
        );
        if let Some(close) = refused.filter(|_| may_match)
            && self.match_existing(&close, turn)
        {
            return;
        }
        match (stage, id) {
            (Stage::Trying, MethodId::CHANNEL_CLOSE)
                if is_native
                    && refused
                        .is_some_and(|close| refusal::may_be_ours(close.code, close.text)) =>
            {
                self.compare(turn);
            }
            (Stage::Trying, MethodId::QUEUE_DECLARE_OK | MethodId::CHANNEL_CLOSE) => {
                self.forward_original(Fallback::NativeQueue, turn);
            }
            (Stage::Matching, MethodId::QUEUE_DECLARE_OK) => self.matched(turn),
            // What else differs is for the broker to say.
            (Stage::Matching, MethodId::CHANNEL_CLOSE) => self.forward_matched(turn),
            (Stage::Permitting, MethodId::CHANNEL_CLOSE) => {
                self.permission_told(&refused.unwrap_or(UNREADABLE), turn);
            }
            (Stage::Looking, MethodId::QUEUE_DECLARE_OK) => self.compare(turn),
            (Stage::Looking, MethodId::CHANNEL_CLOSE) => {
                self.forward_original(Fallback::NotSupported, turn);
            }
            (Stage::Comparing, MethodId::QUEUE_DECLARE_OK) => self.ensure(Then::Forward, turn),
            (Stage::Fitting, MethodId::QUEUE_DECLARE_OK) => self.forward_rewritten(turn),
            (Stage::Comparing, MethodId::CHANNEL_CLOSE) => {
                self.compared(&refused.unwrap_or(UNREADABLE), turn);
            }
            (Stage::Asking, MethodId::CHANNEL_CLOSE) => {
                self.asked(&refused.unwrap_or(UNREADABLE), turn);
            }
            (Stage::Fitting, MethodId::CHANNEL_CLOSE) => {
                self.fit_refused(&refused.unwrap_or(UNREADABLE), turn);
            }
            _ => {}
        }
    }

    /// The form that makes no queue was refused.
    fn compared(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        match refusal::presence(close.code, close.text) {
            Presence::Other => self.fit_refused(close, turn),
            // So is the original, and it is for the broker to say why; or the queue has gone.
            Presence::Invalid => self.forward_original(Fallback::NotSupported, turn),
            Presence::Absent if takeover.lacks_what_a_quorum_queue_needs(close.text) => {
                self.forward_original(Fallback::NotSupported, turn);
            }
            Presence::Absent if takeover.aim != Aim::TakeOver => {
                self.forward_original(Fallback::NotSupported, turn);
            }
            Presence::Absent if takeover.ensured == Some(false) => {
                self.forward_original(Fallback::NoIntake, turn);
            }
            // What an operator's policy gives a queue needs no right of the client.
            Presence::Absent if takeover.exchange.is_none() => {
                takeover.permitted = true;
                self.permitted.insert(takeover.intake.clone(), (), now);
                self.ensure(Then::Fit, turn);
            }
            Presence::Absent => self.try_form(Stage::Asking, turn),
        }
    }

    /// Whether the user may write to the exchange; to the intake exchange it may, as the queue could have been made with it.
    fn asked(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        match refusal::permission(close.code, close.text) {
            Permission::Granted => {
                takeover.permitted = true;
                self.permitted.insert(takeover.intake.clone(), (), now);
                self.ensure(Then::Fit, turn);
            }
            Permission::Refused => self.forward_original(Fallback::Forbidden, turn),
            // Somebody has made the queue meanwhile.
            Permission::Unknown if takeover.compared < MOST_COMPARED => self.compare(turn),
            Permission::Unknown => self.forward_original(Fallback::NativeQueue, turn),
        }
    }

    /// The rewritten form was refused.
    fn fit_refused(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
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
            Fit::Rewritten => self.forward_rewritten(turn),
            Fit::RewrittenAs(intake) => self.go_on_as(intake, turn),
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

    /// The queue has, or had, this intake exchange: what goes on makes none.
    pub(super) fn go_on_as(&mut self, intake: ShortStr, turn: &mut Turn<'_>) {
        if let Some(takeover) = self.probe.takeover_mut() {
            if takeover.intake != intake {
                (takeover.intake, takeover.ensured) = (intake, None);
            }
            takeover.permitted = false;
        }
        self.ensure(Then::Forward, turn);
    }

    /// Asks for the intake exchange, unless that has been answered.
    fn ensure(&mut self, then: Then, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        takeover.stage = Stage::Ensuring(then);
        if takeover.ensured.is_some() {
            return self.went_for_the_exchange(turn);
        }
        turn.fx.out.ensure.push(Ensure {
            exchange: takeover.intake.clone(),
            user: self.peer.user.clone(),
        });
    }

    /// The intake exchange is there, or cannot be had.
    pub(super) fn ensured(&mut self, ensured: &Ensured, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut().filter(|takeover| {
            takeover.intake == ensured.exchange && matches!(takeover.stage, Stage::Ensuring(_))
        }) else {
            return;
        };
        takeover.ensured = Some(ensured.ready);
        self.went_for_the_exchange(turn);
    }

    /// Goes on with or without it.
    pub(super) fn went_for_the_exchange(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover() else {
            return;
        };
        let Stage::Ensuring(then) = takeover.stage else {
            return;
        };
        let to_be_named = takeover.queue.is_empty();
        match then {
            // The queue is there all the same, if it is.
            Then::Forward => self.forward_rewritten(turn),
            // A name that the broker makes cannot be tried out: each try would make another queue.
            Then::Fit if takeover.may_make() && to_be_named => self.forward_rewritten(turn),
            Then::Fit if takeover.may_make() => self.try_form(Stage::Fitting, turn),
            // Only one that is there already is taken over without it.
            Then::Fit if takeover.compared == 0 && !to_be_named => self.compare(turn),
            Then::Fit => self.forward_original(Fallback::NoIntake, turn),
        }
    }
}
