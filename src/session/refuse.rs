//! Refuses what names an object of the proxy's own, in the broker's words.
//!
//! The order of a channel is the broker's, so the refusal is its own too: in place of the method goes an ack of a tag that cannot be
//! outstanding, and the channel.close by which the broker answers is reworded on its way to the client.

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{
    Close, Consume, ExchangeBind, ExchangeName, Get, MethodId, Publish, QueueBind, QueueDeclare,
    QueueName,
};
use crate::amqp::reply;
use crate::machine::{Event, Leg};

use super::channel::Reword;
use super::{Session, Turn};

/// A tag that no channel reaches.
const NEVER: DeliveryTag = DeliveryTag(u64::MAX);
const ACCESS_REFUSED: u16 = 403;

/// What a method names: a queue, an exchange.
fn names<'a>(id: MethodId, payload: &'a [u8]) -> [Option<(&'static str, &'a [u8])>; 2] {
    let queue = |name: &'a [u8]| Some(("queue", name));
    let exchange = |name: &'a [u8]| Some(("exchange", name));
    match id {
        MethodId::EXCHANGE_DECLARE | MethodId::EXCHANGE_DELETE => {
            ExchangeName::parse(payload).map_or([None; 2], |m| [exchange(m.exchange), None])
        }
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => ExchangeBind::parse(payload)
            .map_or([None; 2], |m| [exchange(m.destination), exchange(m.source)]),
        MethodId::QUEUE_DECLARE => {
            QueueDeclare::parse(payload).map_or([None; 2], |m| [queue(m.queue), None])
        }
        MethodId::QUEUE_BIND | MethodId::QUEUE_UNBIND => {
            QueueBind::parse(payload).map_or([None; 2], |m| [queue(m.queue), exchange(m.exchange)])
        }
        MethodId::QUEUE_PURGE | MethodId::QUEUE_DELETE => {
            QueueName::parse(payload).map_or([None; 2], |m| [queue(m.queue), None])
        }
        MethodId::BASIC_CONSUME => {
            Consume::parse(payload).map_or([None; 2], |m| [queue(m.queue), None])
        }
        MethodId::BASIC_GET => Get::parse(payload).map_or([None; 2], |m| [queue(m.queue), None]),
        MethodId::BASIC_PUBLISH => {
            Publish::parse(payload).map_or([None; 2], |m| [exchange(m.exchange), None])
        }
        _ => [None; 2],
    }
}

impl Session {
    /// Whether a client may not name what this method names.
    pub(super) fn names_ours(&self, id: MethodId, payload: &[u8]) -> bool {
        names(id, payload)
            .into_iter()
            .flatten()
            .any(|(_, name)| self.settings.names.is_ours(name))
    }

    /// Has the broker close the channel in place of carrying out the method.
    pub(super) fn refuse(
        &mut self,
        channel: ChannelId,
        id: MethodId,
        payload: &[u8],
        turn: &mut Turn<'_>,
    ) {
        let ours = names(id, payload)
            .into_iter()
            .flatten()
            .find(|(_, name)| self.settings.names.is_ours(name));
        let Some((kind, name)) = ours else {
            return;
        };
        let name = ShortStr::copy(name).unwrap_or_default();
        let user = self.peer.user.clone().unwrap_or_default();
        let text = format!(
            "ACCESS_REFUSED - access to {kind} '{name}' in vhost '{}' refused for user '{user}'",
            self.peer.vhost
        );
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unanswered = true;
            let reword = Reword {
                sent: MethodId::BASIC_ACK,
                code: ACCESS_REFUSED,
                text: text.into_bytes(),
                culprit: id,
            };
            state.reword.get_or_insert(reword);
        }
        if id == MethodId::BASIC_PUBLISH {
            self.discard_content(channel, payload);
        }
        reply::ack(turn.build(Leg::Broker), channel, NEVER, false);
        turn.event(Event::NameRefused { name });
    }

    /// The broker closes a channel: in which words the client is told. None: in its own.
    pub(super) fn reworded(&mut self, channel: ChannelId, payload: &[u8]) -> Option<Vec<u8>> {
        let reword = self.channels.get_mut(&channel)?.reword.take()?;
        let close = Close::parse(payload).ok()?;
        let caused = MethodId(close.class, close.method) == reword.sent;
        let by_ack = reword.sent != MethodId::BASIC_ACK
            || close.text.ends_with(NEVER.to_string().as_bytes());
        (caused && by_ack).then(|| {
            let mut frame = Vec::new();
            reply::close(
                &mut frame,
                channel,
                reword.code,
                &reword.text,
                reword.culprit,
            );
            frame
        })
    }
}
