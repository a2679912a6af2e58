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
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::generated;
use crate::registry::refusal::{self, There, decode_names_in};
use crate::registry::wording::cut;

use super::channel::{Reword, Transfer};
use super::frames::Method;
use super::line::Line;
use super::verdicts;

/// A tag that no channel reaches.
const NEVER: DeliveryTag = DeliveryTag(u64::MAX);

type Named<'a> = (&'static str, &'a [u8]);

fn names(
    id: MethodId,
    payload: &[u8],
    version: Option<Version>,
) -> Result<[Option<Named<'_>>; 2], Malformed> {
    let queue = |name| Some(("queue", name));
    let exchange = |name| Some(("exchange", name));
    let argument = |arguments, name| {
        let value = Table(arguments).get(name).ok().flatten();
        exchange(value.and_then(Value::as_longstr)?)
    };
    Ok(match id {
        MethodId::EXCHANGE_DECLARE => {
            let declare = ExchangeDeclare::parse(payload)?;
            let alternate = argument(declare.arguments, b"alternate-exchange");
            [exchange(declare.exchange), alternate]
        }
        MethodId::EXCHANGE_DELETE => [exchange(ExchangeName::parse(payload)?.exchange), None],
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => {
            let bind = ExchangeBind::parse(payload)?;
            [exchange(bind.destination), exchange(bind.source)]
        }
        MethodId::QUEUE_DECLARE => {
            let declare = QueueDeclare::parse(payload)?;
            let name = match generated::is_made(declare.queue) {
                true => generated::prefix(declare.arguments, version).unwrap_or_default(),
                false => declare.queue,
            };
            let target = argument(declare.arguments, b"x-dead-letter-exchange");
            [queue(name), target]
        }
        MethodId::QUEUE_BIND => {
            let bind = QueueBind::parse(payload)?;
            [queue(bind.queue), exchange(bind.exchange)]
        }
        MethodId::QUEUE_UNBIND => {
            let bind = QueueUnbind::parse(payload)?;
            [queue(bind.queue), exchange(bind.exchange)]
        }
        MethodId::QUEUE_PURGE | MethodId::QUEUE_DELETE => {
            [queue(QueueName::parse(payload)?.queue), None]
        }
        MethodId::BASIC_CONSUME => [queue(Consume::parse(payload)?.queue), None],
        MethodId::BASIC_GET => [queue(Get::parse(payload)?.queue), None],
        MethodId::BASIC_PUBLISH => [exchange(Publish::parse(payload)?.exchange), None],
        _ => [None; 2],
    })
}

impl Line<'_, '_> {
    /// Makes the broker close the channel instead of executing a method that names an object of the
    /// proxy. False: it names none.
    pub(super) fn refuses(&mut self, method: Method<'_>) -> bool {
        let Method { channel, id, .. } = method;
        let named = names(id, method.payload, self.peer.version).ok();
        let mut named = named.into_iter().flatten().flatten();
        let names = &self.settings.names;
        let ours = named.find(|(_, name)| names.is_ours(name) || *name == verdicts::EXCHANGE);
        let Some((kind, name)) = ours.filter(|_| self.peer.dialect.is_some()) else {
            return false;
        };
        let user = self.peer.user.as_deref().unwrap_or_default();
        let access = format!("ACCESS_REFUSED - access to {kind} '");
        let words = [
            b"' in vhost '",
            &*self.peer.vhost,
            b"' refused for user '",
            user,
        ];
        let text = [access.as_bytes(), name, &words.concat(), b"'"].concat();
        if let Some(state) = self.channels.get_mut(&channel)
            && id == MethodId::BASIC_PUBLISH
        {
            state.publishing = Transfer::Header(true);
        }
        self.refuse(channel, ACCESS_REFUSED, text, id);
        let name = ShortStr::copy(name).unwrap_or_default();
        self.turn.event(Event::NameRefused { name });
        true
    }

    /// Makes the broker close the channel, for a method that it does not get.
    pub(super) fn refuse(
        &mut self,
        channel: ChannelId,
        code: u16,
        text: Vec<u8>,
        culprit: MethodId,
    ) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.unanswered = true;
            state.reword.get_or_insert(Reword {
                code,
                text: cut(text),
                culprit,
            });
        }
        reply::ack(self.turn.build(Leg::Broker), channel, NEVER, false);
    }

    /// The client's text for a channel closed by the broker. `None`: the broker's own.
    pub(super) fn reworded(&mut self, method: Method<'_>) -> Option<Vec<u8>> {
        let channel = method.channel;
        let close = Close::parse(method.payload).ok()?;
        let culprit = MethodId(close.class, close.method);
        let state = self.channels.get_mut(&channel)?;
        let (reword, declared) = (state.reword.take(), state.declared.take());
        if culprit == MethodId::QUEUE_DECLARE {
            return self.declare_refused(channel, &close, declared);
        }
        let Reword {
            code,
            text,
            culprit: own,
        } = reword?;
        let by_us =
            culprit == MethodId::BASIC_ACK && close.text.ends_with(NEVER.to_string().as_bytes());
        by_us.then(|| closing(channel, code, &text, own))
    }

    fn declare_refused(
        &mut self,
        channel: ChannelId,
        close: &Close<'_>,
        declared: Option<(ShortStr, Vec<u8>)>,
    ) -> Option<Vec<u8>> {
        let (code, names) = (close.code, &self.settings.names);
        let decoded = decode_names_in(close.text, names);
        let Some((queue, arguments)) = declared else {
            return Some(closing(channel, code, &decoded?, MethodId::QUEUE_DECLARE));
        };
        // No probe was made, or the queue has become another one since: it is known next time.
        if let Some(intake) = refusal::seen_with(code, close.text, &queue, names) {
            let told = Report::Intake(intake);
            let now = self.turn.now.mono;
            self.registry.tell(&queue, &told, Source::Refusal, now);
        }
        let arguments = DeclareArguments::read(&arguments);
        let there = refusal::there(code, close.text, &arguments, names);
        let is_absent = there == There::Absent && !arguments.is_conditional();
        // It went out as one that makes no queue, and the queue has gone: the next one goes out as the client writes it.
        let (code, text) = match is_absent || code == ACCESS_REFUSED && decoded.is_some() {
            true => {
                self.registry.end(&queue, self.turn.now.mono);
                let words = [b"NOT_FOUND - no queue '", &*queue, b"' in vhost '"];
                let words = [&words.concat(), &*self.peer.vhost, b"'"];
                (NOT_FOUND, cut(words.concat()))
            }
            false => (code, decoded?),
        };
        Some(closing(channel, code, &text, MethodId::QUEUE_DECLARE))
    }
}

fn closing(channel: ChannelId, code: u16, text: &[u8], culprit: MethodId) -> Vec<u8> {
    let mut frame = Vec::new();
    reply::close(&mut frame, channel, code, text, culprit);
    frame
}
