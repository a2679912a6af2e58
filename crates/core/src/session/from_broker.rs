//! What the broker sends: it all passes, but replies and deliveries tell us what to keep.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::{Cancel, Close, ConsumerTag, MethodId};
use crate::machine::{Event, Leg};
use crate::registry::refusal;

use super::channel::{Consumer, Transfer};
use super::frames::{Handled, Method};
use super::lifecycle::Phase;
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
            Some(frame) => turn.build(Leg::Client).extend_from_slice(&frame),
            None => turn.pass(Leg::Broker, method.range()),
        }
        self.abandon(channel);
        if let Some(state) = self.channels.get_mut(&channel) {
            state.due.clear();
        }
    }

    /// Handles a reply. True: it is hidden from the client.
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
        let Some(due) = state.due.answered(id, payload) else {
            return false;
        };
        let Due {
            mut what, unseen, ..
        } = due;
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
        match what {
            Expected::Declare(asked, accepted) => {
                let queue = state.declared(payload);
                if let Some(accepted) = accepted {
                    let (declares, mut line) = self.line(turn);
                    declares.accepted(queue, &asked, accepted, &mut line);
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
            Expected::Exchange(exchange) | Expected::Published(exchange) => {
                self.exchanges.learn(&exchange, turn.now.mono);
            }
            Expected::Consume(_, mut consumer) => {
                if let Ok(ok) = ConsumerTag::parse(payload)
                    && let Some(tag) = ShortStr::copy(ok.consumer_tag)
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
            Expected::Barrier => {
                let (declares, mut line) = self.line(turn);
                declares.quiet(&mut line);
            }
            Expected::Get(_) | Expected::Recover | Expected::Open | Expected::Other => {}
        }
        unseen
    }
}
