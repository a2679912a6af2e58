//! What a session decides from: its settings, its peers, and what is known of queues.

use std::time::Duration;

use crate::amqp::STREAM_OFFSET;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::amqp::properties::{Properties, has_headers};
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::dead_letter::retries::{self, Retries};
use crate::dead_letter::{Lookup, Rules};
use crate::machine::Fallback;
use crate::objects::QueueType;
use crate::registry::policy::Queue;
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Registry};

use super::Settings;
use super::again::FIRST_PAUSE;
use super::channel::{Channel, Consumer, News};
use super::instead::{self, Asked, Counts, Instead, Reject, instead};
use super::peer::Peer;

/// Kept messages return to their queue after this time, if possible: half of the broker's default
/// `consumer_timeout` (30 min), after which it closes the channel. A queue argument may shorten it;
/// limits of the node and of policies are unknown.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);
const DELIVERY_LIMIT: &[u8] = b"x-delivery-limit";
/// In milliseconds.
const CONSUMER_TIMEOUT: &[u8] = b"x-consumer-timeout";

#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) settings: &'a Settings,
    pub(super) peer: &'a Peer,
    pub(super) registry: &'a Registry,
}

// === impl Facts ===

impl<'a> Facts<'a> {
    pub(super) fn of(settings: &'a Settings, peer: &'a Peer, registry: &'a Registry) -> Facts<'a> {
        Facts {
            settings,
            peer,
            registry,
        }
    }

    /// Set when the broker's version is supported.
    pub(super) fn rules(self) -> Option<Rules> {
        let limits = self.settings.limits.now();
        let dialect = self.peer.dialect?;
        let rules = self.settings.rules;
        Some(rules.at(dialect, limits.max_history, limits.stamp))
    }

    pub(super) fn news(self) -> News {
        (self.registry.news(), self.settings.policies.changes())
    }

    /// Whether a delivery to this consumer needs a look. Most do not: nobody manages their queue.
    pub(super) fn matters_to(self, consumer: &Consumer) -> bool {
        let looked = consumer.looked.as_ref();
        let is_new = || looked.is_none_or(|looked| looked.news != self.news());
        let is_ours = consumer.retried || consumer.has_ack_timeout();
        is_ours || self.registry.get(&consumer.queue).is_some() || is_new()
    }

    /// The accepted declare of a managed queue.
    pub(super) fn declared(self, queue: &[u8]) -> Option<&'a Declared> {
        self.registry.get(queue).map(|known| &*known.declared)
    }

    pub(super) fn queue(self, name: &'a [u8], queue_type: QueueType) -> Queue<'a> {
        Queue {
            vhost: &self.peer.vhost,
            name,
            queue_type,
        }
    }

    pub(super) fn known_queue(self, name: &'a [u8]) -> Queue<'a> {
        let declared = self.declared(name).map(|declared| declared.queue_type);
        self.queue(name, declared.unwrap_or_else(|| self.seen_type(name)))
    }

    pub(super) fn seen_type(self, queue: &[u8]) -> QueueType {
        let known = self.registry.queue_type(queue);
        known.unwrap_or(QueueType::Default)
    }

    pub(super) fn retries_for(
        self,
        name: &[u8],
        queue_type: QueueType,
        said: SaidRetries,
    ) -> Option<Retries> {
        let queue = self.queue(name, queue_type);
        let policies = &self.settings.policies;
        policies.retries(queue, said, self.settings.mode, self.peer.version)
    }

    pub(super) fn ack_timeout_for(
        self,
        name: &[u8],
        queue_type: QueueType,
        said: &SaidRetries,
    ) -> Option<Duration> {
        let queue = self.queue(name, queue_type);
        let policies = &self.settings.policies;
        policies.ack_timeout(queue, said, self.settings.mode)
    }

    /// Whether the proxy handles returns of such a queue, or takes its messages back.
    pub(super) fn comes_back(self, name: &[u8], queue_type: QueueType, said: SaidRetries) -> bool {
        self.ack_timeout_for(name, queue_type, &said).is_some()
            || self.retries_for(name, queue_type, said).is_some()
    }

    /// How long a delivery of a queue may stay unsettled, whoever declared it.
    pub(super) fn ack_timeout(self, queue: &[u8]) -> Option<Duration> {
        match self.declared(queue) {
            Some(declared) => {
                self.ack_timeout_for(queue, self.type_of(queue, declared), &declared.retries)
            }
            None if self.settings.policies.ours().speak_of_ack_timeouts() => {
                self.ack_timeout_for(queue, self.seen_type(queue), &SaidRetries::default())
            }
            None => None,
        }
    }

    /// What a declare without a type made, the catalogue may know better.
    fn type_of(self, queue: &[u8], declared: &Declared) -> QueueType {
        match declared.queue_type {
            QueueType::Default => self.seen_type(queue),
            said => said,
        }
    }

    /// Retries of a queue, whoever declared it.
    pub(super) fn retries(self, queue: &[u8]) -> Option<Retries> {
        match self.declared(queue) {
            Some(declared) => {
                let queue_type = self.type_of(queue, declared);
                self.retries_for(queue, queue_type, declared.retries.clone())
            }
            None if self.settings.policies.ours().speak_of_retries() => {
                self.retries_for(queue, self.seen_type(queue), SaidRetries::default())
            }
            None => None,
        }
    }

    /// For a verdict about a queue whose returns are left to the broker. A message that the proxy
    /// delays begins anew there, so the proxy minds the limit.
    pub(super) fn limit_alone(self, name: &[u8]) -> Retries {
        let queue = self.known_queue(name);
        let by_policy = self.settings.policies.broker_delivery_limit(queue);
        let limits = [self.argument(name, DELIVERY_LIMIT), by_policy];
        let limits = limits.into_iter().flatten();
        Retries {
            limit: limits.filter_map(|limit| limit.try_into().ok()).min(),
            counts: match self.counts_acquired() {
                true => retries::Counts::Failed,
                false => retries::Counts::All,
            },
            ..Retries::default()
        }
    }

    /// If false, returns need no look.
    pub(super) fn any_retries(self) -> bool {
        self.registry.any_retries() || self.settings.policies.ours().speak_of_retries()
    }

    /// Whether a delivery comes from a stream, for queues of unknown type: the broker adds its
    /// offset. Republishing a return to a stream would duplicate the message for each reader.
    pub(super) fn is_of_a_stream(self, queue: &[u8], properties: &[u8]) -> bool {
        let unknown =
            || self.registry.get(queue).is_none() && self.registry.queue_type(queue).is_none();
        let says_so = || {
            let properties = Properties::parse(properties).ok();
            let headers = properties.and_then(|properties| properties.headers());
            let offset = Table(headers.unwrap_or_default()).get(STREAM_OFFSET);
            offset.is_ok_and(|offset| offset.is_some())
        };
        has_headers(properties) && unknown() && says_so()
    }

    /// Whether queues count acquisitions besides failures (4.3).
    pub(super) fn counts_acquired(self) -> bool {
        self.peer
            .version
            .is_some_and(|version| version >= Version(4, 3, 0))
    }

    /// Decides about a delivery that cannot be published.
    pub(super) fn instead(
        self,
        state: &Channel,
        tag: DeliveryTag,
        asked: Asked,
        cause: Fallback,
    ) -> Option<(ShortStr, Instead)> {
        let unacked = &state.unacked;
        let (queue, counts) = match unacked.copy(tag) {
            Some(of) => (&of.queue, self.counts(&of.queue, &of.content.properties)),
            None => unacked.uncopied(tag)?,
        };
        let facts = instead::Facts {
            asked,
            reject: self.on_reject(queue),
            counts,
            cause,
        };
        let instead = match instead(facts) {
            // A word of ours would be part of the client's next transaction.
            Instead::Forward if state.tx.is_some() && unacked.is_kept(tag) => Instead::Keep,
            instead => instead,
        };
        Some((queue.clone(), instead))
    }

    /// The broker's action at a reject in this queue.
    fn on_reject(self, name: &[u8]) -> Reject {
        let Some(declared) = self.declared(name) else {
            return Reject::Discards; // the queue has ended, or nobody told us of it
        };
        let queue = self.queue(name, declared.queue_type);
        let policies = &self.settings.policies;
        if policies.broker_dead_letters(queue, declared) {
            return Reject::DeadLetters;
        }
        match policies.target_of_declared(queue, declared, &self.settings.names) {
            Lookup::Target(_) | Lookup::KeyUnknown => Reject::Loses,
            // Or a policy of the broker gives the queue dead letters, by itself.
            Lookup::Unknown | Lookup::NoExchange => Reject::Discards,
        }
    }

    /// Whether the broker would discard a reject, while the proxy knows the target.
    pub(super) fn loses(self, queue: &[u8]) -> bool {
        self.on_reject(queue) == Reject::Loses
    }

    /// How near a return brings this message to a delivery limit.
    pub(super) fn counts(self, name: &[u8], properties: &[u8]) -> Counts {
        let queue = self.known_queue(name);
        let by_argument = self.argument(name, DELIVERY_LIMIT);
        let by_policy = self.settings.policies.broker_delivery_limit(queue);
        let limits = [by_argument, by_policy];
        instead::counts(self.peer.version, queue.queue_type, limits, properties)
    }

    /// The same without a copy. `None`: irrelevant.
    pub(super) fn counts_uncopied(self, queue: &[u8], properties: &[u8]) -> Option<Counts> {
        let matters = self.loses(queue) || self.retries(queue).is_some();
        matters.then(|| self.counts(queue, properties))
    }

    /// How long to keep a message of that queue.
    pub(super) fn kept_for(self, queue: &[u8]) -> Duration {
        let timeout = self.argument(queue, CONSUMER_TIMEOUT);
        let millis = timeout.and_then(|timeout| timeout.try_into().ok());
        let half = millis.map(|millis| Duration::from_millis(millis) / 2);
        half.map_or(KEPT_FOR, |half| half.clamp(FIRST_PAUSE, KEPT_FOR))
    }

    /// A numeric argument of a managed queue.
    fn argument(self, queue: &[u8], name: &[u8]) -> Option<i64> {
        let arguments = &self.declared(queue)?.form.arguments;
        Table(arguments).get(name).ok()??.as_integer()
    }
}
