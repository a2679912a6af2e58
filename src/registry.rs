//! What this session knows of queues and where their dead letters go; and the words in which it is said to the broker and heard from it.
//!
//! The *target* of a queue comes from its own arguments, completed key by key by policies (S2.1): ours, then the broker's. The arguments are
//! told to the broker as the name of an intake exchange ([`crate::objects`]), so that no registry has to survive a restart or be shared; what
//! policies add is looked up when a message dies ([`live`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::Table;
use crate::machine::Mono;
use crate::objects::{DeclaredTarget, QueueType};

use self::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments};
use self::ended::{Ended, Life};
use self::redeclared::Existing;
use self::said_retries::SaidRetries;

pub mod arguments;
pub mod believed;
pub mod broker_policy;
pub mod declared_types;
pub mod ended;
pub mod existing_delays;
pub mod generated;
pub mod live;
pub mod policy;
pub mod redeclared;
pub mod refusal;
pub mod said_retries;
pub mod shared;
#[cfg(test)]
mod tests;
pub mod wording;

/// How long knowledge of a queue is trusted at `basic.consume` and `basic.get`; older knowledge is verified first.
pub const FRESH_FOR: Duration = Duration::from_secs(60);

/// The managed queues of one session.
#[derive(Debug, Default)]
pub struct Registry {
    queues: BTreeMap<ShortStr, Known>,
    vhost: Vhost,
    ended: Ended,
    /// The arguments of one of them spoke of retries.
    any_retries: bool,
}

/// What is known of a managed queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What the declare said that the broker accepted.
    pub declared: Declared,
    /// When the broker last said so.
    pub since: Mono,
    /// Which one of that name it is.
    life: Life,
    /// It was verified since its last consumer began; or nobody but this connection can put another in its place.
    proven: bool,
}

/// What an accepted declare tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What the client's arguments say of dead letters: where they go is looked up when one dies.
    pub said: DeclaredTarget,
    /// What they say of retries.
    pub retries: SaidRetries,
    /// The type of the queue, for policies.
    pub queue_type: QueueType,
    /// It was declared with an intake exchange; false: with its own arguments (`keep`, or it existed before).
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
}

// === impl Registry ===

impl Registry {
    /// Of a session that has not opened its vhost yet.
    pub fn new(ended: Ended) -> Registry {
        Registry {
            queues: BTreeMap::new(),
            vhost: Vhost::default(),
            ended,
            any_retries: false,
        }
    }

    /// The session has opened this vhost.
    pub fn enter(&mut self, vhost: Vhost) {
        self.vhost = vhost;
    }

    /// The broker accepted a declare of that queue. Returns false when there are `most` of others already: then it is not managed, its rejects
    /// are forwarded, and its intake exchange still names the target.
    pub fn insert(&mut self, queue: ShortStr, declared: Declared, most: usize, now: Mono) -> bool {
        if self.queues.len() >= most && !self.queues.contains_key(&queue) {
            return false;
        }
        self.any_retries |= !declared.retries.is_silent();
        let life = self.ended.life(&self.vhost, &queue);
        let known = Known {
            declared,
            since: now,
            life,
            proven: true,
        };
        self.queues.insert(queue, known);
        true
    }

    /// That life of the queue has ended, for every session: it was deleted, or the broker cancelled its consumer.
    pub fn end(&mut self, queue: &[u8]) {
        self.forget(queue);
        self.ended.end(&self.vhost, queue);
    }

    /// It is not managed any more in this session.
    pub fn forget(&mut self, queue: &[u8]) {
        self.queues.remove(queue);
    }

    /// Whether the arguments of any spoke of retries.
    pub fn any_retries(&self) -> bool {
        self.any_retries
    }

    /// The queues that are managed.
    pub fn names(&self) -> impl Iterator<Item = &ShortStr> {
        self.queues.keys()
    }

    /// What is known of the queue, however long ago.
    pub fn get(&self, queue: &[u8]) -> Option<&Known> {
        self.queues.get(queue)
    }

    /// Whether the queue is known to go with its last consumer.
    pub fn is_auto_delete(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.declared.form.bits & QueueDeclare::AUTO_DELETE != 0)
    }

    /// Whether the queue is known, and recently enough to begin consuming from it without verifying.
    pub fn is_fresh(&self, queue: &[u8], now: Mono) -> bool {
        self.get(queue)
            .is_some_and(|known| known.since.until(now) < FRESH_FOR)
            && self.is_same_life(queue)
    }

    /// Whether the queue is known, and no session has seen the end of one of that name meanwhile.
    pub fn is_same_life(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.life == self.ended.life(&self.vhost, queue))
    }

    /// The same, and it is the one that its consumers read.
    pub fn is_alive(&self, queue: &[u8]) -> bool {
        self.get(queue).is_some_and(|known| known.proven) && self.is_same_life(queue)
    }

    /// A consumer has begun. Between the queue's declare and that moment somebody else may have put another queue in its place.
    pub fn consumed(&mut self, queue: &[u8]) {
        if let Some(known) = self.queues.get_mut(queue) {
            known.proven = known.declared.form.bits & QueueDeclare::EXCLUSIVE != 0;
        }
    }

    /// It cannot be verified, and will do as it is.
    pub fn trust(&mut self, queue: &[u8]) {
        if let Some(known) = self.queues.get_mut(queue) {
            known.proven = true;
        }
    }

    /// All of them will do: for scripts that are about something else.
    #[cfg(test)]
    pub(crate) fn trust_all(&mut self) {
        for known in self.queues.values_mut() {
            known.proven = true;
        }
    }

    /// The probe found the queue as it was known.
    pub fn verified(&mut self, queue: &[u8], now: Mono) {
        let life = self.ended.life(&self.vhost, queue);
        if let Some(known) = self.queues.get_mut(queue) {
            (known.since, known.life, known.proven) = (now, life, true);
        }
    }
}
