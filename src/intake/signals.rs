//! What becomes of one signal: its exchange says the target, its newest x-death entry the death, `plan` the rest.

use crate::amqp::ids::ShortStr;
use crate::dead_letter::{self, Rules, Signal, Verdict};
use crate::machine::{Cause, Event, Outcome, Publication, Reason};
use crate::registry::policy::Queue;

use super::Settings;
use super::consumer::Delivery;

/// What to do with a signal.
#[derive(Debug)]
pub(super) enum Decision {
    /// Hand it to the publisher.
    Publish(Publication),
    /// Ack it: a rule of RabbitMQ drops the message.
    Drop(Event),
    /// Reject it, into the parking queue.
    Park(Event),
}

/// Decides. `now`: seconds since 1970.
pub(super) fn decide(settings: &Settings, delivery: &Delivery, now: u64) -> Decision {
    // What says nothing we can trust died in the intake queue itself, as far as anybody knows.
    let distrusted = |cause| {
        let queue = settings.names.intake_queue();
        Decision::Park(event(
            queue,
            Reason::Rejected,
            &delivery.exchange,
            Outcome::Parked(cause),
        ))
    };
    let Some(content) = &delivery.content else {
        return distrusted(Cause::TooBig);
    };
    let Some((intake, queue_type)) = settings.names.decode(&delivery.exchange) else {
        return distrusted(Cause::Implausible);
    };
    let content = settings.names.bridges().content(content);
    let Ok(signal) = dead_letter::signal(&delivery.routing_key, &content) else {
        return distrusted(Cause::Implausible);
    };
    let queue = Queue {
        vhost: &settings.login.vhost,
        name: &signal.queue,
        queue_type,
    };
    let policies = &settings.policies;
    let Some(target) = policies.target_of_signal(queue, &intake, signal.routing_key) else {
        // Its policy is gone: the broker would drop it, but the operator may not have meant that.
        return Decision::Park(parked(&signal, &ShortStr::EMPTY, Cause::NoExchange));
    };
    let death = signal.death();
    let rules = Rules {
        max_history: settings.limits.now().max_history,
        ..settings.rules
    };
    match dead_letter::plan(&death, &target, &rules, now) {
        Ok(Verdict::Publish(publication)) => Decision::Publish(publication),
        Ok(Verdict::Cycle(_)) => Decision::Drop(event(
            &signal.queue,
            signal.reason,
            &target.exchange,
            Outcome::Dropped(Cause::Cycle),
        )),
        Ok(Verdict::Park(_, cause)) => Decision::Park(parked(&signal, &target.exchange, cause)),
        Err(_) => distrusted(Cause::Implausible),
    }
}

/// Moves the user-id of a publication into a private header; consumers behind the proxy see it again.
pub(super) fn hide_user(publication: &mut Publication) {
    let hidden = dead_letter::private::hide_user_id(&publication.content.properties);
    if let Some(properties) = hidden {
        publication.content.properties = properties;
    }
}

/// A dead letter that goes nowhere.
pub(super) fn ended(publication: &Publication, outcome: Outcome) -> Event {
    let Publication {
        queue,
        reason,
        exchange,
        ..
    } = publication;
    event(queue, *reason, exchange, outcome)
}

fn parked(signal: &Signal<'_>, exchange: &ShortStr, cause: Cause) -> Event {
    event(
        &signal.queue,
        signal.reason,
        exchange,
        Outcome::Parked(cause),
    )
}

fn event(queue: &ShortStr, reason: Reason, exchange: &ShortStr, outcome: Outcome) -> Event {
    Event::DeadLetter {
        queue: queue.clone(),
        reason,
        exchange: exchange.clone(),
        outcome,
    }
}
