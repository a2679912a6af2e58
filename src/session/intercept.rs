//! What a client sends: per frame pass, rewrite, withhold, or wait.

use std::ops::Range;

use crate::amqp::content::{self, PREFIX};
use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Cancel, Consume, Get, MethodId, Publish, QueueName};
use crate::amqp::properties::has_headers;
use crate::dead_letter::private;
use crate::machine::{Bound, Change, Event, Leg};

use super::changes;
use super::channel::{Channel, Consumer, Transfer};
use super::replies::{Expected, asked_for, has_reply};
use super::{Hold, Session, Turn};

const NO_ACK: u8 = 2;
const GET_NO_ACK: u8 = 1;
/// Replies due on one channel that are not worth counting those of all.
const FEW_DUE: usize = 64;

impl Session {
    /// A method frame at `range`. Returns its length, or 0 when it has to wait.
    pub(super) fn method(
        &mut self,
        from: Leg,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        let Some(id) = MethodId::peek(payload) else {
            turn.pass(from, range);
            return len;
        };
        match (from, channel) {
            (Leg::Client, ChannelId(0)) => self.client_connection(id, payload, range, turn),
            (Leg::Client, _) => self.client_method(channel, id, payload, range, turn),
            (Leg::Broker, ChannelId(0)) => self.broker_connection(id, payload, range, turn),
            (Leg::Broker, _) => self.broker_method(channel, id, payload, range, turn),
        }
    }

    /// A content header at `range`.
    pub(super) fn header(
        &mut self,
        from: Leg,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        let octets = content::body_size(payload).unwrap_or(0);
        let discard = match self.transfer(from, channel) {
            None => false,
            Some(transfer) => {
                let discard = transfer.discards();
                transfer.header(octets);
                discard
            }
        };
        if from == Leg::Broker {
            self.begin_copy(channel, payload, turn);
        }
        if !discard {
            self.pass_header(from, channel, payload, range, turn);
        }
        if octets == 0 {
            if from == Leg::Broker {
                self.copied(channel);
            }
            self.boundary(turn);
        }
        len
    }

    /// Passes a content header on, with the private headers added or taken away where there are any.
    fn pass_header(
        &mut self,
        from: Leg,
        channel: ChannelId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) {
        let (prefix, properties) = payload.split_at_checked(PREFIX).unwrap_or((payload, &[]));
        let edited = match (self.rules(), from) {
            (Some(rules), Leg::Client) if has_headers(properties) => {
                let channel = self.channels.get(&channel);
                let routing_key = channel.map_or(&[][..], |state| &state.published_with);
                private::on_publish(properties, routing_key, &rules)
            }
            (Some(rules), Leg::Broker) if has_headers(properties) => {
                let bridges = self.settings.names.bridges();
                bridges.on_delivery(properties, rules.dialect)
            }
            _ => None,
        };
        let fits = |edited: &[u8]| {
            from == Leg::Broker || frame::HEAD + PREFIX + edited.len() < self.peer.frame_max()
        };
        match edited {
            Some(edited) if fits(&edited) => turn.replace(from, |out| {
                frame::put(out, 2, channel, |out| {
                    out.extend_from_slice(prefix);
                    out.extend_from_slice(&edited);
                })
            }),
            Some(_) => {
                turn.event(Event::EditDropped);
                turn.pass(from, range);
            }
            None => turn.pass(from, range),
        }
    }

    fn client_connection(
        &mut self,
        id: MethodId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        match id {
            MethodId::CONNECTION_CLOSE if !self.tickets.is_empty() => {
                return self.hold_withheld(ChannelId(0), turn);
            }
            // What the broker still says to the probe is nothing for the client.
            MethodId::CONNECTION_CLOSE if self.is_probing() => {
                return self.hold(Hold::Probe, turn);
            }
            MethodId::CONNECTION_CLOSE | MethodId::CONNECTION_CLOSE_OK => self.connection_closes(),
            _ => self.peer.watch(id, payload),
        }
        let len = range.len();
        turn.pass(Leg::Client, range);
        len
    }

    fn client_method(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) -> usize {
        let len = range.len();
        // The broker counts channels, not numbers (S7.10). Those that it will refuse cost nothing here; those that are closing count twice.
        let fits = self.channels.len() < 2 * self.peer.channel_max();
        if id == MethodId::CHANNEL_OPEN && fits && !self.channels.contains_key(&channel) {
            self.channels.insert(channel, Channel::default());
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            turn.pass(Leg::Client, range);
            return len;
        };
        if state.closing {
            if id == MethodId::CHANNEL_CLOSE_OK {
                self.forget_channel(channel);
            }
            turn.pass(Leg::Client, range);
            return len;
        }
        if !state.publishing.is_idle() {
            return self.broken(
                Leg::Client,
                "a method where a content was due",
                range.start,
                turn,
            );
        }
        if has_reply(id) && state.due.len() >= FEW_DUE && self.replies_due() >= self.max_replies() {
            turn.event(Event::BoundMet(Bound::Replies));
            return self.hold(Hold::Replies, turn);
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return 0;
        };
        match id {
            MethodId::BASIC_ACK | MethodId::BASIC_NACK | MethodId::BASIC_REJECT => {
                return self.settle(channel, payload, range, turn);
            }
            MethodId::BASIC_CANCEL if state.begins_unseen() => {
                return self.hold_answers(channel, turn);
            }
            _ if state.unacked.any_withheld() && !self.cannot_fail(channel, id, payload, turn) => {
                return self.hold_withheld(channel, turn);
            }
            _ => {}
        }
        if self.rules().is_some() && self.names_ours(id, payload) {
            self.refuse(channel, id, payload, turn);
            return len;
        }
        if let Some(queue) = self.begins_to_read(channel, id, payload)
            && self.must_verify(&queue, turn)
        {
            return 0;
        }
        if id == MethodId::QUEUE_DECLARE {
            return self.declare(channel, payload, range, turn);
        }
        self.client_request(channel, id, payload);
        self.pass_request(channel, id, payload, range, turn);
        self.prove(channel, id, payload, turn);
        len
    }

    pub(super) fn replies_due(&self) -> usize {
        self.channels.values().map(|state| state.due.len()).sum()
    }

    /// At the bound the client is not read until half of them came.
    pub(super) fn max_replies(&self) -> usize {
        self.settings.limits.now().max_replies
    }

    /// Passes a request, with its reply asked for.
    pub(super) fn pass_request(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        range: Range<usize>,
        turn: &mut Turn<'_>,
    ) {
        match asked_for(id, payload) {
            Some(asking) => frame::put(turn.build(Leg::Broker), 1, channel, |out| {
                out.extend_from_slice(&asking)
            }),
            None => turn.pass(Leg::Client, range),
        }
    }

    /// The queue that `basic.consume` or `basic.get` means.
    pub(super) fn begins_to_read(
        &self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
    ) -> Option<ShortStr> {
        let state = self.channels.get(&channel)?;
        match id {
            MethodId::BASIC_CONSUME => Some(state.queue(Consume::parse(payload).ok()?.queue)),
            MethodId::BASIC_GET => Some(state.queue(Get::parse(payload).ok()?.queue)),
            _ => None,
        }
    }

    /// A method that passes: what we have to know of it.
    fn client_request(&mut self, channel: ChannelId, id: MethodId, payload: &[u8]) {
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
                        queue: state.queue(consume.queue),
                        no_ack: consume.bits & NO_ACK != 0,
                        ending: false,
                    };
                    let tag = ShortStr::copy(consume.consumer_tag).unwrap_or_default();
                    expected = Expected::Consume(tag, consumer);
                }
            }
            MethodId::BASIC_GET => {
                if let Ok(get) = Get::parse(payload) {
                    expected = Expected::Get(Consumer {
                        queue: state.queue(get.queue),
                        no_ack: get.bits & GET_NO_ACK != 0,
                        ending: false,
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
            MethodId::QUEUE_DELETE => {
                if let Ok(delete) = QueueName::parse(payload) {
                    // What the client says of its deliveries from here on comes too late for them to die.
                    let queue = state.queue(delete.queue);
                    self.registry.end(&queue);
                    expected = Expected::Delete(queue);
                }
            }
            MethodId::EXCHANGE_DECLARE
            | MethodId::EXCHANGE_DELETE
            | MethodId::EXCHANGE_BIND
            | MethodId::EXCHANGE_UNBIND
            | MethodId::QUEUE_BIND
            | MethodId::QUEUE_UNBIND => {
                if let Some(change) = changes::change(state, id, payload) {
                    if let Change::ExchangeDeleted(exchange) = &change {
                        self.exchanges.forget(exchange);
                    }
                    expected = Expected::Change(change);
                }
            }
            MethodId::BASIC_RECOVER => {
                expected = Expected::Recover;
                self.settle_all(channel);
            }
            MethodId::TX_SELECT | MethodId::BASIC_RECOVER_ASYNC => self.go_native(channel),
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
        self.peer.dialect.map(|dialect| crate::dead_letter::Rules {
            dialect,
            max_history: self.settings.limits.now().max_history,
            ..self.settings.rules
        })
    }

    /// Whether a publish names one of our exchanges: then its content goes nowhere either.
    pub(super) fn discard_content(&mut self, channel: ChannelId, payload: &[u8]) {
        if Publish::parse(payload).is_ok()
            && let Some(state) = self.channels.get_mut(&channel)
        {
            state.publishing = Transfer::Header(true);
        }
    }
}
