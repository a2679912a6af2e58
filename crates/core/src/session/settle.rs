//! Acks, nacks and rejects of a client: what passes, what is withheld.
//!
//! A `multiple` never settles a withheld tag: it is split, so that the broker has no word about a tag before its dead letter is safe; or,
//! when it would be many pieces, it waits.

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::dead_letter::Disposal;
use crate::machine::{Event, Fallback, Leg, Limit};
use crate::registry::Standing;

use super::declares::Why;
use super::frames::{Handled, Method};
use super::instead::Asked;
use super::ordering::Channels;
use super::pause::Hold;
use super::retries;
use super::unacked::Retained;
use super::{Session, Turn};

/// Into how many pieces a `multiple` may be split; beyond, it waits for the withheld rejects below it. A channel gives a quorum queue 32
/// commands ahead of its answers, keeps what is more, and loses it when it closes (`rabbit_fifo_client`).
const MAX_PIECES: usize = 8;

/// What happened to one tag.
pub(super) enum Fate {
    /// The broker has no word of it, now or ever.
    Withheld,
    Forward,
    /// It goes back to its queue in its client's transaction.
    Return,
    /// Forwarded behind requests that the broker has not answered. If one of those closes the channel, this settlement has no effect.
    Unanswered,
    NoTicket,
}

impl Session {
    /// `basic.ack`, `basic.nack` or `basic.reject`.
    pub(super) fn settle(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let handled = self.settle_or_wait(method, turn);
        if let Handled::Done = handled
            && let Some(state) = self.channels.get_mut(&method.channel)
        {
            (state.all, state.impatient) = (None, false);
        }
        handled
    }

    fn settle_or_wait(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let (Some(state), Ok(settle)) = (self.channels.get_mut(&channel), Settle::parse(payload))
        else {
            return turn.pass_method(method);
        };
        if state.native {
            state.unanswered = true;
            return turn.pass_method(method);
        }
        let all = settle.multiple && settle.delivery_tag == DeliveryTag(0);
        let tag = Some(settle.delivery_tag).filter(|tag| !all && state.unacked.may_settle(*tag));
        let impatient = state.impatient && state.is_getting();
        if tag.is_none() && state.is_getting() && !impatient {
            // What is on its way to the client, in the order of the channel, is meant too.
            return self.hold_answers(channel, turn);
        }
        state.unanswered = true;
        let tag = match tag {
            Some(tag) => tag,
            None if all => {
                let seen = state.all.unwrap_or(DeliveryTag(u64::MAX));
                let Some(last) = state.unacked.last_open(seen) else {
                    return Handled::Done;
                };
                *state.all.insert(last)
            }
            // What is still to come stays unsettled, since nobody can tell whether it is meant. After a rollback a client may settle once more
            // what is kept: that stays so.
            None if impatient
                || state.tx.is_some() && state.unacked.is_taken(settle.delivery_tag) =>
            {
                let last = state.unacked.last_open(settle.delivery_tag);
                match last.filter(|_| settle.multiple) {
                    Some(last) => last,
                    None => return Handled::Done,
                }
            }
            // The broker says 406, in its own words; but first it must know of the rejects that came before.
            None if state.unacked.awaits() => {
                return self.hold_withheld(Channels::One(channel), turn);
            }
            None => {
                self.go_native(channel);
                return turn.pass_method(method);
            }
        };
        let dies = id != MethodId::BASIC_ACK && !settle.requeue;
        let returns = retries::returns(id, settle.requeue) && self.any_retries();
        let Some(state) = self.channels.get_mut(&channel) else {
            return Handled::Done;
        };
        let looked_into = dies || returns;
        let mixed = match settle.multiple {
            true => {
                state.unacked.withheld_up_to(tag) || looked_into && state.unacked.any_matters(tag)
            }
            false => looked_into && state.unacked.matters(tag),
        };
        if !mixed {
            let freed = if settle.multiple {
                state.unacked.settle_up_to(tag)
            } else {
                state.unacked.settle(tag)
            };
            self.give_back(freed);
            match all || impatient {
                // By its tag: what the client has not seen yet stays unsettled, at the broker as here.
                true => send(
                    turn.build(Leg::Broker),
                    channel,
                    id,
                    tag,
                    true,
                    settle.requeue,
                ),
                false => turn.pass(Leg::Client, method.range()),
            }
            return Handled::Done;
        }
        // For what is kept nobody waits: then it may be many pieces.
        if settle.multiple && self.would_be_many(channel, tag, dies, returns) {
            return self.hold_withheld(Channels::One(channel), turn);
        }
        let first = if settle.multiple { DeliveryTag(0) } else { tag };
        match self.settle_each(channel, id, settle, first, tag, turn) {
            true => Handled::Done,
            false => Handled::Wait,
        }
    }

    /// Whether a `multiple` has to wait for what is withheld below it.
    fn would_be_many(
        &self,
        channel: ChannelId,
        tag: DeliveryTag,
        dies: bool,
        returns: bool,
    ) -> bool {
        let Some(state) = self.channels.get(&channel) else {
            return false;
        };
        let unacked = &state.unacked;
        let is_withheld = |of: &Retained| dies || returns && self.retries(&of.queue).is_some();
        unacked.awaits() && unacked.pieces(tag, is_withheld) > MAX_PIECES
    }

    /// Settles the tags from `first` to `last` that the client may settle, each in its own way. False: it has to wait in between.
    fn settle_each(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        settle: Settle,
        first: DeliveryTag,
        last: DeliveryTag,
        turn: &mut Turn<'_>,
    ) -> bool {
        let dies = id != MethodId::BASIC_ACK && !settle.requeue;
        let returns = id != MethodId::BASIC_ACK && settle.requeue && self.any_retries();
        // Below the first hole the broker is told of all at once, behind it one by one.
        let mut together: Option<(DeliveryTag, usize)> = None;
        let mut from = first;
        let mut enough = true;
        while let Some(tag) = self
            .channels
            .get(&channel)
            .and_then(|state| state.unacked.next_open(from, last))
        {
            from = DeliveryTag(tag.0.saturating_add(1));
            let goes = dies || returns && self.is_of_a_retried_queue(channel, tag);
            let asked = match dies {
                true => Asked::Reject,
                false => Asked::Return,
            };
            if goes && self.is_unsure_of(channel, tag, turn) {
                enough = false;
                break;
            }
            if goes && let Some(state) = self.channels.get_mut(&channel) {
                let nack = id == MethodId::BASIC_NACK;
                state.unacked.rejected_by(tag, asked, nack);
            }
            let fate = match goes {
                true => self.withhold(channel, tag, asked, turn),
                false => Fate::Forward,
            };
            match fate {
                Fate::Withheld => {}
                Fate::Unanswered => {
                    self.hold_answers(channel, turn);
                    enough = false;
                    break;
                }
                Fate::NoTicket => {
                    turn.event(Event::LimitMet(Limit::Tickets));
                    self.hold(Hold::Tickets, turn);
                    enough = false;
                    break;
                }
                Fate::Forward | Fate::Return => {
                    let Some(state) = self.channels.get_mut(&channel) else {
                        break;
                    };
                    let hole = state.unacked.first_withheld();
                    let alone = hole.is_some_and(|hole| hole < tag);
                    let freed = state.unacked.settle(tag);
                    self.give_back(freed);
                    if matches!(fate, Fate::Return) {
                        self.send_together(channel, id, settle.requeue, together.take(), turn);
                        reply::nack(turn.build(Leg::Broker), channel, tag, false, true);
                    } else if alone {
                        self.send_together(channel, id, settle.requeue, together.take(), turn);
                        let out = turn.build(Leg::Broker);
                        send(out, channel, id, tag, false, settle.requeue);
                    } else {
                        together = Some((tag, together.map_or(1, |(_, count)| count + 1)));
                    }
                }
            }
        }
        self.send_together(channel, id, settle.requeue, together, turn);
        enough
    }

    fn send_together(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        requeue: bool,
        together: Option<(DeliveryTag, usize)>,
        turn: &mut Turn<'_>,
    ) {
        if let Some((tag, count)) = together {
            send(
                turn.build(Leg::Broker),
                channel,
                id,
                tag,
                count > 1,
                requeue,
            );
        }
    }

    /// Whether the queue of a delivery has to be verified, since somebody has seen the end of it, or could have put another in its place.
    fn is_unsure_of(&mut self, channel: ChannelId, tag: DeliveryTag, turn: &mut Turn<'_>) -> bool {
        let now = turn.now.mono;
        let retained = self
            .channels
            .get(&channel)
            .and_then(|state| state.unacked.retained(tag));
        let Some(retained) =
            retained.filter(|retained| !self.registry.is_alive(&retained.queue, now))
        else {
            return false;
        };
        let queue = retained.queue.clone();
        let (declares, mut line) = self.line(turn);
        declares.verify(&queue, Why::Dies, &mut line)
    }

    /// Hands what becomes of one delivery to the publisher, if it is ours to do.
    pub(super) fn withhold(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        asked: Asked,
        turn: &mut Turn<'_>,
    ) -> Fate {
        let left = |session: &mut Session, cause, turn: &mut Turn<'_>| match session
            .leave_unsettled(channel, tag, asked, cause, turn)
        {
            true => Fate::Withheld,
            false => Fate::Forward,
        };
        let Some(state) = self.channels.get(&channel) else {
            return Fate::Forward;
        };
        if state.tx.is_some() {
            return self.settle_in_tx(channel, tag, asked, turn);
        }
        if state.unacked.uncopied(tag).is_some() {
            return left(self, Fallback::Budget, turn);
        }
        let Some(retained) = state.unacked.retained(tag) else {
            return Fate::Forward;
        };
        let known = self.registry.get(&retained.queue);
        match (asked, known.map(|known| known.standing)) {
            (Asked::Reject, None) => return Fate::Forward,
            (Asked::Reject, Some(Standing::Unknown)) if !self.loses(&retained.queue) => {
                return left(self, Fallback::Stale, turn);
            }
            _ => {}
        }
        if state.may_fail(&self.registry) {
            return match state.impatient {
                true => left(self, Fallback::CloseWait, turn),
                false => Fate::Unanswered,
            };
        }
        if self.tickets.len() >= self.max_tickets {
            return Fate::NoTicket;
        }
        let held = retained.delivered.until(turn.now.wall);
        let publication = match self.decide(retained, held, turn) {
            // Of a client's reject no cycle is made (S6.2): it is neither dropped nor parked for one.
            None | Some(Disposal::Drop(_)) => return Fate::Forward,
            Some(Disposal::LeaveToBroker(cause)) => return left(self, cause, turn),
            Some(
                Disposal::Publish(publication)
                | Disposal::Park(publication, _)
                | Disposal::Retry(publication),
            ) => publication,
        };
        let ticket = self.publish(channel, tag, publication, turn);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked.withhold(tag, ticket);
        }
        Fate::Withheld
    }
}

/// The same verb as the client's, for one part of what it meant.
fn send(
    out: &mut Vec<u8>,
    channel: ChannelId,
    id: MethodId,
    tag: DeliveryTag,
    multiple: bool,
    requeue: bool,
) {
    match id {
        MethodId::BASIC_ACK => reply::ack(out, channel, tag, multiple),
        MethodId::BASIC_REJECT if !multiple => reply::reject(out, channel, tag, requeue),
        _ => reply::nack(out, channel, tag, multiple, requeue),
    }
}
