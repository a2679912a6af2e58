//! Whether a queue is still the one that is known: it could have been deleted and made anew by somebody else.
//!
//! That is asked before a consumer of it begins, or a message is fetched, when what is known is old; and before the first message dies that a
//! consumer was given, because the queue could have been made anew just before the consumer began. From then on it cannot be without a
//! cancel of the consumer.
//!
//! ```text
//!  consume, get, reject ──▶ Recalling ──▶ Asking: the declare that was accepted, as one that makes nothing ──▶ known again
//!                              │ no channel   │ refused, or probe-timeout
//!                              └──────────────┴── forgotten: the broker does its dead letters            ──▶ Closing: the probe's channel
//! ```
//! The client waits meanwhile: its command is looked at again when the answer is known.

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Mono, Recall, Recalled};
use crate::registry::Form;
use crate::registry::arguments::if_there;

use super::frames::Method;
use super::pause::Hold;
use super::probe::Probe;
use super::unpublished::Instead;
use super::{Session, Turn};

/// How the names of queues begin that the broker named.
const SERVER_NAMED: &[u8] = b"amq.";
/// What a frame is larger than what it carries.
const FRAME: usize = frame::HEAD + 1;

/// One verification on its way.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) queue: ShortStr,
    pub(super) form: Form,
    /// Its channel, on which the declare that was accepted before was sent, or a passive one: neither makes a queue. None: whether a probe
    /// may be made is asked.
    pub(super) probe: Option<ChannelId>,
    /// When it must have been decided.
    pub(super) until: Mono,
    /// Somebody begins to read; else something dies that was read.
    pub(super) begins: bool,
}

// === impl Verification ===

impl Verification {
    fn about(&self) -> Recall {
        Recall {
            queue: self.queue.clone(),
        }
    }

    /// The declare that shows whether the queue is the same. A name that the broker made is no other queue's, and no client may declare it.
    fn question(&self, probe: ChannelId) -> Vec<u8> {
        let (bits, arguments) = match self.queue.starts_with(SERVER_NAMED) {
            true => (QueueDeclare::PASSIVE, Vec::new()),
            false => (self.form.bits, if_there(&self.form.arguments)),
        };
        let declare = QueueDeclare {
            ticket: 0,
            queue: &self.queue,
            bits,
            arguments: &arguments,
        };
        let mut out = Vec::new();
        reply::queue_declare(&mut out, probe, &declare, bits, &arguments);
        out
    }
}

impl Session {
    /// Whether who begins to read from this queue has to wait until what is known of it is verified.
    pub(super) fn must_verify(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) -> bool {
        !self.registry.is_fresh(queue, turn.now.mono) && self.verify(queue, true, turn)
    }

    /// Verifies what is known of a queue; false when that is nothing.
    pub(super) fn verify(&mut self, queue: &ShortStr, begins: bool, turn: &mut Turn<'_>) -> bool {
        let now = turn.now.mono;
        let Some(known) = self.registry.get(queue) else {
            return false;
        };
        if self.probe.is_on_its_way() {
            self.hold(Hold::Probe, turn);
            return true;
        }
        let verification = Verification {
            queue: queue.clone(),
            form: known.declared.form.clone(),
            probe: None,
            until: now.after(self.settings.limits.now().probe_timeout),
            begins,
        };
        turn.fx.out.recall.push(verification.about());
        self.probe = Probe::Verification(verification);
        self.hold(Hold::Probe, turn);
        true
    }

    /// What is known of the user tells whether a probe may be made.
    pub(super) fn verification_recalled(&mut self, recalled: &Recalled, turn: &mut Turn<'_>) {
        let mine = match &self.probe {
            Probe::Verification(of) => of.probe.is_none() && of.about() == recalled.about,
            Probe::None | Probe::Takeover(_) | Probe::Closing(_) => false,
        };
        if !mine {
            return;
        }
        let Some(mut verification) = self.probe.take_verification() else {
            return;
        };
        let probe = self.free_channel().filter(|_| !recalled.channel_limit);
        let asked = probe.map(|probe| (probe, verification.question(probe)));
        match asked.filter(|(_, question)| self.fits_frame(question.len() - FRAME)) {
            // What was known was not old when it was begun to be read, and nobody saw its end.
            None if !verification.begins && self.registry.is_same_life(&verification.queue) => {
                self.registry.trust(&verification.queue);
            }
            None => self.doubt(verification.queue, turn),
            Some((probe, question)) => {
                verification.probe = Some(probe);
                self.inject(probe, turn, |out| {
                    reply::channel_open(out, probe);
                    out.extend_from_slice(&question);
                });
                self.probe = Probe::Verification(verification);
            }
        }
    }

    /// The broker answers.
    pub(super) fn verification_reply(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let probe = method.channel;
        match method.id {
            MethodId::QUEUE_DECLARE_OK => {
                if let Some(verification) = self.probe.take_verification() {
                    self.registry.verified(&verification.queue, turn.now.mono);
                    self.end_verification(probe, turn);
                }
            }
            MethodId::CHANNEL_CLOSE => {
                self.inject(probe, turn, |out| reply::close_ok(out, probe));
                if let Some(verification) = self.probe.take_verification() {
                    self.lose_track(verification.queue, turn);
                }
            }
            _ => {}
        }
    }

    /// The bound on probing has passed.
    pub(super) fn verification_timeout(&mut self, turn: &mut Turn<'_>) {
        if let Some(verification) = self.probe.take_verification() {
            self.doubt(verification.queue, turn);
            if let Some(probe) = verification.probe {
                self.end_verification(probe, turn);
            }
        }
    }

    /// Decided: the probe's channel is closed, and the client may go on.
    fn end_verification(&mut self, probe: ChannelId, turn: &mut Turn<'_>) {
        self.release();
        self.close_probe(probe, turn);
    }

    /// Nobody could ask the broker. Then the queue is left to it, unless it would discard what is rejected there: of a queue whose end nobody saw,
    /// what is known is the best that can be done.
    fn doubt(&mut self, queue: ShortStr, turn: &mut Turn<'_>) {
        if self.instead(&queue) == Instead::Keep && self.registry.is_same_life(&queue) {
            self.registry.verified(&queue, turn.now.mono);
        } else {
            self.lose_track(queue, turn);
        }
    }

    /// The queue is not managed any more.
    fn lose_track(&mut self, queue: ShortStr, turn: &mut Turn<'_>) {
        self.registry.forget(&queue);
        turn.event(Event::DeclareLeft {
            queue,
            cause: Fallback::Stale,
        });
    }
}
