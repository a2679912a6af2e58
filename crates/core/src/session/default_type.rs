//! The default queue type of a vhost, which decides what a declare without `x-queue-type` may say: quorum queues have limits and delays of their own,
//! and a classic queue is declared without ([`said_retries::without`]).
//!
//! The queue of the first such declare is asked for ([`inquiry`](super::inquiry)): if it is there, its own type counts. Else the broker is asked for
//! the default type, by that declare in a form that makes no queue, and the refusal names the type. In this order, because a declare that fits a
//! queue says nothing of the default type: a classic queue passes over arguments that it does not know. The client waits meanwhile.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, QueueDeclare};
use crate::objects::QueueType;
use crate::registry::arguments::DeclareArguments;
use crate::registry::policy::Mode;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Form, generated, refusal, said_retries};

use super::frames::{Handled, Method};
use super::pause::Hold;
use super::verify::{Verification, Why};
use super::{Session, Turn};

/// Queues that are no classic ones are durable, and nobody's own (`rabbit_channel:augment_declare_args`).
const NOT_OF_THE_DEFAULT_TYPE: u8 = QueueDeclare::EXCLUSIVE | QueueDeclare::AUTO_DELETE;

impl Session {
    /// The type of the queue that is declared, as far as it is known.
    pub(super) fn type_of(&self, declare: &QueueDeclare<'_>) -> QueueType {
        let said = DeclareArguments::read(declare.arguments).queue_type();
        match said == QueueType::Default && has_the_default_type(declare) {
            // If the declare fits the queue that is there, it has the type of that queue.
            true => {
                let own = self.own_type.as_ref();
                let own = own.filter(|(queue, _)| **queue == *declare.queue);
                let default = self.registry.default_type();
                default.or(own.map(|(_, own)| *own)).unwrap_or(said)
            }
            false => said,
        }
    }

    /// Whether a declare has to wait until the default type is known, or that of the queue that is there.
    pub(super) fn asks_for_default_type(
        &mut self,
        method: Method<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<Handled> {
        let declare = QueueDeclare::parse(method.payload).ok()?;
        let now = turn.now.mono;
        let is_it = |queue: &ShortStr| **queue == *declare.queue;
        if let Some(queue) = self.answered.take().filter(is_it) {
            let queue_type = self.registry.queue_type(&queue);
            self.own_type = Some((queue, queue_type.unwrap_or(QueueType::Default)));
        }
        let own = self.own_type.as_ref();
        let is_answered = own.is_some_and(|(queue, _)| is_it(queue));
        // A quorum queue may have what others may not, and counts what is returned to it.
        let asks = || {
            said_retries::without(declare.arguments, QueueType::Default).is_some()
                || self.is_retried(method.payload, SaidRetries::default())
        };
        let matters = has_the_default_type(&declare)
            && self.type_of(&declare) == QueueType::Default
            && asks()
            && !generated::is_made(declare.queue)
            && self.rules().is_some()
            && self.mode_of(declare.queue, QueueType::Default) != Mode::Off;
        if !matters {
            return None;
        }
        let queue = ShortStr::copy(declare.queue)?;
        if !is_answered && self.inquire(&queue, turn) {
            return Some(Handled::Wait);
        }
        if self.registry.was_asked_for_default_type(now) {
            return None;
        }
        if self.probe.is_on_its_way() {
            return Some(self.hold(Hold::Probe, turn));
        }
        let question = Verification {
            queue,
            probe: ChannelId::CONNECTION,
            until: self.probe_deadline(now),
            why: Why::DefaultType,
            form: Form {
                bits: declare.bits & !QueueDeclare::NO_WAIT,
                arguments: declare.arguments.to_vec(),
            },
        };
        let can_refuse = self
            .peer
            .wording
            .is_some_and(|wording| wording.can_refuse(declare.queue, &self.peer.vhost, b"", b""));
        if !can_refuse || !self.ask(question, turn) {
            self.registry.learn_default_type(None, now);
            return None;
        }
        Some(Handled::Wait)
    }

    /// The broker has refused it, or has not: then the queue was made meanwhile, and it is asked for once more.
    pub(super) fn default_type_told(&mut self, refused: Option<Close<'_>>, turn: &Turn<'_>) {
        if refused.is_none() {
            self.own_type = None;
        }
        let told = refused.and_then(|close| refusal::refused_type(close.code, close.text));
        self.registry.learn_default_type(told, turn.now.mono);
    }
}

fn has_the_default_type(declare: &QueueDeclare<'_>) -> bool {
    declare.has(QueueDeclare::DURABLE)
        && !declare.has(QueueDeclare::PASSIVE)
        && declare.bits & NOT_OF_THE_DEFAULT_TYPE == 0
}
