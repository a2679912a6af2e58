//! What becomes of withheld rejects and returns: acked when what was published in their place is safe, else left to the broker or kept from it.

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::reply;
use crate::machine::{Fallback, Leg, Outcome, Ticket};

use super::instead::Asked;
use super::ordering::Channels;
use super::{Session, Turn};

impl Session {
    /// Outcomes of dead letters: the originals may go, or the broker has to deal with them.
    pub(super) fn settled(&mut self, outcomes: &[(Ticket, Outcome)], turn: &mut Turn<'_>) {
        for (ticket, outcome) in outcomes {
            let Some((channel, tag)) = self.tickets.remove(ticket) else {
                continue;
            };
            match outcome {
                Outcome::Confirmed | Outcome::Parked(_) | Outcome::Dropped(_) => {
                    if self.kept(channel, tag).is_some() {
                        self.again.succeeds(turn.now.mono);
                    }
                    let done = self
                        .channels
                        .get_mut(&channel)
                        .and_then(|state| state.unacked.done(tag));
                    self.give_back(done.map_or(0, |rejected| rejected.octets()));
                    self.outbox.ack(channel);
                }
                Outcome::Refused(cause) => {
                    self.forward(channel, tag, Fallback::Refused(*cause), turn);
                    self.kept_refused(channel, tag, *cause, turn);
                }
            }
        }
        self.flush_acks(turn);
    }

    /// Sends the acks that are due, on the channels where a method may be sent now.
    pub(super) fn flush_acks(&mut self, turn: &mut Turn<'_>) {
        if !self.outbox.has_acks() {
            return;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        let ready = outbox.take_acks(|channel| self.may_ack(channel));
        self.outbox = outbox;
        for channel in ready {
            if let Some(state) = self
                .channels
                .get_mut(&channel)
                .filter(|state| !state.closing)
            {
                state.unacked.take_acks(|tag, multiple| {
                    reply::ack(turn.build(Leg::Broker), channel, tag, multiple)
                });
            }
        }
    }

    /// What is withheld or kept cannot be published: the broker has to deal with it, or it stays unsettled.
    fn forward(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        cause: Fallback,
        turn: &mut Turn<'_>,
    ) {
        let state = self.channels.get(&channel);
        let Some(retained) = state.and_then(|state| state.unacked.copy(tag)) else {
            return;
        };
        let (asked, nacked) = (retained.retried.asked, retained.before.nacked);
        if self.leave_unsettled(channel, tag, asked, cause, turn) {
            return;
        }
        self.end_kept(channel, tag);
        self.inject(channel, turn, |out| match asked {
            Asked::Return => reply::nack(out, channel, tag, false, true),
            Asked::Reject | Asked::TooLarge => reply::refuse(out, channel, tag, nacked),
        });
    }

    /// The bound on waiting has passed: all withheld rejects go to the broker, or are kept from it.
    pub(super) fn give_up(&mut self, on: Channels, turn: &mut Turn<'_>) {
        let open: Vec<_> = self
            .tickets
            .iter()
            .filter(|(_, (id, _))| on.has(*id))
            .map(|(ticket, of)| (*ticket, *of))
            .collect();
        for (ticket, (channel, tag)) in open {
            if self.kept(channel, tag).is_none() {
                self.forward(channel, tag, Fallback::CloseWait, turn);
            }
            if self.kept(channel, tag).is_none() {
                self.tickets.remove(&ticket);
            }
        }
    }
}
