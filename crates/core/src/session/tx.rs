//! Channels in tx mode: nothing is published for them. What the broker may deal with, it carries out at the commit. What it would discard
//! returns to its queue with that commit, before which the client waits for a moment; where a return would count too much, it stays unsettled.

use std::time::Duration;

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg};

use super::instead::{Asked, Counts, Instead};
use super::settle::Fate;
use super::{Session, Turn};

/// How long a commit waits that returns messages: the next transaction is likely to reject them again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The transaction of a channel in tx mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tx {
    Plain,
    /// It returns what the broker would discard: its commit waits.
    Returns,
}

impl Session {
    /// `tx.select` goes to the broker: no copy is of use any more. Nothing is withheld, as it has waited for that.
    pub(super) fn begin_tx(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.tx.get_or_insert(Tx::Plain);
        let copies = state.unacked.begin_tx();
        for (tag, of) in copies {
            let counts = self.counts_uncopied(&of.queue, &of.content.properties);
            if let (Some(counts), Some(state)) = (counts, self.channels.get_mut(&channel)) {
                state.unacked.lacks_copy(tag, &of.queue, counts);
            }
            self.give_back(of.octets());
        }
    }

    /// A reject or a return of which the broker hears with the transaction.
    pub(super) fn settle_in_tx(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        asked: Asked,
        turn: &mut Turn<'_>,
    ) -> Fate {
        let cause = Fallback::Transaction;
        let Some((queue, Instead::ReturnLater)) = self.instead(channel, tag, asked, cause) else {
            return Fate::Forward;
        };
        let Some(state) = self.channels.get_mut(&channel) else {
            return Fate::Forward;
        };
        let near = |(_, counts)| counts == Counts::Near;
        match (state.unacked.uncopied(tag).is_some_and(near), asked) {
            (true, _) => {
                let returned = asked == Asked::Return;
                state.unacked.keep_uncopied(tag, returned);
                turn.event(Event::Kept {
                    queue,
                    returned,
                    cause,
                });
                Fate::Withheld
            }
            (false, Asked::Reject) => {
                state.tx = Some(Tx::Returns);
                turn.event(Event::KeptReturned { queue });
                Fate::Return
            }
            // The client's own word for what we would do.
            (false, Asked::Return | Asked::TooLarge) => Fate::Forward,
        }
    }

    /// `tx.commit` goes to the broker. Acks of ours go before it: of what was rejected before `tx.select`.
    pub(super) fn commit(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        if let Some(state) = self.channels.get_mut(&channel) {
            let out = turn.build(Leg::Broker);
            let ack = |tag, multiple| reply::ack(out, channel, tag, multiple);
            state.unacked.take_acks(ack);
            state.unacked.committed();
        }
        self.outbox.acked(channel);
    }

    /// `tx.rollback` goes to the broker.
    pub(super) fn roll_back(&mut self, channel: ChannelId) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked.rolled_back();
            state.tx = state.tx.map(|_| Tx::Plain);
        }
    }

    /// Whether acks of ours may go out on a channel: a client in tx mode might roll them back.
    pub(super) fn may_ack(&self, channel: ChannelId) -> bool {
        let state = self.channels.get(&channel);
        state.is_none_or(|state| state.tx.is_none()) && self.may_inject(channel)
    }
}
