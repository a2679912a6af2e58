//! What the broker sends: it all passes, but replies and deliveries tell us what to keep.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Cancel, Close, ConsumerTag, Deliver, GetOk, MethodId, QueueDeclareOk};
use crate::amqp::reply;
use crate::machine::{Event, Leg};
use crate::registry::refusal;

use super::channel::{Consumer, Transfer};
use super::frames::{Handled, Method};
use super::lifecycle::Phase;
use super::redelivered::Behind;
use super::replies::{Due, Expected, is_reply};
use super::unacked::Retained;
use super::{Session, Turn};

mod deliveries;

impl Session {
    pub(super) fn broker_connection(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        if method.id == MethodId::CONNECTION_START {
            self.peer.watch(method.id, method.payload);
            return self.start(method, turn);
        }
        let passed = turn.pass_method(method);
        match method.id {
            MethodId::CONNECTION_OPEN_OK => {
                self.handshake_until = None;
                self.registry.enter(self.peer.vhost.clone());
                turn.event(Event::SessionOpened {
                    vhost: self.peer.vhost.clone(),
                    user: self.peer.user.clone(),
                    name: self.peer.name.clone(),
                });
                self.peer.connected();
                if self.peer.dialect.is_none() {
                    self.life.enter(Phase::Raw);
                }
            }
            MethodId::CONNECTION_CLOSE_OK if matches!(self.life.phase(), Phase::Goodbye(_)) => {
                self.life.broker_is_gone(turn.now.mono);
            }
            MethodId::CONNECTION_CLOSE => {
                self.learn_channel_limit(method.payload, turn);
                self.pause.end();
                self.connection_closes();
            }
            _ => self.peer.watch(method.id, method.payload),
        }
        passed
    }

    /// The broker closes the connection. If that is for a limit on channels, no session probes for this user any more.
    fn learn_channel_limit(&self, payload: &[u8], turn: &mut Turn<'_>) {
        let limit = |close: Close<'_>| refusal::is_channel_limit(close.code, close.text);
        if Close::parse(payload).is_ok_and(limit) {
            if let Some(user) = &self.peer.user {
                self.settings.channel_limits.learn(user, turn.now.mono);
            }
            if self.declares.is_on_its_way() {
                turn.event(Event::ProbeOverLimit);
            }
        }
    }

    /// A method of one of its channels.
    pub(super) fn broker_method(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let rest = turn.src.get(method.range().end..).unwrap_or_default();
        if self.declares.channel() == Some(channel) {
            let (declares, mut line) = self.line(turn);
            declares.probe_reply(method, &mut line);
            return Handled::Done;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return turn.pass_method(method);
        };
        if state.hidden {
            return Handled::Done;
        }
        match id {
            MethodId::CHANNEL_CLOSE => {
                let (declares, mut line) = self.line(turn);
                declares.abandon(channel, &mut line);
                match line.reworded(method) {
                    Some(frame) => turn.build(Leg::Client).extend_from_slice(&frame),
                    None => turn.pass(Leg::Broker, method.range()),
                }
                self.abandon(channel);
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.due.clear();
                }
                return Handled::Done;
            }
            MethodId::CHANNEL_CLOSE_OK => {
                self.forget_channel(channel);
            }
            MethodId::BASIC_DELIVER => {
                let deliver = Deliver::parse(payload).ok();
                let consumer =
                    deliver.and_then(|deliver| state.consumers.get(deliver.consumer_tag).cloned());
                let queue = consumer.as_ref().map(|consumer| &consumer.queue);
                let by = deliver.map(|deliver| (deliver.exchange, deliver.routing_key));
                let behind = self.look_behind(channel, queue, by.unwrap_or_default(), rest);
                if behind == Behind::Awaited {
                    return Handled::Wait;
                }
                let Some(state) = self.channels.get_mut(&channel) else {
                    return turn.pass_method(method);
                };
                state.delivering = Transfer::Header(false);
                state.came_back = came_back_to(&behind, consumer.as_ref());
                if let Some(deliver) = deliver {
                    let exchange = self.settings.names.bridges().behind(deliver.exchange);
                    let (exchange, routing_key) = match &behind {
                        Behind::CameBack(exchange, key, _) => (exchange.as_bytes(), key.as_bytes()),
                        Behind::Awaited | Behind::Ordinary => (exchange, deliver.routing_key),
                    };
                    self.delivered(
                        channel,
                        deliver.delivery_tag,
                        consumer,
                        (deliver.exchange, deliver.routing_key),
                        deliver.redelivered,
                        turn,
                    );
                    let came_back = matches!(behind, Behind::CameBack(..));
                    if came_back || exchange.len() != deliver.exchange.len() {
                        let deliver = Deliver {
                            redelivered: deliver.redelivered || behind.was_returned(),
                            exchange,
                            routing_key,
                            ..deliver
                        };
                        turn.replace(Leg::Broker, |out| reply::deliver(out, channel, &deliver));
                        return Handled::Done;
                    }
                }
            }
            MethodId::BASIC_RETURN => state.delivering = Transfer::Header(false),
            MethodId::BASIC_CANCEL => {
                // The queue is gone, or has moved, or its consumer was too slow: what it was given is the broker's.
                if let Ok(cancel) = Cancel::parse(payload)
                    && let Some(consumer) = state.consumers.remove(cancel.consumer_tag)
                {
                    let given = |retained: &Retained| retained.consumer == consumer.tag;
                    let freed = state.unacked.release(given);
                    self.give_back(freed);
                    self.registry.doubt(&consumer.queue);
                }
            }
            MethodId::BASIC_GET_OK => {
                let got = GetOk::parse(payload).ok();
                let get = state.getting();
                let queue = get.as_ref().map(|get| &get.queue);
                let by = got.map(|got| (got.exchange, got.routing_key));
                let behind = self.look_behind(channel, queue, by.unwrap_or_default(), rest);
                if behind == Behind::Awaited {
                    return Handled::Wait;
                }
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.came_back = came_back_to(&behind, get.as_ref());
                }
                if self.answer(method, turn) || self.got_otherwise(method, &behind, turn) {
                    return Handled::Done;
                }
            }
            _ if is_reply(id) => {
                if self.answer(method, turn) {
                    return Handled::Done;
                }
            }
            _ => {}
        }
        turn.pass_method(method)
    }

    /// A reply: what it means for us. True: it goes nowhere.
    fn answer(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> bool {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let Some(state) = self.channels.get_mut(&channel) else {
            return false;
        };
        let Some(Due {
            mut what, unseen, ..
        }) = state.due.answered(id, payload)
        else {
            return false;
        };
        // What the broker did for its client stays done.
        let lasts = matches!(
            what,
            Expected::Declare(..)
                | Expected::Delete(_)
                | Expected::Purge(_)
                | Expected::Published(_)
        );
        if state.closing && !lasts {
            return unseen;
        }
        if let Expected::Get(Consumer { queue, .. })
        | Expected::Consume(_, Consumer { queue, .. })
        | Expected::Delete(queue)
        | Expected::Purge(queue) = &mut what
            && queue.is_empty()
        {
            *queue = state.last_queue.clone();
        }
        match what {
            Expected::Declare(asked, accepted) => {
                (state.reword, state.declared) = (None, None);
                let queue = QueueDeclareOk::parse(payload)
                    .ok()
                    .and_then(|ok| ShortStr::copy(ok.queue))
                    .unwrap_or_default();
                state.last_queue = queue.clone();
                state.name_consumers();
                if let Some(accepted) = accepted {
                    let (declares, mut line) = self.line(turn);
                    declares.accepted(queue, &asked, accepted, &mut line);
                }
            }
            Expected::Purge(queue) => self.tell_of_waiting(queue, false, turn),
            Expected::Delete(queue) => {
                self.tell_of_waiting(queue.clone(), true, turn);
                self.registry.end(&queue, turn.now.mono);
                if let Some(entry) = self.settings.policies.forget(&self.peer.vhost, &queue) {
                    turn.fx.out.record.push((queue, entry, false));
                }
            }
            Expected::Exchange(exchange) | Expected::Published(exchange) => {
                self.exchanges.learn(&exchange, turn.now.mono);
            }
            Expected::Consume(_, mut consumer) => {
                if let Some(tag) = ConsumerTag::parse(payload)
                    .ok()
                    .and_then(|ok| ShortStr::copy(ok.consumer_tag))
                {
                    self.registry.consumed(&consumer.queue);
                    consumer.tag = Some(tag.clone());
                    state.consumers.insert(tag, consumer);
                    // What has changed since it was sent was looked at without it.
                    self.declares.news = (0, 0);
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
                    let (tag, by) = (got.delivery_tag, (got.exchange, got.routing_key));
                    self.delivered(channel, tag, Some(consumer), by, got.redelivered, turn);
                }
            }
            Expected::Barrier => {
                let (declares, mut line) = self.line(turn);
                declares.quiet(&mut line);
            }
            Expected::Get(_) | Expected::Recover | Expected::Open | Expected::Other => {}
        }
        unseen
    }
}

/// The queue that a delivery has come back to.
fn came_back_to(behind: &Behind, consumer: Option<&Consumer>) -> Option<ShortStr> {
    let came_back = matches!(behind, Behind::CameBack(..));
    consumer
        .filter(|_| came_back)
        .map(|consumer| consumer.queue.clone())
}
