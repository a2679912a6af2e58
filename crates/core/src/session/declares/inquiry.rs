//! What a queue is that nobody declared through the proxy: the queues of definitions files and operators, and of an earlier life of the proxy.
//!
//! It is asked for when somebody begins to read from it. If the management API answers, that tells; else the broker does, by a declare that makes
//! nothing ([`if_there`](crate::registry::arguments::if_there)), as of a classic queue without arguments. The broker's refusal names the first thing in
//! which the queue differs. With that it is asked again, until the declare fits: then all its arguments are known, to all sessions.
//!
//! ```text
//!  consume, get ──▶ a form that makes nothing ──▶ it fits ─────────────────────────────── known
//!                      ▲    │ it differs, and the broker says in what
//!                      └────┘
//!                           │ there is none, or it is a stream ────────────────────────── nothing to know
//!                           │ the user may not declare it, or the words do not tell ───── unknown: said once, and its rejects are the broker's
//! ```

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Close, QueueDeclare};
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::TableBuilder;
use crate::objects::QueueType;
use crate::registry::arguments::DeclareArguments;
use crate::registry::catalogue::fact::Source;
use crate::registry::refusal::{self, Difference};
use crate::registry::{Declared, Form};
use crate::session::line::Line;
use crate::session::replies::{Due, Expected};

use super::Declares;
use super::question::{Answer, Question, Why};

/// Longest chain of questions: no queue has more arguments.
const MOST_ROUNDS: u8 = 24;

impl Declares {
    /// Asks what an unknown queue is. False: no wait, because it cannot be asked.
    pub(super) fn inquire(&mut self, queue: &ShortStr, line: &mut Line<'_, '_>) -> bool {
        if self.waits_for_another(line) {
            return true;
        }
        let is_first = line.registry.ask(queue, line.now());
        let why = Why::Unknown { is_first, round: 0 };
        self.look_up(queue, why, line) || self.ask_what_it_is(queue, is_first, line)
    }

    /// Asks the broker itself. False: no wait.
    pub(super) fn ask_what_it_is(
        &mut self,
        queue: &ShortStr,
        is_first: bool,
        line: &mut Line<'_, '_>,
    ) -> bool {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"classic");
        let form = Form::of(QueueDeclare::DURABLE, &arguments.finish());
        let why = Why::Unknown { is_first, round: 0 };
        // Should the broker fail at its own words, it is not asked again.
        let fails = |wording: crate::registry::wording::Wording| wording.fails_at_some_values();
        let is_safe = is_first || !line.peer.wording.is_some_and(fails);
        let is_asked =
            is_safe && line.can_refuse(queue, b"", b"") && self.ask(queue, why, form, line);
        if !is_asked {
            line.stays_unknown(queue);
        }
        is_asked
    }

    /// The form fits or was refused with a reason, which may lead to another question.
    pub(super) fn inquired(
        &mut self,
        question: Question,
        (is_first, round): (bool, u8),
        answer: Answer<'_>,
        line: &mut Line<'_, '_>,
    ) {
        let Question { queue, form, .. } = question;
        let form = form.unwrap_or_default();
        let now = line.now();
        match answer {
            Answer::Fits => line.learn_what_it_is(&queue, form),
            Answer::None => line.stays_unknown(&queue),
            Answer::Refused(close) => match refusal::difference(close.code, close.text, &queue) {
                Some(difference) if is_of_a_stream(&difference) => {
                    let stream = QueueType::Other;
                    line.registry.learn_type(&queue, 0, stream, now);
                    line.registry.let_go(&queue);
                }
                Some(difference) if round < MOST_ROUNDS => {
                    let round = round + 1;
                    let why = Why::Unknown { is_first, round };
                    if self.ask(&queue, why, form.corrected(difference), line) {
                        return;
                    }
                    line.stays_unknown(&queue);
                }
                None if is_nowhere(close) => line.registry.end(&queue, now),
                Some(_) | None => line.stays_unknown(&queue),
            },
        }
        self.answered = Some(queue);
    }
}

impl Line<'_, '_> {
    fn learn_what_it_is(&mut self, queue: &ShortStr, form: Form) {
        let declared = Declared::of_queue(form, QueueType::Default, &self.settings.names);
        let now = self.now();
        self.registry.learn(queue, declared, Source::Refusal, now);
        self.adopt_if_meant(queue);
        self.registry.verified(queue, now);
    }

    /// Whether a pending reply will describe or name the queue.
    pub(super) fn is_being_declared(&self, queue: &ShortStr) -> bool {
        let is_it =
            |due: &Due| matches!(&due.what, Expected::Declare(name, Some(_)) if name == queue);
        let mut channels = self.channels.values();
        queue.is_empty() || channels.any(|state| state.due.iter().any(is_it))
    }
}

/// Streams do not dead-letter.
fn is_of_a_stream(difference: &Difference) -> bool {
    match difference {
        Difference::IsStream => true,
        Difference::Argument(_, Some(member)) => {
            DeclareArguments::read(member).queue_type() == QueueType::Other
        }
        Difference::Argument(_, None) | Difference::Bit(..) => false,
    }
}

/// Whether this client could read no queue of that name.
fn is_nowhere(close: Close<'_>) -> bool {
    let (code, text) = (close.code, close.text);
    refusal::is_of_a_new_queue(code, text)
        || code != PRECONDITION_FAILED && refusal::ends_knowledge(code, text)
}
