//! What the broker sends: it all passes, but replies and deliveries tell us what to keep.

use std::sync::Arc;
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{Cancel, Close, ConsumerTag, Deliver, GetOk, MethodId};
use crate::amqp::reply;
use crate::machine::{Event, Leg, Wall};
use crate::registry::refusal;

use super::channel::{Consumer, Copying, Look, Transfer};
use super::facts::Facts;
use super::frames::{Handled, Method};
use super::lifecycle::Phase;
use super::redelivered::Behind;
use super::replies::{Due, Expected, is_reply};
use super::unacked::Retained;
use super::{Session, Turn};

/// `basic.deliver`, or `basic.get-ok` with its message count.
struct Sent<'a> {
    said: Deliver<'a>,
    left: Option<u32>,
}

// === impl Sent ===

impl<'a> Sent<'a> {
    fn parse(method: Method<'a>) -> Option<Sent<'a>> {
        if method.id == MethodId::BASIC_DELIVER {
            let said = Deliver::parse(method.payload).ok()?;
            return Some(Sent { said, left: None });
        }
        let got = GetOk::parse(method.payload).ok()?;
        let said = Deliver {
            consumer_tag: &[],
            delivery_tag: got.delivery_tag,
            redelivered: got.redelivered,
            exchange: got.exchange,
            routing_key: got.routing_key,
        };
        let left = Some(got.message_count);
        Some(Sent { said, left })
    }

    fn build(&self, out: &mut Vec<u8>, channel: ChannelId) {
        let said = &self.said;
        match self.left {
            None => reply::deliver(out, channel, said),
            Some(message_count) => {
                let got = GetOk {
                    delivery_tag: said.delivery_tag,
                    redelivered: said.redelivered,
                    exchange: said.exchange,
                    routing_key: said.routing_key,
                    message_count,
                };
                reply::get_ok(out, channel, &got);
            }
        }
    }
}

impl Session {
    pub(super) fn broker_connection(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        if method.id == MethodId::CONNECTION_START {
            self.peer.watch(method.id, method.payload);
            let is_known = self.peer.dialect.is_some();
            return self.transit.start(method, is_known, turn);
        }
        let passed = turn.pass_method(method);
        match method.id {
            MethodId::CONNECTION_OPEN_OK => {
                self.transit.handshake_until = None;
                self.registry.enter(self.peer.vhost.clone());
                turn.event(Event::SessionOpened {
                    vhost: self.peer.vhost.clone(),
                    user: self.peer.user.clone(),
                    name: self.peer.name.clone(),
                });
                self.peer.connected();
                if self.peer.dialect.is_none() {
                    self.transit.life.enter(Phase::Raw);
                }
            }
            MethodId::CONNECTION_CLOSE_OK
                if matches!(self.transit.life.phase(), Phase::Goodbye(_)) =>
            {
                self.transit.life.broker_is_gone(turn.now.mono);
            }
            MethodId::CONNECTION_CLOSE => {
                let limit = |close: Close<'_>| refusal::is_channel_limit(close.code, close.text);
                if Close::parse(method.payload).is_ok_and(limit) {
                    // No session probes for this user any more.
                    if let Some(user) = &self.peer.user {
                        self.settings.channel_limits.learn(user, turn.now.mono);
                    }
                    if self.declares.is_on_its_way() {
                        turn.event(Event::ProbeOverLimit);
                    }
                }
                self.transit.pause.end();
                self.connection_closes();
            }
            _ => self.peer.watch(method.id, method.payload),
        }
        passed
    }

    pub(super) fn broker_method(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let channel = method.channel;
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
        match method.id {
            MethodId::BASIC_DELIVER | MethodId::BASIC_GET_OK => {
                return self.delivery(method, turn);
            }
            MethodId::CHANNEL_CLOSE => {
                self.channel_closes(method, turn);
                return Handled::Done;
            }
            MethodId::CHANNEL_CLOSE_OK => self.forget_channel(channel),
            MethodId::BASIC_ACK | MethodId::BASIC_NACK if state.confirms.is_some() => {
                if self.confirmed(method, turn) {
                    return Handled::Done;
                }
            }
            MethodId::BASIC_RETURN => state.delivering = Transfer::Header(false),
            MethodId::BASIC_CANCEL => {
                // The queue is gone, or has moved, or its consumer was too slow: what it was given is the broker's.
                if let Ok(cancel) = Cancel::parse(method.payload)
                    && let Some(consumer) = state.consumers.remove(cancel.consumer_tag)
                {
                    let given = |retained: &Retained| retained.consumer == consumer.tag;
                    self.ledger.give_back(state.unacked.release(given));
                    self.registry.doubt(&consumer.queue);
                }
            }
            id if is_reply(id) && self.answer(method, turn) => return Handled::Done,
            _ => {}
        }
        turn.pass_method(method)
    }

    fn channel_closes(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let channel = method.channel;
        let (declares, mut line) = self.line(turn);
        declares.abandon(channel, &mut line);
        match line.reworded(method) {
            Some(frame) => turn.replace(Leg::Broker, |out| out.extend_from_slice(&frame)),
            None => turn.pass(Leg::Broker, method.range()),
        }
        self.abandon(channel);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.due.clear();
        }
    }

    /// Handles a reply. True: it is hidden from the client.
    fn answer(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> bool {
        let Some(state) = self.channels.get_mut(&method.channel) else {
            return false;
        };
        let Some(due) = state.due.answered(method.id, method.payload) else {
            return false;
        };
        let Due {
            mut what, unseen, ..
        } = due;
        if what == Expected::Verdict {
            turn.replace(Leg::Broker, |out| {
                reply::method(out, method.channel, MethodId::QUEUE_UNBIND_OK, |_| {});
            });
            return true;
        }
        if state.closing && !what.lasts() {
            return unseen;
        }
        if let Expected::Consume(_, Consumer { queue, .. })
        | Expected::Delete(queue)
        | Expected::Purge(queue) = &mut what
            && queue.is_empty()
        {
            *queue = state.last_queue.clone();
        }
        self.answered(method, what, turn);
        unseen
    }

    fn answered(&mut self, method: Method<'_>, what: Expected, turn: &mut Turn<'_>) {
        let payload = method.payload;
        let Some(state) = self.channels.get_mut(&method.channel) else {
            return;
        };
        match what {
            Expected::Declare(asked, accepted) => {
                let queue = state.declared(payload);
                if let Some(accepted) = accepted {
                    let (declares, mut line) = self.line(turn);
                    declares.accepted(queue, &asked, *accepted, &mut line);
                }
            }
            Expected::Purge(queue) => self.line(turn).1.tell_of_waiting(queue, false),
            Expected::Delete(queue) => {
                self.line(turn).1.tell_of_waiting(queue.clone(), true);
                self.registry.end(&queue, turn.now.mono);
                if let Some(entry) = self.settings.policies.forget(&self.peer.vhost, &queue) {
                    turn.fx.out.record.push((queue, entry, false));
                }
            }
            Expected::Exchange(exchange, shows) => {
                self.exchanges.learn(&exchange, turn.now.mono);
                self.exchange_declared(&exchange, shows);
            }
            Expected::Published(exchange) => {
                self.exchanges.learn(&exchange, turn.now.mono);
            }
            Expected::Consume(_, mut consumer) => {
                if let Ok(ok) = ConsumerTag::parse(payload)
                    && let Some(tag) = ShortStr::copy(ok.consumer_tag)
                {
                    self.registry.consumed(&consumer.queue);
                    consumer.tag = Some(tag.clone());
                    state.reads(&consumer.queue);
                    state.consumers.insert(tag, consumer);
                }
            }
            Expected::Cancel(_) => {
                if let Ok(ok) = ConsumerTag::parse(payload) {
                    state.consumers.remove(ok.consumer_tag);
                }
            }
            Expected::Barrier => {
                let (declares, mut line) = self.line(turn);
                declares.quiet(&mut line);
            }
            Expected::Get(_)
            | Expected::Recover
            | Expected::Verdict
            | Expected::Open
            | Expected::Other => {}
        }
    }

    /// Passes `basic.deliver` or `basic.get-ok`, with the exchange behind a bridge or before a
    /// retry.
    pub(super) fn delivery(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let (channel, is_got) = (method.channel, method.id == MethodId::BASIC_GET_OK);
        let sent = Sent::parse(method);
        let Some(state) = self.channels.get_mut(&channel) else {
            return turn.pass_method(method);
        };
        let state = &mut **state;
        let got = is_got.then(|| state.getting()).flatten();
        if let Some(got) = got.as_ref().filter(|got| !got.no_ack) {
            state.reads(&got.queue);
        }
        let consumer = match &sent {
            Some(_) if is_got => got.as_ref(),
            Some(sent) => state.consumers.get(sent.said.consumer_tag),
            None => None,
        };
        let behind = match (consumer, &sent) {
            (Some(Consumer { queue, .. }), Some(Sent { said, .. })) => {
                let rest = turn.src.get(method.range().end..).unwrap_or_default();
                Behind::of(&self.settings, channel, queue, said, rest)
            }
            _ => Behind::Ordinary,
        };
        state.came_back = match (&behind, consumer) {
            (Behind::Awaited, _) => return Handled::Wait,
            (Behind::CameBack(..), Some(consumer)) => Some(consumer.queue.clone()),
            _ => None,
        };
        // A get has its reply; where nobody waits for that, it is none.
        if is_got && (state.due.answered(method.id, method.payload).is_none() || state.closing) {
            return turn.pass_method(method);
        }
        state.delivering = Transfer::Header(false);
        let Some(mut sent) = sent else {
            return turn.pass_method(method);
        };
        let named = sent.said.exchange.len();
        sent.said.exchange = self.settings.names.bridges().behind(sent.said.exchange);
        state.copying = None;
        let no_ack = consumer.is_some_and(|consumer| consumer.no_ack);
        if !state.refused && !no_ack && !state.is_recovering() {
            state.unacked.deliver(sent.said.delivery_tag);
            let facts = Facts::of(&self.settings, &self.peer, &self.registry);
            if let Some(consumer) = consumer.filter(|consumer| facts.matters_to(consumer)) {
                let consumer = consumer.clone();
                self.delivered(channel, &sent.said, consumer, turn);
            }
        }
        if let Behind::CameBack(exchange, key, was_returned) = &behind {
            sent.said.redelivered |= was_returned;
            (sent.said.exchange, sent.said.routing_key) = (exchange.as_bytes(), key.as_bytes());
        } else if sent.said.exchange.len() == named {
            return turn.pass_method(method);
        }
        turn.replace(Leg::Broker, |out| sent.build(out, channel));
        Handled::Done
    }

    /// Copies the delivery if its queue is managed.
    fn delivered(
        &mut self,
        channel: ChannelId,
        said: &Deliver<'_>,
        consumer: Consumer,
        turn: &mut Turn<'_>,
    ) {
        let timeout = self.look(channel, &consumer, turn);
        let life = self.registry.known_life(&consumer.queue);
        if (life.is_some() || consumer.retried || timeout.is_some())
            && let Some(state) = self.channels.get_mut(&channel)
        {
            let mut copying = copying(said, consumer, turn.now.wall);
            if let Some(copying) = &mut copying {
                copying.ack_timeout = timeout;
                copying.of.life = life.unwrap_or_default();
            }
            state.copying = copying.map(|of| Box::new(Incoming::new(of)));
        }
    }

    /// Looks at the queue of a consumer, where something is new. Returns its ack timeout.
    fn look(
        &mut self,
        channel: ChannelId,
        consumer: &Consumer,
        turn: &mut Turn<'_>,
    ) -> Option<Duration> {
        let news = self.facts().news();
        if let Some(looked) = consumer.looked.as_ref().filter(|of| of.news == news) {
            return looked.ack_timeout;
        }
        if self.registry.get(&consumer.queue).is_none() {
            self.line(turn).1.adopt_or_assume(&consumer.queue);
        }
        let ack_timeout = self.facts().ack_timeout(&consumer.queue);
        let state = self.channels.get_mut(&channel);
        if let Some((state, tag)) = state.zip(consumer.tag.as_ref())
            && let Some(known) = state.consumers.get_mut(tag)
        {
            known.looked = Some(Arc::new(Look { news, ack_timeout }));
        }
        ack_timeout
    }
}

fn copying(said: &Deliver<'_>, consumer: Consumer, delivered: Wall) -> Option<Copying> {
    Some(Copying {
        tag: said.delivery_tag,
        of: Box::new(Retained {
            // Mostly one name for both.
            routing_key: match *consumer.queue == *said.routing_key {
                true => consumer.queue.clone(),
                false => ShortStr::copy(said.routing_key)?,
            },
            queue: consumer.queue,
            consumer: consumer.tag,
            exchange: ShortStr::copy(said.exchange)?,
            redelivered: said.redelivered,
            delivered,
            ..Retained::default()
        }),
        bytes: 0,
        uncopied: None,
        ack_timeout: None,
    })
}
