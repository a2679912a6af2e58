//! The default queue type of a vhost, which decides what a declare without `x-queue-type` may say: quorum queues have limits and delays of their own,
//! and a classic queue is declared without ([`said_retries::without`]).
//!
//! The queue of the first such declare is asked for ([`inquiry`](super::inquiry)): if it is there, its own type counts. Else the broker is asked for
//! the default type, by that declare in a form that makes no queue, and the refusal names the type. In this order, because a declare that fits a
//! queue says nothing of the default type: a classic queue passes over arguments that it does not know. The client waits meanwhile.

use crate::amqp::method::QueueDeclare;
use crate::objects::QueueType;
use crate::registry::policy::Mode;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Form, generated, refusal, said_retries};
use crate::session::line::Line;

use super::Declares;
use super::question::{Answer, Why};
use super::read::Read;

impl Declares {
    /// Whether a declare must wait for the default type, or for the type of the existing queue.
    pub(super) fn waits_for_the_type(
        &mut self,
        read: &Read<'_>,
        is_answered: bool,
        line: &mut Line<'_, '_>,
    ) -> bool {
        let declare = &read.declare;
        // A quorum queue may have what others may not, and counts what is returned to it.
        let asks = || {
            said_retries::without(declare.arguments, QueueType::Default).is_some()
                || line.is_retried(read, SaidRetries::default())
        };
        let matters = read.may_have_the_default_type()
            && read.queue_type == QueueType::Default
            && asks()
            && !generated::is_made(declare.queue)
            && line.mode_of(declare.queue, QueueType::Default) != Mode::Off;
        if !matters {
            return false;
        }
        let queue = read.queue();
        if !is_answered && self.inquire(&queue, line) {
            return true;
        }
        if line.registry.was_asked_for_default_type(line.now()) {
            return false;
        }
        let form = Form {
            bits: declare.bits & !QueueDeclare::NO_WAIT,
            arguments: declare.arguments.to_vec(),
        };
        let waits = self.waits_for_another(line)
            || line.can_refuse(&queue, b"", b"") && self.ask(&queue, Why::DefaultType, form, line);
        if !waits {
            line.registry.learn_default_type(None, line.now());
        }
        waits
    }

    /// The broker has refused it, or has not: then the queue was made meanwhile, and it is asked for once more.
    pub(super) fn default_type_answered(&mut self, answer: Answer<'_>, line: &mut Line<'_, '_>) {
        let told = match answer {
            Answer::Refused(close) => refusal::refused_type(close.code, close.text),
            Answer::Fits | Answer::None => {
                self.answered = None;
                None
            }
        };
        line.registry.learn_default_type(told, line.now());
    }
}
