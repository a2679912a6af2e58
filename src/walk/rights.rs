//! May this user publish there? The publisher's link moves the messages, so the broker is asked in the user's own name before.
//!
//! AMQP has no such question, so each of these asks for something that changes nothing (S12.5):
//! - the default exchange: an empty message for a queue that nobody has, mandatory. Who may gets it back, who may not loses the channel.
//! - another exchange: to unbind it from an exchange that it is not bound to. RabbitMQ looks first at the right to write to the one, then at
//!   the right to read from the other, and last at what is there. Which one a refusal means, its text says.

use crate::amqp::content::Content;
use crate::amqp::ids::ChannelId;
use crate::amqp::method::{Close, MethodId};
use crate::amqp::reply;
use crate::dead_letter::redrive::Destination;

use super::{Effects, State, Walk};

/// No queue has that name: it is one of our prefix that the proxy does not make.
const NOBODY: &[u8] = b"dlx-proxy.nobody";
/// Bit of `basic.publish`.
const MANDATORY: u8 = 1;
/// Every vhost has them.
const SOURCES: [&[u8]; 2] = [b"amq.fanout", b"amq.direct"];

impl Walk {
    /// Asks, if messages are to be published. False: there is nothing to ask.
    pub(super) fn test_rights(&mut self, fx: &mut Effects) -> bool {
        let Some(to) = self.moving.as_ref().and_then(|moving| moving.to()) else {
            return false;
        };
        let (out, channel) = (fx.broker.build(&[]), ChannelId(self.channel));
        match to {
            Destination::Exchange { exchange, .. } if !exchange.is_empty() => {
                reply::method(out, channel, MethodId::EXCHANGE_UNBIND, |a| {
                    a.short(0)
                        .shortstr(exchange)
                        .shortstr(source_beside(exchange))
                        .shortstr(NOBODY)
                        .octet(0)
                        .longstr(b"")
                        .end();
                });
            }
            Destination::Source | Destination::Queue(_) | Destination::Exchange { .. } => {
                reply::method(out, channel, MethodId::BASIC_PUBLISH, |a| {
                    a.short(0)
                        .shortstr(b"")
                        .shortstr(NOBODY)
                        .octet(MANDATORY)
                        .end();
                });
                let empty = Content {
                    properties: vec![0, 0].into(),
                    body: Default::default(),
                };
                empty.put(out, channel, 0);
            }
        }
        self.state = State::Testing;
        true
    }

    /// A refusal that means the other exchange: to this one the user may write.
    pub(super) fn may_write_after_all(&self, close: &Close<'_>) -> bool {
        let to = self.moving.as_ref().and_then(|moving| moving.to());
        let Some(Destination::Exchange { exchange, .. }) = to else {
            return false;
        };
        let mut meant = b"exchange '".to_vec();
        meant.extend_from_slice(source_beside(exchange));
        meant.extend_from_slice(b"' in vhost");
        !exchange.is_empty() && memchr::memmem::find(close.text, &meant).is_some()
    }
}

/// An exchange that is not that one.
fn source_beside(exchange: &[u8]) -> &'static [u8] {
    let [one, other] = SOURCES;
    if exchange == one { other } else { one }
}
