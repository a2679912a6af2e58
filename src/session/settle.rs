//! Acks, nacks and rejects of a client: what passes, what is withheld.
//!
//! A `multiple` never settles a withheld tag: it is split, so that the broker has no word about a tag before its dead letter is safe; or,
//! when it would be many pieces, it waits.

use std::ops::Range;

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::dead_letter::{self, Death, Verdict};
use crate::machine::{Bound, Event, Fallback, Leg, Reason, Ticket};
use crate::registry::policy::Queue;

use super::{Hold, Session, Turn};

/// Into how many pieces a `multiple` may be split; beyond, it waits for the withheld rejects below it. A channel gives a quorum queue 32
/// commands ahead of its answers, keeps what is more, and loses it when it closes (`rabbit_fifo_client`).
const MAX_PIECES: usize = 8;

/// What happened to one tag.
enum Fate {
    Withheld,
    Forward,
    /// Before it the broker may close the channel: then it does not count.
    Unanswered,
    NoTicket,
}

impl Session {
    /// `basic.ack`, `basic.nack` or `basic.reject` at `range`. Returns its length, or 0 when it has to wait.
    pub(super) fn settle(
        &mut self,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        let (Some(state), Ok(settle)) = (self.channels.get_mut(&channel), Settle::parse(payload))
        else {
            turn.pass(Leg::Client, range);
            return len;
        };
        if state.native {
            state.unanswered = true;
            turn.pass(Leg::Client, range);
            return len;
        }
        let id = MethodId::peek(payload).unwrap_or(MethodId::BASIC_ACK);
        let all = settle.multiple && settle.delivery_tag == DeliveryTag(0);
        let tag = Some(settle.delivery_tag).filter(|tag| !all && state.unacked.may_settle(*tag));
        if tag.is_none() && state.is_getting() {
            // What is on its way to the client, in the order of the channel, is meant too.
            return self.hold_answers(channel, turn);
        }
        state.unanswered = true;
        let tag = match tag {
            Some(tag) => tag,
            None if all => match state.unacked.last_open() {
                Some(last) => last,
                None => return len,
            },
            // The broker says 406, in its own words; but first it must know of the rejects that came before.
            None if state.unacked.any_withheld() => return self.hold_withheld(channel, turn),
            None => {
                self.go_native(channel);
                turn.pass(Leg::Client, range);
                return len;
            }
        };
        let dies = id != MethodId::BASIC_ACK && !settle.requeue;
        let mixed = match settle.multiple {
            true => state.unacked.withheld_up_to(tag) || dies && state.unacked.retained_up_to(tag),
            false => dies && state.unacked.retained(tag).is_some(),
        };
        if !mixed {
            let freed = if settle.multiple {
                state.unacked.settle_up_to(tag)
            } else {
                state.unacked.settle(tag)
            };
            self.give_back(freed);
            match all {
                // By its tag: what the client has not seen yet stays unsettled, at the broker as here.
                true => send(
                    turn.build(Leg::Broker),
                    channel,
                    id,
                    tag,
                    true,
                    settle.requeue,
                ),
                false => turn.pass(Leg::Client, range),
            }
            return len;
        }
        if settle.multiple && state.unacked.pieces(tag, dies) > MAX_PIECES {
            return self.hold_withheld(channel, turn);
        }
        let first = if settle.multiple { DeliveryTag(0) } else { tag };
        if self.settle_each(channel, id, settle, first, tag, turn) {
            len
        } else {
            0
        }
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
            if dies && self.is_unsure_of(channel, tag, turn) {
                enough = false;
                break;
            }
            let fate = if dies {
                self.withhold(channel, tag, turn)
            } else {
                Fate::Forward
            };
            match fate {
                Fate::Withheld => {}
                Fate::Unanswered => {
                    self.hold_answers(channel, turn);
                    enough = false;
                    break;
                }
                Fate::NoTicket => {
                    turn.event(Event::BoundMet(Bound::Tickets));
                    self.hold(Hold::Tickets, turn);
                    enough = false;
                    break;
                }
                Fate::Forward => {
                    let Some(state) = self.channels.get_mut(&channel) else {
                        break;
                    };
                    let behind_hole = state
                        .unacked
                        .first_withheld()
                        .is_some_and(|hole| hole < tag);
                    let freed = state.unacked.settle(tag);
                    self.give_back(freed);
                    if behind_hole {
                        self.send_together(channel, id, settle.requeue, together.take(), turn);
                        send(
                            turn.build(Leg::Broker),
                            channel,
                            id,
                            tag,
                            false,
                            settle.requeue,
                        );
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

    /// Whether the queue of a delivery has to be verified, since somebody has seen the end of it.
    fn is_unsure_of(&mut self, channel: ChannelId, tag: DeliveryTag, turn: &mut Turn<'_>) -> bool {
        let retained = self
            .channels
            .get(&channel)
            .and_then(|state| state.unacked.retained(tag));
        let Some(retained) = retained.filter(|retained| !self.registry.is_alive(&retained.queue))
        else {
            return false;
        };
        let queue = retained.queue.clone();
        self.must_verify(&queue, turn)
    }

    /// Hands the dead letter of one delivery to the publisher, if it is ours to do.
    fn withhold(&mut self, channel: ChannelId, tag: DeliveryTag, turn: &mut Turn<'_>) -> Fate {
        let (Some(rules), Some(state)) = (self.rules(), self.channels.get_mut(&channel)) else {
            return Fate::Forward;
        };
        let Some(retained) = state.unacked.retained(tag) else {
            return Fate::Forward;
        };
        let Some(known) = self.registry.get(&retained.queue) else {
            return Fate::Forward;
        };
        if state.may_fail(&self.registry) {
            return Fate::Unanswered;
        }
        if self.tickets.len() >= self.max_tickets {
            return Fate::NoTicket;
        }
        let queue = Queue {
            vhost: &self.peer.vhost,
            name: &retained.queue,
            queue_type: known.declared.queue_type,
        };
        let Some(target) = self.settings.policies.target(queue, &known.declared.said) else {
            turn.event(Event::RejectForwarded {
                queue: retained.queue.clone(),
                cause: Fallback::TargetUnknown,
            });
            return Fate::Forward;
        };
        let content = self.settings.names.bridges().content(&retained.content);
        let death = Death {
            queue: &retained.queue,
            reason: Reason::Rejected,
            exchange: &retained.exchange,
            routing_key: &retained.routing_key,
            content: &content,
            recorded: false,
        };
        // A reject is never dropped as a cycle, so its target queues need not be known.
        let Ok(Verdict::Publish(publication)) =
            dead_letter::plan(&death, &target, &rules, turn.now.wall)
        else {
            turn.event(Event::RejectForwarded {
                queue: retained.queue.clone(),
                cause: Fallback::Unreadable,
            });
            return Fate::Forward;
        };
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        state.unacked.withhold(tag, ticket);
        self.tickets.insert(ticket, (channel, tag));
        turn.fx.dead.push((ticket, publication));
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
