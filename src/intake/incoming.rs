//! A delivery of the broker's, put together from its frames.

use crate::amqp::content::Content;
use crate::amqp::frame::Kind;
use crate::amqp::ids::ShortStr;
use crate::amqp::incoming::Incoming;

/// The largest message that is taken in: RabbitMQ's own default limit up to 3.13. Of larger ones only the end is awaited.
const LARGEST: usize = 128 << 20;

#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) tag: u64,
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    /// `None`: too large, or not to be read.
    pub(super) content: Option<Content>,
}

/// What the method of a delivery says.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) tag: u64,
    exchange: ShortStr,
    routing_key: ShortStr,
    pub(super) redelivered: bool,
}

// === impl Delivery ===

impl Delivery {
    /// Octets of its body, as far as it was taken in.
    pub(super) fn octets(&self) -> usize {
        self.content
            .as_ref()
            .map_or(0, |content| content.body.len())
    }
}

// === impl Announced ===

impl Announced {
    /// `None`: its names cannot be.
    pub(super) fn new(
        tag: u64,
        redelivered: bool,
        exchange: &[u8],
        routing_key: &[u8],
    ) -> Option<Announced> {
        Some(Announced {
            tag,
            exchange: ShortStr::copy(exchange)?,
            routing_key: ShortStr::copy(routing_key)?,
            redelivered,
        })
    }
}

/// A frame of the content of a delivery; the whole of it when it is the last one.
///
/// # Errors
/// What the broker did wrong.
pub(super) fn frame(
    incoming: &mut Option<Incoming<Announced>>,
    kind: Kind,
    payload: &[u8],
) -> Result<Option<Delivery>, &'static str> {
    let unreadable = "the broker sent content that cannot be read";
    let whole = Incoming::frame(incoming, kind, payload, LARGEST).map_err(|_| unreadable)?;
    Ok(whole.map(|(announced, content)| Delivery {
        tag: announced.tag,
        exchange: announced.exchange,
        routing_key: announced.routing_key,
        content,
    }))
}
