//! A message dies: what is noted, and where the dead letter goes. `rabbit_dead_letter`

use crate::codec::value::Bytes;

use super::broker::Broker;
use super::death::Publication;
use super::facts::{Fact, Reason, Why};
use super::jobs::Job;
use super::message::Message;
use super::queue::Entry;

impl Broker {
    /// It has left its queue already.
    pub(super) fn die(&mut self, name: &[u8], entry: Entry, reason: Reason) {
        let now = self.now;
        let mut message = entry.message;
        let target = self
            .queues
            .get(name)
            .and_then(|queue| self.dead_letter_target(queue));
        let Some((exchange, key)) = target else {
            return self.drop_dead(name, message, Why::NoTarget(reason));
        };
        message.failed = entry.failed;
        let mut keys = message.keys.clone();
        for bcc in &message.bcc {
            if let Some(at) = keys.iter().position(|key| key == bcc) {
                keys.remove(at);
            }
        }
        let publication = Publication {
            exchange: &message.exchange,
            keys,
            ttl: message.ttl,
        };
        message.deaths.record(name, reason, &publication, now);
        message.ttl = None;
        message.exchange.clone_from(&exchange);
        if let Some(key) = key {
            message.keys = vec![key];
        }
        self.facts.push(Fact::Died {
            queue: name.to_vec(),
            reason,
            copy: message.copy,
            body: message.body.clone(),
            to: exchange.clone(),
        });
        self.jobs.push(Job::DeadLetter {
            queue: name.to_vec(),
            reason,
            exchange,
            message,
        });
    }

    /// The dead letter comes to its exchange.
    pub(super) fn hand_over(
        &mut self,
        name: &[u8],
        reason: Reason,
        exchange: &[u8],
        message: Message,
    ) {
        if !self.exchanges.contains_key(exchange) {
            return self.drop_dead(name, message, Why::NoTarget(reason));
        }
        let routed = self.route(exchange, &message);
        let goes = |queue: &&Bytes| reason == Reason::Rejected || !message.deaths.is_cycle(queue);
        let into: Vec<Bytes> = routed.iter().filter(goes).cloned().collect();
        if into.is_empty() {
            let why = if routed.is_empty() {
                Why::Unroutable
            } else {
                Why::Cycle
            };
            return self.drop_dead(name, message, why);
        }
        self.facts.push(Fact::Routed {
            queue: name.to_vec(),
            copy: message.copy,
            body: message.body.clone(),
            into: into.clone(),
        });
        for queue in &into {
            // Nobody hears of a refusal.
            let _ = self.enqueue(queue, message.clone());
        }
    }

    fn drop_dead(&mut self, name: &[u8], message: Message, why: Why) {
        self.facts.push(Fact::Dropped {
            queue: name.to_vec(),
            copy: message.copy,
            body: message.body,
            why,
        });
    }
}
