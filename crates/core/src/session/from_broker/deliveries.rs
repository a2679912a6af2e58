//! Deliveries: what a client is shown of one, and what is kept of it.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::{Deliver, GetOk, MethodId};
use crate::amqp::reply;
use crate::machine::{Leg, Wall};
use crate::session::channel::{Consumer, Copying, Transfer};
use crate::session::frames::{Handled, Method};
use crate::session::redelivered::Behind;
use crate::session::unacked::Retained;
use crate::session::{Session, Turn};

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
    /// Passes `basic.deliver` or `basic.get-ok`, with the exchange behind a bridge or before a
    /// retry.
    pub(super) fn delivery(&mut self, method: Method<'_>, turn: &mut Turn<'_>) -> Handled {
        let (channel, is_got) = (method.channel, method.id == MethodId::BASIC_GET_OK);
        let sent = Sent::parse(method);
        let Some(state) = self.channels.get_mut(&channel) else {
            return turn.pass_method(method);
        };
        let consumer = match &sent {
            Some(_) if is_got => state.getting(),
            Some(sent) => state.consumers.get(sent.said.consumer_tag).cloned(),
            None => None,
        };
        let behind = match (&consumer, &sent) {
            (Some(Consumer { queue, .. }), Some(Sent { said, .. })) => {
                let rest = turn.src.get(method.range().end..).unwrap_or_default();
                Behind::of(&self.settings, channel, queue, said, rest)
            }
            _ => Behind::Ordinary,
        };
        state.came_back = match (&behind, &consumer) {
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
        self.delivered(channel, &sent.said, consumer, turn);
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
        consumer: Option<Consumer>,
        turn: &mut Turn<'_>,
    ) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.copying = None;
        let no_ack = consumer.as_ref().is_some_and(|consumer| consumer.no_ack);
        if state.native || no_ack || state.is_recovering() {
            return;
        }
        state.unacked.deliver(said.delivery_tag);
        let Some(consumer) = consumer else { return };
        if !consumer.retried && self.registry.get(&consumer.queue).is_none() {
            let (declares, mut line) = self.line(turn);
            match consumer.tag {
                Some(_) => declares.look_again(&mut line),
                // Of a get nothing else remembers what was new when it was sent.
                None => line.adopt_or_assume(&consumer.queue),
            }
        }
        let known = self.registry.get(&consumer.queue).is_some();
        if (known || consumer.retried)
            && let Some(state) = self.channels.get_mut(&channel)
        {
            state.copying = copying(said, consumer, turn.now.wall).map(Incoming::new);
        }
    }
}

fn copying(said: &Deliver<'_>, consumer: Consumer, delivered: Wall) -> Option<Copying> {
    Some(Copying {
        tag: said.delivery_tag,
        of: Retained {
            queue: consumer.queue,
            consumer: consumer.tag,
            exchange: ShortStr::copy(said.exchange)?,
            routing_key: ShortStr::copy(said.routing_key)?,
            redelivered: said.redelivered,
            delivered,
            ..Retained::default()
        },
        octets: 0,
        uncopied: None,
    })
}
