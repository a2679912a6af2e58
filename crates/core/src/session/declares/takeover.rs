//! Carries out what the table says of a declare on its way: asks, makes sure of the intake exchange, lets it go on.
//!
//! The client is not read meanwhile. It never sees the probe's channel.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Ensure, Ensured, Event, Fallback, Limit};
use crate::objects::OwnObject;
use crate::registry::arguments::Aim;
use crate::registry::refusal::{self, There};
use crate::session::line::Line;
use crate::session::replies::Expected;

use super::pending::Pending;
use super::table::{Form, Stage, Step, Then};
use super::{Asked, Declares};

impl Declares {
    /// Checks whether the broker can be asked. Then waits for answers to the client's earlier
    /// requests.
    pub(super) fn begin(&mut self, mut pending: Box<Pending>, line: &mut Line<'_, '_>) {
        line.hold();
        self.until = line.deadline();
        let exchange = pending.read().exchange().unwrap_or_default();
        let number = match line.can_refuse(&pending.queue, &exchange, &pending.intake) {
            true => self.take_number(line),
            // The broker would not survive refusing the probe: some versions cannot write every name.
            false => Err(Fallback::NotSupported),
        };
        if let Err(cause) = number {
            return self.take(pending, Step::InDoubt(cause), line);
        }
        pending.stage = Stage::Quieting;
        let channel = pending.channel;
        self.asked = Some(Asked::Declare(pending));
        match line.channels.get_mut(&channel) {
            Some(state) if !state.is_quiet() => {
                state.expect(Expected::Barrier, true);
                line.inject(channel, |out| reply::channel_flow(out, channel));
            }
            _ => self.quiet(line),
        }
    }

    /// The client's channel is quiet now.
    pub(in crate::session) fn quiet(&mut self, line: &mut Line<'_, '_>) {
        if let Some(mut pending) = self.take_declare(|pending| pending.stage == Stage::Quieting) {
            let is_permitted = self
                .learned()
                .permitted
                .get(&pending.intake, line.now())
                .is_some();
            pending.case.permitted = is_permitted && pending.case.aim == Aim::Full;
            let step = pending.case.begin();
            self.take(pending, step, line);
        }
    }

    /// `refused`: the broker's refusal of the form.
    pub(super) fn answered(
        &mut self,
        mut pending: Box<Pending>,
        refused: Option<Close<'_>>,
        line: &mut Line<'_, '_>,
    ) {
        let Stage::Asked(form) = pending.stage else {
            self.asked = Some(Asked::Declare(pending));
            return;
        };
        let there = match &refused {
            None => There::Fits,
            Some(close) => {
                let names = &line.settings.names;
                match refusal::there(close.code, close.text, &pending.read(), names) {
                    There::Absent if pending.lacks_what_its_type_needs(close.text) => {
                        There::Invalid
                    }
                    there => there,
                }
            }
        };
        if let Some(close) = &refused {
            if pending.keeps(form, close, line) {
                return self.take(pending, Step::Ask(form), line);
            }
            if pending.corrects(form, close, line) {
                return self.take(pending, Step::Ask(Form::AsTheQueue), line);
            }
        }
        if let There::Absent | There::Granted | There::Invalid | There::InvalidTarget = there
            && pending.keeps_nothing(&line.settings.names)
        {
            let step = pending.case.begin();
            return self.take(pending, step, line);
        }
        let mut step = pending.case.told(form, &there);
        if let There::Ours(intake) = there
            && step == Step::Ensure(Then::Forward)
        {
            pending.goes_on_as(intake);
            if !pending.lenient.is_empty() {
                // What else differs may be allowed.
                step = Step::Ask(Form::IfThere);
            }
        }
        self.take(pending, step, line);
    }

    /// The intake exchange exists, or cannot be had.
    pub(in crate::session) fn ensured(&mut self, ensured: &Ensured, line: &mut Line<'_, '_>) {
        let waits = |pending: &Pending| {
            pending.intake == ensured.exchange && matches!(pending.stage, Stage::Ensuring(_))
        };
        if let Some(mut pending) = self.take_declare(waits)
            && let Stage::Ensuring(then) = pending.stage
        {
            pending.case.ensured = Some(ensured.ready);
            let step = pending.case.ready(then);
            self.take(pending, step, line);
        }
    }

    /// Recorded, or not possible now: then the recorder does it later.
    pub(in crate::session) fn recorded(
        &mut self,
        queue: &ShortStr,
        is_recorded: bool,
        line: &mut Line<'_, '_>,
    ) {
        let waits =
            |pending: &Pending| pending.stage == Stage::Recording && pending.queue == *queue;
        if let Some(pending) = self.take_declare(waits) {
            if !is_recorded {
                let queue = queue.clone();
                line.turn.event(Event::NotRecorded { queue });
            }
            let step = pending.case.recorded();
            self.take(pending, step, line);
        }
    }

    /// The probe has timed out. If the intake did not answer, it counts as unavailable, and the
    /// broker gets the same time again.
    pub(super) fn too_late(&mut self, mut pending: Box<Pending>, line: &mut Line<'_, '_>) {
        line.turn.event(Event::LimitMet(Limit::ProbeTimeout));
        self.until = line.deadline();
        match pending.stage {
            Stage::Ensuring(_) => pending.case.ensured = Some(false),
            Stage::Recording => {
                line.turn.fx.out.gave_up = true;
                let queue = pending.queue.clone();
                line.turn.event(Event::NotRecorded { queue });
            }
            Stage::Quieting | Stage::Asked(_) => {}
        }
        let step = pending.case.too_late(pending.stage);
        self.take(pending, step, line);
    }

    /// Takes steps up to one that needs an answer, or to the end.
    fn take(&mut self, mut pending: Box<Pending>, mut step: Step, line: &mut Line<'_, '_>) {
        loop {
            step = match step {
                Step::Ask(form) => {
                    pending.stage = Stage::Asked(form);
                    pending.case.compared += u8::from(form == Form::IfThere);
                    self.ask_form(&pending, form, line);
                    break;
                }
                Step::Ensure(then) => {
                    pending.stage = Stage::Ensuring(then);
                    if then == Then::Make && !pending.case.permitted {
                        pending.case.permitted = true;
                        self.learned()
                            .permitted
                            .insert(pending.intake.clone(), (), line.now());
                    }
                    if pending.case.ensured.is_none() {
                        line.turn.fx.out.ensure.push(Ensure {
                            exchange: pending.intake.clone(),
                            user: line.peer.user.clone(),
                        });
                        break;
                    }
                    pending.case.ready(then)
                }
                Step::Record => {
                    pending.stage = Stage::Recording;
                    if let Some(entry) = line.count_declare(&mut pending) {
                        let queue = pending.queue.clone();
                        line.turn.fx.out.record.push((queue, entry, true));
                        break;
                    }
                    pending.case.recorded()
                }
                Step::InDoubt(cause) => match line.seen_with(&pending) {
                    Some(intake) => {
                        self.until = line.deadline();
                        pending.goes_on_as(intake);
                        Step::Ensure(Then::Forward)
                    }
                    None => Step::AsItIs(cause),
                },
                Step::AsItIs(cause) => {
                    let queue = pending.queue.clone();
                    let aim = pending.case.aim;
                    self.forward(&pending, Form::AsItIs, line);
                    if matches!(aim, Aim::Full | Aim::Compare) {
                        line.turn.event(Event::DeclareLeft { queue, cause });
                    }
                    return;
                }
                Step::Forward(form) => return self.forward(&pending, form, line),
            }
        }
        self.asked = Some(Asked::Declare(pending));
    }

    fn ask_form(&mut self, pending: &Pending, form: Form, line: &mut Line<'_, '_>) {
        let probe = self.probe;
        let mut frames = Vec::new();
        match form {
            // From the default exchange nothing can be bound, but first the broker asks for the right to write to what is bound.
            Form::MayWrite => {
                let exchange = pending.read().exchange().unwrap_or_default();
                reply::method(&mut frames, probe, MethodId::EXCHANGE_BIND, |a| {
                    a.short(0)
                        .shortstr(&exchange)
                        .shortstr(b"")
                        .shortstr(b"")
                        .octet(0)
                        .longstr(b"")
                        .end();
                });
            }
            form => {
                let arguments = pending.written(form);
                let bits = match form {
                    Form::Passive => QueueDeclare::PASSIVE,
                    _ => pending.bits,
                };
                let declare = pending.declare(bits, &arguments);
                reply::queue_declare(&mut frames, probe, &declare, declare.bits, &arguments);
            }
        }
        self.say(&frames, line);
    }

    /// Sends the declare in this form, and closes the probe's channel.
    fn forward(&mut self, pending: &Pending, form: Form, line: &mut Line<'_, '_>) {
        self.end(line);
        let channel = pending.channel;
        let accepted = pending.accepted(form, &line.settings.names);
        let unseen = pending.bits & QueueDeclare::NO_WAIT != 0;
        line.expect_declare(channel, pending.queue.clone(), Some(accepted), unseen);
        line.remember_declared(channel, pending.declare(0, &pending.arguments));
        let arguments = pending.written(form);
        let declare = pending.declare(pending.bits, &arguments);
        line.inject(channel, |out| {
            reply::queue_declare(out, channel, &declare, declare.bits, &arguments);
        });
    }
}

impl Line<'_, '_> {
    /// The intake exchange with which the queue was last seen, if it has the declared target.
    fn seen_with(&self, pending: &Pending) -> Option<ShortStr> {
        let seen = self.registry.seen_intake(&pending.queue, self.now());
        let says_the_same = |intake: &ShortStr| {
            let object = self.settings.names.parse(intake);
            matches!(object, Some(OwnObject::IntakeExchange(said, _)) if said.is_but_for_the_strategy(&pending.said))
        };
        seen.flatten().filter(says_the_same)
    }

    /// For a refusal that may have to be reworded.
    pub(super) fn remember_declared(&mut self, channel: ChannelId, declare: QueueDeclare<'_>) {
        if let Some(state) = self.channels.get_mut(&channel) {
            let queue = ShortStr::copy(declare.queue).unwrap_or_default();
            let form = crate::registry::Form::of(0, declare.arguments);
            state.declared = Some((queue, form.arguments));
        }
    }
}
