//! What a client sends: per frame pass, rewrite, withhold, or wait.

use std::sync::Arc;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{
    Cancel, Consume, ExchangeDeclare, ExchangeName, Get, MethodId, Publish, QueueName,
};
use crate::amqp::reply;
use crate::machine::{Event, Limit};

use super::channel::{Channel, Consumer, Transfer, await_rejects, consumer_ends};
use super::delayed_exchange::Shows;
use super::facts::Facts;
use super::frames::{Handled, Method};
use super::pause::Hold;
use super::replies::{Expected, Replies, asked_for, has_reply};
use super::tx::Tx;
use super::verdicts::is_verdict;
use super::{Session, Turn};

const GET_NO_ACK: u8 = 1;

impl Session {
    pub(super) fn client_connection(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        match method.id {
            MethodId::CONNECTION_CLOSE
                if await_rejects(&self.channels, None) || !self.ledger.publishes.is_empty() =>
            {
                return self.hold(Hold::Withheld(None), turn);
            }
            // What the broker still says to the probe is nothing for the client.
            MethodId::CONNECTION_CLOSE if self.declares.is_on_its_way() => {
                return self.hold(Hold::Probe, turn);
            }
            MethodId::CONNECTION_CLOSE | MethodId::CONNECTION_CLOSE_OK => self.connection_closes(),
            MethodId::CONNECTION_START_OK
                if self.transit.refuses_start_ok(method.payload, turn) =>
            {
                return Handled::Done;
            }
            // Other rights may come with it.
            MethodId::CONNECTION_UPDATE_SECRET => self.declares.forget_rights(),
            _ => self.peer.watch(method.id, method.payload),
        }
        turn.pass_method(method)
    }

    pub(super) fn client_method(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let Method { channel, id, .. } = method;
        if self.swap.is_some()
            && let Some(waits) = self.waits_for_swap(method, turn)
        {
            return waits;
        }
        let now = turn.now.mono;
        // At the bound the client is not read until half of them came.
        let most = || self.settings.limits.now().max_replies_per_connection;
        let full = has_reply(id) && self.transit.replies.due() >= most();
        let opens = id == MethodId::CHANNEL_OPEN && !self.channels.contains_key(&channel);
        // The broker counts channels, not numbers (S7.10). Those that it will refuse cost nothing here; those that are closing count twice. A channel
        // is known when its opening goes to the broker, and not while that waits: it could be closed before.
        if opens && !full && self.channels.len() < 2 * self.peer.channel_max() {
            let due = Replies::new(self.transit.replies.clone());
            let state = Box::new(Channel::new(channel, due));
            self.channels.insert(channel, state);
        }
        let state = self.channels.get_mut(&channel);
        let closing = state.as_ref().is_some_and(|state| state.closing);
        if let Some(state) = &state
            && !closing
            && !state.publishing.is_idle()
        {
            return Handled::Broken("a method where a content was due");
        }
        if full && (opens || state.is_some() && !closing) {
            turn.event(Event::LimitMet(Limit::Replies));
            return self.hold(Hold::Replies, turn);
        }
        let Some(state) = state.filter(|_| !closing) else {
            if closing && id == MethodId::CHANNEL_CLOSE_OK {
                self.forget_channel(channel);
            }
            return turn.pass_method(method);
        };
        match id {
            MethodId::BASIC_ACK | MethodId::BASIC_NACK | MethodId::BASIC_REJECT => {
                return self.settle(method, turn);
            }
            // It cannot fail, and ends nothing.
            MethodId::QUEUE_UNBIND if is_verdict(method) => return self.verdict(method, turn),
            MethodId::TX_COMMIT if state.tx == Some(Tx::Returns) => {
                return self.hold(Hold::Commit(channel), turn);
            }
            MethodId::TX_COMMIT if state.tx.is_some() => {
                state.commit(turn);
                self.transit.outbox.acked(channel);
            }
            MethodId::BASIC_CANCEL if state.begins_unseen() => {
                return self.hold(Hold::Answers(channel), turn);
            }
            _ if state.unacked.awaits()
                && !(self.exchanges).cannot_fail(state, method, &self.registry, now) =>
            {
                return self.hold(Hold::Withheld(Some(channel)), turn);
            }
            _ => {}
        }
        self.client_request(method, turn)
    }

    fn client_request(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        if method.id == MethodId::BASIC_QOS && self.peer.multiplies_prefetch(method.payload) {
            turn.event(Event::PrefetchOfChannel);
        }
        let channel = method.channel;
        let state = self.channels.get(&channel);
        let begins = state.and_then(|state| state.begins_to_read(method));
        let (declares, mut line) = self.line(turn);
        if line.refuses(method) {
            return Handled::Done;
        }
        if let Some(queue) = begins.as_ref().filter(|_| wants_settling(method))
            && declares.must_verify(queue, &mut line)
        {
            return Handled::Wait;
        }
        if method.id == MethodId::QUEUE_DECLARE {
            return declares.declare(method, &mut line);
        }
        if self.awaits_exchange(method) {
            return self.hold(Hold::Exchange(channel), turn);
        }
        if self.undecided(method) || self.declare_delayed(method, turn) {
            return Handled::Done;
        }
        let retried = begins.is_some_and(|queue| self.facts().retries(&queue).is_some());
        self.watch_request(method, retried);
        turn.pass_request(method);
        self.prove_exchange(method, turn);
        Handled::Done
    }

    /// After a publish that has gone on.
    pub(super) fn prove_exchange(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let channel = method.channel;
        if let Some(state) = self.channels.get_mut(&channel)
            && let Some(proof) = self
                .exchanges
                .proof(state, method, &self.registry, turn.now.mono)
        {
            state.expect(proof, true);
            let flow = |out: &mut Vec<u8>| reply::channel_flow(out, channel);
            self.transit.inject(channel, Some(state), turn, flow);
        }
    }

    /// Records a passing method. `retried`: its queue has retries by a policy.
    pub(super) fn watch_request(&mut self, method: Method<'_>, retried: bool) {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let facts = Facts::of(&self.settings, &self.peer, &self.registry);
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        match id {
            MethodId::CHANNEL_CLOSE => return self.abandon(channel),
            MethodId::BASIC_PUBLISH => state.publish(payload),
            MethodId::EXCHANGE_DELETE => {
                if let Ok(delete) = ExchangeName::parse(payload) {
                    self.exchanges.forget(delete.exchange);
                }
            }
            MethodId::CONFIRM_SELECT if self.settings.delays.is_on() => {
                state.confirms.get_or_insert_default();
            }
            MethodId::TX_SELECT => self.ledger.begin_tx(state, facts),
            MethodId::TX_ROLLBACK => state.roll_back(),
            _ => {}
        }
        if !has_reply(id) {
            state.unanswered = true;
            return;
        }
        let expected = state.expected(method, retried).unwrap_or(Expected::Other);
        let mut cancelled = None;
        match &expected {
            Expected::Recover => self.ledger.settle_all(state),
            // What the client says of its deliveries from here on comes too late for them to die.
            Expected::Delete(queue) => self.registry.leave(queue),
            Expected::Cancel(tag) => {
                if let Some(consumer) = state.consumers.get_mut(tag) {
                    consumer.ending = true;
                    cancelled = Some(consumer.queue.clone());
                }
            }
            _ => {}
        }
        state.expect(expected, asked_for(id, payload).is_some());
        if let Some(queue) = cancelled {
            consumer_ends(&self.channels, &queue, &mut self.registry);
        }
    }
}

// === impl Channel ===

impl Channel {
    /// The queue of `basic.consume` or `basic.get`.
    pub(super) fn begins_to_read(&self, method: Method<'_>) -> Option<ShortStr> {
        match method.id {
            MethodId::BASIC_CONSUME => Some(self.queue(Consume::parse(method.payload).ok()?.queue)),
            MethodId::BASIC_GET => Some(self.queue(Get::parse(method.payload).ok()?.queue)),
            _ => None,
        }
    }

    fn publish(&mut self, payload: &[u8]) {
        self.publishing = Transfer::Header(false);
        if let Some(confirms) = &mut self.confirms {
            confirms.passes();
        }
        self.published_with.clear();
        if let Ok(publish) = Publish::parse(payload) {
            self.published_with.extend_from_slice(publish.routing_key);
        }
    }

    /// The meaning of its reply. `None`: none.
    fn expected(&self, method: Method<'_>, retried: bool) -> Option<Expected> {
        let payload = method.payload;
        let consumer = |queue, no_ack| Consumer {
            tag: None,
            queue: self.queue(queue),
            no_ack,
            asked: None,
            ending: false,
            retried,
            looked: None,
        };
        let queue = || Some(self.queue(QueueName::parse(payload).ok()?.queue));
        Some(match method.id {
            MethodId::CHANNEL_OPEN => Expected::Open,
            MethodId::BASIC_CONSUME => {
                let consume = Consume::parse(payload).ok()?;
                let tag = ShortStr::copy(consume.consumer_tag).unwrap_or_default();
                let mut consumer = consumer(consume.queue, consume.bits & Consume::NO_ACK != 0);
                let bits = consume.bits & !Consume::NO_WAIT;
                if bits & !Consume::NO_ACK != 0 || !consume.arguments.is_empty() {
                    consumer.asked = Some(Arc::new((bits, consume.arguments.to_vec())));
                }
                Expected::Consume(tag, consumer)
            }
            MethodId::BASIC_GET => {
                let get = Get::parse(payload).ok()?;
                Expected::Get(consumer(get.queue, get.bits & GET_NO_ACK != 0))
            }
            MethodId::BASIC_CANCEL => {
                let cancel = Cancel::parse(payload).ok()?;
                Expected::Cancel(ShortStr::copy(cancel.consumer_tag).unwrap_or_default())
            }
            MethodId::QUEUE_PURGE => Expected::Purge(queue()?),
            MethodId::QUEUE_DELETE => Expected::Delete(queue()?),
            MethodId::EXCHANGE_DECLARE => {
                let declare = ExchangeDeclare::parse(payload).ok()?;
                let exchange = ShortStr::copy(declare.exchange)?;
                Expected::Exchange(exchange, Shows::of(&declare))
            }
            MethodId::BASIC_RECOVER | MethodId::BASIC_RECOVER_ASYNC => Expected::Recover,
            _ => Expected::Other,
        })
    }
}

/// Whether deliveries of this `basic.consume` or `basic.get` are to be settled.
fn wants_settling(method: Method<'_>) -> bool {
    match method.id {
        MethodId::BASIC_CONSUME => {
            Consume::parse(method.payload).is_ok_and(|consume| consume.bits & Consume::NO_ACK == 0)
        }
        _ => Get::parse(method.payload).is_ok_and(|get| get.bits & GET_NO_ACK == 0),
    }
}
