//! What an operator sets beside the protocol: policies, the type of queues that are declared without one, who may ask; and how the management API
//! lists queues.

use crate::codec::value::{Bytes, Table};

use super::arguments::{self, Kind};
use super::broker::Broker;
use super::queue::Queue;
use super::refusal::{Answer, Refusal};

/// What the policy of a queue says of dead letters: one that fits this queue alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub exchange: Option<Bytes>,
    pub key: Option<Bytes>,
}

/// A queue, as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct QueueView {
    pub name: Bytes,
    pub durable: bool,
    pub auto_delete: bool,
    pub exclusive: bool,
    pub arguments: Table,
    pub kind: &'static str,
}

/// All declares of queues whose names begin so are refused.
pub(super) struct Refused {
    prefix: Bytes,
    with: Refusal,
}

impl Broker {
    /// `None`: it has none any more.
    pub(crate) fn set_policy(&mut self, queue: &str, policy: Option<Policy>) {
        let queue = queue.as_bytes().to_vec();
        match policy {
            Some(policy) => self.policies.insert(queue, policy),
            None => self.policies.remove(&queue),
        };
    }

    /// Exchange and key of its dead letters: of the arguments, else of the policy, each by itself (S2.1).
    pub(super) fn dead_letter_target(&self, queue: &Queue) -> Option<(Bytes, Option<Bytes>)> {
        let policy = self.policies.get(&queue.name);
        let exchange = policy.and_then(|policy| policy.exchange.as_ref());
        let key = policy.and_then(|policy| policy.key.as_ref());
        let exchange = queue.dlx.as_ref().or(exchange)?.clone();
        Some((exchange, queue.dlx_key.as_ref().or(key).cloned()))
    }

    /// From now on declares of queues whose names begin so get that answer; or none.
    pub(crate) fn refuse_declares(&mut self, prefix: &str, answer: Option<(u16, &str)>) {
        self.refused = answer.map(|(code, text)| Refused {
            prefix: prefix.as_bytes().to_vec(),
            with: Refusal {
                code,
                text: text.as_bytes().to_vec(),
            },
        });
    }

    pub(super) fn may_declare(&self, name: &[u8]) -> Answer<()> {
        match &self.refused {
            Some(refused) if name.starts_with(&refused.prefix) => Err(refused.with.clone()),
            _ => Ok(()),
        }
    }

    /// An operator makes a durable queue.
    pub(crate) fn declare_queue(&mut self, name: &str, auto_delete: bool, arguments: &Table) {
        let table = arguments::augmented(arguments.clone(), self.options.default_type);
        let kind = Kind::of(&table).expect("a type of queues");
        let life = self.next_number();
        let mut queue = Queue::new(name.as_bytes(), life, kind, table, self.now);
        (queue.durable, queue.auto_delete) = (true, auto_delete);
        self.queues.entry(name.as_bytes().to_vec()).or_insert(queue);
    }

    pub(crate) fn listed(&self, name: &[u8]) -> Option<QueueView> {
        let queue = self.queues.get(name)?;
        Some(QueueView {
            name: queue.name.clone(),
            durable: queue.durable,
            auto_delete: queue.auto_delete,
            exclusive: queue.exclusive.is_some(),
            arguments: queue.arguments.clone(),
            kind: queue.kind.name(),
        })
    }
}
