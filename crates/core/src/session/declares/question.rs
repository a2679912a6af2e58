//! A question what a queue is: a declare that makes none, or a look at the management API. The client's command waits for the answer, no longer than
//! `probe-timeout`, and is looked at again then; no delivery waits.
//!
//! Asked is whether a queue is still the one that is known: it could have been deleted and made anew by somebody else. A queue that another session
//! declared is known to this one when it begins to read from it. That is asked before a consumer of it begins, or a message is fetched, when what is
//! known is old; and before the first message dies that a consumer was given, because the queue could have been made anew just before the consumer
//! began. From then on it cannot be without a cancel of the consumer.
//!
//! ```text
//!  consume, get, reject ──▶ the declare that was accepted, as one that makes nothing ──▶ it fits ─── known again
//!                   │ no channel   │ 404, or it differs ──────────────────────────────────────────── forgotten: the broker does its dead letters
//!                   │              │ refused otherwise, or probe-timeout
//!                   └──────────────┴──────────────────────────────────────────────────────────────── unknown: what was known counts on, and is
//!                                                                                                     asked again after a minute
//! ```
//! What nobody knows is asked for in the same way ([`inquiry`](super::inquiry)).

use crate::amqp::frame;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Close, QueueDeclare};
use crate::amqp::reply;
use crate::amqp::reply_code::PRECONDITION_FAILED;
use crate::machine::{Event, Fallback, Mono};
use crate::registry::Form;
use crate::registry::arguments::if_there;
use crate::registry::refusal;
use crate::session::line::Line;

use super::{Asked, Declares};

/// How the names of queues begin that the broker named.
const SERVER_NAMED: &[u8] = b"amq.";

/// One question.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) queue: ShortStr,
    pub(super) why: Why,
    /// What the broker is asked: what was accepted before, or may be. `None`: the management API is asked.
    pub(super) form: Option<Form>,
    /// What the management API told before counts for nothing.
    pub(super) since: Mono,
}

/// Why a queue is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Why {
    /// Somebody begins to read from it.
    Begins,
    /// Something dies that was read.
    Dies,
    /// Somebody begins to read from it, or declares it, and nobody knows what it is.
    Unknown {
        /// Nobody has asked before.
        is_first: bool,
        /// How often the broker has told something already.
        round: u8,
    },
    /// A declare of it says what only some types can have ([`default_type`](super::default_type)).
    DefaultType,
}

/// What the broker says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer<'a> {
    /// The form fits the queue.
    Fits,
    /// It was refused.
    Refused(Close<'a>),
    /// Nothing, in time.
    None,
}

impl Declares {
    /// Whether whoever begins to read from this queue has to wait until it is known, or what is known of it is verified.
    pub(in crate::session) fn must_verify(
        &mut self,
        queue: &ShortStr,
        line: &mut Line<'_, '_>,
    ) -> bool {
        let now = line.now();
        let is_answered = self.answered.take().is_some_and(|asked| asked == *queue);
        // First what costs nothing: most queues have no dead letters, and a client may get from one again and again.
        if line.registry.get(queue).is_none() && line.peer.dialect.is_some() {
            match line.registry.is_unknown(queue, now) {
                true if is_answered || queue.starts_with(SERVER_NAMED) => {}
                true if line.is_being_declared(queue) => {}
                true => return self.inquire(queue, line),
                false => line.adopt_or_assume(queue),
            }
        }
        !line.registry.is_fresh(queue, now) && self.verify(queue, Why::Begins, line)
    }

    /// Verifies what is known of a queue. False: nobody waits, as nothing is known, or the broker cannot be asked.
    pub(in crate::session) fn verify(
        &mut self,
        queue: &ShortStr,
        why: Why,
        line: &mut Line<'_, '_>,
    ) -> bool {
        let Some(known) = line.registry.get(queue) else {
            return false;
        };
        let form = match queue.starts_with(SERVER_NAMED) {
            // A name that the broker made is no other queue's, and no client may declare it.
            true => Form {
                bits: QueueDeclare::PASSIVE,
                arguments: Vec::new(),
            },
            false => known.declared.form.clone(),
        };
        self.waits_for_another(line)
            || self.ask(queue, why, form, line)
            || self.verify_elsewhere(queue, why, line)
    }

    /// Whether something is asked already: then this command waits for that first.
    pub(super) fn waits_for_another(&self, line: &mut Line<'_, '_>) -> bool {
        if self.is_on_its_way() {
            line.hold();
        }
        self.is_on_its_way()
    }

    /// Asks the broker by a declare that makes no queue. False: it cannot be asked.
    pub(super) fn ask(
        &mut self,
        queue: &ShortStr,
        why: Why,
        form: Form,
        line: &mut Line<'_, '_>,
    ) -> bool {
        if self.take_number(line).is_err() {
            return false;
        }
        let arguments = match form.bits & QueueDeclare::PASSIVE {
            0 => if_there(&form.arguments),
            _ => Vec::new(),
        };
        let declare = QueueDeclare {
            ticket: 0,
            queue,
            bits: form.bits,
            arguments: &arguments,
        };
        let mut asked = Vec::new();
        reply::queue_declare(&mut asked, self.probe, &declare, form.bits, &arguments);
        if !line.fits_frame(asked.len() - frame::HEAD - 1) {
            return false;
        }
        self.wait_for(queue, why, Some(form), line);
        self.say(&asked, line);
        true
    }

    fn wait_for(
        &mut self,
        queue: &ShortStr,
        why: Why,
        form: Option<Form>,
        line: &mut Line<'_, '_>,
    ) {
        self.until = line.deadline();
        self.asked = Some(Asked::Queue(Question {
            queue: queue.clone(),
            why,
            form,
            since: line.now(),
        }));
        line.hold();
    }

    /// Asks the management API. False: nobody waits, as there is none, or it does not answer.
    pub(super) fn look_up(&mut self, queue: &ShortStr, why: Why, line: &mut Line<'_, '_>) -> bool {
        let hears = line.settings.policies.hears_broker();
        if hears {
            self.wait_for(queue, why, None, line);
            line.turn.fx.out.unknown.push(queue.clone());
        }
        hears
    }

    /// The management API has answered, whoever asked, or has not: what it told is in the catalogue.
    pub(in crate::session) fn looked_up(&mut self, queue: &ShortStr, line: &mut Line<'_, '_>) {
        let is_it = |asked: &mut Asked| matches!(asked, Asked::Queue(of) if of.form.is_none() && of.queue == *queue);
        let Some(Asked::Queue(Question { since, why, .. })) = self.asked.take_if(is_it) else {
            return;
        };
        let now = line.now();
        let told = line.registry.told_since(queue, since);
        match (why, told) {
            (Why::Unknown { is_first, .. }, told) => {
                if told.is_none() && self.ask_what_it_is(queue, is_first, line) {
                    return;
                }
                line.adopt_if_meant(queue);
                self.answered = Some(queue.clone());
            }
            (_, None) => line.registry.unverified(queue, now),
            // The answer showed another one.
            (_, Some(false)) => {
                line.registry.let_go(queue);
                line.adopt_if_meant(queue);
            }
            (_, Some(true)) => {}
        }
        if told.is_some() {
            line.registry.verified(queue, now);
        }
        self.end(line);
    }

    /// The broker has answered, or has not in time.
    pub(super) fn told(&mut self, question: Question, answer: Answer<'_>, line: &mut Line<'_, '_>) {
        match question.why {
            Why::DefaultType => self.default_type_told(answer, line),
            Why::Unknown { is_first, round } => {
                self.inquired(question, (is_first, round), answer, line);
            }
            why @ (Why::Begins | Why::Dies) => self.verified(&question.queue, why, answer, line),
        }
        if self.asked.is_none() {
            self.end(line);
        }
    }

    fn verified(
        &mut self,
        queue: &ShortStr,
        why: Why,
        answer: Answer<'_>,
        line: &mut Line<'_, '_>,
    ) {
        let now = line.now();
        match answer {
            Answer::Fits => line.registry.verified(queue, now),
            Answer::Refused(close) if refusal::ends_knowledge(close.code, close.text) => {
                // Another queue may be there.
                self.answered = Some(queue.clone()).filter(|_| close.code != PRECONDITION_FAILED);
                line.registry.end(queue, now);
                line.turn.event(Event::DeclareLeft {
                    queue: queue.clone(),
                    cause: Fallback::Stale,
                });
            }
            Answer::Refused(_) => {
                self.verify_elsewhere(queue, why, line);
            }
            Answer::None => line.cannot_verify(queue, why),
        }
    }

    /// The broker cannot be asked, or not by this user. False: nobody waits.
    fn verify_elsewhere(&mut self, queue: &ShortStr, why: Why, line: &mut Line<'_, '_>) -> bool {
        let is_trusted = why == Why::Dies && line.registry.is_same_life(queue);
        let waits = !is_trusted && self.look_up(queue, why, line);
        if !waits {
            line.cannot_verify(queue, why);
        }
        waits
    }
}

impl Line<'_, '_> {
    /// Nobody can be asked: that ends no knowledge. What was known when somebody began to read is taken for granted if
    /// nobody saw the queue's end; else what the broker does with a reject as it is, is left to it (`ledger.rs`).
    fn cannot_verify(&mut self, queue: &[u8], why: Why) {
        let now = self.now();
        match why == Why::Dies && self.registry.is_same_life(queue) {
            true => self.registry.verified(queue, now),
            false => self.registry.unverified(queue, now),
        }
    }
}
