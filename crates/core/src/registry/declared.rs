//! What a declare says of a queue, as far as it matters here: the accepted declare of a client, or what the broker tells of a queue that is there.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::{Table, Value};
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::arguments::{
    DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments, QUEUE_TYPE,
};
use super::redeclared::Existing;
use super::said_retries::SaidRetries;

/// What an accepted declare tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What the client's arguments say of dead letters: where they go is looked up when one dies.
    pub said: DeclaredTarget,
    /// What they say of retries.
    pub retries: SaidRetries,
    /// The type of the queue, for policies.
    pub queue_type: QueueType,
    /// It was declared with an intake exchange; false: with its own arguments (`rejects-only`, or it existed before).
    pub taken_over: bool,
    /// The declare as the broker had it.
    pub form: Form,
}

/// A declare without the queue's name: asked again, it tells whether the queue is still the one that is known.
///
/// Of its arguments those are kept that the broker compares with the queue's: their names begin with `x-`, and they are short. If more are
/// left out, it finds them missing, and the queue is known no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// `durable`, `exclusive`, `auto_delete`, as in the method.
    pub bits: u8,
    /// The arguments table, without its length.
    pub arguments: Vec<u8>,
}

/// The longest value of an argument that is kept: that of a name or a key.
const LONGEST_VALUE: usize = 255;
/// Octets of all of them.
const MOST_OCTETS: usize = 768;

// === impl Declared ===

impl Declared {
    /// Of a queue that is there, with these arguments at the broker. What else a client's declare asked for nobody knows. `queue_type`: if the
    /// arguments do not say it.
    pub fn of_queue(form: Form, queue_type: QueueType, names: &Names) -> Declared {
        let arguments = DeclareArguments::read(&form.arguments);
        let exchange = arguments.exchange();
        // As the intake will read it: for the rejects of a queue the same is true as for all else that dies there.
        let (taken_over, of_intake) = match exchange.as_ref().and_then(|name| names.parse(name)) {
            Some(OwnObject::IntakeExchange(said, of_intake)) => (Some(said), of_intake),
            Some(_) | None => (None, QueueType::Default),
        };
        let nothing = DeclaredTarget::Policy {
            at_least_once: false,
        };
        let is_taken_over = taken_over.is_some();
        let said = taken_over.or_else(|| arguments.said());
        Declared {
            said: said.unwrap_or(nothing),
            retries: SaidRetries::of_arguments(&form.arguments),
            queue_type: match (arguments.queue_type(), of_intake) {
                (QueueType::Default, QueueType::Default) => queue_type,
                (QueueType::Default, said) | (said, _) => said,
            },
            taken_over: is_taken_over,
            form,
        }
    }

    /// The intake exchange that the queue has.
    pub fn intake(&self) -> Option<ShortStr> {
        let arguments = DeclareArguments::read(&self.form.arguments);
        arguments.exchange().filter(|_| self.taken_over)
    }

    /// The dead-letter arguments of the queue.
    pub fn existing(&self) -> Existing {
        Existing::of(&self.form.arguments)
    }

    /// It belongs to one connection.
    pub fn is_exclusive(&self) -> bool {
        self.form.bits & QueueDeclare::EXCLUSIVE != 0
    }

    /// Octets of memory beside its own.
    pub fn octets(&self) -> usize {
        let said = match &self.said {
            DeclaredTarget::Target(target) => {
                target.exchange.len() + target.routing_key.as_ref().map_or(0, |key| key.len())
            }
            DeclaredTarget::Policy { .. } => 0,
        };
        said + self.form.arguments.len()
    }
}

// === impl Form ===

impl Form {
    /// Of a declare with these arguments.
    pub fn of(bits: u8, arguments: &[u8]) -> Form {
        let mut kept = Vec::new();
        for field in Table(arguments).fields().map_while(Result::ok) {
            // Where dead letters go is read from it, too.
            let needed = [DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY].contains(&field.name)
                && matches!(Table(&kept).get(field.name), Ok(None));
            let fits = needed || kept.len() + field.raw.len() <= MOST_OCTETS;
            if fits && field.name.starts_with(b"x-") && field.value.data.len() <= LONGEST_VALUE {
                kept.extend_from_slice(field.raw);
            }
        }
        kept.shrink_to_fit();
        Form {
            bits: bits & !QueueDeclare::NO_WAIT,
            arguments: kept,
        }
    }

    /// Whether a queue that fits one of them fits the other, as far as the broker compares them.
    pub fn is_like(&self, other: &Form) -> bool {
        self.bits == other.bits && self.is_within(other) && other.is_within(self)
    }

    fn is_within(&self, other: &Form) -> bool {
        Table(&self.arguments).fields().all(|field| {
            let Ok(field) = field else {
                return false;
            };
            match Table(&other.arguments).get(field.name) {
                Ok(Some(value)) => is_equal(field.value, value),
                // The broker completes a declare that does not say it.
                Ok(None) => field.name == QUEUE_TYPE,
                Err(_) => false,
            }
        })
    }
}

/// As `rabbit_misc:assert_args_equivalence` compares two values: numbers of any width, texts as byte arrays, too.
fn is_equal(a: Value<'_>, b: Value<'_>) -> bool {
    match (a.as_integer(), b.as_integer(), a.as_text(), b.as_text()) {
        (Some(a), Some(b), _, _) => a == b,
        (_, _, Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
