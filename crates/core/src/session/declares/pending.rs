//! One declare that is undecided: what the client wrote, the forms of it, and what its probe has shown.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::QueueDeclare;
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, if_there};
use crate::registry::lenient::{Kept, Lenient};
use crate::registry::redeclared::Existing;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{self, Declared};
use crate::session::replies::Accepted;

use super::read::Read;
use super::table::{Case, Form, Stage};

#[derive(Debug)]
pub(in crate::session) struct Pending {
    pub(super) channel: ChannelId,
    pub(super) queue: ShortStr,
    ticket: u16,
    pub(super) bits: u8,
    /// Without arguments that the broker must not see.
    pub(super) arguments: Vec<u8>,
    pub(super) queue_type: QueueType,
    pub(super) said: DeclaredTarget,
    retries: SaidRetries,
    pub(super) intake: ShortStr,
    /// In what it may differ from its queue.
    pub(super) lenient: Lenient,
    /// The dead-letter arguments of the existing queue, as far as refusals showed.
    pub(super) existing: Option<Existing>,
    pub(super) corrected: u8,
    /// What the client wrote, where the existing queue has something else that it keeps.
    pub(super) asked: Option<registry::Form>,
    pub(super) kept: Vec<Kept>,
    /// The first of these differ whatever the queue has.
    pub(super) reworded: usize,
    pub(super) case: Case,
    pub(super) stage: Stage,
}

// === impl Pending ===

impl Pending {
    pub(super) fn new(
        channel: ChannelId,
        read: &Read<'_>,
        (aim, said, intake): (Aim, DeclaredTarget, ShortStr),
        retries: SaidRetries,
        lenient: Lenient,
    ) -> Pending {
        Pending {
            channel,
            queue: read.queue(),
            ticket: read.declare.ticket,
            bits: read.declare.bits,
            arguments: read.declare.arguments.to_vec(),
            queue_type: read.queue_type,
            said,
            retries,
            intake,
            lenient,
            existing: None,
            corrected: 0,
            asked: None,
            kept: read.kept.clone(),
            reworded: read.kept.len(),
            case: Case {
                aim,
                to_be_named: read.declare.queue.is_empty(),
                names_exchange: read.arguments().exchange().is_some(),
                permitted: false,
                ensured: None,
                compared: 0,
                is_ours: false,
            },
            stage: Stage::Quieting,
        }
    }

    pub(super) fn read(&self) -> DeclareArguments<'_> {
        DeclareArguments::read(&self.arguments)
    }

    /// The method with these arguments, and with a reply, which proves the queue's existence.
    pub(super) fn declare<'a>(&'a self, bits: u8, arguments: &'a [u8]) -> QueueDeclare<'a> {
        QueueDeclare {
            ticket: self.ticket,
            queue: &self.queue,
            bits: bits & !QueueDeclare::NO_WAIT,
            arguments,
        }
    }

    /// The arguments of a form. The only place that decides whether a form can make a queue with an
    /// intake exchange.
    pub(super) fn written(&self, form: Form) -> Vec<u8> {
        match form {
            Form::AsItIs if self.asked.is_some() => if_there(&self.arguments),
            Form::AsItIs => self.arguments.clone(),
            Form::Passive | Form::MayWrite => Vec::new(),
            Form::Never => self.read().permission_probe(),
            Form::Rewritten if self.case.may_make() && self.asked.is_none() => self.table(form),
            Form::Rewritten | Form::IfThere | Form::AsTheQueue => if_there(&self.table(form)),
        }
    }

    /// The same, in a form that can make the queue.
    fn table(&self, form: Form) -> Vec<u8> {
        match &self.existing {
            Some(existing) if form == Form::AsTheQueue => self.read().with(existing),
            _ => self.read().rewritten(&self.intake),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        // Class, method, ticket, the length of the name, bits, the length of the table.
        2 + 2 + 2 + 1 + self.queue.len() + 1 + 4 + self.arguments.len()
    }

    /// Whether the queue's type will make the broker refuse it: it reports that only after
    /// everything that a probe tests.
    pub(super) fn lacks_what_its_type_needs(&self, text: &[u8]) -> bool {
        const SAID: u8 =
            QueueDeclare::DURABLE | QueueDeclare::EXCLUSIVE | QueueDeclare::AUTO_DELETE;
        text.ends_with(b" of queue type rabbit_quorum_queue")
            && self.bits & SAID != QueueDeclare::DURABLE
    }

    /// The queue has, or had, this intake exchange: none is made.
    pub(super) fn goes_on_as(&mut self, intake: ShortStr) {
        if self.intake != intake {
            (self.intake, self.case.ensured) = (intake, None);
        }
        self.case.permitted = false;
    }

    /// Facts about the queue once the broker accepts this form.
    pub(super) fn accepted(&self, form: Form, names: &Names) -> Accepted {
        let as_it_is = || Declared {
            said: self.said.clone(),
            retries: self.retries.clone(),
            queue_type: self.queue_type,
            taken_over: false,
            form: registry::Form::of(self.bits, &self.arguments),
            kept: self.kept.as_slice().into(),
        };
        match (form, self.case.aim) {
            (Form::AsItIs, Aim::Full | Aim::Lenient) => Accepted::Managed(as_it_is()),
            (Form::AsItIs, Aim::Off) => Accepted::Plain(as_it_is()),
            (Form::AsItIs, Aim::Compare) => Accepted::Type(self.bits, self.queue_type),
            _ => {
                let form = registry::Form::of(self.bits, &self.table(form));
                let mut declared = Declared::of_queue(form, self.queue_type, names);
                declared.retries = self.retries.clone();
                declared.kept = self.kept.as_slice().into();
                if self.existing.is_some() {
                    declared.said = self.said.clone();
                }
                Accepted::Managed(declared)
            }
        }
    }
}
