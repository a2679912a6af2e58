//! What a dead letter looks like in the parking queue: as it was, with two headers that say where it should have gone and why it did not, and
//! with the proof that it is the publisher that says so: whoever may write into that queue must not have anything moved by it.

use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::rejected_by;
use crate::machine::Cause;

/// The content with the headers, and the proof if `own_user` can have it; as it is when they cannot be added or the header would be larger than
/// `frame_max`.
pub(super) fn content(
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
        let parked = Content {
            properties: properties?,
            body: content.body.clone(),
        };
        Some(parked).filter(|parked| parked.header_frame() <= frame_max)
    };
    // It is more to know where it should have gone than who rejected it.
    let unstamped = || rejected_by::without(&content.properties).filter(|_| is_stamped);
    described(&content.properties)
        .or_else(|| described(&unstamped()?))
        .unwrap_or_else(|| content.clone())
}

/// Whether it has the proof.
pub(super) fn is_proven(content: &Content, own_user: &ShortStr) -> bool {
    let properties = Properties::parse(&content.properties).ok();
    properties.is_some_and(|properties| proof::proven(&properties, own_user).is_some())
}
