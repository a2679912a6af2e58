//! What is changed in a content before it leaves.
//!
//! In the parking queue a dead letter is as it was, with two headers that say where it should have gone and why it did not, and with the proof that
//! it is the publisher that says so: whoever may write into that queue must not have anything moved by it.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, Property};
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::{delivery_time, private, rejected_by};
use crate::machine::{Cause, Event, Publication, Purpose, Wall};

use super::item::Item;

/// Content with the headers of parking, and the proof if `own_user` can have it; unchanged when
/// they cannot be added or the header would exceed `frame_max`.
pub(super) fn parked(
    content: &Content,
    exchange: &ShortStr,
    cause: Cause,
    own_user: &ShortStr,
    provable: bool,
    frame_max: usize,
    is_stamped: bool,
) -> Content {
    let parked = Parked {
        exchange,
        cause: cause.as_str().as_bytes(),
    };
    let described = |properties: &[u8]| {
        let properties = match provable {
            true => proof::prove(properties, own_user, Some(parked)),
            false => proof::unproven(properties, own_user, parked),
        };
        let parked = content.with_properties(properties?);
        Some(parked).filter(|parked| parked.header_frame() <= frame_max)
    };
    // It is more to know where it should have gone than who rejected it.
    let unstamped = || rejected_by::without(&content.properties).filter(|_| is_stamped);
    described(&content.properties)
        .or_else(|| described(&unstamped()?))
        .unwrap_or_else(|| content.clone())
}

/// Whether its user-id differs from `user`. Cheap: few messages have the property, and its flag is
/// checked first.
pub(crate) fn is_foreign(publication: &Publication, user: &ShortStr) -> bool {
    let properties = &publication.content.properties;
    let flagged = |flags: &u8| flags & 1 << Property::UserId as u8 != 0;
    properties.get(1).is_some_and(flagged)
        && Properties::parse(properties)
            .ok()
            .and_then(|properties| properties.get(Property::UserId))
            .is_some_and(|name| name != user.as_bytes())
}

pub(super) fn is_proven(content: &Content, own_user: &ShortStr) -> bool {
    let properties = Properties::parse(&content.properties).ok();
    properties.is_some_and(|properties| proof::proven(&properties, own_user).is_some())
}

/// For redriven messages: content without its user-id, with the proof that it had one, if that
/// helps.
pub(super) fn hidden(publication: &Publication, own_user: &ShortStr) -> Option<Content> {
    let content = &publication.content;
    if publication.purpose != Purpose::Redrive || is_proven(content, own_user) {
        return None;
    }
    let proven = proof::prove(&content.properties, own_user, None)?;
    Some(content.with_properties(proven))
}

pub(super) fn sent(
    item: &Item,
    frame_max: usize,
    is_stamped: bool,
    now: Wall,
    events: &mut Vec<Event>,
) -> Option<Content> {
    let content = &item.publication.content;
    let fitting = fitting(content, frame_max, is_stamped, events);
    let content = fitting.as_ref().unwrap_or(content);
    delivered(item, content, now, events).or(fitting)
}

/// Drops the stamp, then the private history, if the header frame would be too large to publish.
fn fitting(
    content: &Content,
    frame_max: usize,
    is_stamped: bool,
    events: &mut Vec<Event>,
) -> Option<Content> {
    let too_large = |content: &Content| content.header_frame() > frame_max;
    let mut content = Some(content).filter(|content| too_large(content))?.clone();
    if is_stamped && let Some(properties) = rejected_by::without(&content.properties) {
        content.properties = properties;
        events.push(Event::EditDropped);
    }
    if too_large(&content)
        && let Some(properties) = private::without_history(&content.properties)
    {
        content.properties = properties;
    }
    Some(content)
}

/// `x-opt-delivery-time` acts at the target, never in a queue of the proxy.
fn delivered(
    item: &Item,
    content: &Content,
    now: Wall,
    events: &mut Vec<Event>,
) -> Option<Content> {
    let Content { properties, body } = content;
    let properties = match item.stays_ours() {
        true => delivery_time::set_aside(properties),
        false => delivery_time::for_target(properties, now).map(|edited| {
            if edited.too_far {
                let queue = item.publication.queue.clone();
                events.push(Event::DeliveryTimeDropped { queue });
            }
            edited.properties
        }),
    };
    let body = body.clone();
    properties.map(|properties| Content { properties, body })
}
