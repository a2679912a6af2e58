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
//! The client waits meanwhile: its command is looked at again when the answer is known.

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Mono};
use crate::registry::arguments::if_there;
use crate::registry::{Form, refusal};

use super::frames::Method;
use super::pause::Hold;
use super::probe::Probe;
use super::{Session, Turn};

/// How the names of queues begin that the broker named.
const SERVER_NAMED: &[u8] = b"amq.";
/// What a frame is larger than what it carries.
const FRAME: usize = frame::HEAD + 1;

/// One verification on its way.
#[derive(Debug)]
pub(super) struct Verification {
    pub(super) queue: ShortStr,
    /// Its channel, on which the declare that was accepted before was sent, or a passive one: neither makes a queue.
    pub(super) probe: ChannelId,
    /// When it must have been decided.
    pub(super) until: Mono,
    /// Somebody begins to read; else something dies that was read.
    pub(super) begins: bool,
}

/// The declare that shows whether the queue is the same. A name that the broker made is no other queue's, and no client may declare it.
fn question(queue: &[u8], form: &Form, probe: ChannelId) -> Vec<u8> {
    let (bits, arguments) = match queue.starts_with(SERVER_NAMED) {
        true => (QueueDeclare::PASSIVE, Vec::new()),
        false => (form.bits, if_there(&form.arguments)),
    };
    let declare = QueueDeclare {
        ticket: 0,
        queue,
        bits,
        arguments: &arguments,
    };
    let mut out = Vec::new();
    reply::queue_declare(&mut out, probe, &declare, bits, &arguments);
    out
}

impl Session {
    /// Whether who begins to read from this queue has to wait until what is known of it is verified.
    pub(super) fn must_verify(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) -> bool {
        let most = self.settings.limits.now().max_queues_per_connection;
        if self.registry.get(queue).is_none() && self.registry.adopt(queue, most) {
            self.release_copies(queue);
        }
        !self.registry.is_fresh(queue, turn.now.mono) && self.verify(queue, true, turn)
    }

    /// Verifies what is known of a queue; `begins`: for somebody who begins to read, else something dies that was read. False: nobody waits, as
    /// nothing is known, or the broker cannot be asked.
    pub(super) fn verify(&mut self, queue: &ShortStr, begins: bool, turn: &mut Turn<'_>) -> bool {
        let now = turn.now.mono;
        let Some(known) = self.registry.get(queue) else {
            return false;
        };
        if self.probe.is_on_its_way() {
            self.hold(Hold::Probe, turn);
            return true;
        }
        let probe = self.probes_channel(now).ok();
        let asked = probe.map(|probe| (probe, question(queue, &known.declared.form, probe)));
        let asked = asked.filter(|(_, question)| self.fits_frame(question.len() - FRAME));
        let Some((probe, question)) = asked else {
            self.cannot_verify(queue, begins, turn);
            return false;
        };
        self.probe = Probe::Verification(Verification {
            queue: queue.clone(),
            probe,
            until: now.after(self.settings.limits.now().probe_timeout),
            begins,
        });
        self.hold(Hold::Probe, turn);
        self.inject(probe, turn, |out| {
            reply::channel_open(out, probe);
            out.extend_from_slice(&question);
        });
        true
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
                if let Some(Verification { queue, begins, .. }) = self.probe.take_verification() {
                    let ends = |close: Close<'_>| refusal::ends_knowledge(close.code, close.text);
                    match Close::parse(method.payload).is_ok_and(ends) {
                        true => self.lose_track(queue, turn),
                        false => self.cannot_verify(&queue, begins, turn),
                    }
                }
            }
            _ => {}
        }
    }

    /// The bound on probing has passed.
    pub(super) fn verification_timeout(&mut self, turn: &mut Turn<'_>) {
        if let Some(verification) = self.probe.take_verification() {
            self.cannot_verify(&verification.queue, verification.begins, turn);
            self.end_verification(verification.probe, turn);
        }
    }

    /// Decided: the probe's channel is closed, and the client may go on.
    fn end_verification(&mut self, probe: ChannelId, turn: &mut Turn<'_>) {
        self.release();
        self.close_probe(probe, turn);
    }

    /// The broker cannot be asked, or not by this user: that ends no knowledge. What was known when somebody began to read is taken for granted if
    /// nobody saw the queue's end; else what the broker does with a reject as it is, is left to it ([`Session::withhold`]).
    fn cannot_verify(&mut self, queue: &[u8], begins: bool, turn: &Turn<'_>) {
        let now = turn.now.mono;
        match !begins && self.registry.is_same_life(queue) {
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
