//! What a queue is that nobody declared through the proxy: the queues of definitions files and operators, and of an earlier life of the proxy.
//!
//! It is asked for when somebody begins to read from it. If the management API answers ([`lookup`](super::lookup)), that tells; else the broker does, by a declare that makes nothing ([`if_there`](crate::registry::arguments::if_there)), as of
//! a classic queue without arguments. The broker's refusal names the first thing in which the queue differs. With that it is asked again, until
//! the declare fits: then all its arguments are known, to all sessions.
//!
//! ```text
//!  consume, get ──▶ Asking: a form that makes nothing ──▶ it fits ─────────────────────────────── known
//!                      ▲    │ it differs, and the broker says in what
//!                      └────┘
//!                           │ there is none, or it is a stream ────────────────────────────────── nothing to know
//!                           │ the user may not declare it, or the words do not tell ───────────── unknown: said once, and its rejects are the broker's
//! ```

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, QueueDeclare};
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::amqp::table::TableBuilder;
use crate::machine::{Event, Fallback, Mono};
use crate::objects::QueueType;
use crate::registry::arguments::DeclareArguments;
use crate::registry::policy::Queue;
use crate::registry::refusal::{self, Difference, Presence};
use crate::registry::{Declared, Form};

use super::pause::Hold;
use super::replies::{Due, Expected};
use super::verify::{Verification, Why};
use super::{Session, Turn};

/// The longest chain of questions: no queue has more arguments.
const MOST_ROUNDS: u8 = 24;

impl Session {
    /// Asks what a queue is of which nobody knows anything. False: nobody waits, as it cannot be asked.
    pub(super) fn inquire(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) -> bool {
        if self.probe.is_on_its_way() {
            self.hold(Hold::Probe, turn);
            return true;
        }
        let is_first = self.registry.ask(queue, turn.now.mono);
        let why = Why::Unknown { is_first, round: 0 };
        self.look_up(queue, why, turn) || self.ask_what_it_is(queue, is_first, turn)
    }

    /// Asks the broker itself. False: nobody waits.
    pub(super) fn ask_what_it_is(
        &mut self,
        queue: &ShortStr,
        is_first: bool,
        turn: &mut Turn<'_>,
    ) -> bool {
        let vhost = &self.peer.vhost;
        let can_refuse = self.peer.wording.is_some_and(|wording| {
            let can_refuse = wording.can_refuse(queue, vhost, b"", b"");
            // Should the broker fail at its own words, it is not asked again.
            can_refuse && (is_first || !wording.fails_at_some_values())
        });
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-queue-type", b"classic");
        let question = Verification {
            queue: queue.clone(),
            probe: ChannelId::CONNECTION,
            until: self.probe_deadline(turn.now.mono),
            why: Why::Unknown { is_first, round: 0 },
            form: Form::of(QueueDeclare::DURABLE, &arguments.finish()),
        };
        let is_asked = can_refuse && self.ask(question, turn);
        if !is_asked {
            self.stays_unknown(queue, turn);
        }
        is_asked
    }

    /// Whether the reply is due that will tell what the queue is, or what its name is.
    pub(super) fn is_being_declared(&self, queue: &ShortStr) -> bool {
        let is_it =
            |due: &Due| matches!(&due.what, Expected::Declare(name, Some(_)) if name == queue);
        let mut channels = self.channels.values();
        queue.is_empty() || channels.any(|state| state.due.iter().any(is_it))
    }

    /// The broker accepts the form, or says why not. False: it is asked again.
    pub(super) fn inquired(
        &mut self,
        question: Verification,
        refused: Option<Close<'_>>,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Why::Unknown { is_first, round } = question.why else {
            return true;
        };
        let Some(close) = refused else {
            self.learn_what_it_is(question, turn);
            return true;
        };
        let queue = question.queue.clone();
        let now = turn.now.mono;
        match refusal::difference(close.code, close.text, &queue) {
            Some(difference) if is_of_a_stream(&difference) => {
                self.registry
                    .learn_type(&queue, 0, QueueType::Other, 0, now);
            }
            Some(difference) if round < MOST_ROUNDS => {
                let form = question.form.corrected(difference);
                let why = Why::Unknown {
                    is_first,
                    round: round + 1,
                };
                let next = Verification {
                    form,
                    why,
                    ..question
                };
                if self.ask(next, turn) {
                    return false;
                }
                self.stays_unknown(&queue, turn);
            }
            None if is_nowhere(close) => self.registry.end(&queue, now),
            Some(_) | None => self.stays_unknown(&queue, turn),
        }
        true
    }

    fn learn_what_it_is(&mut self, question: Verification, turn: &mut Turn<'_>) {
        let Verification { queue, form, .. } = question;
        let declared = Declared::of_queue(form, QueueType::Default, &self.settings.names);
        let now = turn.now.mono;
        self.registry.learn_told(&queue, declared, now);
        self.adopt_if_meant(&queue);
        self.registry.verified(&queue, now);
    }

    /// It is not known what the queue is.
    pub(super) fn stays_unknown(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) {
        self.registry.asked_in_vain(queue, turn.now.mono);
        self.assume_or_say(queue, turn);
    }

    /// Of an unknown queue what policies of ours say counts. If they say nothing, that is said once of each queue.
    pub(super) fn assume_or_say(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        if !self.assume_by_policy(queue, now) && self.registry.says_unknown(queue, now) {
            turn.event(Event::DeclareLeft {
                queue: queue.clone(),
                cause: Fallback::Undeclared,
            });
        }
    }

    /// A target that a policy of ours names counts for an unknown queue, too: the broker does not know it, and might discard what is rejected.
    /// False: none does.
    fn assume_by_policy(&mut self, queue: &ShortStr, now: Mono) -> bool {
        let names = &self.settings.names;
        let nothing = Declared::of_queue(Form::default(), QueueType::Default, names);
        let vhost = &self.peer.vhost;
        let named = Queue {
            vhost,
            name: queue,
            queue_type: QueueType::Default,
        };
        let policies = &self.settings.policies;
        let has_target = nothing
            .said
            .target(policies.ours().matching(named))
            .is_some();
        let is_assumed = has_target && self.is_meant(queue, &nothing) && !self.is_held_back(queue);
        if is_assumed {
            let most = self.settings.limits.now().fixed.queues;
            self.registry.assume(queue, nothing, most, now);
        }
        is_assumed
    }
}

/// Whether nobody rejects anything for good in that queue.
fn is_of_a_stream(difference: &Difference) -> bool {
    match difference {
        Difference::IsStream => true,
        Difference::Argument(_, Some(member)) => {
            DeclareArguments::read(member).queue_type() == QueueType::Other
        }
        Difference::Argument(_, None) | Difference::Bit(..) => false,
    }
}

/// Whether there is no queue of that name that this client could read.
fn is_nowhere(close: Close<'_>) -> bool {
    let (code, text) = (close.code, close.text);
    refusal::presence(code, text) != Presence::Other
        || code != PRECONDITION_FAILED && refusal::ends_knowledge(code, text)
}
