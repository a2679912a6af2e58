//! Whether a queue is still the one that is known, before its consumer begins: it could have been deleted and made anew by somebody else.
//!
//! ```text
//!  consume, get ──▶ Recalling ──▶ There: a passive declare ──▶ Same: the declare that was accepted ──▶ known again
//!                      │ no channel      │ refused                  │ refused, or probe-timeout
//!                      └─────────────────┴── forgotten: the broker does its dead letters ◀┘       ──▶ Closing: the probe's channel
//! ```
//! The client waits meanwhile: its command is looked at again when the answer is known.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Mono, Recall, Recalled};
use crate::registry::Form;

use super::{Hold, Session, Turn};

/// One verification on its way.
#[derive(Debug)]
pub(super) struct Verification {
    queue: ShortStr,
    form: Form,
    /// 0: none yet.
    probe: ChannelId,
    stage: Stage,
    until: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether a probe may be made is asked.
    Recalling,
    /// A passive declare was sent: it makes nothing.
    There,
    /// The declare that was accepted before was sent.
    Same,
    /// Decided; the probe's channel is being closed.
    Closing,
}

// === impl Verification ===

impl Verification {
    /// Its channel.
    pub(super) fn probe(&self) -> ChannelId {
        self.probe
    }

    /// When it must have been decided, while it is not.
    pub(super) fn until(&self) -> Option<Mono> {
        (self.stage != Stage::Closing).then_some(self.until)
    }

    fn about(&self) -> Recall {
        Recall {
            queue: self.queue.clone(),
            exchange: None,
        }
    }

    fn declare(&self, bits: u8, arguments: &[u8], turn: &mut Turn<'_>) {
        let declare = QueueDeclare {
            ticket: 0,
            queue: &self.queue,
            bits,
            arguments,
        };
        reply::queue_declare(
            turn.build(Leg::Broker),
            self.probe,
            &declare,
            bits,
            arguments,
        );
    }
}

impl Session {
    /// Whether a consumer of this queue has to wait until what is known of it is verified.
    pub(super) fn must_verify(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) -> bool {
        let now = turn.now.mono;
        let Some(known) = self.registry.get(queue) else {
            return false;
        };
        if self.registry.is_fresh(queue, now) {
            return false;
        }
        if self.takeover.is_some() || self.verification.is_some() {
            self.hold(Hold::Probe, turn);
            return true;
        }
        let verification = Verification {
            queue: queue.clone(),
            form: known.declared.form.clone(),
            probe: ChannelId(0),
            stage: Stage::Recalling,
            until: now.after(self.settings.limits.now().probe_timeout),
        };
        turn.fx.recall.push(verification.about());
        self.verification = Some(verification);
        self.hold(Hold::Probe, turn);
        true
    }

    /// What is known of the user tells whether a probe may be made.
    pub(super) fn verification_recalled(&mut self, recalled: &Recalled, turn: &mut Turn<'_>) {
        let mine = |verification: &mut Verification| {
            verification.stage == Stage::Recalling && verification.about() == recalled.about
        };
        let Some(mut verification) = self.verification.take_if(mine) else {
            return;
        };
        match self.free_channel().filter(|_| !recalled.channel_limit) {
            None => self.lose_track(verification.queue, turn),
            Some(probe) => {
                verification.probe = probe;
                verification.stage = Stage::There;
                reply::channel_open(turn.build(Leg::Broker), probe);
                verification.declare(QueueDeclare::PASSIVE, &[], turn);
                self.verification = Some(verification);
            }
        }
    }

    /// The broker answers.
    pub(super) fn verification_reply(&mut self, id: MethodId, turn: &mut Turn<'_>) {
        let Some(mut verification) = self.verification.take() else {
            return;
        };
        let refused = id == MethodId::CHANNEL_CLOSE;
        if refused {
            let probe = verification.probe;
            self.inject(probe, turn, |out| reply::close_ok(out, probe));
        }
        match (verification.stage, id) {
            // A close of the broker that crossed ours: ours is answered all the same.
            (Stage::Closing, MethodId::CHANNEL_CLOSE_OK) => {}
            (Stage::There, MethodId::QUEUE_DECLARE_OK) => {
                verification.stage = Stage::Same;
                let Form { bits, arguments } = &verification.form;
                verification.declare(*bits, arguments, turn);
                self.verification = Some(verification);
            }
            (Stage::Same, MethodId::QUEUE_DECLARE_OK) => {
                self.registry.verified(&verification.queue, turn.now.mono);
                self.end_verification(verification, turn);
            }
            (Stage::There | Stage::Same, MethodId::CHANNEL_CLOSE) => {
                self.lose_track(verification.queue, turn);
            }
            _ => self.verification = Some(verification),
        }
    }

    /// The bound on probing has passed.
    pub(super) fn verification_timeout(&mut self, turn: &mut Turn<'_>) {
        let late = |verification: &mut Verification| {
            verification
                .until()
                .is_some_and(|until| until <= turn.now.mono)
        };
        if let Some(verification) = self.verification.take_if(late) {
            self.lose_track(verification.queue.clone(), turn);
            if verification.stage != Stage::Recalling {
                self.end_verification(verification, turn);
            }
        }
    }

    /// Decided: the probe's channel is closed, and the client may go on.
    fn end_verification(&mut self, mut verification: Verification, turn: &mut Turn<'_>) {
        reply::close(
            turn.build(Leg::Broker),
            verification.probe,
            200,
            b"",
            MethodId(0, 0),
        );
        verification.stage = Stage::Closing;
        self.release();
        self.verification = Some(verification);
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
