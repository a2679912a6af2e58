//! One declare that is undecided: what the client wrote, the forms of it, and what its probe has shown.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::QueueDeclare;
use crate::objects::{DeclaredTarget, Names, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, if_there};
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
    /// Without those that the broker does not want to see.
    pub(super) arguments: Vec<u8>,
    queue_type: QueueType,
    /// What the arguments say of dead letters.
    pub(super) said: DeclaredTarget,
    /// What they say of retries.
    retries: SaidRetries,
    pub(super) intake: ShortStr,
    /// It may differ from its queue in where dead letters go.
    pub(super) is_lenient: bool,
    /// The dead-letter arguments that the queue has, as far as refusals told.
    pub(super) existing: Option<Existing>,
    /// How often that was corrected.
    pub(super) corrected: u8,
    pub(super) case: Case,
    pub(super) stage: Stage,
}

// === impl Pending ===

impl Pending {
    /// One of which nothing has been asked yet.
    pub(super) fn new(
        channel: ChannelId,
        read: &Read<'_>,
        (aim, said, intake): (Aim, DeclaredTarget, ShortStr),
        retries: SaidRetries,
        is_lenient: bool,
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
            is_lenient,
            existing: None,
            corrected: 0,
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

    /// The method with these arguments, and with a reply: it tells that the queue is there.
    pub(super) fn declare<'a>(&'a self, bits: u8, arguments: &'a [u8]) -> QueueDeclare<'a> {
        QueueDeclare {
            ticket: self.ticket,
            queue: &self.queue,
            bits: bits & !QueueDeclare::NO_WAIT,
            arguments,
        }
    }

    /// The arguments of a form. Here alone is decided whether one goes out that can make the queue in a form of ours.
    pub(super) fn written(&self, form: Form) -> Vec<u8> {
        match form {
            Form::AsItIs => self.arguments.clone(),
            Form::Passive | Form::MayWrite => Vec::new(),
            Form::Never => self.read().permission_probe(),
            Form::Rewritten if self.case.may_make() => self.table(form),
            Form::Rewritten | Form::IfThere | Form::AsTheQueue => if_there(&self.table(form)),
        }
    }

    /// The same without what keeps it from making the queue.
    fn table(&self, form: Form) -> Vec<u8> {
        match &self.existing {
            Some(existing) if form == Form::AsTheQueue => self.read().with(existing),
            _ => self.read().rewritten(&self.intake),
        }
    }

    /// Of the client's method.
    pub(super) fn octets(&self) -> usize {
        // Class, method, ticket, the length of the name, bits, the length of the table.
        2 + 2 + 2 + 1 + self.queue.len() + 1 + 4 + self.arguments.len()
    }

    /// Whether the broker will refuse it for its type, which these words name: it says so only after all that a probe asks.
    pub(super) fn lacks_what_its_type_needs(&self, text: &[u8]) -> bool {
        const SAID: u8 =
            QueueDeclare::DURABLE | QueueDeclare::EXCLUSIVE | QueueDeclare::AUTO_DELETE;
        text.ends_with(b" of queue type rabbit_quorum_queue")
            && self.bits & SAID != QueueDeclare::DURABLE
    }

    /// The queue has, or had, this intake exchange: what goes on makes none.
    pub(super) fn goes_on_as(&mut self, intake: ShortStr) {
        if self.intake != intake {
            (self.intake, self.case.ensured) = (intake, None);
        }
        self.case.permitted = false;
    }

    /// What is known of the queue once the broker accepts the declare in this form.
    pub(super) fn accepted(&self, form: Form, names: &Names) -> Accepted {
        let as_it_is = || Declared {
            said: self.said.clone(),
            retries: self.retries,
            queue_type: self.queue_type,
            taken_over: false,
            form: registry::Form::of(self.bits, &self.arguments),
        };
        match (form, self.case.aim) {
            (Form::AsItIs, Aim::Full | Aim::Lenient) => Accepted::Managed(as_it_is()),
            (Form::AsItIs, Aim::Off) => Accepted::Plain(as_it_is()),
            (Form::AsItIs, Aim::Compare) => Accepted::Type(self.bits, self.queue_type),
            _ => {
                let form = registry::Form::of(self.bits, &self.table(form));
                let mut declared = Declared::of_queue(form, self.queue_type, names);
                declared.retries = self.retries;
                if self.existing.is_some() {
                    declared.said = self.said.clone();
                }
                Accepted::Managed(declared)
            }
        }
    }
}
