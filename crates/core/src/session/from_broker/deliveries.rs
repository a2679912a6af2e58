//! Deliveries: what a client is shown of one, and what is kept of it.

use crate::amqp::ids::{ChannelId, DeliveryTag, ShortStr};
use crate::amqp::incoming::Incoming;
use crate::amqp::method::GetOk;
use crate::amqp::reply;
use crate::machine::Leg;
use crate::session::channel::{Consumer, Copying};
use crate::session::frames::Method;
use crate::session::redelivered::Behind;
use crate::session::{Session, Turn};

impl Session {
    /// Passes a `basic.get-ok` on with the exchange that is behind a bridge or was before a retry; false when there is none.
    pub(super) fn got_otherwise(
        &self,
        method: Method<'_>,
        behind: &Behind,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Ok(got) = GetOk::parse(method.payload) else {
            return false;
        };
        let exchange = self.settings.names.bridges().behind(got.exchange);
        let (exchange, routing_key) = match behind {
            Behind::CameBack(exchange, key, _) => (exchange.as_bytes(), key.as_bytes()),
            Behind::Awaited | Behind::Ordinary => (exchange, got.routing_key),
        };
        let came_back = matches!(behind, Behind::CameBack(..));
        let otherwise = came_back || exchange.len() != got.exchange.len();
        if otherwise {
            let got = GetOk {
                redelivered: got.redelivered || behind.was_returned(),
                exchange,
                routing_key,
                ..got
            };
            turn.replace(Leg::Broker, |out| reply::get_ok(out, method.channel, &got));
        }
        otherwise
    }

    /// A delivery begins; a copy is kept of it if its queue is managed.
    pub(super) fn delivered(
        &mut self,
        channel: ChannelId,
        tag: DeliveryTag,
        consumer: Option<Consumer>,
        (exchange, routing_key): (&[u8], &[u8]),
        redelivered: bool,
        turn: &mut Turn<'_>,
    ) {
        let exchange = self.settings.names.bridges().behind(exchange);
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.copying = None;
        let no_ack = consumer.as_ref().is_some_and(|consumer| consumer.no_ack);
        if state.native || no_ack || state.is_recovering() {
            return;
        }
        state.unacked.deliver(tag);
        let Some(Consumer {
            tag: consumer,
            queue,
            retried,
            ..
        }) = consumer
        else {
            return;
        };
        if !retried && self.registry.get(&queue).is_none() {
            let (declares, mut line) = self.line(turn);
            match consumer {
                Some(_) => declares.look_again(&mut line),
                // Of a get nothing else remembers what was new when it was sent.
                None => line.adopt_or_assume(&queue),
            }
        }
        let known = self.registry.get(&queue).is_some();
        if !(known || retried) {
            return;
        }
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if let (Some(exchange), Some(routing_key)) =
            (ShortStr::copy(exchange), ShortStr::copy(routing_key))
        {
            state.copying = Some(Incoming::new(Copying {
                tag,
                queue,
                consumer,
                exchange,
                routing_key,
                octets: 0,
                redelivered,
                at: turn.now.wall,
                uncopied: None,
            }));
        }
    }
}
