//! Refuses what names an object of the proxy's own, in the broker's words.
//!
//! The order of a channel is the broker's, so the refusal is its own too: in place of the method goes an ack of a tag that cannot be
//! outstanding, and the channel.close by which the broker answers is reworded on its way to the client.

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::method::{
    Close, Consume, ExchangeBind, ExchangeDeclare, ExchangeName, Get, MethodId, Publish, QueueBind,
    QueueDeclare, QueueName, QueueUnbind,
};
use crate::amqp::reply;
use crate::amqp::reply_code::{ACCESS_REFUSED, NOT_FOUND};
use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;
use crate::machine::{Event, Leg};
use crate::registry::arguments::DeclareArguments;
use crate::registry::generated;
use crate::registry::refusal::{self, Fit, Presence, decode_names_in};
use crate::registry::wording::Access;

use super::channel::Reword;
use super::frames::Method;
use super::{Session, Turn};

/// A tag that no channel reaches.
const NEVER: DeliveryTag = DeliveryTag(u64::MAX);

/// A queue or an exchange that a method names, and what the method needs to do with it.
#[derive(Clone, Copy)]
struct Named<'a> {
    kind: &'static str,
    name: &'a [u8],
    access: Access,
}

/// What a method names, to a broker of that version.
fn names(
    id: MethodId,
    payload: &[u8],
    version: Option<Version>,
) -> Result<[Option<Named<'_>>; 2], Malformed> {
    use Access::{Configure, Read, Write};
    let queue = |name, access| {
        Some(Named {
            kind: "queue",
            name,
            access,
        })
    };
    let exchange = |name, access| {
        Some(Named {
            kind: "exchange",
            name,
            access,
        })
    };
    Ok(match id {
        MethodId::EXCHANGE_DECLARE => {
            let declare = ExchangeDeclare::parse(payload)?;
            let alternate = Table(declare.arguments).get(b"alternate-exchange");
            let alternate = alternate.ok().flatten().and_then(Value::as_longstr);
            [
                exchange(declare.exchange, Configure),
                alternate.and_then(|name| exchange(name, Write)),
            ]
        }
        MethodId::EXCHANGE_DELETE => [
            exchange(ExchangeName::parse(payload)?.exchange, Configure),
            None,
        ],
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => {
            let bind = ExchangeBind::parse(payload)?;
            [
                exchange(bind.destination, Write),
                exchange(bind.source, Read),
            ]
        }
        MethodId::QUEUE_DECLARE => {
            let declare = QueueDeclare::parse(payload)?;
            let dead_letters = Table(declare.arguments).get(b"x-dead-letter-exchange");
            let target = dead_letters.ok().flatten().and_then(Value::as_longstr);
            let name = match generated::is_made(declare.queue) {
                true => generated::prefix(declare.arguments, version).unwrap_or_default(),
                false => declare.queue,
            };
            [
                queue(name, Configure),
                target.and_then(|name| exchange(name, Write)),
            ]
        }
        MethodId::QUEUE_BIND => {
            let bind = QueueBind::parse(payload)?;
            [queue(bind.queue, Write), exchange(bind.exchange, Read)]
        }
        MethodId::QUEUE_UNBIND => {
            let bind = QueueUnbind::parse(payload)?;
            [queue(bind.queue, Write), exchange(bind.exchange, Read)]
        }
        MethodId::QUEUE_PURGE => [queue(QueueName::parse(payload)?.queue, Read), None],
        MethodId::QUEUE_DELETE => [queue(QueueName::parse(payload)?.queue, Configure), None],
        MethodId::BASIC_CONSUME => [queue(Consume::parse(payload)?.queue, Read), None],
        MethodId::BASIC_GET => [queue(Get::parse(payload)?.queue, Read), None],
        MethodId::BASIC_PUBLISH => [exchange(Publish::parse(payload)?.exchange, Write), None],
        _ => [None; 2],
    })
}

impl Session {
    /// What this method names that is the proxy's own.
    fn ours<'a>(&self, method: Method<'a>) -> Option<Named<'a>> {
        let named = names(method.id, method.payload, self.peer.version).ok()?;
        named
            .into_iter()
            .flatten()
            .find(|named| self.settings.names.is_ours(named.name))
    }

    /// Whether a client may not name what this method names.
    pub(super) fn names_ours(&self, method: Method<'_>) -> bool {
        self.ours(method).is_some()
    }

    /// Has the broker close the channel in place of carrying out the method.
    pub(super) fn refuse(&mut self, method: Method<'_>, turn: &mut Turn<'_>) {
        let Method { channel, id, .. } = method;
        let (Some(Named { kind, name, access }), Some(wording)) =
            (self.ours(method), self.peer.wording)
        else {
            return;
        };
        let user = self.peer.user.clone().unwrap_or_default();
        let text = wording.access_refused(access, kind, name, &self.peer.vhost, &user);
        let name = ShortStr::copy(name).unwrap_or_default();
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unanswered = true;
            let reword = Reword {
                sent: MethodId::BASIC_ACK,
                code: ACCESS_REFUSED,
                text,
                culprit: id,
            };
            state.reword.get_or_insert(reword);
        }
        if id == MethodId::BASIC_PUBLISH {
            self.discard_content(method);
        }
        reply::ack(turn.build(Leg::Broker), channel, NEVER, false);
        turn.event(Event::NameRefused { name });
    }

    /// The broker closes a channel: in which words the client is told. None: in its own.
    pub(super) fn reworded(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Option<Vec<u8>> {
        let channel = method.channel;
        let close = Close::parse(method.payload).ok()?;
        let culprit = MethodId(close.class, close.method);
        let state = self.channels.get_mut(&channel)?;
        let (reword, declared) = (state.reword.take(), state.declared.take());
        let declared = declared.filter(|_| culprit == MethodId::QUEUE_DECLARE);
        // No probe was made, or the queue has become another one since: it is known next time.
        if let Some((queue, _)) = &declared
            && let names = &self.settings.names
            && let Some(intake) = refusal::seen_with(close.code, close.text, queue, names)
        {
            self.registry.learn_intake(queue, intake, turn.now.mono);
        }
        // It went out as one that makes no queue, and the queue has gone: the next one goes out as the client writes it.
        if let Some((queue, arguments)) = &declared
            && self.missed(&close, arguments)
        {
            let text = self.peer.wording?.no_queue(queue, &self.peer.vhost);
            self.registry.end(queue, turn.now.mono);
            return Some(closing(channel, NOT_FOUND, &text, culprit));
        }
        let Some(reword) = reword else {
            // The name of an intake exchange is none of the client's words.
            let arguments = declared.map(|(_, arguments)| arguments).unwrap_or_default();
            let text = (culprit == MethodId::QUEUE_DECLARE)
                .then(|| self.in_the_clients_words(&close, &arguments))
                .flatten()?;
            return Some(closing(channel, close.code, &text, culprit));
        };
        let by_ack = reword.sent != MethodId::BASIC_ACK
            || close.text.ends_with(NEVER.to_string().as_bytes());
        (culprit == reword.sent && by_ack)
            .then(|| closing(channel, reword.code, &reword.text, reword.culprit))
    }
}

impl Session {
    /// Whether the broker refused a declare only as there is no such queue any more: it names an argument, or an exchange, of ours.
    fn missed(&self, close: &Close<'_>, arguments: &[u8]) -> bool {
        let own = DeclareArguments::read(arguments).is_conditional();
        let absent = refusal::presence(close.code, close.text) == Presence::Absent && !own;
        let hidden = |wording| decode_names_in(close.text, &self.settings.names, wording).is_some();
        absent || close.code == ACCESS_REFUSED && self.peer.wording.is_some_and(hidden)
    }

    /// The broker's refusal of a declare with these arguments, without the names of intake exchanges.
    fn in_the_clients_words(&self, close: &Close<'_>, arguments: &[u8]) -> Option<Vec<u8>> {
        let (names, wording) = (&self.settings.names, self.peer.wording?);
        let arguments = DeclareArguments::read(arguments);
        match refusal::fit(close.code, close.text, &arguments, names, wording) {
            Fit::Answer(text) => Some(text),
            _ => decode_names_in(close.text, names, wording),
        }
    }
}

fn closing(channel: ChannelId, code: u16, text: &[u8], culprit: MethodId) -> Vec<u8> {
    let mut frame = Vec::new();
    reply::close(&mut frame, channel, code, text, culprit);
    frame
}
