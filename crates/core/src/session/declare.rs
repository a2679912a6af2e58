//! The take-over of one `queue.declare`: see whether the queue is there, ask, make it with the intake exchange in it.
//!
//! ```text
//!  declare ── no probe can be made ──▶ in doubt: how was the queue last seen, by this session or another?
//!                 │
//!                 ▼
//!              Quieting: all that the client sent before on its channel is answered
//!                 │ mode `off` ──▶ Trying: the original form. It fits, or the broker says why not; where it meets a queue that may have been
//!                 ▼                   taken over: Comparing, like any other
//!              Comparing: is there such a queue?            (rewritten arguments, x-max-age: makes nothing, S7.3)
//!                 │ no, and the user may write              │ there is        │ there is another
//!                 │ to the intake exchange                  ▼                 ▼
//!                 ▼                                      Ensuring        the broker's words tell what goes on
//!              Asking: may the user write to                │
//!                 the exchange?  (original arguments,       ▼
//!                 │ x-expires -1: makes nothing, S7.6)   the rewritten form goes on, as one that makes no queue
//!                 │ yes            │ 403 ──▶ the original
//!                 ▼
//!              Ensuring: the intake exchange ──▶ Fitting: the rewritten form makes the queue ──▶ it goes on
//! ```
//! Each end leads to Closing: the probe's channel. The client is not read meanwhile. The probe has a channel of its own beside the client's, on
//! the client's connection, since exclusive queues are visible only there.
//!
//! Two things hold at each arrow, however the queue comes and goes in between. A form that can make a queue is sent only when this connection
//! has shown that it may write to both exchanges, and the intake exchange is there; any other rewritten form is one that makes none. And the
//! intake exchange is made only for a queue that has it, or when both permissions are known: behind a 403 nothing is left.
//!
//! In doubt (no probe can be made, `probe-timeout`) a queue that was last seen with this intake exchange is declared with it, in the form that
//! makes none; all others as the client wrote them.

use std::borrow::Cow;
use std::time::Duration;

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Limit};
use crate::objects::{DeclaredTarget, OwnObject, QueueType};
use crate::registry::arguments::{DeclareArguments, Wanted, if_there};
use crate::registry::generated;
use crate::registry::policy::Queue;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};

use super::frames::{Handled, Method};
use super::pause::Hold;
use super::probe::Probe;
use super::replies::{Accepted, Expected, asked_for};
use super::takeover::{Aim, Stage, Takeover};
use super::{Session, Turn};

/// How long the broker's yes is believed, in the connection to which it was said.
pub(super) const PERMITTED_FOR: Duration = Duration::from_secs(60);
/// For so many intake exchanges.
pub(super) const MOST_PERMITTED: usize = 64;
/// Another intake exchange may be a little longer than that of the declare: it says another type.
const OTHER_TYPE: usize = 2;

impl Session {
    /// A `queue.declare` of the client. It may have to wait for the end of another.
    pub(super) fn declare(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let stripped = without_line_breaks(method.payload);
        let payload = stripped.as_deref().unwrap_or(method.payload);
        if let Some(waits) = self.asks_for_default_type(Method { payload, ..method }, turn) {
            return waits;
        }
        self.tell_of_retries(payload, turn);
        let (retries, taken_out) = self.retries_of_declare(payload);
        let payload = taken_out.as_deref().unwrap_or(payload);
        let channel = method.channel;
        let wanted = match (QueueDeclare::parse(payload), self.rules()) {
            (Ok(declare), Some(_)) if !declare.has(QueueDeclare::PASSIVE) => {
                match self.undecided(&declare) {
                    Some(start) => {
                        let cause = Fallback::GeneratedName;
                        turn.event(Event::DeclareLeft {
                            queue: start,
                            cause,
                        });
                        Self::wanted_by_name(&declare)
                    }
                    None => self.wanted(payload, &declare),
                }
            }
            _ => Wanted::Nothing,
        };
        let queue = QueueDeclare::parse(payload)
            .ok()
            .and_then(|declare| ShortStr::copy(declare.queue))
            .unwrap_or_default();
        let expected = match wanted {
            Wanted::Nothing => {
                let nothing = DeclaredTarget::Policy {
                    at_least_once: false,
                };
                let declared = self.as_it_is(nothing, retries, payload);
                Some(match self.is_retried(payload, retries) {
                    true => Accepted::Managed(declared),
                    false => Accepted::Plain(declared),
                })
            }
            Wanted::Leave(cause) => {
                self.remember_declared(channel, payload);
                turn.event(Event::DeclareLeft { queue, cause });
                None
            }
            Wanted::Keep(said) => Some(Accepted::Managed(self.as_it_is(said, retries, payload))),
            Wanted::TakeOver { .. }
            | Wanted::Compare { .. }
            | Wanted::Native { .. }
            | Wanted::Match { .. }
                if self.probe.is_on_its_way() =>
            {
                return self.hold(Hold::Probe, turn);
            }
            Wanted::TakeOver { said, intake } => {
                let asked = (said, retries, intake);
                return self.begin_takeover(channel, payload, asked, Aim::TakeOver, turn);
            }
            Wanted::Compare { said, intake } => {
                let asked = (said, retries, intake);
                return self.begin_takeover(channel, payload, asked, Aim::Compare, turn);
            }
            Wanted::Native { said, intake } => {
                let asked = (said, retries, intake);
                return self.begin_takeover(channel, payload, asked, Aim::Native, turn);
            }
            Wanted::Match { said, intake } => {
                let asked = (said, retries, intake);
                return self.begin_takeover(channel, payload, asked, Aim::Match, turn);
            }
        };
        self.expect_declare(channel, payload, expected);
        match &taken_out {
            None => self.pass_request(Method { payload, ..method }, turn),
            Some(payload) => {
                let asking = asked_for(MethodId::QUEUE_DECLARE, payload);
                frame::put(turn.build(Leg::Broker), 1, channel, |out| {
                    out.extend_from_slice(asking.as_ref().unwrap_or(payload))
                });
            }
        }
        Handled::Done
    }

    /// A declare goes to the broker. What is known of its queue once it is accepted.
    pub(super) fn expect_declare(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        accepted: Option<Accepted>,
    ) {
        let declare = QueueDeclare::parse(payload).ok();
        let queue = declare.and_then(|declare| ShortStr::copy(declare.queue));
        let unseen = declare.is_some_and(|declare| declare.has(QueueDeclare::NO_WAIT));
        let made = declare.filter(|declare| !declare.has(QueueDeclare::PASSIVE));
        let accepted = made.map(|declare| {
            accepted.unwrap_or_else(|| Accepted::Type(declare.bits, self.type_of(&declare)))
        });
        if let Some(state) = self.channels.get_mut(&channel) {
            let expected = Expected::Declare(queue.unwrap_or_default(), accepted);
            state.expect(expected, unseen);
        }
    }

    /// The name by which policies are found for a declare. Where the broker is to generate it, one that may be the queue's.
    pub(super) fn policy_name<'a>(&self, declare: &QueueDeclare<'a>) -> Cow<'a, [u8]> {
        match generated::is_made(declare.queue) {
            true => generated::sample(&self.generated_start(declare)).into(),
            false => declare.queue.into(),
        }
    }

    fn generated_start(&self, declare: &QueueDeclare<'_>) -> Vec<u8> {
        generated::start(declare.arguments, self.peer.version)
    }

    /// What the name of its queue will begin with, if that alone does not tell which policy of ours the queue will have.
    fn undecided(&self, declare: &QueueDeclare<'_>) -> Option<ShortStr> {
        if !generated::is_made(declare.queue) {
            return None;
        }
        let start = self.generated_start(declare);
        let queue = Queue {
            vhost: &self.peer.vhost,
            name: &start,
            queue_type: self.type_of(declare),
        };
        let decided = self.settings.policies.ours().decide(queue);
        ShortStr::new(start).filter(|_| !decided)
    }

    /// The declare goes on as it is. Whether its queue is managed is known when it has its name.
    fn wanted_by_name(declare: &QueueDeclare<'_>) -> Wanted {
        match DeclareArguments::read(declare.arguments).said() {
            Some(said) => Wanted::Keep(said),
            None => Wanted::Leave(Fallback::NotSupported),
        }
    }

    fn wanted(&self, payload: &[u8], declare: &QueueDeclare<'_>) -> Wanted {
        let arguments = DeclareArguments::read(declare.arguments);
        let fits = |form: &[u8]| {
            let grown = (form.len() + OTHER_TYPE).saturating_sub(declare.arguments.len());
            self.fits_frame(payload.len() + grown)
        };
        let ours = self.settings.policies.ours();
        let policy = ours.matching(Queue {
            vhost: &self.peer.vhost,
            name: &self.policy_name(declare),
            queue_type: self.type_of(declare),
        });
        let wanted = arguments.wanted(policy, self.settings.mode, &self.settings.names);
        match wanted {
            // The name that the broker generates may fit a policy all the same, by accident.
            Wanted::Nothing if generated::is_made(declare.queue) => Self::wanted_by_name(declare),
            // What the broker names is no queue that is there already.
            Wanted::Compare { .. } if declare.queue.is_empty() => {
                Wanted::Leave(Fallback::NotSupported)
            }
            Wanted::Native { .. } if declare.queue.is_empty() => Wanted::Nothing,
            Wanted::Native { intake, .. } if !fits(&arguments.rewritten_if_there(&intake)) => {
                Wanted::Nothing
            }
            Wanted::TakeOver { intake, .. } | Wanted::Compare { intake, .. }
                if !fits(&arguments.rewritten_if_there(&intake))
                    || !fits(&arguments.permission_probe()) =>
            {
                Wanted::Leave(Fallback::FrameMax)
            }
            Wanted::Nothing | Wanted::Keep(_) if self.is_lenient(declare) => {
                arguments.to_match(wanted, &self.settings.names)
            }
            wanted => wanted,
        }
    }

    /// Whether a method with so many octets may be sent to the broker on this connection.
    pub(super) fn fits_frame(&self, octets: usize) -> bool {
        frame::HEAD + octets < self.peer.frame_max()
    }

    fn begin_takeover(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        asked: (DeclaredTarget, SaidRetries, ShortStr),
        aim: Aim,
        turn: &mut Turn<'_>,
    ) -> Handled {
        self.hold(Hold::Probe, turn);
        let until = turn
            .now
            .mono
            .after(self.settings.limits.now().probe_timeout);
        if let Some(takeover) = Takeover::new(channel, payload, asked, aim, until) {
            self.probe = Probe::Takeover(Box::new(takeover));
            self.begin_probing(turn);
        }
        Handled::Done
    }

    /// No probe tells which form fits. As the queue was last seen, if that was with what this declare says; else the original goes on.
    pub(super) fn forward_in_doubt(&mut self, cause: Fallback, turn: &mut Turn<'_>) {
        let until = self.settings.limits.now().probe_timeout;
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        let seen = self.registry.seen_intake(&takeover.queue, turn.now.mono);
        let says_the_same = |intake: &ShortStr| {
            let object = self.settings.names.parse(intake);
            matches!(object, Some(OwnObject::IntakeExchange(read, _)) if read.is_but_for_the_strategy(&takeover.said))
        };
        match seen.flatten().filter(says_the_same) {
            Some(intake) => {
                takeover.until = turn.now.mono.after(until);
                self.go_on_as(intake, turn);
            }
            None => self.forward_original(cause, turn),
        }
    }

    /// The declare goes on as the client wrote it.
    pub(super) fn forward_original(&mut self, cause: Fallback, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let queue = takeover.queue.clone();
        let declared = self.as_it_is(takeover.said.clone(), takeover.retries, &takeover.payload);
        let accepted = match takeover.aim {
            Aim::TakeOver | Aim::Match => Some(Accepted::Managed(declared)),
            Aim::Native => Some(Accepted::Plain(declared)),
            Aim::Compare => None,
        };
        self.remember_declared(takeover.channel, &takeover.payload);
        self.expect_declare(takeover.channel, &takeover.payload, accepted);
        let asking = asked_for(MethodId::QUEUE_DECLARE, &takeover.payload);
        let payload = asking.as_ref().unwrap_or(&takeover.payload);
        self.inject(takeover.channel, turn, |out| {
            frame::put(out, 1, takeover.channel, |out| {
                out.extend_from_slice(payload)
            });
        });
        if matches!(takeover.aim, Aim::TakeOver | Aim::Compare) {
            turn.event(Event::DeclareLeft { queue, cause });
        }
    }

    /// If the broker refuses this declare, its words may need to be the client's.
    pub(super) fn remember_declared(&mut self, channel: ChannelId, payload: &[u8]) {
        if let (Some(state), Ok(declare)) = (
            self.channels.get_mut(&channel),
            QueueDeclare::parse(payload),
        ) {
            let queue = ShortStr::copy(declare.queue).unwrap_or_default();
            state.declared = Some((queue, Form::of(0, declare.arguments).arguments));
        }
    }

    /// The declare goes on with the intake exchange in it.
    pub(super) fn forward_rewritten(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let Some(declare) = takeover.declare() else {
            return;
        };
        let table = DeclareArguments::read(declare.arguments).rewritten(&takeover.intake);
        let sent = match takeover.may_make() {
            true => table.clone(),
            false => if_there(&table),
        };
        // As the intake will read it: for the rejects of a queue the same is true as for all else that dies there.
        let (said, queue_type) = match self.settings.names.parse(&takeover.intake) {
            Some(OwnObject::IntakeExchange(said, queue_type)) => (said, queue_type),
            Some(_) | None => (takeover.said.clone(), QueueType::Default),
        };
        let said = match takeover.existing {
            Some(_) => takeover.said.clone(),
            None => said,
        };
        let queue_type = match queue_type {
            QueueType::Default => self.type_of(&declare),
            said => said,
        };
        let declared = Declared {
            said,
            retries: takeover.retries,
            queue_type,
            taken_over: true,
            form: Form::of(declare.bits, &table),
        };
        self.remember_declared(takeover.channel, &takeover.payload);
        self.expect_declare(
            takeover.channel,
            &takeover.payload,
            Some(Accepted::Managed(declared)),
        );
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        self.inject(takeover.channel, turn, |out| {
            reply::queue_declare(out, takeover.channel, &declare, bits, &sent);
        });
    }

    /// Lets the client go on; the probe's channel is closed behind its back.
    pub(super) fn end_takeover(&mut self, turn: &mut Turn<'_>) -> Option<Box<Takeover>> {
        let takeover = self.probe.take_takeover()?;
        self.release();
        if let Some(probe) = takeover.probe.filter(|_| takeover.open) {
            self.close_probe(probe, turn);
        }
        Some(takeover)
    }

    /// What was opened for a probe is closed.
    pub(super) fn close_probe(&mut self, probe: ChannelId, turn: &mut Turn<'_>) {
        self.inject(probe, turn, |out| {
            reply::close(out, probe, 200, b"", MethodId(0, 0));
        });
        self.probe = Probe::Closing(probe);
    }

    /// The client's channel is closed: no queue comes of its declare.
    pub(super) fn abandon_takeover(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        if self.probe.declaring() == Some(channel) {
            self.end_takeover(turn);
        }
    }

    /// The bound on probing has passed. An intake that does not answer is one that is away: the broker is given the same time once more.
    pub(super) fn takeover_timeout(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        turn.event(Event::LimitMet(Limit::ProbeTimeout));
        let probe_timeout = self.settings.limits.now().probe_timeout;
        match takeover.stage {
            Stage::Recording => {
                takeover.until = turn.now.mono.after(probe_timeout);
                let queue = takeover.queue.clone();
                turn.fx.out.gave_up = true;
                self.recorded(&queue, false, turn);
            }
            Stage::Ensuring(_) => {
                takeover.ensured = Some(false);
                takeover.until = turn.now.mono.after(probe_timeout);
                self.went_for_the_exchange(turn);
            }
            // That makes the queue.
            Stage::Fitting => self.forward_rewritten(turn),
            _ => self.forward_in_doubt(Fallback::ProbeTimeout, turn),
        }
    }
}

/// The declare without the line breaks in its queue's name, if there are any: the broker removes them, too (`strip_cr_lf`). A name that consists
/// of line breaks alone stays as it is: an empty name would ask the broker to generate one.
fn without_line_breaks(payload: &[u8]) -> Option<Vec<u8>> {
    const NAME: usize = 6; // behind class, method and ticket
    let declare = QueueDeclare::parse(payload).ok()?;
    let mut name = declare.queue.to_vec();
    name.retain(|octet| !b"\r\n".contains(octet));
    let rest = payload.get(NAME + 1 + declare.queue.len()..)?;
    let stripped = [payload.get(..NAME)?, &[name.len() as u8], &name, rest].concat();
    (!name.is_empty() && name.len() < declare.queue.len()).then_some(stripped)
}
