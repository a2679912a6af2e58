//! What becomes of a delivery as its client asked: the death of one that was rejected, the way back of one that was returned.

use std::borrow::Cow;
use std::time::Duration;

use ring::digest::{Context, SHA256};

use crate::amqp::content::Content;
use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::dead_letter::retries::{Attempts, Retries, Returned};
use crate::dead_letter::{self, Death, Disposal, Return};
use crate::machine::{Fallback, Now, Publication, Purpose, Reason, Rejecter};
use crate::objects::{OwnObject, QueueType};
use crate::registry::Declared;

use super::facts::Facts;
use super::instead::Asked;
use super::unacked::Retained;

/// How many bytes of a body [`draw`] reads.
const HASHED: usize = 256;

// === impl Facts ===

impl Facts<'_> {
    /// The outcome that the client asked for. `None`: the broker's affair. `held`: from delivery to
    /// reject.
    pub(super) fn decide(
        self,
        (tag, retained): (DeliveryTag, &Retained),
        held: Duration,
        now: Now,
    ) -> Option<Disposal> {
        match retained.asked {
            Asked::Reject => self.dispose(retained, held, now),
            Asked::Return | Asked::TooLarge => {
                let judged = retained
                    .verdict
                    .as_ref()
                    .filter(|verdict| verdict.decides());
                let by_verdict = || judged.map(|_| self.limit_alone(&retained.queue));
                let retries = self.retries(&retained.queue).or_else(by_verdict)?;
                self.dispose_return((tag, retained), &retries, held, now)
            }
        }
    }

    /// For a rejected delivery. `None`: its queue is no longer managed.
    fn dispose(self, retained: &Retained, held: Duration, now: Now) -> Option<Disposal> {
        let rules = self.rules()?;
        let declared = self.declared(&retained.queue)?;
        let queue = self.queue(&retained.queue, declared.queue_type);
        let (policies, names) = (&self.settings.policies, &self.settings.names);
        let lookup = policies.target_of_declared(queue, declared, names);
        let content = self.content(retained);
        let by = self.rejecter(retained, held);
        let death = Death {
            by: Some(&by),
            ..death(retained, &content, Reason::Rejected)
        };
        let now = now.wall.seconds();
        Some(dead_letter::dispose(&death, &lookup, &rules, now))
    }

    /// For a returned delivery. `None`: the broker returns it.
    fn dispose_return(
        self,
        (tag, retained): (DeliveryTag, &Retained),
        retries: &Retries,
        held: Duration,
        now: Now,
    ) -> Option<Disposal> {
        let rules = self.rules()?;
        let declared = self.declared(&retained.queue);
        let queue = self.known_queue(&retained.queue);
        let (policies, names) = (&self.settings.policies, &self.settings.names);
        let lookup = match declared {
            Some(declared) => policies.target_of_declared(queue, declared, names),
            None => policies.target_of_unknown(queue),
        };
        let knows_all =
            declared.is_some_and(|declared| !policies.broker_dead_letters(queue, declared));
        let content = self.content(retained);
        let Ok(properties) = Properties::parse(&content.properties) else {
            return Some(Disposal::LeaveToBroker(Fallback::Unreadable));
        };
        let headers = Table(properties.headers().unwrap_or_default());
        let by_the_queue = match self.is_counted(retained, queue.queue_type) {
            true => dead_letter::retry::native_attempts(headers, self.counts_acquired()),
            false => Ok(Attempts::default()),
        };
        let attempts = retained.attempts;
        let way_back = self.way_back(retained, declared);
        let verdict = retained.verdict.as_deref();
        let by = self.rejecter(retained, held);
        let death = match verdict.is_some_and(|verdict| verdict.dies) {
            true => Death {
                by: Some(&by),
                ..death(retained, &content, Reason::Rejected)
            },
            false => death(retained, &content, Reason::DeliveryLimit),
        };
        let of = Return {
            death,
            returned: match retained.nacked {
                true => Returned::ByNack,
                false => Returned::ByReject,
            },
            attempts: attempts.plus(by_the_queue.unwrap_or_default()),
            deadline: retained.deadline,
            queue_ttl: policies.message_ttl(queue, declared),
            delivered: retained.delivered,
            knows_all,
            dies_when_full: policies.dies_when_full(queue, declared),
            fits: retained.asked != Asked::TooLarge,
            by_exchange: way_back.as_ref().ok().and_then(Option::as_ref),
            draw: match retries.has_jitter() {
                true => draw(tag, retained, now),
                false => 0,
            },
            verdict,
        };
        let user = &self.settings.user;
        let disposal = dead_letter::give_back(&of, retries, &lookup, &rules, user, now.wall)?;
        Some(match (disposal, way_back) {
            (Disposal::Retry(_), Err(cause)) => Disposal::LeaveToBroker(cause),
            (Disposal::Park(publication, cause), _) => Disposal::Publish(Publication {
                purpose: Purpose::Park(cause),
                ..publication
            }),
            (disposal, _) => disposal,
        })
    }

    /// The content for its dead letter or its retry: without bridges, with the headers of a verdict.
    fn content(self, retained: &Retained) -> Cow<'_, Content> {
        let content = self.settings.names.bridges().content(&retained.content);
        let verdict = retained.verdict.as_deref();
        let judged = verdict.and_then(|verdict| verdict.on(&content));
        judged.map_or(content, Cow::Owned)
    }

    fn rejecter(self, retained: &Retained, held: Duration) -> Rejecter {
        Rejecter {
            connection: self.peer.connection.clone(),
            consumer: retained.consumer.clone(),
            held,
        }
    }

    /// The exchange for a delivery's return; `None`: the default exchange. If the broker may kill
    /// it later, it must keep its own key.
    fn way_back(
        self,
        retained: &Retained,
        declared: Option<&Declared>,
    ) -> Result<Option<ShortStr>, Fallback> {
        match declared {
            Some(declared) if declared.taken_over => Ok(None),
            Some(declared) if declared.is_exclusive() => Err(Fallback::Exclusive),
            Some(_) | None => {
                let own = OwnObject::ReturnExchange(&retained.queue);
                let exchange = self.settings.names.name(&own);
                exchange.map(Some).ok_or(Fallback::NameTooLong)
            }
        }
    }

    /// Whether its queue wrote the number of returns. Classic queues never do, and none does before
    /// the first return: then the number is the publisher's.
    fn is_counted(self, retained: &Retained, queue_type: QueueType) -> bool {
        let known = self.registry.queue_type(&retained.queue);
        let known = match (queue_type, known) {
            // Where nobody knows, the number is believed: only quorum queues write one.
            (QueueType::Default, Some(QueueType::Default)) => self.registry.default_type(),
            (QueueType::Default, known) => known,
            (told, _) => Some(told),
        };
        known.is_none_or(|known| known == QueueType::Quorum) && retained.redelivered
    }
}

/// As random as the core can be, which draws no numbers: a hash of what differs between messages,
/// returns and sessions. Of a large body its beginning is enough.
fn draw(tag: DeliveryTag, retained: &Retained, now: Now) -> u64 {
    let Content { properties, body } = &retained.content;
    let mut hash = Context::new(&SHA256);
    for number in [tag.0, now.wall.0, retained.attempts.all] {
        hash.update(&number.to_be_bytes());
    }
    hash.update(properties);
    hash.update(body.get(..HASHED).unwrap_or(body));
    let first = hash.finish().as_ref().first_chunk().copied();
    u64::from_be_bytes(first.unwrap_or_default())
}

/// `content`: without bridges.
fn death<'a>(retained: &'a Retained, content: &'a Content, reason: Reason) -> Death<'a> {
    Death {
        queue: &retained.queue,
        reason,
        exchange: &retained.exchange,
        routing_key: &retained.routing_key,
        content,
        recorded: false,
        by: None,
    }
}
