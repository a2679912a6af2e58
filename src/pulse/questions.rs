//! What a queue is asked that has to answer itself, and what is awaited then.

use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply;

use super::Awaited;

pub(super) fn get(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8]) -> Awaited {
    reply::method(out, channel, MethodId::BASIC_GET, |a| {
        a.short(0).shortstr(queue).octet(0).end();
    });
    Awaited::Got
}

pub(super) fn consume(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8]) -> Awaited {
    reply::method(out, channel, MethodId::BASIC_QOS, |a| {
        a.long(0).short(1).octet(0).end();
    });
    reply::method(out, channel, MethodId::BASIC_CONSUME, |a| {
        a.short(0)
            .shortstr(queue)
            .shortstr(b"dlx-proxy pulse")
            .octet(0)
            .longstr(b"")
            .end();
    });
    Awaited::Consuming
}
