//! Refuses what names an object of the proxy's own, and takes the names of intake exchanges out of the broker's refusals.
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
use crate::registry::refusal::{self, There, decode_names_in};
use crate::registry::wording::cut;

use super::channel::Reword;
use super::frames::Method;
use super::{Session, Turn};

/// A tag that no channel reaches.
const NEVER: DeliveryTag = DeliveryTag(u64::MAX);

/// A queue or an exchange that a method names.
#[derive(Clone, Copy)]
struct Named<'a> {
    kind: &'static str,
    name: &'a [u8],
}

/// What a method names, to a broker of that version.
fn names(
    id: MethodId,
    payload: &[u8],
    version: Option<Version>,
) -> Result<[Option<Named<'_>>; 2], Malformed> {
    let queue = |name| {
        Some(Named {
            kind: "queue",
            name,
        })
    };
    let exchange = |name| {
        Some(Named {
            kind: "exchange",
            name,
        })
    };
    Ok(match id {
        MethodId::EXCHANGE_DECLARE => {
            let declare = ExchangeDeclare::parse(payload)?;
            let alternate = Table(declare.arguments).get(b"alternate-exchange");
            let alternate = alternate.ok().flatten().and_then(Value::as_longstr);
            [exchange(declare.exchange), alternate.and_then(exchange)]
        }
        MethodId::EXCHANGE_DELETE => [exchange(ExchangeName::parse(payload)?.exchange), None],
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => {
            let bind = ExchangeBind::parse(payload)?;
            [exchange(bind.destination), exchange(bind.source)]
        }
        MethodId::QUEUE_DECLARE => {
            let declare = QueueDeclare::parse(payload)?;
            let dead_letters = Table(declare.arguments).get(b"x-dead-letter-exchange");
            let target = dead_letters.ok().flatten().and_then(Value::as_longstr);
            let name = match generated::is_made(declare.queue) {
                true => generated::prefix(declare.arguments, version).unwrap_or_default(),
                false => declare.queue,
            };
            [queue(name), target.and_then(exchange)]
        }
        MethodId::QUEUE_BIND => {
            let bind = QueueBind::parse(payload)?;
            [queue(bind.queue), exchange(bind.exchange)]
        }
        MethodId::QUEUE_UNBIND => {
            let bind = QueueUnbind::parse(payload)?;
            [queue(bind.queue), exchange(bind.exchange)]
        }
        MethodId::QUEUE_PURGE => [queue(QueueName::parse(payload)?.queue), None],
        MethodId::QUEUE_DELETE => [queue(QueueName::parse(payload)?.queue), None],
        MethodId::BASIC_CONSUME => [queue(Consume::parse(payload)?.queue), None],
        MethodId::BASIC_GET => [queue(Get::parse(payload)?.queue), None],
        MethodId::BASIC_PUBLISH => [exchange(Publish::parse(payload)?.exchange), None],
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
        let Some(Named { kind, name }) = self.ours(method) else {
            return;
        };
        let user = self.peer.user.as_deref().unwrap_or_default();
        let (access, vhost) = (
            format!("ACCESS_REFUSED - access to {kind} '"),
            &self.peer.vhost,
        );
        let words = [b"' in vhost '", &**vhost, b"' refused for user '", user];
        let text = [access.as_bytes(), name, &words.concat(), b"'"].concat();
        let name = ShortStr::copy(name).unwrap_or_default();
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unanswered = true;
            let reword = Reword {
                text: cut(text),
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
        if culprit == MethodId::QUEUE_DECLARE {
            return self.declare_refused(channel, &close, declared, turn);
        }
        let Reword { text, culprit: own } = reword?;
        let by_us =
            culprit == MethodId::BASIC_ACK && close.text.ends_with(NEVER.to_string().as_bytes());
        by_us.then(|| closing(channel, ACCESS_REFUSED, &text, own))
    }

    fn declare_refused(
        &mut self,
        channel: ChannelId,
        close: &Close<'_>,
        declared: Option<(ShortStr, Vec<u8>)>,
        turn: &mut Turn<'_>,
    ) -> Option<Vec<u8>> {
        let culprit = MethodId::QUEUE_DECLARE;
        if let Some((queue, arguments)) = &declared {
            let names = &self.settings.names;
            // No probe was made, or the queue has become another one since: it is known next time.
            if let Some(intake) = refusal::seen_with(close.code, close.text, queue, names) {
                self.registry.learn_intake(queue, intake, turn.now.mono);
            }
            // It went out as one that makes no queue, and the queue has gone: the next one goes out as the client writes it.
            if self.missed(close, arguments) {
                let vhost = &self.peer.vhost;
                let text = [
                    b"NOT_FOUND - no queue '",
                    &**queue,
                    b"' in vhost '",
                    vhost,
                    b"'",
                ];
                let text = cut(text.concat());
                self.registry.end(queue, turn.now.mono);
                return Some(closing(channel, NOT_FOUND, &text, culprit));
            }
        }
        let text = decode_names_in(close.text, &self.settings.names)?;
        Some(closing(channel, close.code, &text, culprit))
    }
}

impl Session {
    /// Whether the broker refused a declare only as there is no such queue any more: it names an argument, or an exchange, of ours.
    fn missed(&self, close: &Close<'_>, arguments: &[u8]) -> bool {
        let arguments = DeclareArguments::read(arguments);
        let names = &self.settings.names;
        let there = refusal::there(close.code, close.text, &arguments, names);
        let absent = there == There::Absent && !arguments.is_conditional();
        let hidden = || decode_names_in(close.text, &self.settings.names).is_some();
        absent || close.code == ACCESS_REFUSED && hidden()
    }
}

fn closing(channel: ChannelId, code: u16, text: &[u8], culprit: MethodId) -> Vec<u8> {
    let mut frame = Vec::new();
    reply::close(&mut frame, channel, code, text, culprit);
    frame
}
