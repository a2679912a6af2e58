//! The ledger: what is owed for the deliveries of a session. A reject or a return is withheld from the broker while something is published in its
//! place, and acked when that is safe; else the broker deals with it, or it is kept ([`unpublished`](super::unpublished)).

use std::collections::{BTreeMap, BTreeSet};

use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::reply;
use crate::dead_letter::Disposal;
use crate::dead_letter::retries::OnCrash;
use crate::machine::{Budget, Event, Fallback, Limit, Outcome, Publication, Ticket};
use crate::registry::Standing;

use super::ack_timeout::Watch;
use super::again::{Again, LAST_PAUSE};
use super::channel::{Channel, Channels};
use super::delays::Publishes;
use super::facts::Facts;
use super::instead::Asked;
use super::transit::Transit;
use super::unacked::Unacked;
use super::{Settings, Turn};

/// Deliveries of all channels; each channel has its own part ([`Unacked`]).
#[derive(Debug)]
pub(super) struct Ledger {
    /// Originals of pending dead letters.
    tickets: BTreeMap<Ticket, (ChannelId, DeliveryTag)>,
    pub(super) publishes: Publishes,
    last_ticket: u64,
    /// In flight; above this number the client is not read.
    pub(super) max_tickets: usize,
    /// When kept rejects are published again.
    pub(super) again: Again,
    /// When kept deliveries without a copy return to their queues.
    pub(super) back: Again,
    /// When open deliveries may have to be taken back.
    pub(super) watch: Watch,
    /// Retained bytes, including withheld rejects.
    pub(super) bytes: usize,
    budget: Budget,
}

/// The ledger during one call, with facts, and the way to the broker.
pub(super) struct Books<'a, 't> {
    pub(super) channels: &'a mut Channels,
    pub(super) ledger: &'a mut Ledger,
    pub(super) facts: Facts<'a>,
    pub(super) transit: &'a mut Transit,
    pub(super) turn: &'a mut Turn<'t>,
}

/// The same for one channel.
pub(super) struct Page<'a, 't> {
    pub(super) state: &'a mut Channel,
    pub(super) ledger: &'a mut Ledger,
    pub(super) facts: Facts<'a>,
    pub(super) transit: &'a mut Transit,
    pub(super) turn: &'a mut Turn<'t>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Hidden from the broker, now or for good.
    Withheld,
    Forward,
    /// Requeued in the client's transaction.
    Return,
    /// Forwarded behind unanswered requests. If one of those closes the channel, this settlement
    /// has no effect.
    Unanswered,
    NoTicket,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(settings: &Settings) -> Ledger {
        Ledger {
            tickets: BTreeMap::new(),
            publishes: Publishes::default(),
            last_ticket: 0,
            max_tickets: settings.limits.now().max_tickets_per_connection,
            again: Again::default(),
            back: Again::default(),
            watch: Watch::default(),
            bytes: 0,
            budget: settings.retained.clone(),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.tickets.len() + self.publishes.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.in_flight() >= self.max_tickets
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Takes bytes from the shared budget, if this connection has no more than `most` with them.
    pub(super) fn take(&mut self, bytes: usize, most: usize) -> bool {
        let taken = bytes <= most.saturating_sub(self.bytes) && self.budget.take(bytes);
        self.bytes += if taken { bytes } else { 0 };
        taken
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes.min(self.bytes);
        self.budget.give(bytes);
    }

    /// The broker has settled, or will settle, all earlier deliveries of this channel.
    pub(super) fn settle_all(&mut self, state: &mut Channel) {
        let unacked = state.unacked.take_all();
        self.forget(state.id, &unacked);
    }

    /// The channel is closing: the broker requeues its unsettled deliveries (S9.4). Returns its old
    /// state.
    pub(super) fn abandon(&mut self, state: &mut Channel) -> Channel {
        let ended = state.end();
        self.forget(ended.id, &ended.unacked);
        let copying = ended.copying.as_ref();
        self.give_back(copying.map_or(0, |copying| copying.method.bytes));
        ended
    }

    fn forget(&mut self, channel: ChannelId, unacked: &Unacked) {
        if unacked.is_publishing() {
            self.tickets.retain(|_, (of, _)| *of != channel);
        }
        self.give_back(unacked.bytes());
    }

    /// The client is gone: nothing is retried or taken back.
    pub(super) fn forget_kept(&mut self) {
        self.watch = Watch::default();
        (self.again, self.back) = (Again::default(), Again::default());
    }

    /// Kept rejects that are not in flight.
    pub(super) fn kept_idle(&self, channels: &Channels) -> usize {
        let idle = channels.values().map(|state| state.unacked.idle().count());
        self.again.at().map_or(0, |_| idle.sum())
    }
}

/// A session that ends returns its share of the budget.
impl Drop for Ledger {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

// === impl Books ===

impl<'t> Books<'_, 't> {
    pub(super) fn page(&mut self, channel: ChannelId) -> Option<Page<'_, 't>> {
        Some(Page {
            state: self.channels.get_mut(&channel)?,
            ledger: self.ledger,
            facts: self.facts,
            transit: self.transit,
            turn: self.turn,
        })
    }

    /// Outcomes: the originals may go, or the broker must handle them.
    pub(super) fn settled(&mut self, outcomes: &[(Ticket, Outcome)]) {
        for (ticket, outcome) in outcomes {
            if let Some((channel, tag)) = self.ledger.tickets.remove(ticket)
                && let Some(mut page) = self.page(channel)
            {
                page.settled(tag, outcome);
            } else if let Some(bytes) = self.ledger.publishes.settled(*ticket, outcome) {
                self.ledger.give_back(bytes);
            }
        }
    }

    /// Timeout: withheld rejects go to the broker, or are kept.
    pub(super) fn give_up(&mut self, on: Option<ChannelId>) {
        self.turn.event(Event::LimitMet(Limit::CloseWait));
        let open = self
            .ledger
            .tickets
            .iter()
            .filter(|(_, (id, _))| on.is_none_or(|one| one == *id));
        let open: Vec<_> = open.map(|(ticket, of)| (*ticket, *of)).collect();
        for (ticket, (channel, tag)) in open {
            if let Some(mut page) = self.page(channel)
                && !page.state.unacked.is_kept(tag)
            {
                page.forward(tag, Fallback::CloseWait);
                if !page.state.unacked.is_kept(tag) {
                    self.ledger.tickets.remove(&ticket);
                }
            }
        }
        if on.is_none() {
            let bytes = self.ledger.publishes.give_up();
            self.ledger.give_back(bytes);
        }
        self.transit.flush_acks(self.channels, self.turn);
    }

    /// The client is lost. The proxy returns those deliveries that count by `on-crash`; the broker
    /// requeues the others. If the client was lost within a frame, the broker requeues all: it
    /// could not read acks, which would duplicate messages.
    pub(super) fn count_crash(&mut self, inside_frame: bool) {
        if !self.facts.any_retries() {
            return;
        }
        let mut left = self.left_behind();
        let mut cause = Fallback::InsideFrame;
        if !inside_frame {
            cause = Fallback::NoTicket;
            let no_ticket = |(channel, tag): &(ChannelId, DeliveryTag)| {
                self.page(*channel).is_some_and(|mut page| {
                    // It counts as a reject, even if a nack of it has waited for a ticket.
                    page.state.unacked.rejected_by(*tag, Asked::Return, false);
                    let unsaid = page.state.unacked.set_verdict(*tag, None);
                    page.ledger.give_back(unsaid);
                    page.withhold(*tag, Asked::Return) == Decision::NoTicket
                })
            };
            let counted = left.iter().position(no_ticket).unwrap_or(left.len());
            left.drain(..counted);
            if !left.is_empty() {
                self.turn.event(Event::LimitMet(Limit::Tickets));
            }
        }
        let queue = |(channel, tag): &(ChannelId, DeliveryTag)| {
            let retained = self.channels.get(channel)?.unacked.retained(*tag)?;
            Some(retained.queue.clone())
        };
        for queue in left.iter().filter_map(queue).collect::<BTreeSet<_>>() {
            self.turn.event(Event::CrashNotCounted { queue, cause });
        }
    }

    fn left_behind(&self) -> Vec<(ChannelId, DeliveryTag)> {
        let mut left = Vec::new();
        let channels = self.channels.values();
        for state in channels.filter(|of| !of.closing && of.tx.is_none()) {
            let mut oldest = BTreeSet::new();
            for (tag, queue) in state.unacked.retained_queues() {
                let first = oldest.insert(queue);
                let on_crash = self.facts.retries(queue).map(|retries| retries.on_crash);
                match on_crash.unwrap_or_default() {
                    OnCrash::CountAll => left.push((state.id, tag)),
                    OnCrash::CountOldest if first => left.push((state.id, tag)),
                    OnCrash::CountOldest | OnCrash::Requeue => {}
                }
            }
        }
        left
    }
}

// === impl Page ===

impl Page<'_, '_> {
    /// Publishes the outcome of a delivery, if it is the proxy's.
    pub(super) fn withhold(&mut self, tag: DeliveryTag, asked: Asked) -> Decision {
        if self.state.tx.is_some() {
            return self.settle_in_tx(tag, asked);
        }
        let unacked = &self.state.unacked;
        let Some(retained) = unacked.retained(tag) else {
            return match unacked.uncopied(tag) {
                Some(_) => self.leave_unsettled(tag, asked, Fallback::Budget),
                None => Decision::Forward,
            };
        };
        let now = self.turn.now;
        let known = self.facts.registry.get(&retained.queue);
        match (asked, known.map(|known| known.standing)) {
            (Asked::Reject, None) => return Decision::Forward,
            (Asked::Reject, Some(Standing::Unknown)) if !self.facts.loses(&retained.queue) => {
                return self.leave_unsettled(tag, asked, Fallback::Stale);
            }
            _ => {}
        }
        if self.state.may_fail(self.facts.registry) {
            return match self.state.impatient {
                true => self.leave_unsettled(tag, asked, Fallback::CloseWait),
                false => Decision::Unanswered,
            };
        }
        if self.ledger.is_full() {
            return Decision::NoTicket;
        }
        match self.decide(tag, now) {
            // Of a client's reject no cycle is made (S6.2): it is neither dropped nor parked for one.
            None | Some(Disposal::Drop(_)) => Decision::Forward,
            Some(Disposal::LeaveToBroker(cause)) => self.leave_unsettled(tag, asked, cause),
            Some(
                Disposal::Publish(publication)
                | Disposal::Park(publication, _)
                | Disposal::Retry(publication),
            ) => {
                self.publish(tag, publication);
                self.state.unacked.withhold(tag);
                Decision::Withheld
            }
        }
    }

    pub(super) fn publish(&mut self, tag: DeliveryTag, publication: Publication) {
        let ticket = self.ledger.next_ticket();
        self.ledger.tickets.insert(ticket, (self.state.id, tag));
        self.turn.fx.out.dead.push((ticket, publication));
    }

    fn settled(&mut self, tag: DeliveryTag, outcome: &Outcome) {
        let (now, unacked) = (self.turn.now.mono, &mut self.state.unacked);
        match outcome {
            Outcome::Confirmed | Outcome::Parked(_) | Outcome::Dropped(_) => {
                if unacked.is_kept(tag) {
                    self.ledger.again.succeeds(now);
                }
                let done = unacked.done(tag);
                self.ledger
                    .give_back(done.map_or(0, |rejected| rejected.bytes()));
                self.transit.outbox.ack(self.state.id);
            }
            Outcome::Refused(cause) => {
                self.forward(tag, Fallback::Refused(*cause));
                if self.state.unacked.kept_refused(tag, *cause) {
                    self.ledger.again.arm(now, LAST_PAUSE);
                }
            }
        }
    }

    /// A withheld or kept delivery cannot be published: it goes to the broker, or stays unsettled.
    fn forward(&mut self, tag: DeliveryTag, cause: Fallback) {
        if let Some(retained) = self.state.unacked.copy(tag) {
            let asked = retained.asked;
            if self.leave_unsettled(tag, asked, cause) == Decision::Forward {
                self.let_go(tag, asked == Asked::Return);
            }
        }
    }

    /// Settles a withheld or kept delivery at the broker: requeued, or as its client asked.
    pub(super) fn let_go(&mut self, tag: DeliveryTag, returns: bool) {
        let channel = self.state.id;
        self.forget_verdict(tag);
        let told = self.state.unacked.give_up(tag);
        let nacked = told.as_ref().is_some_and(|of| of.nacked);
        self.ledger.give_back(told.map_or(0, |of| of.bytes()));
        let (state, turn) = (Some(&*self.state), &mut *self.turn);
        self.transit
            .inject(channel, state, turn, |out| match returns {
                true => reply::nack(out, channel, tag, false, true),
                false => reply::refuse(out, channel, tag, nacked),
            });
    }
}
