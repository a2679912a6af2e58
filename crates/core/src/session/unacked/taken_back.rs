//! Deliveries that the proxy took back from a client: for the client they stay unsettled until it settles them.

use crate::amqp::ids::DeliveryTag;
use crate::amqp::method::Settle;
use crate::machine::Mono;

use super::Unacked;
use super::bits::{clear, clear_up_to, first, has, set};

/// Each word is for 64 neighbouring tags.
const MOST_WORDS: usize = 1024;

// === impl Unacked ===

impl Unacked {
    /// Open deliveries with an end of their ack timeout, in tag order.
    pub(crate) fn timed(&self) -> impl Iterator<Item = (DeliveryTag, Mono)> {
        let open = self.copies.iter().filter(|(_, of)| of.is_open());
        open.filter_map(|(tag, of)| Some((DeliveryTag(*tag), of.overdue_at?)))
    }

    /// A new end of the ack timeout, where it has one. Never an earlier one.
    pub(crate) fn extend(&mut self, tag: DeliveryTag, until: Mono) {
        let retained = self.copies.get_mut(&tag.0);
        if let Some(overdue_at) = retained.and_then(|of| of.overdue_at.as_mut()) {
            *overdue_at = until.max(*overdue_at);
        }
    }

    /// Its queue has no ack timeout any more.
    pub(crate) fn end_timeout(&mut self, tag: DeliveryTag) {
        if let Some(retained) = self.copies.get_mut(&tag.0) {
            retained.overdue_at = None;
        }
    }

    pub(crate) fn may_take_back(&self) -> bool {
        self.taken_back.len() < MOST_WORDS
    }

    pub(crate) fn take_back(&mut self, tag: DeliveryTag) {
        set(&mut self.taken_back, tag.0);
    }

    pub(crate) fn is_taken_back(&self, tag: DeliveryTag) -> bool {
        has(&self.taken_back, tag.0)
    }

    /// The client settles deliveries. True: some of them were taken back. In tx mode they stay so, as
    /// after a rollback they are settled once more.
    pub(crate) fn settled_late(&mut self, settle: Settle) -> bool {
        if self.taken_back.is_empty() || self.uncommitted.is_some() {
            return false;
        }
        let tag = settle.delivery_tag;
        let is_late = match settle.multiple {
            true if tag == DeliveryTag(0) => true,
            true => first(&self.taken_back).is_some_and(|first| first <= tag),
            false => self.is_taken_back(tag),
        };
        match settle.multiple {
            true if tag == DeliveryTag(0) => self.taken_back.clear(),
            true => clear_up_to(&mut self.taken_back, tag.0, |_, _| ()),
            false => clear(&mut self.taken_back, tag.0),
        }
        is_late
    }
}
