//! What a client sends: per frame pass, rewrite, withhold, or wait.

use crate::amqp::frame;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{
    Cancel, Consume, ExchangeDeclare, ExchangeName, Get, MethodId, Publish, QueueName,
};
use crate::machine::{Event, Leg, Limit};

use super::channel::{Channel, Consumer, Transfer};
use super::frames::{Handled, Method};
use super::ordering::Channels;
use super::pause::Hold;
use super::replies::{Expected, Replies, asked_for, has_reply};
use super::tx::{self, Tx};
use super::{Session, Turn};

const NO_ACK: u8 = 2;
const GET_NO_ACK: u8 = 1;

impl Session {
    pub(super) fn client_connection(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        match method.id {
            MethodId::CONNECTION_CLOSE if self.awaits(Channels::All) => {
                return self.hold_withheld(Channels::All, turn);
            }
            // What the broker still says to the probe is nothing for the client.
            MethodId::CONNECTION_CLOSE if self.declares.is_on_its_way() => {
                return self.hold(Hold::Probe, turn);
            }
            MethodId::CONNECTION_CLOSE | MethodId::CONNECTION_CLOSE_OK => self.connection_closes(),
            MethodId::CONNECTION_START_OK if self.refuses_start_ok(method.payload, turn) => {
                return Handled::Done;
            }
            // Other rights may come with it.
            MethodId::CONNECTION_UPDATE_SECRET => self.declares.forget_rights(),
            _ => self.peer.watch(method.id, method.payload),
        }
        turn.pass_method(method)
    }

    /// A method of one of its channels.
    pub(super) fn client_method(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let Method { channel, id, .. } = method;
        // The broker counts channels, not numbers (S7.10). Those that it will refuse cost nothing here; those that are closing count twice.
        let fits = self.channels.len() < 2 * self.peer.channel_max();
        let opens = id == MethodId::CHANNEL_OPEN && !self.channels.contains_key(&channel);
        // A channel is known when its opening goes to the broker, and not while that waits: it could be closed before.
        if opens && self.replies.due() >= self.max_replies() {
            turn.event(Event::LimitMet(Limit::Replies));
            return self.hold(Hold::Replies, turn);
        }
        if opens && fits {
            let due = Replies::new(self.replies.clone());
            let state = Channel {
                due,
                ..Channel::default()
            };
            self.channels.insert(channel, Box::new(state));
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return turn.pass_method(method);
        };
        if state.closing {
            if id == MethodId::CHANNEL_CLOSE_OK {
                self.forget_channel(channel);
            }
            return turn.pass_method(method);
        }
        if !state.publishing.is_idle() {
            return Handled::Broken("a method where a content was due");
        }
        if has_reply(id) && self.replies.due() >= self.max_replies() {
            turn.event(Event::LimitMet(Limit::Replies));
            return self.hold(Hold::Replies, turn);
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return Handled::Wait;
        };
        match id {
            MethodId::BASIC_ACK | MethodId::BASIC_NACK | MethodId::BASIC_REJECT => {
                return self.settle(method, turn);
            }
            MethodId::TX_COMMIT if state.tx == Some(Tx::Returns) => {
                let until = turn.now.mono.after(tx::PAUSE);
                return self.hold(Hold::Commit(channel, until), turn);
            }
            MethodId::TX_COMMIT if state.tx.is_some() => self.commit(channel, turn),
            MethodId::BASIC_CANCEL if state.begins_unseen() => {
                return self.hold_answers(channel, turn);
            }
            _ if state.unacked.awaits() && !self.cannot_fail(method, turn.now.mono) => {
                return self.hold_withheld(Channels::One(channel), turn);
            }
            _ => {}
        }
        let begins = self.begins_to_read(method);
        let (declares, mut line) = self.line(turn);
        if line.refuses(method) {
            return Handled::Done;
        }
        if let Some(queue) = begins.as_ref().filter(|_| wants_settling(method))
            && declares.must_verify(queue, &mut line)
        {
            return Handled::Wait;
        }
        if id == MethodId::QUEUE_DECLARE {
            return declares.declare(method, &mut line);
        }
        let retried = begins.is_some_and(|queue| self.retries(&queue).is_some());
        self.client_request(method, retried);
        self.pass_request(method, turn);
        self.prove(method, turn);
        Handled::Done
    }

    /// At the bound the client is not read until half of them came.
    pub(super) fn max_replies(&self) -> usize {
        self.settings.limits.now().fixed.replies
    }

    /// Passes a request, with its reply asked for.
    pub(super) fn pass_request(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        match asked_for(method.id, method.payload) {
            Some(asking) => frame::put(turn.build(Leg::Broker), 1, method.channel, |out| {
                out.extend_from_slice(&asking)
            }),
            None => turn.pass(Leg::Client, method.range()),
        }
    }

    /// The queue that `basic.consume` or `basic.get` means.
    pub(super) fn begins_to_read(&self, method: Method<'_>) -> Option<ShortStr> {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let state = self.channels.get(&channel)?;
        match id {
            MethodId::BASIC_CONSUME => Some(state.queue(Consume::parse(payload).ok()?.queue)),
            MethodId::BASIC_GET => Some(state.queue(Get::parse(payload).ok()?.queue)),
            _ => None,
        }
    }

    /// A method that passes: what we have to know of it. `retried`: of the queue that it begins to read.
    fn client_request(&mut self, method: Method<'_>, retried: bool) {
        let Method {
            channel,
            id,
            payload,
            ..
        } = method;
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let mut expected = Expected::Other;
        match id {
            MethodId::CHANNEL_OPEN => expected = Expected::Open,
            MethodId::CHANNEL_CLOSE => {
                self.abandon(channel);
                return;
            }
            MethodId::BASIC_PUBLISH => {
                state.publishing = Transfer::Header(false);
                state.published_with.clear();
                if let Ok(publish) = Publish::parse(payload) {
                    state.published_with.extend_from_slice(publish.routing_key);
                }
            }
            MethodId::BASIC_CONSUME => {
                if let Ok(consume) = Consume::parse(payload) {
                    let consumer = Consumer {
                        tag: None,
                        queue: state.queue(consume.queue),
                        no_ack: consume.bits & NO_ACK != 0,
                        ending: false,
                        retried,
                    };
                    let tag = ShortStr::copy(consume.consumer_tag).unwrap_or_default();
                    expected = Expected::Consume(tag, consumer);
                }
            }
            MethodId::BASIC_GET => {
                if let Ok(get) = Get::parse(payload) {
                    expected = Expected::Get(Consumer {
                        tag: None,
                        queue: state.queue(get.queue),
                        no_ack: get.bits & GET_NO_ACK != 0,
                        ending: false,
                        retried,
                    });
                }
            }
            MethodId::BASIC_CANCEL => {
                if let Ok(cancel) = Cancel::parse(payload) {
                    let tag = ShortStr::copy(cancel.consumer_tag).unwrap_or_default();
                    expected = Expected::Cancel(tag);
                    if let Some(consumer) = state.consumers.get_mut(cancel.consumer_tag) {
                        consumer.ending = true;
                        let queue = consumer.queue.clone();
                        self.consumer_ends(&queue);
                    }
                }
            }
            MethodId::QUEUE_PURGE => {
                if let Ok(purge) = QueueName::parse(payload) {
                    expected = Expected::Purge(state.queue(purge.queue));
                }
            }
            MethodId::QUEUE_DELETE => {
                if let Ok(delete) = QueueName::parse(payload) {
                    // What the client says of its deliveries from here on comes too late for them to die.
                    let queue = state.queue(delete.queue);
                    self.registry.leave(&queue);
                    expected = Expected::Delete(queue);
                }
            }
            MethodId::EXCHANGE_DECLARE => {
                if let Ok(declare) = ExchangeDeclare::parse(payload)
                    && let Some(exchange) = ShortStr::copy(declare.exchange)
                {
                    expected = Expected::Exchange(exchange);
                }
            }
            MethodId::EXCHANGE_DELETE => {
                if let Ok(delete) = ExchangeName::parse(payload) {
                    self.exchanges.forget(delete.exchange);
                }
            }
            MethodId::BASIC_RECOVER | MethodId::BASIC_RECOVER_ASYNC => {
                expected = Expected::Recover;
                self.settle_all(channel);
            }
            MethodId::TX_SELECT => self.begin_tx(channel),
            MethodId::TX_ROLLBACK => self.roll_back(channel),
            _ => {}
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if has_reply(id) {
            state.expect(expected, asked_for(id, payload).is_some());
        } else {
            state.unanswered = true;
        }
    }

    /// The settings that shape a dead letter, when the broker is one that we know.
    pub(super) fn rules(&self) -> Option<crate::dead_letter::Rules> {
        let limits = self.settings.limits.now();
        let dialect = self.peer.dialect?;
        let rules = self.settings.rules;
        Some(rules.at(dialect, limits.max_history, limits.stamp))
    }
}

/// Whether what a `basic.consume` or `basic.get` reads is to be settled.
fn wants_settling(method: Method<'_>) -> bool {
    match method.id {
        MethodId::BASIC_CONSUME => {
            Consume::parse(method.payload).is_ok_and(|consume| consume.bits & NO_ACK == 0)
        }
        _ => Get::parse(method.payload).is_ok_and(|get| get.bits & GET_NO_ACK == 0),
    }
}
