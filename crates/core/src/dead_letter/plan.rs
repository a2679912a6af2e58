//! From a death to its dead letter, in the order of `rabbit_dead_letter:publish`: read what is known of the message, record the death, choose
//! the keys, drop what would go round in a circle, write the properties.

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::Table;
use crate::machine::Cause;

use super::cycle::{Automatic, Lap};
use super::disposal::Disposal;
use super::history::NewDeath;
use super::remembered::Past;
use super::route::{self, Keys};
use super::write::Writing;
use super::{Death, Rules, Target};

/// Decides at `now` (seconds since 1970): [`Disposal::Publish`], [`Disposal::Drop`] or
/// [`Disposal::Park`].
///
/// # Errors
/// When properties or headers are malformed: the broker must handle the message.
pub fn plan(
    death: &Death<'_>,
    target: &Target,
    rules: &Rules,
    now: u64,
) -> Result<Disposal, Malformed> {
    let properties = Properties::parse(&death.content.properties)?;
    let headers = Table(properties.headers().unwrap_or_default());
    let past = Past::read(headers, rules, death.recorded)?;
    let lap = Lap::read(headers)?;

    let before = Keys::of_death(death, headers, &past, rules)?;
    let expiration = properties
        .get(Property::Expiration)
        .map(|text| route::original_expiration(rules.dialect, text));
    let visible = before.visible();
    let event = NewDeath {
        queue: death.queue,
        reason: death.reason.as_str().as_bytes(),
        time: now,
        exchange: death.exchange,
        routing_keys: &visible,
        original_expiration: expiration.as_deref(),
    };
    let Past { whole, is_first } = past.and(death, rules, event);

    let carried = lap
        .as_ref()
        .filter(|lap| lap.counts(death, rules.dialect, &whole));
    let automatic = Automatic::of(death, &whole, carried);
    let (keys, cycle) = match carried.and_then(|lap| lap.closed_by(death.queue)) {
        Some(late) => (before.towards(target), Some(late)),
        None => without_cycles(before.towards(target), target, &automatic),
    };
    let keeps = carried.is_some_and(|lap| lap.keeps(death, rules.dialect, &whole));
    let drops = !target.at_least_once && !keeps;
    if drops && let Some(lap) = cycle {
        return Ok(Disposal::Drop(lap));
    }

    let writing = Writing {
        death,
        target,
        rules,
        now,
        properties,
        headers,
        event,
        is_first,
        set: Lap::set(lap.as_ref(), death, &whole, rules),
        whole,
        keys,
        automatic: automatic.queues(),
    };
    let publication = writing.publication()?;
    Ok(match cycle {
        None => Disposal::Publish(publication),
        Some(_) => Disposal::Park(publication, Cause::Cycle),
    })
}

/// Removes keys that only lead into a cycle; returns the lap if none is left.
///
/// RabbitMQ drops the copy for one queue; a publisher can only remove keys. Behind the default
/// exchange, keys are queues.
fn without_cycles<'a>(
    keys: Keys<'a>,
    target: &Target,
    automatic: &Automatic<'_>,
) -> (Keys<'a>, Option<Vec<ShortStr>>) {
    if !target.exchange.is_empty() || !keys.all().any(|key| automatic.has(key)) {
        return (keys, None);
    }
    match keys.without(|key| automatic.has(key)) {
        Some(left) => (left, None),
        None => {
            let lap = automatic.lap(keys.routing_key);
            (keys, Some(lap))
        }
    }
}
