//! A queue is made anew while this session goes on: what may reach the queue waits, its consumers end, and begin again when it is there.
//!
//! ```text
//! Hold ─▶ publishes that may reach it, and all requests, wait ─▶ what went before is answered ─▶ "held"
//! Settle ─▶ the client has settled what it has of the queue ─▶ "settled"
//! Cancel ─▶ its consumers end ─▶ "cancelled"
//! Over ─▶ the consumers begin again, and the client goes on
//! ```
//! Settlements always pass. An old one that came to the broker behind the swap could settle a message of the new queue, as a channel goes on
//! counting its tags: so the session says "settled" only when the broker has answered behind the last one. Consumers end after that, as a quorum
//! queue takes back what is on its way to a consumer that ends (S12.6).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::amqp::content::PREFIX;
use crate::amqp::frame::{self, Front, Kind};
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, Publish};
use crate::amqp::reply;
use crate::registry::reach::Reach;

use super::channel::{Channel, Consumer};
use super::frames::{Handled, Method};
use super::line::Line;
use super::pause::Hold;
use super::replies::Expected;
use super::verdicts::is_verdict;
use super::{Session, Turn};

/// What a session is told of a swap.
#[derive(Clone, Debug)]
pub enum Swap {
    Hold(Arc<Reach>),
    Settle,
    Cancel,
    /// The queue is there; and whether it is another one.
    Over {
        anew: bool,
    },
}

/// What a session says of a swap, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ready {
    /// Nothing of it is on its way into the queue.
    Held,
    /// It has settled all that it was given of the queue.
    Settled,
    /// And reads nothing from it any more.
    Cancelled,
}

#[derive(Debug)]
pub(super) struct Swapping {
    reach: Arc<Reach>,
    /// What it has to become, and whether that was said.
    wanted: Ready,
    is_said: bool,
    ended: Vec<Ended>,
}

/// A consumer that is to begin again.
type Ended = (ChannelId, ShortStr, Consumer);

// === impl Swapping ===

impl Swapping {
    /// Whether a client's method must wait. `None`: the content header behind it, which tells, is not there yet.
    fn stops(&self, method: Method<'_>, rest: &[u8]) -> Option<bool> {
        match method.id {
            MethodId::BASIC_ACK
            | MethodId::BASIC_NACK
            | MethodId::BASIC_REJECT
            | MethodId::CHANNEL_CLOSE_OK
            | MethodId::CHANNEL_FLOW_OK => Some(false),
            // Its settlement comes behind it.
            MethodId::QUEUE_UNBIND if is_verdict(method) => Some(false),
            MethodId::BASIC_PUBLISH => {
                let Ok(publish) = Publish::parse(method.payload) else {
                    return Some(true);
                };
                let reached = self.reach.has(publish.exchange, publish.routing_key);
                reached.or_else(|| match frame::front(rest) {
                    Front::Short | Front::Part(_) => None,
                    Front::Whole(head, payload, _) if head.kind == Kind::Header => {
                        let properties = payload.get(PREFIX..).unwrap_or_default();
                        Some(Reach::has_more_keys(properties))
                    }
                    Front::Whole(..) | Front::Unterminated(_) => Some(true),
                })
            }
            _ => Some(true),
        }
    }
}

// === impl Channel ===

impl Channel {
    /// Whether it has a delivery of that queue that the broker waits for, as far as known.
    fn may_have_of(&self, queue: &ShortStr) -> bool {
        self.has_read(queue)
            && (self.refused || self.tx.is_some() || self.unacked.may_have_of(queue))
    }

    fn is_swapped(&self) -> bool {
        !self.hidden && !self.closing
    }
}

impl Session {
    /// Whether this frame of the client waits for a swap.
    #[cold]
    pub(super) fn waits_for_swap(
        &mut self,
        method: Method<'_>,
        turn: &Turn<'_>,
    ) -> Option<Handled> {
        let swapping = self.swap.as_deref()?;
        if swapping.reach.vhost != self.peer.vhost {
            return None;
        }
        let rest = turn.src.get(method.range().end..).unwrap_or_default();
        match swapping.stops(method, rest) {
            Some(false) => None,
            Some(true) => Some(self.hold(Hold::Swap, turn)),
            None => Some(Handled::Wait),
        }
    }

    pub(super) fn swap(&mut self, swap: Swap, turn: &mut Turn<'_>) {
        let before = self.swap.take();
        let (_, mut line) = self.line(turn);
        self.swap = match (swap, before) {
            (Swap::Hold(reach), _) => {
                line.ask_behind(|_, state| state.unanswered || !state.publishing.is_idle());
                Some(Box::new(Swapping {
                    reach,
                    wanted: Ready::Held,
                    is_said: false,
                    ended: Vec::new(),
                }))
            }
            (Swap::Settle, Some(mut swapping)) => {
                (swapping.wanted, swapping.is_said) = (Ready::Settled, false);
                Some(swapping)
            }
            (Swap::Cancel, Some(mut swapping)) => {
                (swapping.wanted, swapping.is_said) = (Ready::Cancelled, false);
                swapping.ended = line.end_consumers(&swapping.reach);
                Some(swapping)
            }
            (Swap::Over { anew }, Some(swapping)) => {
                if anew && swapping.reach.vhost == line.peer.vhost {
                    line.registry.leave(&swapping.reach.queue);
                }
                line.begin_again(swapping.ended);
                None
            }
            (Swap::Settle | Swap::Cancel | Swap::Over { .. }, None) => None,
        };
    }

    /// Says how far it is; after whatever may have changed that.
    pub(super) fn tell_of_swap(&mut self, turn: &mut Turn<'_>) {
        let Some(mut swapping) = self.swap.take_if(|swapping| !swapping.is_said) else {
            return;
        };
        let (declares, mut line) = self.line(turn);
        if line.is_ready(&swapping, declares.is_on_its_way()) {
            swapping.is_said = true;
            line.turn.fx.out.swap = Some(swapping.wanted);
        }
        self.swap = Some(swapping);
    }
}

impl Line<'_, '_> {
    /// Asks the broker on channels where an answer would say that all before it is done.
    fn ask_behind(&mut self, which: impl Fn(ChannelId, &Channel) -> bool) {
        for (channel, state) in &mut *self.channels {
            if state.is_swapped() && which(*channel, state) {
                state.expect(Expected::Other, true);
                let flow = |out: &mut Vec<u8>| reply::channel_flow(out, *channel);
                self.transit.inject(*channel, Some(state), self.turn, flow);
            }
        }
    }

    fn end_consumers(&mut self, reach: &Reach) -> Vec<Ended> {
        let mut ended = Vec::new();
        if reach.vhost != self.peer.vhost {
            return ended;
        }
        let channels = self.channels.iter_mut();
        for (channel, state) in channels.filter(|(_, state)| state.is_swapped()) {
            let consumers = state.consumers.iter();
            let ending = consumers.filter(|(_, consumer)| consumer.queue == reach.queue);
            let ending: Vec<_> = ending
                .map(|(tag, consumer)| (tag.clone(), consumer.clone()))
                .collect();
            for (tag, consumer) in ending {
                state.expect(Expected::Cancel(tag.clone()), true);
                let cancel = |out: &mut Vec<u8>| reply::cancel(out, *channel, &tag);
                self.transit
                    .inject(*channel, Some(state), self.turn, cancel);
                ended.push((*channel, tag, consumer));
            }
        }
        // A quorum queue ends a consumer, and takes back what is on its way, only behind `cancel-ok` (S12.6).
        let ends = |channel: ChannelId| ended.iter().any(|(of, ..)| *of == channel);
        self.ask_behind(|channel, _| ends(channel));
        ended
    }

    fn begin_again(&mut self, ended: Vec<Ended>) {
        for (channel, tag, mut consumer) in ended {
            consumer.looked = None;
            let state = self.channels.get_mut(&channel);
            if let Some(state) = state.filter(|state| state.is_swapped()) {
                let consume = |out: &mut Vec<u8>| consumer.asked(out, channel, &tag);
                self.transit
                    .inject(channel, Some(state), self.turn, consume);
                state.expect(Expected::Consume(tag.clone(), consumer), true);
            }
        }
    }

    fn is_ready(&mut self, swapping: &Swapping, is_declaring: bool) -> bool {
        let Reach { vhost, queue, .. } = &*swapping.reach;
        if *vhost != self.peer.vhost {
            return true;
        }
        let is_held = |state: &Channel| {
            state.hidden || !state.closing && state.due.is_empty() && state.publishing.is_idle()
        };
        let is_held = !self.transit.life.is_raw()
            && !is_declaring
            && self.channels.values().all(|state| is_held(state));
        if swapping.wanted == Ready::Held || !is_held {
            return is_held;
        }
        let ends = swapping.wanted == Ready::Cancelled;
        let reads = |state: &Channel| state.consumers.values().any(|of| of.queue == *queue);
        let has = |state: &Channel| ends && reads(state) || state.may_have_of(queue);
        if self.channels.values().any(|state| has(state)) || !self.transit.outbox.is_empty() {
            return false;
        }
        // The broker may not have read the last settlement yet.
        let unsure = |state: &Channel| state.unanswered && state.has_read(queue);
        let mut channels = self.channels.values();
        let asks = channels.any(|state| state.is_swapped() && unsure(state));
        if asks {
            self.ask_behind(|_, state| unsure(state));
        }
        !asks
    }
}
