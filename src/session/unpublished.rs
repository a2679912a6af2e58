//! What becomes of a reject whose dead letter cannot be published now: the one place that asks what the broker knows.
//!
//! ```text
//!                the broker has a dead-letter exchange    only a policy of ours names one: the broker would discard the message
//!  with a copy   forwarded: the broker does it            kept: unsettled, and published again after a pause
//!  without       forwarded                                kept: unsettled, and returned to its queue after a pause, or with its channel
//! ```
//! What is kept returns to its queue by itself when its channel closes. No request of the client waits for it (after `close-wait`, of those
//! that did), and no later `multiple` settles it.

use std::time::Duration;

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::properties::Properties;
use crate::amqp::reply;
use crate::amqp::table::Table;
use crate::amqp::version::Version;
use crate::dead_letter::{self, Death, Disposal, Lookup, proof};
use crate::machine::{Cause, Event, Fallback, Mono, Publication, Reason, Rejecter, Ticket};
use crate::objects::{Names, QueueType};
use crate::registry::live::LivePolicies;
use crate::registry::policy::Queue;
use crate::registry::{Declared, Known};

use super::unacked::{Kept, Retained};
use super::{Session, Turn};

/// The first pause; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// What is kept for so long goes back to its queue, if it may, before the broker's `consumer_timeout` (30 min) closes the channel.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);
/// The delivery limit of a quorum queue of which none is known: the default from 4.0 on.
const DELIVERY_LIMIT: i64 = 20;
/// Returns of ours use up this part of it.
const OUR_SHARE: i64 = 4;

/// What takes the place of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// The reject goes to the broker, which does as much for the message as it would without a proxy.
    Forward,
    /// It must not: the broker would discard the message, and only we know where it was to go.
    Keep,
}

/// Decides between the two for a queue of that vhost.
pub(super) fn instead(
    policies: &LivePolicies,
    vhost: &[u8],
    name: &[u8],
    known: Option<&Known>,
    names: &Names,
) -> Instead {
    let Some(Known { declared, .. }) = known else {
        return Instead::Forward; // the queue has ended, or nobody told us of it
    };
    let queue = Queue {
        vhost,
        name,
        queue_type: declared.queue_type,
    };
    if policies.broker_dead_letters(queue, declared) {
        return Instead::Forward;
    }
    match policies.target_of_declared(queue, declared, names) {
        Lookup::Target(_) | Lookup::KeyUnknown => Instead::Keep,
        // The policy is gone: the queue has no dead letters any more, or those that a policy of the broker gives it.
        Lookup::Unknown | Lookup::NoExchange => Instead::Forward,
    }
}

/// Whether a delivery may be returned to its queue by `basic.nack` without coming near a limit on its deliveries.
///
/// Measured: classic queues never count; quorum queues count each return, but for 4.3, where a nack (and a recover) is not counted.
/// `x-delivery-count` is missing while it is 0 (3.10 writes it), and on classic queues.
pub(super) fn may_return(version: Option<Version>, declared: &Declared, properties: &[u8]) -> bool {
    let nack_counts = version.is_none_or(|version| version < Version(4, 3, 0));
    if !nack_counts || declared.queue_type == QueueType::Classic {
        return true;
    }
    let limit = Table(&declared.form.arguments).get(b"x-delivery-limit");
    let limit = limit.ok().flatten().and_then(|limit| limit.as_integer());
    let unlimited = version.is_some_and(|version| version >= Version(4, 0, 0));
    let limit = match limit {
        Some(limit) if limit < 0 && unlimited => DELIVERY_LIMIT,
        Some(limit) => limit.min(DELIVERY_LIMIT),
        None => DELIVERY_LIMIT,
    };
    delivery_count(properties).is_ok_and(|count| count < limit / OUR_SHARE)
}

fn delivery_count(properties: &[u8]) -> Result<i64, Malformed> {
    let properties = Properties::parse(properties)?;
    let headers = Table(properties.headers().unwrap_or_default());
    let count = headers.get(b"x-delivery-count")?;
    Ok(count.and_then(|count| count.as_integer()).unwrap_or(0))
}

/// When something that has failed is done again: after growing pauses.
#[derive(Debug)]
pub(super) struct Again {
    at: Option<Mono>,
    pause: Duration,
    last: Mono,
}

// === impl Again ===

impl Default for Again {
    fn default() -> Again {
        Again {
            at: None,
            pause: FIRST_PAUSE,
            last: Mono::default(),
        }
    }
}

impl Again {
    /// The deadline.
    pub(super) fn at(&self) -> Option<Mono> {
        self.at
    }

    /// Something waits for it.
    fn arm(&mut self, now: Mono) {
        if self.at.is_none() {
            if self.last.until(now) > 2 * self.pause {
                self.pause = FIRST_PAUSE; // it was long ago that something failed
            }
            self.at = Some(now.after(self.pause));
        }
    }

    /// Its time has come: the next pause is longer.
    fn fired(&mut self, now: Mono) {
        self.at = None;
        self.last = now;
        self.pause = (2 * self.pause).min(LAST_PAUSE);
    }

    /// It can be done again: the others that wait need not.
    pub(super) fn succeeds(&mut self, now: Mono) {
        self.pause = FIRST_PAUSE;
        self.at = self.at.map(|_| now);
    }
}

impl Session {
    /// Whether the broker would discard what is rejected in this queue.
    pub(super) fn instead(&self, queue: &[u8]) -> Instead {
        let known = self.registry.get(queue);
        let (policies, names) = (&self.settings.policies, &self.settings.names);
        instead(policies, &self.peer.vhost, queue, known, names)
    }

    /// Whether this session knows a queue whose rejects the broker must not see.
    pub(super) fn knows_any_to_keep(&self) -> bool {
        let mut names = self.registry.names();
        names.any(|queue| self.instead(queue) == Instead::Keep)
    }

    /// Decides what becomes of a rejected delivery. `None`: its queue is not managed any more.
    /// `held`: how long the client had it when it rejected it.
    pub(super) fn dispose(
        &self,
        retained: &Retained,
        held: Duration,
        turn: &Turn<'_>,
    ) -> Option<Disposal> {
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
            ..self.death(retained, &content, Reason::Rejected, declared.queue_type)
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
        queue_type: QueueType,
    ) -> Death<'a> {
        Death {
            queue: &retained.queue,
            reason,
            exchange: &retained.exchange,
            routing_key: &retained.routing_key,
            content,
            recorded: false,
            failed: self.has_failed(retained, content, queue_type),
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

    /// A reject of a retained delivery, or one that is withheld, is kept from the broker.
    pub(super) fn keep(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        queue: ShortStr,
        cause: Fallback,
        turn: &mut Turn<'_>,
    ) {
        if cause == Fallback::Unreadable {
            self.drop_copy(channel, tag);
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.unacked.keep(tag, turn.now.mono);
        if state.unacked.uncopied(tag).is_some() {
            state.unacked.keep_uncopied(tag);
            self.back.arm(turn.now.mono);
        }
        self.again.arm(turn.now.mono);
        turn.event(Event::RejectKept { queue, cause });
    }

    /// The copy of a delivery is of no use.
    fn drop_copy(&mut self, channel: ChannelId, tag: DeliveryTag) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let Some(retained) = state.unacked.drop_copy(tag) else {
            return;
        };
        let returnable = self.may_return(&retained);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unacked.lacks_copy(tag, &retained.queue, returnable);
        }
        self.give_back(retained.octets());
    }

    fn may_return(&self, retained: &Retained) -> bool {
        let known = self.registry.get(&retained.queue);
        let properties = &retained.content.properties;
        known.is_some_and(|known| may_return(self.peer.version, &known.declared, properties))
    }

    /// No copy of a delivery could be kept; `properties`: its own.
    pub(super) fn returnable(&self, queue: &[u8], properties: &[u8]) -> Option<bool> {
        let known = self.registry.get(queue)?;
        let keep = self.instead(queue) == Instead::Keep;
        keep.then(|| may_return(self.peer.version, &known.declared, properties))
    }

    /// The publisher refused the dead letter of a kept reject.
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
            self.again.arm(turn.now.mono);
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
        for (channel, tag, queue) in self.idle() {
            let state = self.channels.get(&channel);
            let in_tx = state.is_some_and(|state| state.tx.is_some());
            if self.instead(&queue) == Instead::Forward && !in_tx {
                // Nothing names a target any more, or the broker knows one by now.
                self.reject_kept(channel, tag, queue, turn);
                continue;
            }
            self.again.arm(turn.now.mono);
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
            let long = state.tx.is_none() && kept.since.until(turn.now.mono) >= KEPT_FOR;
            if long && self.may_return(&kept.retained) {
                self.return_kept(channel, tag, queue, turn);
                continue;
            }
            let hide_user = kept.hide_user;
            let delivered = kept.retained.delivered;
            let waits = kept.since.until(turn.now.mono);
            let held = delivered.until(turn.now.wall).saturating_sub(waits);
            if let Some(Disposal::Publish(mut publication)) =
                self.dispose(&kept.retained, held, turn)
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

    /// What is kept and not on its way, with its queue.
    fn idle(&self) -> Vec<(ChannelId, DeliveryTag, ShortStr)> {
        let open = self.channels.iter().filter(|(_, state)| !state.closing);
        let idle = open.flat_map(|(channel, state)| {
            let copied = state.unacked.kept_idle();
            let copied = copied.map(|(tag, kept)| (tag, &kept.retained.queue));
            let uncopied = state.unacked.kept_uncopied();
            let all = copied.chain(uncopied.map(|(tag, queue, _)| (tag, queue)));
            all.map(|(tag, queue)| (*channel, tag, queue.clone()))
        });
        idle.collect()
    }

    /// A reject that is kept.
    pub(super) fn kept(&self, channel: ChannelId, tag: DeliveryTag) -> Option<&Kept> {
        self.channels.get(&channel)?.unacked.kept(tag)
    }

    /// Returns what is kept without a copy, where that does not harm it.
    pub(super) fn return_uncopied(&mut self, turn: &mut Turn<'_>) {
        self.back.fired(turn.now.mono);
        // In tx mode a return would be part of the client's transaction: there the message stays until the channel ends.
        let open = self.channels.iter();
        let open = open.filter(|(_, state)| !state.closing && state.tx.is_none());
        let returnable = open.flat_map(|(channel, state)| {
            let uncopied = state.unacked.kept_uncopied();
            let returnable = uncopied.filter(|(_, _, returnable)| *returnable);
            returnable.map(|(tag, queue, _)| (*channel, tag, queue.clone()))
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
        turn.event(Event::RejectReturned { queue });
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
