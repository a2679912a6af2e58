//! What becomes of one signal: its exchange says the target, its newest x-death entry the death, `dispose` the rest.

use std::borrow::Cow;
use std::sync::Arc;

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::dead_letter::{self, CameBack, Disposal, Lookup, Rules, Target};
use crate::machine::{Cause, DeadLetter, Event, Outcome, Publication, Purpose, Reason, Wall};
use crate::mover::Delivery;
use crate::objects::{DeclaredTarget, OwnObject, QueueType};
use crate::registry::policy::Queue;

use super::Settings;

#[derive(Debug)]
pub(super) enum Decision {
    Publish(Publication),
    /// Ack: a rule of RabbitMQ drops the message.
    Drop(Event),
    /// Reject: the broker parks it unchanged. Its target is unknown, or does not fit a header.
    Reject(Event),
}

pub(super) fn decide(
    settings: &Settings,
    rules: &Rules,
    delivery: &Delivery,
    content: Option<&Content>,
    now: Wall,
) -> Decision {
    // What says nothing we can trust died in the intake queue itself, as far as anybody knows.
    let distrusted = |cause| {
        let queue = settings.names.intake_queue();
        let to = (&delivery.exchange, &delivery.routing_key);
        let bytes = content.map_or(0, |content| content.body.len());
        let outcome = Outcome::Parked(cause);
        Decision::Reject(event(queue, Reason::Rejected, to, bytes, outcome))
    };
    let Some(content) = content else {
        return distrusted(Cause::TooBig);
    };
    let decided = match settings.names.parse(&delivery.exchange) {
        Some(OwnObject::IntakeExchange(said, queue_type)) => {
            died(settings, rules, delivery, content, (said, queue_type), now)
        }
        Some(OwnObject::DueExchange) => came_back(content, settings, rules, now),
        Some(_) | None => None,
    };
    decided.unwrap_or_else(|| distrusted(Cause::Implausible))
}

/// For a message that died at the broker. `None`: implausible.
fn died(
    settings: &Settings,
    rules: &Rules,
    delivery: &Delivery,
    content: &Content,
    (intake, queue_type): (DeclaredTarget, QueueType),
    now: Wall,
) -> Option<Decision> {
    let bytes = content.body.len();
    let (content, routing_key) = before(settings, content, &delivery.routing_key);
    // But the name of its exchange says where it was meant to go.
    let implausible = |target: &Target| {
        meant_for(target, &routing_key, &content, settings).map(Decision::Publish)
    };
    let Ok(signal) = dead_letter::signal(&routing_key, &content) else {
        return match &intake {
            DeclaredTarget::Target(target) => implausible(target),
            DeclaredTarget::Policy { .. } => None,
        };
    };
    let (intake, queue_type) = settings.said(&signal.queue, (intake, queue_type));
    let queue = Queue {
        vhost: &settings.login.vhost,
        name: &signal.queue,
        queue_type,
    };
    let policies = &settings.policies;
    let lookup = policies.target_of_signal(queue, &delivery.exchange, &intake, signal.routing_key);
    let death = signal.death();
    let none = ShortStr::EMPTY;
    let to = match &lookup {
        Lookup::Target(target) => (&target.exchange, target.routing_key.as_ref()),
        Lookup::KeyUnknown | Lookup::Unknown | Lookup::NoExchange => (&none, None),
    };
    let to = (to.0, to.1.unwrap_or(&routing_key));
    let event = |outcome| event(&signal.queue, signal.reason, to, bytes, outcome);
    Some(
        match dead_letter::dispose(&death, &lookup, rules, now.seconds()) {
            Disposal::Publish(publication) | Disposal::Retry(publication) => {
                Decision::Publish(publication)
            }
            Disposal::Drop(_) => Decision::Drop(event(Outcome::Dropped(Cause::Cycle))),
            Disposal::Park(publication, cause) => parks(publication, cause),
            Disposal::LeaveToBroker(_) => match &lookup {
                Lookup::Target(target) => return implausible(target),
                // The last declare has taken its exchange away. Without a `management-url` that is all that is known of it.
                Lookup::Unknown | Lookup::NoExchange
                    if policies.is_redeclared(queue, &delivery.exchange) =>
                {
                    Decision::Drop(event(Outcome::Dropped(Cause::NoTarget)))
                }
                // Its policy is gone: the broker would drop it, but the operator may not have meant that.
                Lookup::KeyUnknown | Lookup::Unknown | Lookup::NoExchange => {
                    Decision::Reject(event(Outcome::Parked(Cause::NoExchange)))
                }
            },
        },
    )
}

/// The message at its death, without traces of a bridge or a retry.
fn before<'a>(
    settings: &Settings,
    content: &'a Content,
    routing_key: &ShortStr,
) -> (Cow<'a, Content>, ShortStr) {
    let content = settings.names.bridges().content(content);
    match dead_letter::signalled(&content, routing_key, &settings.login.user) {
        None => (content, routing_key.clone()),
        Some((before, routing_key)) => (Cow::Owned(before), routing_key),
    }
}

fn parks(publication: Publication, cause: Cause) -> Decision {
    Decision::Publish(Publication {
        purpose: Purpose::Park(cause),
        ..publication
    })
}

/// For a message from a delay queue. `None`: not sent there by the proxy.
fn came_back(content: &Content, settings: &Settings, rules: &Rules, now: Wall) -> Option<Decision> {
    let own_user = &settings.login.user;
    let names = &settings.names;
    let is_delay_queue =
        |queue: &[u8]| matches!(names.parse(queue), Some(OwnObject::DelayQueue(_)));
    let by_exchange = |queue: &[u8]| names.name(&OwnObject::ReturnExchange(queue));
    let lookup = |queue: &[u8]| settings.lookup(queue);
    let CameBack { queue, disposal } = dead_letter::come_back(
        content,
        rules,
        own_user,
        is_delay_queue,
        by_exchange,
        lookup,
        now,
    )?;
    Some(match disposal {
        Disposal::Publish(publication) | Disposal::Retry(publication) => {
            Decision::Publish(publication)
        }
        Disposal::Park(publication, cause) => parks(publication, cause),
        // Its TTL is over, and the queue has no dead-letter exchange; or it has gone round.
        Disposal::Drop(lap) => {
            let cause = match lap.is_empty() {
                true => Cause::NoTarget,
                false => Cause::Cycle,
            };
            let outcome = Outcome::Dropped(cause);
            let nowhere = (&ShortStr::EMPTY, &ShortStr::EMPTY);
            let bytes = content.body.len();
            Decision::Drop(event(&queue, Reason::Expired, nowhere, bytes, outcome))
        }
        Disposal::LeaveToBroker(_) => return None,
    })
}

/// Parks an implausible message with its intended target. `None`: the headers do not fit.
fn meant_for(
    target: &Target,
    routing_key: &ShortStr,
    content: &Content,
    settings: &Settings,
) -> Option<Publication> {
    Some(Publication {
        exchange: target.exchange.clone(),
        routing_key: target.routing_key.as_ref().unwrap_or(routing_key).clone(),
        content: dead_letter::without_death(content)?,
        queue: settings.names.intake_queue().clone(),
        reason: Reason::Rejected,
        at_least_once: target.at_least_once,
        history_cut: false,
        purpose: Purpose::Park(Cause::Implausible),
        by: None,
    })
}

/// Moves the user-id to a private header, with the proof; consumers behind the proxy see it again.
pub(super) fn hide_user(publication: &mut Publication, own_user: &[u8]) {
    let hidden = dead_letter::proof::prove(&publication.content.properties, own_user, None);
    if let Some(properties) = hidden {
        publication.content.properties = properties;
    }
}

fn event(
    queue: &ShortStr,
    reason: Reason,
    (exchange, routing_key): (&ShortStr, &ShortStr),
    bytes: usize,
    outcome: Outcome,
) -> Event {
    Event::DeadLetter(Arc::new(DeadLetter {
        queue: queue.clone(),
        reason,
        exchange: exchange.clone(),
        routing_key: routing_key.clone(),
        bytes,
        outcome,
        by: None,
    }))
}
