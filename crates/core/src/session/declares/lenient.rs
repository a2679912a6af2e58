//! A declare that differs from its queue in what the setting `lenient` names: it goes on in the words that fit the queue.
//!
//! Where its dead letters go counts from then on. All else stays as the queue has it, and is reported: each refusal tells one such difference, the
//! declare takes over what the queue has, and the same form is asked again. What was taken over is never a part of a form that makes a queue.
//!
//! ```text
//!  refused for x-dead-letter-exchange or -routing-key ──▶ AsTheQueue: the same declare with what the queue has (each refusal tells one of the two)
//!        ▲                                                    │ there is
//!        │ AsItIs, IfThere, Rewritten                         ▼
//!                                                          MayWrite: may the user write to the exchange? (a binding that no broker makes)
//!                                                             │ yes              │ no ──▶ the original, which is refused
//!                                                             ▼
//!                                                          Recording: it counts, and all proxies of the vhost are to know (recorder.rs)
//!                                                             │ recorded, or the time is over
//!                                                             ▼
//!                                                          the form that fits goes on, as one that makes no queue
//! ```
//! RabbitMQ asks for the right to write to a dead-letter exchange only when it makes a queue, so here the proxy has to ask.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::Close;
use crate::machine::{DeadLettersTo, Event, Limit};
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments};
use crate::registry::lenient::{Kept, is_of_target};
use crate::registry::policy::{Mode, Policy};
use crate::registry::redeclared::{Entry, Existing};
use crate::registry::refusal::{self, Difference};
use crate::registry::{self, Declared};
use crate::session::line::Line;

use super::pending::Pending;
use super::table::Form;

/// Corrections: exchange and routing key once each, twice if the queue was replaced.
const MOST_CORRECTED: u8 = 4;
/// Differences that stay with the queue: none has more arguments.
const MOST_KEPT: usize = 24;

impl Pending {
    /// Whether the declare may differ in what this refusal names: it goes on with what the queue has.
    pub(super) fn keeps(&mut self, form: Form, close: &Close<'_>, line: &Line<'_, '_>) -> bool {
        let difference = match form {
            Form::Passive | Form::Never | Form::MayWrite => None,
            _ => refusal::difference(close.code, close.text, &self.queue),
        };
        let may = |difference: &Difference| {
            let name = difference.name();
            self.lenient.allows(name) && !is_of_target(name) && self.kept.len() < MOST_KEPT
        };
        let Some(difference) = difference.filter(may) else {
            return false;
        };
        let name = ShortStr::copy(difference.name()).unwrap_or_default();
        let now = registry::Form {
            bits: self.bits,
            arguments: self.arguments.clone(),
        };
        let next = now.corrected(difference);
        let read = DeclareArguments::read(&next.arguments);
        let (queue_type, names) = (read.queue_type(), &line.settings.names);
        let (Some(said), Some(intake)) = (read.said(), read.intake(names)) else {
            return false;
        };
        let is_kept_already = self.kept.iter().any(|kept| kept.argument == name);
        let bytes = self.bytes() + next.arguments.len();
        let is_stream = queue_type == QueueType::Other;
        if next == now || is_stream || is_kept_already || !line.fits_frame(bytes) {
            return false;
        }
        self.kept.push(Kept::between(&now, &next, name));
        self.said = said;
        // Unless a refusal has named the one that the queue has.
        if DeclareArguments::read(&now.arguments)
            .intake(names)
            .as_ref()
            == Some(&self.intake)
        {
            self.goes_on_as(intake);
        }
        if queue_type != QueueType::Default {
            self.queue_type = queue_type;
        }
        (self.bits, self.arguments) = (next.bits, next.arguments);
        self.asked.get_or_insert(now);
        true
    }

    /// There is no such queue any more: the declare begins anew, as the client wrote it.
    pub(super) fn keeps_nothing(&mut self, names: &Names) -> bool {
        let Some(asked) = self.asked.take() else {
            return false;
        };
        self.kept.truncate(self.reworded);
        (self.bits, self.arguments) = (asked.bits, asked.arguments);
        let read = DeclareArguments::read(&self.arguments);
        if let (Some(said), Some(intake)) = (read.said(), read.intake(names)) {
            (self.said, self.queue_type) = (said, read.queue_type());
            self.goes_on_as(intake);
        }
        true
    }

    /// Whether the refusal shows the queue's arguments, and the declare may differ from them.
    pub(super) fn corrects(
        &mut self,
        form: Form,
        close: &Close<'_>,
        line: &mut Line<'_, '_>,
    ) -> bool {
        let believed = match (form, &self.existing) {
            (Form::Passive | Form::Never | Form::MayWrite, _) => return false,
            (_, Some(existing)) => existing.clone(),
            (Form::IfThere | Form::Rewritten, None) => Existing::taken_over(&self.intake),
            (Form::AsItIs | Form::AsTheQueue, None) => Existing::of(&self.arguments),
        };
        let corrected = refusal::corrected(close.code, close.text, &self.queue, &believed);
        let may = |existing: &Existing| {
            let name = match existing.exchange == believed.exchange {
                true => DEAD_LETTER_ROUTING_KEY,
                false => DEAD_LETTER_EXCHANGE,
            };
            *existing != believed && self.lenient.allows(name) && self.corrected < MOST_CORRECTED
        };
        let Some(existing) = corrected.filter(may) else {
            return false;
        };
        let most = line.settings.limits.now().max_redeclared_queues;
        if line.settings.policies.count_redeclared() >= most {
            line.turn.event(Event::LimitMet(Limit::RedeclaredQueues));
            return false;
        }
        let before = self.existing.replace(existing);
        let bytes = self.bytes() + self.written(Form::AsTheQueue).len();
        if !line.fits_frame(bytes) {
            self.existing = before;
            return false;
        }
        self.corrected += 1;
        true
    }
}

impl Line<'_, '_> {
    /// Applies the declare; the broker has only to accept it on the probe's channel. Returns the
    /// entry to record.
    pub(super) fn count_declare(&mut self, pending: &mut Pending) -> Option<Entry> {
        let existing = pending.existing.clone()?;
        if let Some(intake) = existing.intake(&self.settings.names) {
            pending.case.is_ours = true;
            pending.goes_on_as(intake);
        }
        let entry = self.count(&pending.queue, &existing, &pending.said);
        // What counts already may be recorded, or another declare may wait for that.
        entry.or_else(|| {
            let redeclared = self.settings.policies.redeclared();
            redeclared
                .of(&self.peer.vhost, &pending.queue, &existing)
                .cloned()
        })
    }

    /// Applies an accepted declare on all connections.
    pub(super) fn redeclare(&mut self, queue: &ShortStr, declared: &Declared) {
        if let Some(entry) = self.count(queue, &declared.existing(), &declared.said) {
            self.turn.fx.out.record.push((queue.clone(), entry, false));
        }
    }

    /// Applies the last declare to a queue with these arguments. Returns its entry if something
    /// changed.
    fn count(
        &mut self,
        queue: &ShortStr,
        existing: &Existing,
        said: &DeclaredTarget,
    ) -> Option<Entry> {
        let names = &self.settings.names;
        let own = existing.said(names);
        let policies = &self.settings.policies;
        let redeclared = policies.redeclare(&self.peer.vhost, queue, existing, &own, said);
        let (entry, before) = redeclared?;
        self.turn.event(Event::Redeclared {
            queue: queue.clone(),
            before: (&before).into(),
            now: said.into(),
            own: (!existing.is_taken_over(names)).then(|| (&own).into()),
        });
        Some(entry)
    }

    /// Reports a target that only a policy of the proxy names, for a queue that was not taken over:
    /// it acts on rejects only. Not in mode `rejects-only`, unless the policy overrides the
    /// arguments.
    pub(super) fn tell_of_rejects_only(&mut self, queue: &ShortStr, declared: &Declared) {
        // An exclusive queue is a new one on each connection, mostly with a new name.
        if declared.taken_over || declared.is_exclusive() {
            return;
        }
        let keeps = self.mode_of(queue, declared.queue_type) == Mode::RejectsOnly;
        let own = declared.existing().said(&self.settings.names);
        let to = |policy: Option<&Policy>| match own.target(policy) {
            Some(target) => (&DeclaredTarget::Target(target)).into(),
            None => DeadLettersTo::default(),
        };
        let own = to(None);
        let now = self.of_policy(queue, declared.queue_type, |policy| {
            to(policy.filter(|policy| policy.overrules_arguments || !keeps))
        });
        if now != own {
            let queue = queue.clone();
            self.turn.event(Event::RejectsOnly { queue, now, own });
        }
    }
}
