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
    pub(super) redelivered: bool,
    pub(super) exchange: ShortStr,
    pub(super) routing_key: ShortStr,
    /// `None`: it has not come yet, is too large, or cannot be read.
    pub(super) content: Option<Content>,
}

// === impl Delivery ===

impl Delivery {
    /// Its method has come. `None`: its names cannot be.
    pub(super) fn new(
        tag: u64,
        redelivered: bool,
        exchange: &[u8],
        routing_key: &[u8],
    ) -> Option<Delivery> {
        Some(Delivery {
            tag,
            redelivered,
            exchange: ShortStr::copy(exchange)?,
            routing_key: ShortStr::copy(routing_key)?,
            content: None,
        })
    }

    /// A frame of its content; the whole of it when it is the last one.
    ///
    /// # Errors
    /// What the broker did wrong.
    pub(super) fn frame(
        incoming: &mut Option<Incoming<Delivery>>,
        kind: Kind,
        payload: &[u8],
    ) -> Result<Option<Delivery>, &'static str> {
        let unreadable = "the broker sent content that cannot be read";
        let whole = Incoming::frame(incoming, kind, payload, LARGEST).map_err(|_| unreadable)?;
        Ok(whole.map(|(delivery, content)| Delivery {
            content,
            ..delivery
        }))
    }

    /// Octets of its body, as far as it was taken in.
    pub(super) fn octets(&self) -> usize {
        self.content
            .as_ref()
            .map_or(0, |content| content.body.len())
    }
}
