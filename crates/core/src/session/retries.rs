//! Messages that a client returns to a queue with retries: they are withheld like rejects, and go to a delay queue, or die.

use std::collections::BTreeSet;

use crate::amqp::STREAM_OFFSET;
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::MethodId;
use crate::amqp::properties::{Properties, has_headers};
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::dead_letter::retries::{Attempts, OnCrash, Retries, Returned};
use crate::dead_letter::{self, Disposal, Return};
use crate::machine::{Event, Fallback, Limit, Publication, Purpose, Reason};
use crate::objects::{OwnObject, QueueType};
use crate::registry::policy::Queue;
use crate::registry::said_retries::SaidRetries;

use super::channel::Channel;
use super::instead::Asked;
use super::settle::Fate;
use super::unacked::Retained;
use super::{Session, Turn};

impl Session {
    /// The broker has purged or deleted this queue, whoever declared it: it cannot reach what waits for a retry.
    pub(super) fn tell_of_waiting(&mut self, queue: ShortStr, deleted: bool, turn: &mut Turn<'_>) {
        if self.registry.get(&queue).is_none() {
            self.line(turn).1.adopt_if_meant(&queue);
        }
        if let Some(Retries {
            back_off: Some(_), ..
        }) = self.retries(&queue)
        {
            turn.event(Event::StillWaiting { queue, deleted });
        }
    }

    pub(super) fn retries_for(
        &self,
        name: &[u8],
        queue_type: QueueType,
        said: SaidRetries,
    ) -> Option<Retries> {
        let queue = Queue {
            vhost: &self.peer.vhost,
            name,
            queue_type,
        };
        let policies = &self.settings.policies;
        policies.retries(queue, said, self.settings.mode, self.peer.version)
    }

    /// What the proxy does with messages that are returned to a queue, whoever declared it.
    pub(super) fn retries(&self, queue: &[u8]) -> Option<Retries> {
        match self.registry.get(queue) {
            Some(known) => {
                let declared = &known.declared;
                // What a declare without a type made, the catalogue may know better.
                let queue_type = match declared.queue_type {
                    QueueType::Default => self.seen_type(queue),
                    said => said,
                };
                self.retries_for(queue, queue_type, declared.retries)
            }
            None if self.settings.policies.ours().speak_of_retries() => {
                self.retries_for(queue, self.seen_type(queue), SaidRetries::default())
            }
            None => None,
        }
    }

    /// The type of a queue that this connection did not declare.
    pub(super) fn seen_type(&self, queue: &[u8]) -> QueueType {
        let known = self.registry.queue_type(queue);
        known.unwrap_or(QueueType::Default)
    }

    /// Whether a delivery with these properties comes out of a stream, as far as nobody has seen the type of its queue: there the broker says
    /// where it stands. What is returned to a stream must not be published again, as each reader would get it.
    pub(super) fn is_of_a_stream(&self, queue: &[u8], properties: &[u8]) -> bool {
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

    /// Whether any queue may have retries: if not, no return is looked into.
    pub(super) fn any_retries(&self) -> bool {
        self.registry.any_retries() || self.settings.policies.ours().speak_of_retries()
    }

    /// Whether a delivery is known to come from a queue with retries: a copy is kept of it, or is missing.
    pub(super) fn is_of_a_retried_queue(&self, channel: ChannelId, tag: DeliveryTag) -> bool {
        let Some(unacked) = self.channels.get(&channel).map(|state| &state.unacked) else {
            return false;
        };
        let copied = unacked.retained(tag).map(|retained| &retained.queue);
        let queue = copied.or_else(|| Some(unacked.uncopied(tag)?.0));
        queue.is_some_and(|queue| self.retries(queue).is_some())
    }

    /// The client is lost. What a policy counts then of its deliveries is returned by the proxy; the broker returns the others when the connection
    /// ends. That goes for all of them if the client was lost within a frame: the broker could read no ack, so there would be two of each message.
    pub(super) fn count_crash(&mut self, inside_frame: bool, turn: &mut Turn<'_>) {
        if !self.any_retries() {
            return;
        }
        let mut left = self.left_behind();
        let mut cause = Fallback::InsideFrame;
        if !inside_frame {
            cause = Fallback::NoTicket;
            let no_ticket = |&(channel, tag): &(ChannelId, DeliveryTag)| {
                // It counts as a reject, even if a nack of it has waited for a ticket.
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.unacked.rejected_by(tag, Asked::Return, false);
                }
                let fate = self.withhold(channel, tag, Asked::Return, turn);
                matches!(fate, Fate::NoTicket)
            };
            let counted = left.iter().position(no_ticket).unwrap_or(left.len());
            left.drain(..counted);
            if !left.is_empty() {
                turn.event(Event::LimitMet(Limit::Tickets));
            }
        }
        let queue = |(channel, tag): &(ChannelId, DeliveryTag)| {
            let retained = self.channels.get(channel)?.unacked.retained(*tag)?;
            Some(retained.queue.clone())
        };
        for queue in left.iter().filter_map(queue).collect::<BTreeSet<_>>() {
            turn.event(Event::CrashNotCounted { queue, cause });
        }
    }

    /// The deliveries that count.
    fn left_behind(&self) -> Vec<(ChannelId, DeliveryTag)> {
        let mut left = Vec::new();
        let open = |state: &Channel| !state.closing && !state.native && state.tx.is_none();
        for (channel, state) in self.channels.iter().filter(|(_, state)| open(state)) {
            let mut oldest = BTreeSet::new();
            for (tag, queue) in state.unacked.retained_queues() {
                let first = oldest.insert(queue);
                let on_crash = self.retries(queue).map(|retries| retries.on_crash);
                match on_crash.unwrap_or_default() {
                    OnCrash::CountAll => left.push((*channel, tag)),
                    OnCrash::CountOldest if first => left.push((*channel, tag)),
                    OnCrash::CountOldest | OnCrash::Requeue => {}
                }
            }
        }
        left
    }

    /// Decides what becomes of a returned delivery. `None`: the broker returns it.
    pub(super) fn dispose_return(
        &self,
        retained: &Retained,
        retries: &Retries,
        turn: &Turn<'_>,
    ) -> Option<Disposal> {
        let rules = self.rules()?;
        let declared = self
            .registry
            .get(&retained.queue)
            .map(|known| &known.declared);
        let queue_type = declared.map_or_else(
            || self.seen_type(&retained.queue),
            |declared| declared.queue_type,
        );
        let queue = Queue {
            vhost: &self.peer.vhost,
            name: &retained.queue,
            queue_type,
        };
        let policies = &self.settings.policies;
        let lookup = match declared {
            Some(declared) => policies.target_of_declared(queue, declared, &self.settings.names),
            None => policies.target_of_unknown(queue),
        };
        let knows_all =
            declared.is_some_and(|declared| !policies.broker_dead_letters(queue, declared));
        let names = &self.settings.names;
        // Where the broker itself may kill it later, it must have its own key.
        let way_back = match declared {
            Some(declared) if declared.taken_over => Ok(None),
            Some(declared) if declared.is_exclusive() => Err(Fallback::Exclusive),
            Some(_) | None => match names.name(&OwnObject::ReturnExchange(&retained.queue)) {
                Some(exchange) => Ok(Some(exchange)),
                None => Err(Fallback::NameTooLong),
            },
        };
        let content = names.bridges().content(&retained.content);
        let Ok(properties) = Properties::parse(&content.properties) else {
            return Some(Disposal::LeaveToBroker(Fallback::Unreadable));
        };
        let headers = Table(properties.headers().unwrap_or_default());
        let by_the_queue = match self.is_counted(retained, queue_type) {
            true => dead_letter::retry::native_attempts(headers, self.counts_acquired()),
            false => Ok(Attempts::default()),
        };
        let returned = match retained.before.nacked {
            true => Returned::ByNack,
            false => Returned::ByReject,
        };
        let death = self.death(retained, &content, Reason::DeliveryLimit);
        let of = Return {
            death,
            returned,
            attempts: retained
                .retried
                .attempts
                .plus(by_the_queue.unwrap_or_default()),
            deadline: retained.retried.deadline,
            queue_ttl: policies.message_ttl(queue, declared.map(|declared| &**declared)),
            delivered: retained.delivered,
            knows_all,
            dies_when_full: policies.dies_when_full(queue, declared.map(|declared| &**declared)),
            fits: retained.retried.asked != Asked::TooLarge,
            by_exchange: way_back.as_ref().ok().and_then(Option::as_ref),
        };
        let user = &self.settings.user;
        let disposal = dead_letter::give_back(&of, retries, &lookup, &rules, user, turn.now.wall)?;
        Some(match (disposal, way_back) {
            (Disposal::Retry(_), Err(cause)) => Disposal::LeaveToBroker(cause),
            (Disposal::Park(publication, cause), _) => Disposal::Publish(Publication {
                purpose: Purpose::Park(cause),
                ..publication
            }),
            (disposal, _) => disposal,
        })
    }

    /// Whether its queue has written how often it came back. A classic queue never does, and none does before the first return: a number that
    /// is there all the same is its publisher's.
    fn is_counted(&self, retained: &Retained, queue_type: QueueType) -> bool {
        let known = self.registry.queue_type(&retained.queue);
        let quorum = match queue_type {
            QueueType::Quorum => true,
            QueueType::Classic | QueueType::Other => false,
            QueueType::Default => match known {
                Some(QueueType::Default) => self.registry.default_type() == Some(QueueType::Quorum),
                known => known.is_none_or(|known| known == QueueType::Quorum),
            },
        };
        quorum && retained.before.redelivered
    }

    /// Whether queues count how often a message was acquired beside how often that failed (4.3).
    pub(super) fn counts_acquired(&self) -> bool {
        self.peer
            .version
            .is_some_and(|version| version >= Version(4, 3, 0))
    }
}

/// Whether the method returns what it settles.
pub(super) fn returns(id: MethodId, requeue: bool) -> bool {
    id != MethodId::BASIC_ACK && requeue
}

/// What a delivery says of its retries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retried {
    /// How often it had come back by a retry.
    pub(crate) attempts: Attempts,
    /// When its TTL is over, if a retry has fixed that.
    pub(crate) deadline: Option<crate::machine::Wall>,
    /// What its client has asked for.
    pub(crate) asked: Asked,
}
