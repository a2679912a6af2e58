//! Acks, nacks and rejects of a client: what passes, what is withheld.
//!
//! A `multiple` never settles a withheld tag: it is split, so that the broker has no word about a tag before its dead letter is safe; or,
//! when it would be many pieces, it waits.

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{MethodId, Settle};
use crate::amqp::reply;
use crate::dead_letter::verdict::Verdict;
use crate::machine::{Event, Leg, Limit, Mono};

use super::channel::Meant;
use super::declares::Why;
use super::facts::Facts;
use super::frames::{Handled, Method};
use super::instead::Asked;
use super::ledger::Decision;
use super::pause::Hold;
use super::unacked::{Retained, Unacked};
use super::{Session, Turn};

/// Maximum pieces of a split `multiple`; otherwise it waits for the withheld rejects below it. A
/// channel sends a quorum queue 32 commands ahead of its answers, buffers more, and loses those
/// when it closes (`rabbit_fifo_client`).
const MAX_PIECES: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Settlement {
    channel: ChannelId,
    id: MethodId,
    requeue: bool,
    multiple: bool,
    /// Set where it may be the proxy's.
    asked: Option<Asked>,
    from: DeliveryTag,
    last: DeliveryTag,
    /// The tags below the first hole, settled as one at the broker: the last, and their number.
    together: Option<(DeliveryTag, usize)>,
}

impl Session {
    pub(super) fn settle(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let channel = method.channel;
        let state = self.channels.get_mut(&channel);
        let (Some(state), Ok(settle)) = (state, Settle::parse(method.payload)) else {
            return turn.pass_method(method);
        };
        let handled = match state.meant(settle) {
            Meant::Tag { last, as_it_is } => {
                let facts = Facts::of(&self.settings, &self.peer, &self.registry);
                let judged = state.unacked.was_judged();
                let settlement = Settlement::new(method, settle, last, judged, facts);
                self.settle_up_to(settlement, as_it_is.then_some(method), turn)
            }
            Meant::Nothing => Handled::Done,
            // What is on its way to the client, in the order of the channel, is meant too.
            Meant::Answers => return self.hold(Hold::Answers(channel), turn),
            // The broker says 406, in its own words; but first it must know of the rejects that came before.
            Meant::Brokers if state.unacked.awaits() => {
                return self.hold(Hold::Withheld(Some(channel)), turn);
            }
            Meant::Brokers => {
                self.ledger.settle_all(state);
                state.refused = true;
                turn.pass_method(method)
            }
        };
        if let Handled::Done = handled
            && let Some(state) = self.channels.get_mut(&channel)
        {
            (state.all, state.impatient) = (None, false);
            if state.unacked.settled_late(settle) {
                turn.event(Event::SettledLate);
            }
        }
        handled
    }

    /// `as_it_is`: the method, if the broker may get it unchanged.
    fn settle_up_to(
        &mut self,
        settlement: Settlement,
        as_it_is: Option<Method<'_>>,
        turn: &mut Turn<'_>,
    ) -> Handled {
        let Some(state) = self.channels.get_mut(&settlement.channel) else {
            return Handled::Done;
        };
        let facts = Facts::of(&self.settings, &self.peer, &self.registry);
        if settlement.is_mixed(&state.unacked) {
            // For what is kept nobody waits: then it may be many pieces.
            return match settlement.would_be_many(&state.unacked, facts) {
                true => self.hold(Hold::Withheld(Some(settlement.channel)), turn),
                false => self.settle_each(settlement, turn),
            };
        }
        self.ledger.give_back(match settlement.multiple {
            true => state.unacked.settle_up_to(settlement.last),
            false => state.unacked.settle(settlement.last),
        });
        match as_it_is {
            Some(method) => turn.pass_method(method),
            // By its tag: what the client has not seen yet stays unsettled, at the broker as here.
            None => {
                settlement.send(settlement.last, settlement.multiple, turn);
                Handled::Done
            }
        }
    }

    /// Settles the client's open tags one by one. `Wait`: must wait in between.
    fn settle_each(&mut self, mut settlement: Settlement, turn: &mut Turn<'_>) -> Handled {
        let channel = settlement.channel;
        let mut handled = Handled::Done;
        while let Some(state) = self.channels.get_mut(&channel)
            && let Some(tag) = settlement.next(&state.unacked)
        {
            let facts = Facts::of(&self.settings, &self.peer, &self.registry);
            let unacked = &state.unacked;
            let asked = settlement.asked_of(unacked.queue_of(tag), unacked.verdict(tag), facts);
            if asked.is_some()
                && let Some(queue) = doubted(unacked, tag, facts, turn.now.mono)
            {
                let (declares, mut line) = self.line(turn);
                if declares.verify(&queue, Why::Dies, &mut line) {
                    handled = Handled::Wait;
                    break;
                }
            }
            let mut books = self.books(turn);
            let Some(mut page) = books.page(channel) else {
                break;
            };
            let decision = asked.map_or(Decision::Forward, |asked| {
                let nack = settlement.id == MethodId::BASIC_NACK;
                page.state.unacked.rejected_by(tag, asked, nack);
                page.withhold(tag, asked)
            });
            match decision {
                Decision::Withheld => {}
                Decision::Unanswered => {
                    handled = self.hold(Hold::Answers(channel), turn);
                    break;
                }
                Decision::NoTicket => {
                    turn.event(Event::LimitMet(Limit::Tickets));
                    handled = self.hold(Hold::Tickets, turn);
                    break;
                }
                Decision::Forward | Decision::Return => {
                    if settlement.id != MethodId::BASIC_ACK {
                        page.forget_verdict(tag);
                    }
                    let unacked = &mut page.state.unacked;
                    let hole = unacked.first_withheld();
                    page.ledger.give_back(unacked.settle(tag));
                    let alone = hole.is_some_and(|hole| hole < tag);
                    settlement.tell(tag, alone, decision == Decision::Return, turn);
                }
            }
        }
        settlement.send_together(turn);
        handled
    }
}

// === impl Settlement ===

impl Settlement {
    /// `last`: the last or only tag.
    /// `judged`: one of its deliveries may have a verdict.
    fn new(
        method: Method<'_>,
        settle: Settle,
        last: DeliveryTag,
        judged: bool,
        facts: Facts<'_>,
    ) -> Settlement {
        let asked = match (method.id, settle.requeue) {
            (MethodId::BASIC_ACK, _) => None,
            (_, false) => Some(Asked::Reject),
            (_, true) => (judged || facts.any_retries()).then_some(Asked::Return),
        };
        let first = if settle.multiple {
            DeliveryTag(0)
        } else {
            last
        };
        Settlement {
            channel: method.channel,
            id: method.id,
            requeue: settle.requeue,
            multiple: settle.multiple,
            asked,
            from: first,
            last,
            together: None,
        }
    }

    /// Whether its tags differ: one of them is withheld, or may be the proxy's.
    fn is_mixed(&self, unacked: &Unacked) -> bool {
        let is_ours = self.asked.is_some();
        match self.multiple {
            true => unacked.withheld_up_to(self.last) || is_ours && unacked.any_matters(self.last),
            false => is_ours && unacked.queue_of(self.last).is_some(),
        }
    }

    /// Whether a `multiple` has to wait for withheld deliveries below it.
    fn would_be_many(&self, unacked: &Unacked, facts: Facts<'_>) -> bool {
        let is_withheld = |of: &Retained| {
            let asked = self.asked_of(Some(&of.queue), of.verdict.as_deref(), facts);
            asked.is_some()
        };
        self.multiple && unacked.awaits() && unacked.pieces(self.last, is_withheld) > MAX_PIECES
    }

    /// The client's request for a delivery of this queue, where it may be the proxy's.
    fn asked_of(
        &self,
        queue: Option<&ShortStr>,
        verdict: Option<&Verdict>,
        facts: Facts<'_>,
    ) -> Option<Asked> {
        let retried = || queue.is_some_and(|queue| facts.retries(queue).is_some());
        let judged = verdict.is_some_and(Verdict::decides);
        self.asked
            .filter(|asked| *asked == Asked::Reject || judged || retried())
    }

    fn next(&mut self, unacked: &Unacked) -> Option<DeliveryTag> {
        let tag = unacked.next_open(self.from, self.last)?;
        self.from = DeliveryTag(tag.0.saturating_add(1));
        Some(tag)
    }

    /// Settles this tag at the broker: requeued in a transaction, or as the client asked. `alone`:
    /// there is a hole below it.
    fn tell(&mut self, tag: DeliveryTag, alone: bool, returns: bool, turn: &mut Turn<'_>) {
        if !alone && !returns {
            let count = self.together.map_or(1, |(_, count)| count + 1);
            self.together = Some((tag, count));
            return;
        }
        self.send_together(turn);
        match returns {
            true => reply::nack(turn.build(Leg::Broker), self.channel, tag, false, true),
            false => self.send(tag, false, turn),
        }
    }

    fn send_together(&mut self, turn: &mut Turn<'_>) {
        if let Some((tag, count)) = self.together.take() {
            self.send(tag, count > 1, turn);
        }
    }

    /// The client's method for a part of its tags.
    fn send(&self, tag: DeliveryTag, multiple: bool, turn: &mut Turn<'_>) {
        let out = turn.build(Leg::Broker);
        match self.id {
            MethodId::BASIC_ACK => reply::ack(out, self.channel, tag, multiple),
            MethodId::BASIC_REJECT if !multiple => {
                reply::reject(out, self.channel, tag, self.requeue)
            }
            _ => reply::nack(out, self.channel, tag, multiple, self.requeue),
        }
    }
}

/// The delivery's queue, if it must be verified: its end was seen, or it may have been replaced.
pub(super) fn doubted(
    unacked: &Unacked,
    tag: DeliveryTag,
    facts: Facts<'_>,
    now: Mono,
) -> Option<ShortStr> {
    let queue = &unacked.retained(tag)?.queue;
    let is_alive = facts.registry.is_alive(queue, now);
    (!is_alive).then(|| queue.clone())
}
