//! A declare that differs from its queue only in where dead letters go, where `declares = "lenient"`: it goes on in the words that fit the queue, and
//! what it says counts from then on.
//!
//! ```text
//!  refused for x-dead-letter-exchange or -routing-key ──▶ Matching: the same declare with what the queue has (each refusal tells one of the two)
//!        ▲                                                    │ there is
//!        │ Trying, Comparing, Fitting (declare.rs)            ▼
//!                                                          Permitting: may the user write to the exchange? (a binding that no broker makes)
//!                                                             │ yes              │ no ──▶ the original, which is refused
//!                                                             ▼
//!                                                          Recording: it counts, and all proxies of the vhost are to know (recorder.rs)
//!                                                             │ recorded, or the time is over
//!                                                             ▼
//!                                                          the form that fits goes on, as one that makes no queue
//! ```
//! RabbitMQ asks for the right to write to a dead-letter exchange only when it makes a queue, so here the proxy has to ask.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{DeadLettersTo, Event, Fallback, Limit};
use crate::objects::DeclaredTarget;
use crate::registry::arguments::{DeclareArguments, if_there};
use crate::registry::policy::{Declares, Mode, Queue};
use crate::registry::redeclared::{Entry, Existing};
use crate::registry::refusal;
use crate::registry::{Declared, Form};

use super::replies::Accepted;
use super::takeover::Stage;
use super::{Session, Turn};

/// Exchange and routing key, each corrected once, and once more if the queue has become another one.
const MOST_CORRECTED: u8 = 4;

impl Session {
    /// Whether a declare may differ from its queue in where dead letters go.
    pub(super) fn is_lenient(&self, declare: &QueueDeclare<'_>) -> bool {
        let ours = self.settings.policies.ours();
        let policy = ours.matching(Queue {
            vhost: &self.peer.vhost,
            name: &self.policy_name(declare),
            queue_type: self.type_of(declare),
        });
        let mode = policy.and_then(|policy| policy.mode);
        let declares = policy.and_then(|policy| policy.declares);
        !declare.queue.is_empty()
            && declares.unwrap_or(self.settings.declares) == Declares::Lenient
            && mode.unwrap_or(self.settings.mode) != Mode::Off
    }

    /// A form of the declare was refused. Returns false if not for where dead letters go, or if that may not differ.
    pub(super) fn match_existing(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) -> bool {
        let Some(takeover) = self.probe.takeover() else {
            return false;
        };
        let Some(declare) = takeover.declare() else {
            return false;
        };
        let believed = match (&takeover.existing, takeover.stage) {
            (Some(existing), _) => existing.clone(),
            (None, Stage::Comparing | Stage::Fitting) => Existing::taken_over(&takeover.intake),
            (None, _) => Existing::of(declare.arguments),
        };
        let queue = &takeover.queue;
        let corrected = refusal::corrected(close.code, close.text, queue, &believed);
        let may = takeover.corrected < MOST_CORRECTED && self.is_lenient(&declare);
        let Some(existing) = corrected.filter(|existing| may && *existing != believed) else {
            return false;
        };
        let most = self.settings.limits.now().fixed.redeclared_queues;
        if self.settings.policies.count_redeclared() >= most {
            turn.event(Event::LimitMet(Limit::RedeclaredQueues));
            return false;
        }
        let form = if_there(&DeclareArguments::read(declare.arguments).with(&existing));
        if !self.fits_frame(takeover.payload.len() + form.len()) {
            return false;
        }
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        if let Some(takeover) = self.probe.takeover_mut() {
            takeover.corrected += 1;
            takeover.existing = Some(existing);
            takeover.stage = Stage::Matching;
        }
        self.probe(bits, &form, turn);
        true
    }

    /// The declare fits the queue with what that has. May the user write to the exchange that it named?
    pub(super) fn matched(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self.probe.takeover_mut() else {
            return;
        };
        let (Some(exchange), Some(probe)) = (takeover.exchange.clone(), takeover.probe) else {
            return self.record(turn);
        };
        takeover.stage = Stage::Permitting;
        self.inject(probe, turn, |out| {
            // From the default exchange nothing can be bound, but first the broker asks for the right to write to what is bound.
            reply::method(out, probe, MethodId::EXCHANGE_BIND, |a| {
                a.short(0)
                    .shortstr(&exchange)
                    .shortstr(b"")
                    .shortstr(b"")
                    .octet(0)
                    .longstr(b"")
                    .end();
            });
        });
    }

    /// The broker refused the binding: as there can be none from there, or as the user may not write to the exchange.
    pub(super) fn permission_told(&mut self, close: &Close<'_>, turn: &mut Turn<'_>) {
        match refusal::may_write(close.code, close.text) {
            true => self.record(turn),
            false => self.forward_original(Fallback::Forbidden, turn),
        }
    }

    /// What the declare says counts from here on: only what the broker has just accepted on the probe's channel is still to come.
    fn record(&mut self, turn: &mut Turn<'_>) {
        let counted = self.probe.takeover().and_then(|takeover| {
            let (queue, existing) = (&takeover.queue, takeover.existing.as_ref()?);
            let entry = self.count(queue, existing, &takeover.said, turn);
            // What counts already may be recorded, or another declare may wait for that.
            let entry = entry.or_else(|| self.counted(queue, existing))?;
            Some((queue.clone(), entry, true))
        });
        let Some(counted) = counted else {
            return self.go_on_matched(turn);
        };
        turn.fx.out.record.push(counted);
        if let Some(takeover) = self.probe.takeover_mut() {
            takeover.stage = Stage::Recording;
        }
    }

    /// It is recorded, or cannot be now: then the recorder does it when it can.
    pub(super) fn recorded(&mut self, queue: &ShortStr, is_recorded: bool, turn: &mut Turn<'_>) {
        let takeover = self.probe.takeover();
        let waits = takeover
            .is_some_and(|takeover| takeover.stage == Stage::Recording && takeover.queue == *queue);
        if !waits {
            return;
        }
        if !is_recorded {
            let queue = queue.clone();
            turn.event(Event::NotRecorded { queue });
        }
        self.go_on_matched(turn);
    }

    fn go_on_matched(&mut self, turn: &mut Turn<'_>) {
        let existing = self
            .probe
            .takeover()
            .and_then(|takeover| takeover.existing.clone());
        let names = &self.settings.names;
        let intake = existing
            .filter(|existing| existing.is_taken_over(names))
            .and_then(|existing| existing.exchange);
        match intake {
            Some(intake) => self.go_on_as(intake, turn),
            None => self.forward_matched(turn),
        }
    }

    /// The declare goes on with the dead-letter arguments that the queue has.
    pub(super) fn forward_matched(&mut self, turn: &mut Turn<'_>) {
        let Some(takeover) = self.end_takeover(turn) else {
            return;
        };
        let (Some(declare), Some(existing)) = (takeover.declare(), &takeover.existing) else {
            return;
        };
        let arguments = DeclareArguments::read(declare.arguments);
        let table = arguments.with(existing);
        let declared = Declared {
            said: takeover.said.clone(),
            retries: takeover.retries,
            queue_type: arguments.queue_type(),
            taken_over: existing.is_taken_over(&self.settings.names),
            form: Form::of(declare.bits, &table),
        };
        self.remember_declared(takeover.channel, &takeover.payload);
        let accepted = Accepted::Managed(declared);
        self.expect_declare(takeover.channel, &takeover.payload, Some(accepted));
        let bits = declare.bits & !QueueDeclare::NO_WAIT;
        self.inject(takeover.channel, turn, |out| {
            reply::queue_declare(out, takeover.channel, &declare, bits, &if_there(&table));
        });
    }

    /// The broker accepted a declare: what it says counts from now on, on all connections.
    pub(super) fn redeclare(&self, queue: &ShortStr, declared: &Declared, turn: &mut Turn<'_>) {
        if let Some(entry) = self.count(queue, &declared.existing(), &declared.said, turn) {
            turn.fx.out.record.push((queue.clone(), entry, false));
        }
    }

    fn counted(&self, queue: &ShortStr, existing: &Existing) -> Option<Entry> {
        let redeclared = self.settings.policies.redeclared();
        redeclared.of(&self.peer.vhost, queue, existing).cloned()
    }

    /// Of a queue with these arguments counts what the last declare said. Returns its entry if that is something else than before.
    fn count(
        &self,
        queue: &ShortStr,
        existing: &Existing,
        said: &DeclaredTarget,
        turn: &mut Turn<'_>,
    ) -> Option<Entry> {
        let own = existing.said(&self.settings.names);
        let policies = &self.settings.policies;
        let redeclared = policies.redeclare(&self.peer.vhost, queue, existing, &own, said);
        let (entry, before) = redeclared?;
        turn.event(Event::Redeclared {
            queue: queue.clone(),
            before: (&before).into(),
            now: said.into(),
            own: (!existing.is_taken_over(&self.settings.names)).then(|| (&own).into()),
        });
        Some(entry)
    }

    /// The broker does not know a policy of ours by which a queue that was not taken over has another target. In mode `rejects-only` that is what was
    /// asked for, unless the policy comes before the arguments.
    pub(super) fn tell_of_rejects_only(
        &self,
        queue: &ShortStr,
        declared: &Declared,
        turn: &mut Turn<'_>,
    ) {
        // An exclusive queue is a new one on each connection, mostly with a new name.
        if declared.taken_over || declared.is_exclusive() {
            return;
        }
        let ours = self.settings.policies.ours();
        let policy = ours.matching(Queue {
            vhost: &self.peer.vhost,
            name: queue,
            queue_type: declared.queue_type,
        });
        let keeps = self.mode_of(queue, declared.queue_type) == Mode::RejectsOnly;
        let policy = policy.filter(|policy| policy.overrules_arguments || !keeps);
        let own = declared.existing().said(&self.settings.names);
        let to = |policy| match own.target(policy) {
            Some(target) => (&DeclaredTarget::Target(target)).into(),
            None => DeadLettersTo::default(),
        };
        let (now, own) = (to(policy), to(None));
        if now != own {
            let queue = queue.clone();
            turn.event(Event::RejectsOnly { queue, now, own });
        }
    }
}
