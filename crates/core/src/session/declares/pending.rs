//! One declare that is undecided: what the client wrote, the forms of it, and what its probe has shown.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::QueueDeclare;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, if_there};
use crate::registry::redeclared::Existing;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{self, Declared};
use crate::session::replies::Accepted;

use super::read::Read;
use super::table::{Facts, Form, Stage};

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
    pub(super) facts: Facts,
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
            facts: Facts {
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
            Form::Rewritten if self.facts.may_make() => self.table(form),
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
            (self.intake, self.facts.ensured) = (intake, None);
        }
        self.facts.permitted = false;
    }

    /// What is known of the queue once the broker accepts the declare in this form.
    pub(super) fn accepted(&self, form: Form, names: &Names) -> Accepted {
        let declared = |said, queue_type, taken_over, arguments: &[u8]| Declared {
            said,
            retries: self.retries,
            queue_type,
            taken_over,
            form: registry::Form::of(self.bits, arguments),
        };
        if form == Form::AsItIs {
            let as_it_is = || declared(self.said.clone(), self.queue_type, false, &self.arguments);
            return match self.facts.aim {
                Aim::Full | Aim::Lenient => Accepted::Managed(as_it_is()),
                Aim::Off => Accepted::Plain(as_it_is()),
                Aim::Compare => Accepted::Type(self.bits, self.queue_type),
            };
        }
        let table = self.table(form);
        let exchange = DeclareArguments::read(&table).exchange();
        let object = exchange.as_ref().and_then(|name| names.parse(name));
        // As the intake will read it: for the rejects of a queue the same is true as for all else that dies there.
        let (said, queue_type) = match object {
            Some(OwnObject::IntakeExchange(said, queue_type)) => (Some(said), queue_type),
            Some(_) | None => (None, QueueType::Default),
        };
        let taken_over = said.is_some();
        let said = said.filter(|_| self.existing.is_none());
        let queue_type = match queue_type {
            QueueType::Default => self.queue_type,
            said => said,
        };
        let said = said.unwrap_or_else(|| self.said.clone());
        Accepted::Managed(declared(said, queue_type, taken_over, &table))
    }
}
