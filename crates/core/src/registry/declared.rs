//! What a declare says of a queue, as far as it matters here: the accepted declare of a client, or what the broker tells of a queue that is there.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::{Table, Value};
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::arguments::{
    ALTERED, DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments, QUEUE_TYPE,
};
use super::lenient::Kept;
use super::redeclared::Existing;
use super::said_retries::SaidRetries;

/// Facts from an accepted declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The target in the client's arguments; resolved at a death.
    pub said: DeclaredTarget,
    pub retries: SaidRetries,
    pub queue_type: QueueType,
    /// Declared with an intake exchange; false: with its own arguments (`rejects-only`, or it
    /// existed before).
    pub taken_over: bool,
    pub form: Form,
    /// What the last declare said and the queue has otherwise.
    pub kept: Box<[Kept]>,
}

/// A declare without the queue's name: repeated, it shows whether the queue is still the same.
///
/// Keeps short arguments named `x-…`, which the broker compares. If others matter, the broker
/// reports them as missing, and the facts are void.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// `durable`, `exclusive`, `auto_delete`, as in the method.
    pub bits: u8,
    /// A table without its length.
    pub arguments: Vec<u8>,
}

/// Longest kept value: that of a name or a key.
const LONGEST_VALUE: usize = 255;
/// Bytes of all arguments.
const MOST_BYTES: usize = 768;

// === impl Declared ===

impl Declared {
    /// For an existing queue with these arguments; other requests of its declare are unknown.
    /// `queue_type`: used if the arguments lack it.
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
            kept: Default::default(),
        }
    }

    /// The queue is made anew with other arguments. What only its declares say goes on; of what they say of returns, the broker keeps a limit.
    pub fn in_place_of(mut self, known: &Declared, names: &Names) -> Declared {
        let was = Declared::of_queue(known.form.clone(), known.queue_type, names);
        let mut retries = known.retries.clone();
        if was.retries.delivery_limit.is_some() {
            retries.delivery_limit = None;
        }
        self.retries = self.retries.or(retries);
        if self.said == was.said {
            self.said = known.said.clone();
        }
        self
    }

    /// The queue's intake exchange.
    pub fn intake(&self) -> Option<ShortStr> {
        let arguments = DeclareArguments::read(&self.form.arguments);
        arguments.exchange().filter(|_| self.taken_over)
    }

    pub fn existing(&self) -> Existing {
        Existing::of(&self.form.arguments)
    }

    pub fn is_exclusive(&self) -> bool {
        self.form.bits & QueueDeclare::EXCLUSIVE != 0
    }

    pub fn bytes(&self) -> usize {
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
    pub fn of(bits: u8, arguments: &[u8]) -> Form {
        let mut kept = Vec::new();
        for field in Table(arguments).fields().map_while(Result::ok) {
            // Where dead letters go is read from it, too.
            let needed = [DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY].contains(&field.name)
                && matches!(Table(&kept).get(field.name), Ok(None));
            let fits = needed || kept.len() + field.raw.len() <= MOST_BYTES;
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

    /// Whether the broker's comparison treats both alike.
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
                // The broker completes a declare without a type, and does not compare an argument that it does not know.
                Ok(None) => [QUEUE_TYPE, ALTERED].contains(&field.name),
                Err(_) => false,
            }
        })
    }
}

/// Compares like `rabbit_misc:assert_args_equivalence`: numbers of any width, texts as byte arrays.
fn is_equal(a: Value<'_>, b: Value<'_>) -> bool {
    match (a.as_integer(), b.as_integer(), a.as_text(), b.as_text()) {
        (Some(a), Some(b), _, _) => a == b,
        (_, _, Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
