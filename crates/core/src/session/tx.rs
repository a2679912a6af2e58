//! Channels in tx mode: nothing is published for them. What the broker may deal with, it carries out at the commit. What it would discard
//! returns to its queue with that commit, before which the client waits for a moment; where a return would count too much, it stays unsettled.

use std::time::Duration;

use crate::amqp::ids::DeliveryTag;
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg};

use super::Turn;
use super::channel::Channel;
use super::facts::Facts;
use super::instead::{Asked, Counts, Instead};
use super::ledger::{Decision, Ledger, Page};

/// Delay of a commit that returns messages: the next transaction probably rejects them again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tx {
    Plain,
    /// Returns what the broker would discard: its commit waits.
    Returns,
}

// === impl Ledger ===

impl Ledger {
    /// `tx.select`: copies become useless. Nothing is withheld, because it has waited for that.
    pub(super) fn begin_tx(&mut self, state: &mut Channel, facts: Facts<'_>) {
        state.tx.get_or_insert(Tx::Plain);
        for (tag, of) in state.unacked.begin_tx() {
            if let Some(counts) = facts.counts_uncopied(&of.queue, &of.content.properties) {
                state.unacked.lacks_copy(tag, &of.queue, counts);
            }
            self.give_back(of.bytes());
        }
    }
}

// === impl Page ===

impl Page<'_, '_> {
    /// A reject or return that the broker gets with the transaction.
    pub(super) fn settle_in_tx(&mut self, tag: DeliveryTag, asked: Asked) -> Decision {
        let cause = Fallback::Transaction;
        let state = &mut *self.state;
        let instead = self.facts.instead(state, tag, asked, cause);
        let Some((queue, Instead::ReturnLater)) = instead else {
            return Decision::Forward;
        };
        let near = |(_, counts)| counts == Counts::Near;
        match (state.unacked.uncopied(tag).is_some_and(near), asked) {
            (true, _) => {
                let returned = asked == Asked::Return;
                state.unacked.keep_uncopied(tag, returned);
                self.turn.event(Event::Kept {
                    queue,
                    returned,
                    cause,
                });
                Decision::Withheld
            }
            (false, Asked::Reject) => {
                state.tx = Some(Tx::Returns);
                self.turn.event(Event::KeptReturned { queue });
                Decision::Return
            }
            // The client's own word for what we would do.
            (false, Asked::Return | Asked::TooLarge) => Decision::Forward,
        }
    }
}

// === impl Channel ===

impl Channel {
    /// `tx.commit`: sends own acks before it, for rejects before `tx.select`.
    pub(super) fn commit(&mut self, turn: &mut Turn<'_>) {
        let (out, channel) = (turn.build(Leg::Broker), self.id);
        let ack = |tag, multiple| reply::ack(out, channel, tag, multiple);
        self.unacked.take_acks(ack);
        self.unacked.committed();
    }

    pub(super) fn roll_back(&mut self) {
        self.unacked.rolled_back();
        self.tx = self.tx.map(|_| Tx::Plain);
    }
}
