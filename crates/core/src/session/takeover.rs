//! One declare that is being taken over: what the client wrote, how far its probe is, and what that has shown.

use memchr::memmem;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::QueueDeclare;
use crate::machine::Mono;
use crate::objects::DeclaredTarget;
use crate::registry::arguments::DeclareArguments;
use crate::registry::redeclared::Existing;
use crate::registry::said_retries::SaidRetries;

/// One declare on its way.
#[derive(Debug)]
pub(super) struct Takeover {
    pub(super) channel: ChannelId,
    /// The client's method, as it came.
    pub(super) payload: Vec<u8>,
    /// What its arguments say of dead letters.
    pub(super) said: DeclaredTarget,
    /// What they say of retries; they are not in `payload` where the broker does not want to see them.
    pub(super) retries: SaidRetries,
    pub(super) intake: ShortStr,
    pub(super) aim: Aim,
    /// When it must have been decided.
    pub(super) until: Mono,
    pub(super) queue: ShortStr,
    /// The exchange that the user must be permitted to write to. None: only a policy of ours names one.
    pub(super) exchange: Option<ShortStr>,
    /// This connection has shown that it may write to the exchange and to the intake exchange.
    pub(super) permitted: bool,
    /// How often the queue was looked for.
    pub(super) compared: u8,
    /// The dead-letter arguments that the queue has, as far as refusals told.
    pub(super) existing: Option<Existing>,
    /// How often that was corrected.
    pub(super) corrected: u8,
    /// Whether the intake exchange is there.
    pub(super) ensured: Option<bool>,
    /// The probe's channel, once there is one.
    pub(super) probe: Option<ChannelId>,
    /// Whether the probe's channel is open, as far as the broker will see it.
    pub(super) open: bool,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The queue should get an intake exchange.
    TakeOver,
    /// The arguments say something that we do not know: the intake exchange is only there for the broker to compare.
    Compare,
    /// The queue is left to the broker, unless it was taken over before.
    Native,
    /// The declare goes on as it is, or in the words that fit the queue ([`lenient`](super::lenient)).
    Match,
}

/// How far it is: `declare.rs` has the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing has been asked.
    Begun,
    /// A barrier was sent on the client's channel: what went before might fail, and then no queue may come of this declare.
    Quieting,
    /// The original form was sent as it is.
    Trying,
    /// Where the arguments are not understood, only a queue that exists can be ours: a passive declare was sent.
    Looking,
    /// The rewritten form was sent as one that makes no queue.
    Comparing,
    /// The original arguments were sent with x-expires -1.
    Asking,
    /// The intake exchange was asked for; what follows.
    Ensuring(Then),
    /// The rewritten form was sent, which makes the queue.
    Fitting,
    /// The form with the dead-letter arguments that the queue seems to have was sent as one that makes no queue.
    Matching,
    /// The user's right to write to the exchange was asked for.
    Permitting,
    /// What the declare says counts; it waits until that is recorded.
    Recording,
}

/// What the intake exchange is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Fit,
    /// The queue is there, or was: its declare goes on.
    Forward,
}

// === impl Takeover ===

impl Takeover {
    /// One of which nothing has been asked yet. `None`: the method cannot be read.
    pub(super) fn new(
        channel: ChannelId,
        payload: &[u8],
        (said, retries, intake): (DeclaredTarget, SaidRetries, ShortStr),
        aim: Aim,
        until: Mono,
    ) -> Option<Takeover> {
        let declare = QueueDeclare::parse(payload).ok()?;
        Some(Takeover {
            channel,
            payload: payload.to_vec(),
            said,
            retries,
            intake,
            aim,
            until,
            queue: ShortStr::copy(declare.queue).unwrap_or_default(),
            exchange: DeclareArguments::read(declare.arguments).exchange(),
            permitted: false,
            compared: 0,
            existing: None,
            corrected: 0,
            ensured: None,
            probe: None,
            open: false,
            stage: Stage::Begun,
        })
    }

    pub(super) fn declare(&self) -> Option<QueueDeclare<'_>> {
        QueueDeclare::parse(&self.payload).ok()
    }

    /// Whether the broker will refuse it for its type, which these words name: it says so only after all that a probe asks.
    pub(super) fn lacks_what_a_quorum_queue_needs(&self, text: &[u8]) -> bool {
        const SAID: u8 =
            QueueDeclare::DURABLE | QueueDeclare::EXCLUSIVE | QueueDeclare::AUTO_DELETE;
        let quorum = memmem::find(text, b" of queue type rabbit_quorum_queue").is_some();
        let bits = self.declare().map(|declare| declare.bits & SAID);
        quorum && bits != Some(QueueDeclare::DURABLE)
    }

    /// Whether the rewritten form may make the queue.
    pub(super) fn may_make(&self) -> bool {
        self.permitted && self.ensured == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::{frame, reply};

    const QUORUM: &[u8] =
        b"PRECONDITION_FAILED - invalid property 'non-durable' for queue 'q' of queue type rabbit_quorum_queue";

    fn takeover(bits: u8) -> Takeover {
        let mut frame = Vec::new();
        let declare = QueueDeclare {
            ticket: 0,
            queue: b"q",
            bits,
            arguments: b"",
        };
        reply::queue_declare(&mut frame, ChannelId(1), &declare, bits, b"");
        let nothing = DeclaredTarget::Policy {
            at_least_once: false,
        };
        Takeover::new(
            ChannelId(1),
            &frame[frame::HEAD..frame.len() - 1],
            (nothing, SaidRetries::default(), ShortStr::EMPTY),
            Aim::TakeOver,
            Mono::default(),
        )
        .expect("a declare")
    }

    #[test]
    fn only_a_durable_queue_of_nobody_can_be_a_quorum_queue() {
        let lacks = |bits| takeover(bits).lacks_what_a_quorum_queue_needs(QUORUM);
        assert!(!lacks(QueueDeclare::DURABLE));
        assert!(!lacks(QueueDeclare::DURABLE | QueueDeclare::NO_WAIT));
        assert!(lacks(0));
        assert!(lacks(QueueDeclare::DURABLE | QueueDeclare::EXCLUSIVE));
        assert!(!takeover(0).lacks_what_a_quorum_queue_needs(b"PRECONDITION_FAILED"));
    }

    #[test]
    fn a_form_that_makes_the_queue_needs_the_right_and_the_exchange() {
        let may_make = |permitted, ensured| {
            let takeover = Takeover {
                permitted,
                ensured,
                ..takeover(0)
            };
            takeover.may_make()
        };
        assert!(may_make(true, Some(true)));
        assert!(!may_make(true, None) && !may_make(true, Some(false)));
        assert!(!may_make(false, Some(true)));
    }
}
