//! Kept deliveries: rejected or returned, not publishable now, and not left to the broker.

use crate::amqp::ids::{DeliveryTag, ShortStr};
use crate::machine::{Cause, Mono};
use crate::session::instead::{Asked, Counts};

use super::bits::{has, set};
use super::{State, Unacked};

/// A kept delivery that is not in flight.
#[derive(Debug)]
pub(crate) struct Idle<'a> {
    pub tag: DeliveryTag,
    pub queue: &'a ShortStr,
    /// Rejected; else returned.
    pub rejected: bool,
    /// Set without a copy: how near it is to a delivery limit.
    pub uncopied: Option<Counts>,
}

// === impl Unacked ===

impl Unacked {
    /// Keeps the delivery unsettled from now on. Those in flight stay so. False: kept before.
    pub(crate) fn keep(&mut self, tag: DeliveryTag, since: Mono) -> bool {
        let state = self.copy(tag).map(|of| of.state);
        match state {
            Some(State::Open) => self.enter(tag, State::Kept),
            Some(State::Withheld) => self.enter(tag, State::Again),
            Some(State::Kept | State::Again) | None => return false,
        }
        if let Some(retained) = self.copies.get_mut(&tag.0) {
            retained.kept = since;
        }
        true
    }

    /// The same for a delivery without a copy.
    pub(crate) fn keep_uncopied(&mut self, tag: DeliveryTag, returned: bool) {
        set(&mut self.taken, tag.0);
        let of = self.uncopied.iter_mut().find(|of| has(&of.tags, tag.0));
        if let Some(of) = of.filter(|_| returned) {
            set(&mut of.returned, tag.0);
        }
    }

    pub(crate) fn is_kept(&self, tag: DeliveryTag) -> bool {
        self.is(tag, State::Kept) || self.is(tag, State::Again)
    }

    /// The kept delivery is in flight again.
    pub(crate) fn kept_goes(&mut self, tag: DeliveryTag) {
        self.enter(tag, State::Again);
    }

    /// The publisher refused a kept delivery. False: it is not kept.
    pub(crate) fn kept_refused(&mut self, tag: DeliveryTag, cause: Cause) -> bool {
        let is_kept = self.is_kept(tag);
        if let Some(retained) = self.copies.get_mut(&tag.0).filter(|_| is_kept) {
            retained.state = State::Kept;
            retained.hide_user |= cause == Cause::UserId;
            if retained.asked == Asked::Return && cause == Cause::TooBig {
                retained.asked = Asked::TooLarge;
            }
        }
        is_kept
    }

    /// Kept and not in flight, in tag order.
    pub(crate) fn idle(&self) -> impl Iterator<Item = Idle<'_>> {
        self.taken().filter_map(|tag| self.kept(tag))
    }

    pub(crate) fn kept(&self, tag: DeliveryTag) -> Option<Idle<'_>> {
        if let Some(of) = self.copy(tag) {
            return (of.state == State::Kept).then_some(Idle {
                tag,
                queue: &of.queue,
                rejected: of.asked == Asked::Reject,
                uncopied: None,
            });
        }
        let of = self.uncopied.iter().find(|of| has(&of.tags, tag.0))?;
        Some(Idle {
            tag,
            queue: &of.queue,
            rejected: !has(&of.returned, tag.0),
            uncopied: Some(of.counts),
        })
    }
}
