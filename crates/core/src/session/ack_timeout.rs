//! Ack timeouts: a delivery that its client holds for too long is taken back. It counts as returned by `basic.reject`, while its channel, its
//! consumer and its neighbours go on. What the client says of it later is swallowed ([`unacked`](super::unacked)), as the broker would close
//! the channel for it (S9.1).
//!
//! Only deliveries with a copy are taken back. Of a session one timer runs, for the delivery that is due first. When it fires, all open copies
//! are looked at. It then rests for a part of the timeout, so that a delivery is looked at a few times at most, however many there are.

use std::time::Duration;

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::reply;
use crate::dead_letter::Disposal;
use crate::dead_letter::verdict::Verdict;
use crate::machine::{Event, Limit, Mono};

use super::declares::Why;
use super::instead::Asked;
use super::ledger::{Decision, Page};
use super::settle::doubted;
use super::{Session, Turn};

/// Of the shortest timeout: so late a delivery may be taken back.
const REST: u32 = 16;

/// When deliveries are to be looked at. Nothing while no queue has an ack timeout.
#[derive(Debug, Default)]
pub(super) struct Watch {
    at: Option<Mono>,
    /// Of the timeouts so far.
    shortest: Option<Duration>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn at(&self) -> Option<Mono> {
        self.at
    }

    /// A delivery has this timeout. Returns when it ends.
    pub(super) fn begin(&mut self, timeout: Duration, now: Mono) -> Mono {
        let due = now.after(timeout);
        self.at = Some(self.at.map_or(due, |at| at.min(due)));
        self.shortest = Some(self.shortest.map_or(timeout, |of| of.min(timeout)));
        due
    }

    /// `next`: when the first of those that are left is due.
    fn rest(&mut self, next: Option<Mono>, now: Mono) {
        let rest = self.shortest.unwrap_or_default() / REST;
        self.at = next.map(|next| next.max(now.after(rest)));
    }
}

impl Session {
    pub(super) fn take_back_overdue(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let (mut overdue, mut next) = (Vec::new(), None::<Mono>);
        for state in self.channels.values().filter(|state| !state.closing) {
            for (tag, due) in state.unacked.timed() {
                match due <= now {
                    true => overdue.push((state.id, tag)),
                    false => next = Some(next.map_or(due, |next| next.min(due))),
                }
            }
        }
        for (channel, tag) in overdue {
            if !self.take_back(channel, tag, turn) {
                next = Some(now);
            }
        }
        self.ledger.watch.rest(next, now);
    }

    /// False: not now.
    fn take_back(&mut self, channel: ChannelId, tag: DeliveryTag, turn: &mut Turn<'_>) -> bool {
        let facts = self.facts();
        let Some(state) = self.channels.get(&channel) else {
            return true;
        };
        let queue = state.unacked.queue_of(tag);
        let Some(timeout) = queue.and_then(|queue| facts.ack_timeout(queue)) else {
            if let Some(state) = self.channels.get_mut(&channel) {
                state.unacked.end_timeout(tag);
            }
            return true;
        };
        if !state.unacked.may_take_back() {
            turn.event(Event::LimitMet(Limit::TakenBack));
            return false;
        }
        if let Some(queue) = doubted(&state.unacked, tag, facts, turn.now.mono) {
            if self.transit.pause.hold().is_some() {
                return false;
            }
            let (declares, mut line) = self.line(turn);
            if declares.verify(&queue, Why::Dies, &mut line) {
                return false;
            }
        }
        let mut books = self.books(turn);
        let page = books.page(channel);
        page.is_none_or(|mut page| page.take_back(tag, timeout))
    }
}

// === impl Page ===

impl Page<'_, '_> {
    /// False: not now, as a request before it may close the channel, or no ticket is left.
    fn take_back(&mut self, tag: DeliveryTag, timeout: Duration) -> bool {
        if self.state.may_fail(self.facts.registry) || self.ledger.is_full() {
            return false;
        }
        let unacked = &mut self.state.unacked;
        let Some(queue) = unacked.queue_of(tag).cloned() else {
            return true;
        };
        // It counts as a reject, like what a lost client leaves behind. What the client would have said of it is unsaid.
        unacked.rejected_by(tag, Asked::Return, false);
        self.ledger.give_back(unacked.set_verdict(tag, None));
        self.give_reason(tag, timeout);
        let decision = self.withhold(tag, Asked::Return);
        let state = &mut *self.state;
        if decision != Decision::Withheld {
            self.ledger.give_back(state.unacked.settle(tag));
            self.transit
                .inject(state.id, Some(state), self.turn, |out| {
                    reply::reject(out, state.id, tag, true);
                });
        }
        state.unacked.take_back(tag);
        // A swap waits until the broker has read it.
        state.unanswered = true;
        self.turn.event(Event::TakenBack { queue, timeout });
        true
    }

    /// Its dead letter says why. A message that comes back does not: its next death has a cause of its
    /// own.
    fn give_reason(&mut self, tag: DeliveryTag, timeout: Duration) {
        if let Some(Disposal::Publish(_)) = self.decide(tag, self.turn.now) {
            let verdict = Box::new(Verdict::of_ack_timeout(timeout));
            let most = self
                .facts
                .settings
                .limits
                .now()
                .retained_bytes_per_connection;
            if self.ledger.take(verdict.bytes(), most) {
                self.state.unacked.set_verdict(tag, Some(verdict));
            }
        }
    }
}
