//! What the broker sends: it all passes, but replies and deliveries tell us what to keep.

use std::ops::Range;

use crate::amqp::content::{Assembly, body_size};
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{Cancel, Close, ConsumerTag, Deliver, GetOk, MethodId, QueueDeclareOk};
use crate::amqp::reply;
use crate::machine::{Bound, Change, Event, Learned, Leg};
use crate::registry::refusal;

use super::changes;
use super::channel::{Consumer, Copying, Transfer};
use super::replies::{Due, Expected, answered, is_reply};
use super::unacked::Retained;
use super::{Phase, Session, Turn};

impl Session {
    pub(super) fn broker_connection(
        &mut self,
        id: MethodId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        turn.pass(Leg::Broker, range);
        match id {
            MethodId::CONNECTION_OPEN_OK => {
                self.handshake_until = None;
                self.registry.enter(self.peer.vhost.clone());
                turn.event(Event::SessionOpened {
                    vhost: self.peer.vhost.clone(),
                    user: self.peer.user.clone(),
                    name: self.peer.name.clone(),
                });
                if self.peer.dialect.is_none() {
                    self.phase = Phase::Raw;
                }
            }
            MethodId::CONNECTION_CLOSE_OK if matches!(self.phase, Phase::Goodbye(_)) => {
                self.let_go(turn.now.mono);
            }
            MethodId::CONNECTION_CLOSE => {
                self.learn_channel_limit(payload, turn);
                self.hold = None;
                self.heartbeat_at = None;
                self.connection_closes();
            }
            _ => self.peer.watch(id, payload),
        }
        len
    }

    /// The broker closes the connection. If that is for a limit on channels, no session probes for this user any more.
    fn learn_channel_limit(&self, payload: &[u8], turn: &mut Turn<'_>) {
        let limit = |close: Close<'_>| refusal::is_channel_limit(close.code, close.text);
        if Close::parse(payload).is_ok_and(limit) {
            turn.fx.learned.push(Learned::ChannelLimit);
            if self.is_probing() {
                turn.event(Event::ProbeOverLimit);
            }
        }
    }

    pub(super) fn broker_method(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        if self.is_probe(channel) {
            self.probe_reply(id, payload, turn);
            return len;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            turn.pass(Leg::Broker, range);
            return len;
        };
        if state.hidden {
            return len;
        }
        match id {
            MethodId::CHANNEL_CLOSE => {
                self.abandon_takeover(channel, turn);
                match self.reworded(channel, payload, turn) {
                    Some(frame) => turn.build(Leg::Client).extend_from_slice(&frame),
                    None => turn.pass(Leg::Broker, range),
                }
                self.abandon(channel);
                return len;
            }
            MethodId::CHANNEL_CLOSE_OK => {
                self.forget_channel(channel);
            }
            MethodId::BASIC_DELIVER => {
                state.delivering = Transfer::Header(false);
                if let Ok(deliver) = Deliver::parse(payload) {
                    let consumer = state.consumers.get(deliver.consumer_tag).cloned();
                    let exchange = self.settings.names.bridges().behind(deliver.exchange);
                    let (tag, key) = (deliver.delivery_tag, deliver.routing_key);
                    self.delivered(channel, tag, consumer, exchange, key);
                    if exchange.len() != deliver.exchange.len() {
                        let deliver = Deliver {
                            exchange,
                            ..deliver
                        };
                        turn.replace(Leg::Broker, |out| reply::deliver(out, channel, &deliver));
                        return len;
                    }
                }
            }
            MethodId::BASIC_RETURN => state.delivering = Transfer::Header(false),
            MethodId::BASIC_CANCEL => {
                // The queue is gone, or has moved: what was known of it ends.
                if let Ok(cancel) = Cancel::parse(payload)
                    && let Some(consumer) = state.consumers.remove(cancel.consumer_tag)
                {
                    self.registry.end(&consumer.queue);
                }
            }
            _ if is_reply(id) => {
                if self.answer(channel, id, payload, turn)
                    || self.got_over_bridge(channel, id, payload, turn)
                {
                    return len;
                }
            }
            _ => {}
        }
        turn.pass(Leg::Broker, range);
        len
    }

    /// A reply: what it means for us. True: it goes nowhere.
    fn answer(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        let Some(Due { mut what, unseen }) = answered(&mut state.due, id, payload) else {
            return false;
        };
        if state.closing {
            return unseen;
        }
        if let Expected::Get(Consumer { queue, .. })
        | Expected::Consume(_, Consumer { queue, .. })
        | Expected::Delete(queue) = &mut what
            && queue.is_empty()
        {
            *queue = state.last_queue.clone();
        }
        if let Expected::Change(change) = &mut what {
            changes::name_queue(change, &state.last_queue);
        }
        match what {
            Expected::Declare(_, declared) => {
                (state.reword, state.declared) = (None, None);
                let queue = QueueDeclareOk::parse(payload)
                    .ok()
                    .and_then(|ok| ShortStr::copy(ok.queue))
                    .unwrap_or_default();
                state.last_queue = queue.clone();
                state.name_consumers();
                if let Some(declared) = declared {
                    self.manage(queue, declared, turn);
                }
            }
            Expected::Delete(queue) => {
                self.registry.end(&queue);
                turn.fx.learned.push(Learned::Deleted(queue.clone()));
                turn.fx.changes.push(Change::QueueDeleted(queue));
            }
            Expected::Change(change) => {
                if let Change::Declared(exchange) = &change {
                    self.exchanges.learn(exchange.name.clone(), turn.now.mono);
                }
                turn.fx.changes.push(change);
            }
            Expected::Published(exchange) => self.exchanges.learn(exchange, turn.now.mono),
            Expected::Consume(_, consumer) => {
                if let Some(tag) = ConsumerTag::parse(payload)
                    .ok()
                    .and_then(|ok| ShortStr::copy(ok.consumer_tag))
                {
                    state.consumers.insert(tag, consumer);
                }
            }
            Expected::Cancel(_) => {
                if let Ok(ok) = ConsumerTag::parse(payload) {
                    state.consumers.remove(ok.consumer_tag);
                }
            }
            Expected::Get(consumer) if id == MethodId::BASIC_GET_OK => {
                state.delivering = Transfer::Header(false);
                if let Ok(got) = GetOk::parse(payload) {
                    let exchange = self.settings.names.bridges().behind(got.exchange);
                    let (tag, key) = (got.delivery_tag, got.routing_key);
                    self.delivered(channel, tag, Some(consumer), exchange, key);
                }
            }
            Expected::Barrier => self.barrier_passed(turn),
            Expected::Get(_) | Expected::Recover | Expected::Open | Expected::Other => {}
        }
        unseen
    }

    /// Passes a `basic.get-ok` on with the exchange that is behind a bridge; false when it came over none.
    fn got_over_bridge(
        &self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(got) = (id == MethodId::BASIC_GET_OK)
            .then(|| GetOk::parse(payload).ok())
            .flatten()
        else {
            return false;
        };
        let exchange = self.settings.names.bridges().behind(got.exchange);
        let bridged = exchange.len() != got.exchange.len();
        if bridged {
            let got = GetOk { exchange, ..got };
            turn.replace(Leg::Broker, |out| reply::get_ok(out, channel, &got));
        }
        bridged
    }

    /// A delivery begins; a copy is kept of it if its queue is managed.
    fn delivered(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        consumer: Option<Consumer>,
        exchange: &[u8],
        routing_key: &[u8],
    ) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.copying = None;
        let no_ack = consumer.as_ref().is_some_and(|consumer| consumer.no_ack);
        if state.native || no_ack || state.is_recovering() {
            return;
        }
        state.unacked.deliver(tag);
        let Some(queue) = consumer.map(|consumer| consumer.queue) else {
            return;
        };
        if self.registry.get(&queue).is_none() {
            return;
        }
        if let (Some(exchange), Some(routing_key)) =
            (ShortStr::copy(exchange), ShortStr::copy(routing_key))
        {
            state.copying = Some(Copying {
                tag,
                queue,
                exchange,
                routing_key,
                assembly: None,
            });
        }
    }

    /// The header of a delivery: from here on its content is copied, if the budget allows.
    pub(super) fn begin_copy(&mut self, channel: ChannelId, header: &[u8], turn: &mut Turn<'_>) {
        let Some(copying) = self
            .channels
            .get_mut(&channel)
            .and_then(|state| state.copying.as_mut())
        else {
            return;
        };
        let left = self
            .settings
            .limits
            .now()
            .retained_per_connection
            .saturating_sub(self.octets);
        let octets = usize::try_from(body_size(header).unwrap_or(u64::MAX))
            .unwrap_or(usize::MAX)
            .saturating_add(header.len());
        let bound = match octets <= left {
            true => Bound::Retained,
            false => Bound::RetainedPerConnection,
        };
        if octets <= left && self.settings.retained.take(octets) {
            copying.assembly = Assembly::begin(header, octets);
            let kept = copying.assembly.as_ref().map_or(0, Assembly::whole);
            self.settings.retained.give(octets - kept);
            self.octets += kept;
        } else {
            turn.event(Event::NotRetained {
                queue: copying.queue.clone(),
                bound,
            });
        }
    }

    /// A piece of a delivery's body.
    pub(super) fn copy(&mut self, channel: ChannelId, piece: &[u8]) {
        if let Some(assembly) = self
            .channels
            .get_mut(&channel)
            .and_then(|state| state.copying.as_mut()?.assembly.as_mut())
        {
            assembly.push(piece);
        }
    }

    /// A frame of a delivery has ended: with the last one its copy is kept.
    pub(super) fn copied(&mut self, channel: ChannelId) {
        let Some(state) = self
            .channels
            .get_mut(&channel)
            .filter(|state| state.delivering.is_idle())
        else {
            return;
        };
        let Some(Copying {
            tag,
            queue,
            exchange,
            routing_key,
            assembly: Some(assembly),
        }) = state.copying.take()
        else {
            return;
        };
        let whole = assembly.whole();
        let kept = assembly.is_complete()
            && state.unacked.retain(
                tag,
                Retained {
                    queue,
                    exchange,
                    routing_key,
                    content: assembly.finish(),
                },
            );
        if !kept {
            self.give_back(whole);
        }
    }
}
