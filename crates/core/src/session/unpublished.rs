//! What becomes of a delivery that its client has rejected or returned, and that cannot be published now. [`instead`](super::instead) says whether
//! the broker deals with it. If not, it stays unsettled, and so returns to its queue by itself when its channel closes. No request of the client
//! waits for it (after `close-wait`, of those that did), and no later `multiple` settles it.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::reply;
use crate::amqp::table::Table;
use crate::dead_letter::{self, Death, Disposal, Lookup, proof};
use crate::machine::{Cause, Event, Fallback, Publication, Reason, Rejecter, Ticket};
use crate::registry::policy::Queue;

use super::again::{Again, FIRST_PAUSE, LAST_PAUSE};
use super::channel::Channel;
use super::instead::{Asked, Counts, Facts, Instead, Reject, counts, instead};
use super::unacked::{Kept, Retained};
use super::{Session, Turn};

/// What is kept for so long goes back to its queue, if it may: that is half of the time in which the broker waits for a settlement before it closes
/// the channel (`consumer_timeout`, 30 min). A queue can have less by an argument; what an operator sets for the node or by a policy is not known.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);
/// The limit that a quorum queue has by itself.
const DELIVERY_LIMIT: &[u8] = b"x-delivery-limit";
/// The time that the broker waits for a settlement, in milliseconds.
const CONSUMER_TIMEOUT: &[u8] = b"x-consumer-timeout";

impl Session {
    /// Asks the rule about a delivery that cannot be published, and about its queue.
    pub(super) fn instead(
        &self,
        channel: ChannelId,
        tag: DeliveryTag,
        asked: Asked,
        cause: Fallback,
    ) -> Option<(ShortStr, Instead)> {
        let state = self.channels.get(&channel)?;
        let unacked = &state.unacked;
        let (queue, counts) = match unacked.copy(tag) {
            Some(of) => (&of.queue, self.counts(&of.queue, &of.content.properties)),
            None => unacked.uncopied(tag)?,
        };
        let facts = Facts {
            asked,
            reject: self.on_reject(queue),
            counts,
            cause,
        };
        let instead = match instead(facts) {
            // A word of ours would be part of the client's next transaction.
            Instead::Forward if state.tx.is_some() && unacked.kept(tag).is_some() => Instead::Keep,
            instead => instead,
        };
        Some((queue.clone(), instead))
    }

    /// What the broker does with a reject in this queue.
    fn on_reject(&self, name: &[u8]) -> Reject {
        let Some(known) = self.registry.get(name) else {
            return Reject::Discards; // the queue has ended, or nobody told us of it
        };
        let declared = &known.declared;
        let queue = Queue {
            vhost: &self.peer.vhost,
            name,
            queue_type: declared.queue_type,
        };
        let policies = &self.settings.policies;
        if policies.broker_dead_letters(queue, declared) {
            return Reject::DeadLetters;
        }
        match policies.target_of_declared(queue, declared, &self.settings.names) {
            Lookup::Target(_) | Lookup::KeyUnknown => Reject::Loses,
            // Or a policy of the broker gives the queue dead letters, by itself.
            Lookup::Unknown | Lookup::NoExchange => Reject::Discards,
        }
    }

    /// Whether the broker would discard what is rejected in this queue, and only we know where it was to go.
    pub(super) fn loses(&self, queue: &[u8]) -> bool {
        self.on_reject(queue) == Reject::Loses
    }

    /// What a return of a message with these properties counts.
    fn counts(&self, queue: &[u8], properties: &[u8]) -> Counts {
        let (queue_type, arguments) = match self.registry.get(queue) {
            Some(known) => (known.declared.queue_type, &*known.declared.form.arguments),
            None => (self.seen_type(queue), &[][..]),
        };
        let by_argument = Table(arguments).get(DELIVERY_LIMIT).ok().flatten();
        let by_policy = self.settings.policies.broker_delivery_limit(Queue {
            vhost: &self.peer.vhost,
            name: queue,
            queue_type,
        });
        let limits = [by_argument.and_then(|limit| limit.as_integer()), by_policy];
        counts(self.peer.version, queue_type, limits, properties)
    }

    /// The same where no copy could be kept of it. `None`: that does not matter.
    pub(super) fn counts_uncopied(&self, queue: &[u8], properties: &[u8]) -> Option<Counts> {
        let matters = self.loses(queue) || self.retries(queue).is_some();
        matters.then(|| self.counts(queue, properties))
    }

    /// Whether this session knows a queue whose rejects the broker must not see.
    pub(super) fn knows_any_to_keep(&self) -> bool {
        self.registry.names().any(|queue| self.loses(queue))
    }

    /// What becomes of a delivery as its client asked. `None`: nothing that is ours to do.
    /// `held`: how long the client had it when it rejected it.
    pub(super) fn decide(
        &self,
        retained: &Retained,
        held: Duration,
        turn: &Turn<'_>,
    ) -> Option<Disposal> {
        match retained.retried.asked {
            Asked::Reject => self.dispose(retained, held, turn),
            Asked::Return | Asked::TooLarge => {
                let retries = self.retries(&retained.queue)?;
                self.dispose_return(retained, &retries, turn)
            }
        }
    }

    /// The same of a rejected delivery. `None`: its queue is not managed any more.
    fn dispose(&self, retained: &Retained, held: Duration, turn: &Turn<'_>) -> Option<Disposal> {
        let rules = self.rules()?;
        let declared = &self.registry.get(&retained.queue)?.declared;
        let queue = Queue {
            vhost: &self.peer.vhost,
            name: &retained.queue,
            queue_type: declared.queue_type,
        };
        let (policies, names) = (&self.settings.policies, &self.settings.names);
        let lookup = policies.target_of_declared(queue, declared, names);
        let content = self.settings.names.bridges().content(&retained.content);
        let by = Rejecter {
            connection: self.peer.connection.clone(),
            consumer: retained.consumer.clone(),
            held,
        };
        let death = Death {
            by: Some(&by),
            ..self.death(retained, &content, Reason::Rejected)
        };
        let now = turn.now.wall.seconds();
        Some(dead_letter::dispose(&death, &lookup, &rules, now))
    }

    /// The death of a delivery by its client's word. `content`: its own, with no bridges in it.
    pub(super) fn death<'a>(
        &self,
        retained: &'a Retained,
        content: &'a Content,
        reason: Reason,
    ) -> Death<'a> {
        Death {
            queue: &retained.queue,
            reason,
            exchange: &retained.exchange,
            routing_key: &retained.routing_key,
            content,
            recorded: false,
            by: None,
        }
    }

    /// A dead letter is on its way.
    pub(super) fn publish(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        publication: Publication,
        turn: &mut Turn<'_>,
    ) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.tickets.insert(ticket, (channel, tag));
        turn.fx.out.dead.push((ticket, publication));
        ticket
    }

    /// A delivery cannot be published. False: the broker has to deal with it; else it stays unsettled.
    pub(super) fn leave_unsettled(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        asked: Asked,
        cause: Fallback,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some((queue, instead)) = self.instead(channel, tag, asked, cause) else {
            return false;
        };
        let returned = asked != Asked::Reject;
        match instead {
            Instead::Forward => {
                if cause != Fallback::Budget {
                    // Else that was told at its delivery.
                    turn.event(match returned {
                        true => Event::ReturnForwarded { queue, cause },
                        false => Event::RejectForwarded { queue, cause },
                    });
                }
                return false;
            }
            Instead::Keep => self.keep(channel, tag, queue, cause, turn),
            Instead::ReturnLater => {
                self.drop_copy(channel, tag);
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.unacked.keep_uncopied(tag, returned);
                }
                self.back.arm(turn.now.mono, LAST_PAUSE);
                self.again.arm(turn.now.mono, LAST_PAUSE);
                turn.event(Event::Kept {
                    queue,
                    returned,
                    cause,
                });
            }
        }
        true
    }

    /// What its client asked is kept from the broker. That is told once.
    pub(super) fn keep(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        queue: ShortStr,
        cause: Fallback,
        turn: &mut Turn<'_>,
    ) {
        self.again.arm(turn.now.mono, self.kept_for(&queue));
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if let Some(retained) = state.unacked.keep(tag, turn.now.mono) {
            let returned = retained.retried.asked != Asked::Reject;
            turn.event(Event::Kept {
                queue,
                returned,
                cause,
            });
        }
    }

    /// The copy of a delivery is of no use.
    fn drop_copy(&mut self, channel: ChannelId, tag: DeliveryTag) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let Some(retained) = state.unacked.drop_copy(tag) else {
            return;
        };
        let counts = self.counts(&retained.queue, &retained.content.properties);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked.lacks_copy(tag, &retained.queue, counts);
        }
        self.give_back(retained.octets());
    }

    /// The publisher refused what is kept.
    pub(super) fn kept_refused(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        cause: Cause,
        turn: &mut Turn<'_>,
    ) {
        let state = self.channels.get_mut(&channel);
        if let Some(kept) = state.and_then(|state| state.unacked.kept_mut(tag)) {
            kept.ticket = None;
            kept.hide_user |= cause == Cause::UserId;
            let asked = &mut kept.retained.retried.asked;
            if *asked == Asked::Return && cause == Cause::TooBig {
                *asked = Asked::TooLarge;
            }
            self.again.arm(turn.now.mono, LAST_PAUSE);
        }
    }

    /// Nothing is tried again for a client that is gone.
    pub(super) fn forget_kept_unless_watching(&mut self) {
        if !self.life.is_watching() {
            (self.again, self.back) = (Again::default(), Again::default());
        }
    }

    /// Hands what is kept to the publisher once more, as far as there are tickets.
    pub(super) fn publish_again(&mut self, turn: &mut Turn<'_>) {
        self.again.fired(turn.now.mono);
        for (channel, tag, queue, rejected) in self.idle() {
            if rejected && !self.loses(&queue) {
                // Nothing names a target any more, or the broker knows one by now.
                self.reject_kept(channel, tag, queue, turn);
                continue;
            }
            self.again.arm(turn.now.mono, LAST_PAUSE);
            if self.tickets.len() >= self.max_tickets {
                break;
            }
            let registry = &self.registry;
            let Some(state) = self.channels.get(&channel) else {
                continue;
            };
            let may_fail = state.may_fail(registry);
            let Some(kept) = state.unacked.kept(tag).filter(|_| !may_fail) else {
                continue;
            };
            let hide_user = kept.hide_user;
            let delivered = kept.retained.delivered;
            let waits = kept.since.until(turn.now.mono);
            let held = delivered.until(turn.now.wall).saturating_sub(waits);
            let properties = &kept.retained.content.properties;
            let long =
                waits >= self.kept_for(&queue) && self.counts(&queue, properties) != Counts::Near;
            let decided = self.decide(&kept.retained, held, turn);
            if long || decided.is_none() {
                self.return_kept(channel, tag, queue, turn);
                continue;
            }
            if let Some(Disposal::Publish(mut publication) | Disposal::Retry(mut publication)) =
                decided
            {
                let properties = &mut publication.content.properties;
                let own_user = &self.settings.user;
                if hide_user && let Some(hidden) = proof::prove(properties, own_user, None) {
                    *properties = hidden;
                }
                let ticket = self.publish(channel, tag, publication, turn);
                if let Some(state) = self.channels.get_mut(&channel)
                    && let Some(kept) = state.unacked.kept_mut(tag)
                {
                    kept.ticket = Some(ticket);
                }
            }
        }
    }

    /// How long something of that queue is kept.
    fn kept_for(&self, queue: &[u8]) -> Duration {
        let known = self.registry.get(queue);
        let arguments = known.map_or(&[][..], |known| &known.declared.form.arguments);
        let timeout = Table(arguments).get(CONSUMER_TIMEOUT).ok().flatten();
        let millis = timeout.and_then(|timeout| timeout.as_integer()?.try_into().ok());
        let half = millis.map(|millis| Duration::from_millis(millis) / 2);
        half.map_or(KEPT_FOR, |half| half.clamp(FIRST_PAUSE, KEPT_FOR))
    }

    /// In tx mode a word of ours would be part of the client's transaction: there a message stays until the channel ends.
    fn open_without_tx(&self) -> impl Iterator<Item = (&ChannelId, &Channel)> {
        let all = self.channels.iter().map(|(id, state)| (id, &**state));
        all.filter(|(_, state)| !state.closing && state.tx.is_none())
    }

    /// What is kept and not on its way, with its queue. True: a reject.
    fn idle(&self) -> Vec<(ChannelId, DeliveryTag, ShortStr, bool)> {
        let open = self.open_without_tx();
        let idle = open.flat_map(|(channel, state)| {
            let copied = state.unacked.kept_idle();
            let copied = copied.map(|(tag, Kept { retained, .. })| {
                let rejected = retained.retried.asked == Asked::Reject;
                (*channel, tag, retained.queue.clone(), rejected)
            });
            let uncopied = state.unacked.kept_uncopied();
            let uncopied =
                uncopied.map(|(tag, of)| (*channel, tag, of.queue.clone(), !of.is_returned(tag)));
            copied.chain(uncopied)
        });
        idle.collect()
    }

    pub(super) fn kept(&self, channel: ChannelId, tag: DeliveryTag) -> Option<&Kept> {
        self.channels.get(&channel)?.unacked.kept(tag)
    }

    /// Returns what is kept without a copy, where that does not harm it.
    pub(super) fn return_uncopied(&mut self, turn: &mut Turn<'_>) {
        self.back.fired(turn.now.mono);
        let returnable = self.open_without_tx().flat_map(|(channel, state)| {
            let uncopied = state.unacked.kept_uncopied();
            let returnable = uncopied.filter(|(_, of)| of.counts != Counts::Near);
            returnable.map(|(tag, of)| (*channel, tag, of.queue.clone()))
        });
        for (channel, tag, queue) in returnable.collect::<Vec<_>>() {
            self.return_kept(channel, tag, queue, turn);
        }
    }

    fn return_kept(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        queue: ShortStr,
        turn: &mut Turn<'_>,
    ) {
        self.end_kept(channel, tag);
        self.inject(channel, turn, |out| {
            reply::nack(out, channel, tag, false, true)
        });
        turn.event(Event::KeptReturned { queue });
    }

    fn reject_kept(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        queue: ShortStr,
        turn: &mut Turn<'_>,
    ) {
        let nacked = |kept: &Kept| kept.retained.before.nacked;
        let nacked = self.kept(channel, tag).is_some_and(nacked);
        self.end_kept(channel, tag);
        self.inject(channel, turn, |out| {
            reply::refuse(out, channel, tag, nacked);
        });
        let cause = Fallback::TargetUnknown;
        turn.event(Event::RejectForwarded { queue, cause });
    }

    /// The broker is told of a kept reject in some way.
    pub(super) fn end_kept(&mut self, channel: ChannelId, tag: DeliveryTag) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let octets = match state.unacked.give_up(tag) {
            Some(retained) => retained.octets(),
            None => {
                state.unacked.forget(tag);
                0
            }
        };
        self.give_back(octets);
    }

    /// How many rejects are kept and not on their way.
    pub(super) fn kept_idle(&self) -> usize {
        match self.again.at() {
            Some(_) => self
                .channels
                .values()
                .map(|state| state.unacked.idle())
                .sum(),
            None => 0,
        }
    }
}
