//! Channels in tx mode. The broker carries out their rejects at commit, so it is left to it; but where it would discard the message, the
//! reject is set aside until the commit, and then withheld as on any other channel.
//!
//! An ack of ours is part of the client's transaction. So it goes directly before the client's own commit; or, when the client has sent
//! nothing since its last one, with a commit of ours, whose answer the client does not see.

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::{Fallback, Leg};

use super::instead::Asked;
use super::replies::Expected;
use super::settle::Fate;
use super::unacked::Verdict;
use super::{Session, Turn};

/// What a channel in tx mode has sent since the last commit or rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tx {
    /// Nothing: a commit of ours changes nothing else.
    Empty,
    /// Publishes or settlements.
    Begun,
}

impl Session {
    /// `tx.select` goes to the broker. Only copies of what it would discard are of use from now on.
    pub(super) fn begin_tx(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.tx.get_or_insert(Tx::Empty);
        let mut unacked = std::mem::take(&mut state.unacked);
        unacked.begin_tx();
        let freed = unacked.drop_copies(|queue| self.loses(queue));
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked = unacked;
        }
        self.give_back(freed);
    }

    /// `tx.commit` is about to go to the broker: what the client has settled counts.
    pub(super) fn commit(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        for (tag, verdict) in state.unacked.take_aside() {
            let tag = DeliveryTag(tag);
            match verdict {
                // A return is the broker's, too: in a transaction nothing is delayed.
                Verdict::Ack | Verdict::Requeue => {
                    self.tell(channel, tag, verdict, turn);
                }
                Verdict::Reject => match self.withhold(channel, tag, Asked::Reject, turn) {
                    Fate::Withheld => {}
                    Fate::Forward => self.tell(channel, tag, verdict, turn),
                    Fate::Unanswered | Fate::NoTicket => {
                        let state = self.channels.get(&channel);
                        let retained = state.and_then(|state| state.unacked.retained(tag));
                        if let Some(queue) = retained.map(|retained| retained.queue.clone()) {
                            self.keep(channel, tag, queue, Fallback::CloseWait, turn);
                        }
                    }
                },
            }
        }
        if let Some(state) = self.channels.get_mut(&channel) {
            let out = turn.build(Leg::Broker);
            let ack = |tag, multiple| reply::ack(out, channel, tag, multiple);
            state.unacked.take_acks(ack);
            state.unacked.committed();
            state.tx = state.tx.map(|_| Tx::Empty);
        }
        self.outbox.acked(channel);
    }

    fn tell(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        verdict: Verdict,
        turn: &mut Turn<'_>,
    ) {
        let state = self.channels.get_mut(&channel);
        let mut nacked = false;
        let freed = state.map_or(0, |state| {
            let retained = state.unacked.retained(tag);
            nacked = retained.is_some_and(|retained| retained.before.nacked);
            state.unacked.settle(tag)
        });
        self.give_back(freed);
        let out = turn.build(Leg::Broker);
        match verdict {
            Verdict::Ack => reply::ack(out, channel, tag, false),
            Verdict::Requeue => reply::nack(out, channel, tag, false, true),
            Verdict::Reject => reply::refuse(out, channel, tag, nacked),
        }
    }

    /// `tx.rollback` goes to the broker.
    pub(super) fn roll_back(&mut self, channel: ChannelId) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked.rolled_back();
            state.tx = state.tx.map(|_| Tx::Empty);
        }
    }

    /// Whether acks of ours may go out on a channel.
    pub(super) fn may_ack(&self, channel: ChannelId) -> bool {
        let state = self.channels.get(&channel);
        let empty = state.is_none_or(|state| match state.tx {
            None => true,
            Some(Tx::Empty) => state.due.is_empty(),
            Some(Tx::Begun) => false,
        });
        empty && self.may_inject(channel)
    }

    /// Behind acks of ours, in tx mode.
    pub(super) fn commit_ours(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        if let Some(state) = self.channels.get_mut(&channel)
            && state.tx.is_some()
        {
            state.expect(Expected::Other, true);
            state.unacked.committed();
            reply::method(
                turn.build(Leg::Broker),
                channel,
                MethodId::TX_COMMIT,
                |_| {},
            );
        }
    }
}
