//! Whether a queue is still the one that is known: it could have been deleted and made anew by somebody else. A queue that another session
//! declared is known to this one when it begins to read from it.
//!
//! That is asked before a consumer of it begins, or a message is fetched, when what is known is old; and before the first message dies that a
//! consumer was given, because the queue could have been made anew just before the consumer began. From then on it cannot be without a
//! cancel of the consumer.
//!
//! ```text
//!  consume, get, reject ──▶ Asking: the declare that was accepted, as one that makes nothing ──▶ known again
//!                   │ no channel   │ 404, or it differs ─────────────────────────────────── forgotten: the broker does its dead letters
//!                   │              │ refused otherwise, or probe-timeout                  ──▶ Closing: the probe's channel
//!                   └──────────────┴── unknown: what was known counts on, and is asked again after a minute
//! ```
//! What nobody knows is asked for in the same way ([`inquiry`](super::inquiry)). The client waits meanwhile: its command is looked at again when the answer is known.

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::machine::{Event, Fallback, Mono};
use crate::registry::Form;
use crate::registry::arguments::if_there;
use crate::registry::refusal;

use super::frames::Method;
use super::pause::Hold;
use super::probe::Probe;
use super::{Session, Turn};

/// How the names of queues begin that the broker named.
const SERVER_NAMED: &[u8] = b"amq.";
/// What a frame is larger than what it carries.
const FRAME: usize = frame::HEAD + 1;

/// One question: a declare that makes no queue.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) queue: ShortStr,
    /// The channel of the question, while it is on its way.
    pub(super) probe: ChannelId,
    /// When it must have been decided.
    pub(super) until: Mono,
    pub(super) why: Why,
    /// What it says: what was accepted before, or may be.
    pub(super) form: Form,
}

/// Why the broker is asked for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody begins to read from it.
    Begins,
    /// Something dies that was read.
    Dies,
    /// Somebody begins to read from it, and nobody knows what it is ([`inquiry`](super::inquiry)).
    Unknown {
        /// Nobody has asked before.
        is_first: bool,
        /// How often the broker has told something already.
        round: u8,
    },
    /// A declare of it says what only some types can have ([`default_type`](super::default_type)).
    DefaultType,
}

impl Session {
    /// Whether who begins to read from this queue has to wait until it is known, or what is known of it is verified.
    pub(super) fn must_verify(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) -> bool {
        let now = turn.now.mono;
        let is_answered = self.answered.take().is_some_and(|asked| asked == *queue);
        // First what costs nothing: most queues have no dead letters, and a client may get from one again and again.
        if self.registry.get(queue).is_none() && self.rules().is_some() {
            match self.registry.is_unknown(queue, now) {
                true if is_answered || queue.starts_with(SERVER_NAMED) => {}
                true if self.is_being_declared(queue) => {}
                true => return self.inquire(queue, turn),
                false => self.adopt_or_assume(queue, turn),
            }
        }
        !self.registry.is_fresh(queue, now) && self.verify(queue, Why::Begins, turn)
    }

    /// Verifies what is known of a queue. False: nobody waits, as nothing is known, or the broker cannot be asked.
    pub(super) fn verify(&mut self, queue: &ShortStr, why: Why, turn: &mut Turn<'_>) -> bool {
        let Some(known) = self.registry.get(queue) else {
            return false;
        };
        if self.probe.is_on_its_way() {
            self.hold(Hold::Probe, turn);
            return true;
        }
        let question = Verification {
            queue: queue.clone(),
            probe: ChannelId::CONNECTION,
            until: self.probe_deadline(turn.now.mono),
            why,
            form: match queue.starts_with(SERVER_NAMED) {
                // A name that the broker made is no other queue's, and no client may declare it.
                true => Form {
                    bits: QueueDeclare::PASSIVE,
                    arguments: Vec::new(),
                },
                false => known.declared.form.clone(),
            },
        };
        self.ask(question, turn) || self.verify_elsewhere(queue, why, turn)
    }

    /// When a question that is asked now must have been decided.
    pub(super) fn probe_deadline(&self, now: Mono) -> Mono {
        now.after(self.settings.limits.now().probe_timeout)
    }

    /// Asks the broker on a channel of its own, by a declare that makes no queue. False: it cannot be asked.
    pub(super) fn ask(&mut self, question: Verification, turn: &mut Turn<'_>) -> bool {
        let Ok(probe) = self.probes_channel(turn.now.mono) else {
            return false;
        };
        let Form { bits, arguments } = &question.form;
        let arguments = match bits & QueueDeclare::PASSIVE {
            0 => if_there(arguments),
            _ => Vec::new(),
        };
        let declare = QueueDeclare {
            ticket: 0,
            queue: &question.queue,
            bits: *bits,
            arguments: &arguments,
        };
        let mut asked = Vec::new();
        reply::queue_declare(&mut asked, probe, &declare, *bits, &arguments);
        if !self.fits_frame(asked.len() - FRAME) {
            return false;
        }
        self.probe = Probe::Verification(Verification { probe, ..question });
        self.hold(Hold::Probe, turn);
        self.inject(probe, turn, |out| {
            reply::channel_open(out, probe);
            out.extend_from_slice(&asked);
        });
        true
    }

    pub(super) fn verification_reply(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let probe = method.channel;
        let is_there = match method.id {
            MethodId::QUEUE_DECLARE_OK => true,
            MethodId::CHANNEL_CLOSE => false,
            _ => return,
        };
        if !is_there {
            self.inject(probe, turn, |out| reply::close_ok(out, probe));
        }
        let Some(question) = self.probe.take_verification() else {
            return;
        };
        let refused = Close::parse(method.payload).ok().filter(|_| !is_there);
        let ends = refused.filter(|close| refusal::ends_knowledge(close.code, close.text));
        let queue = question.queue.clone();
        match (question.why, ends) {
            (Why::DefaultType, _) => self.default_type_told(refused, turn),
            (Why::Unknown { .. }, _) => {
                if !self.inquired(question, refused, turn) {
                    return;
                }
                self.answered = Some(queue);
            }
            (Why::Begins | Why::Dies, _) if is_there => {
                self.registry.verified(&queue, turn.now.mono);
            }
            (Why::Begins | Why::Dies, Some(close)) => {
                // Another queue may be there.
                self.answered = Some(queue.clone()).filter(|_| close.code != PRECONDITION_FAILED);
                self.lose_track(queue, turn);
            }
            (why @ (Why::Begins | Why::Dies), None) => {
                self.verify_elsewhere(&queue, why, turn);
            }
        }
        if is_there {
            self.end_verification(probe, turn);
        }
    }

    /// The bound on probing has passed.
    pub(super) fn verification_timeout(&mut self, turn: &mut Turn<'_>) {
        let Some(verification) = self.probe.take_verification() else {
            return;
        };
        match verification.why {
            Why::DefaultType => self.default_type_told(None, turn),
            Why::Unknown { .. } => {
                self.stays_unknown(&verification.queue, turn);
                self.answered = Some(verification.queue);
            }
            why => self.cannot_verify(&verification.queue, why, turn),
        }
        self.end_verification(verification.probe, turn);
    }

    /// Decided: the probe's channel is closed, and the client may go on.
    fn end_verification(&mut self, probe: ChannelId, turn: &mut Turn<'_>) {
        self.release();
        self.close_probe(probe, turn);
    }

    /// The broker cannot be asked, or not by this user. False: nobody waits.
    fn verify_elsewhere(&mut self, queue: &ShortStr, why: Why, turn: &mut Turn<'_>) -> bool {
        let is_trusted = why == Why::Dies && self.registry.is_same_life(queue);
        let waits = !is_trusted && self.look_up(queue, why, turn);
        if !waits {
            self.cannot_verify(queue, why, turn);
        }
        waits
    }

    /// Nobody can be asked: that ends no knowledge. What was known when somebody began to read is taken for granted if
    /// nobody saw the queue's end; else what the broker does with a reject as it is, is left to it ([`Session::withhold`]).
    fn cannot_verify(&mut self, queue: &[u8], why: Why, turn: &Turn<'_>) {
        let now = turn.now.mono;
        match why == Why::Dies && self.registry.is_same_life(queue) {
            true => self.registry.verified(queue, now),
            false => self.registry.unverified(queue, now),
        }
    }

    /// The queue is gone, or is another one.
    fn lose_track(&mut self, queue: ShortStr, turn: &mut Turn<'_>) {
        self.registry.end(&queue, turn.now.mono);
        turn.event(Event::DeclareLeft {
            queue,
            cause: Fallback::Stale,
        });
    }
}
