//! What this session knows of queues and where their dead letters go; and the words in which it is said to the broker and heard from it.
//!
//! The *target* of a queue comes from its own arguments, completed key by key by policies (S2.1): ours, then the broker's. The arguments are
//! told to the broker as the name of an intake exchange ([`intake_name`]), so that no registry has to survive a restart or be shared; what
//! policies add is looked up when a message dies ([`live`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::QueueDeclare;
use crate::machine::Mono;

use self::ended::{Ended, Life};
use self::intake_name::Intake;
use self::policy::QueueType;

pub mod arguments;
pub mod broker_policy;
pub mod ended;
pub mod intake_name;
pub mod live;
pub mod policy;
pub mod refusal;
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
}

/// What an accepted declare tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What the client's arguments say of dead letters: where they go is looked up when one dies.
    pub said: Intake,
    /// The type of the queue, for policies.
    pub queue_type: QueueType,
    /// It was declared with an intake exchange; false: with its own arguments (`keep`, or it existed before).
    pub taken_over: bool,
    /// The declare as the broker had it.
    pub form: Form,
}

/// A declare without the queue's name: asked again, it tells whether the queue is still the one that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// `durable`, `exclusive`, `auto_delete`, as in the method.
    pub bits: u8,
    /// The arguments table, without its length.
    pub arguments: Vec<u8>,
}

// === impl Registry ===

impl Registry {
    /// Of a session that has not opened its vhost yet.
    pub fn new(ended: Ended) -> Registry {
        Registry {
            queues: BTreeMap::new(),
            vhost: Vhost::default(),
            ended,
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
        let life = self.ended.life(&self.vhost, &queue);
        let known = Known {
            declared,
            since: now,
            life,
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
            && self.is_alive(queue)
    }

    /// Whether the queue is known, and no session has seen the end of one of that name meanwhile.
    pub fn is_alive(&self, queue: &[u8]) -> bool {
        self.get(queue)
            .is_some_and(|known| known.life == self.ended.life(&self.vhost, queue))
    }

    /// The probe found the queue as it was known.
    pub fn verified(&mut self, queue: &[u8], now: Mono) {
        let life = self.ended.life(&self.vhost, queue);
        if let Some(known) = self.queues.get_mut(queue) {
            (known.since, known.life) = (now, life);
        }
    }
}
