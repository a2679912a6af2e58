//! What becomes of withheld rejects: acked when the dead letter is safe, else given to the broker.

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Outcome, Ticket};

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
                    let withheld = self
                        .channels
                        .get_mut(&channel)
                        .and_then(|state| state.unacked.done(tag));
                    self.give_back(withheld.map_or(0, |withheld| withheld.octets));
                    self.acks_due.insert(channel);
                }
                Outcome::Refused(cause) => {
                    self.forward(channel, tag, Fallback::Refused(*cause), turn)
                }
            }
        }
        self.flush_acks(turn);
    }

    /// Sends the acks that are due, on the channels where a method may be sent now.
    pub(super) fn flush_acks(&mut self, turn: &mut Turn<'_>) {
        for channel in std::mem::take(&mut self.acks_due) {
            if !self.may_inject(channel) {
                self.acks_due.insert(channel);
                continue;
            }
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

    /// A withheld reject goes to the broker after all.
    fn forward(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        cause: Fallback,
        turn: &mut Turn<'_>,
    ) {
        let Some(withheld) = self
            .channels
            .get_mut(&channel)
            .and_then(|state| state.unacked.give_up(tag))
        else {
            return;
        };
        self.tickets.remove(&withheld.ticket);
        self.give_back(withheld.octets);
        self.inject(channel, turn, |out| reply::reject(out, channel, tag, false));
        turn.event(Event::RejectForwarded {
            queue: withheld.queue,
            cause,
        });
    }

    /// The bound on waiting has passed: all withheld rejects of a channel (0: of all) go to the broker.
    pub(super) fn give_up(&mut self, channel: ChannelId, turn: &mut Turn<'_>) {
        let chosen = |id: &ChannelId| channel == ChannelId(0) || *id == channel;
        let open: Vec<_> = self
            .tickets
            .values()
            .filter(|(id, _)| chosen(id))
            .copied()
            .collect();
        for (channel, tag) in open {
            self.forward(channel, tag, Fallback::CloseWait, turn);
        }
    }
}
