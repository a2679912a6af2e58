//! Builds the method frames that the proxy sends itself.

use super::frame;
use super::ids::{ChannelId, DeliveryTag};
use super::method::{Deliver, GetOk, MethodId, QueueDeclare};

pub struct Arguments<'a>(&'a mut Vec<u8>);

pub fn method(
    out: &mut Vec<u8>,
    channel: ChannelId,
    id: MethodId,
    arguments: impl FnOnce(&mut Arguments<'_>),
) {
    frame::put(out, 1, channel, |out| {
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&id.1.to_be_bytes());
        arguments(&mut Arguments(out));
    });
}

/// Applies to consumers that begin after it.
pub fn qos(out: &mut Vec<u8>, channel: ChannelId, prefetch: u16) {
    method(out, channel, MethodId::BASIC_QOS, |a| {
        a.long(0).short(prefetch).octet(0).end();
    });
}

pub fn consume(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8], tag: &[u8], arguments: &[u8]) {
    method(out, channel, MethodId::BASIC_CONSUME, |a| {
        let a = a.short(0).shortstr(queue).shortstr(tag).octet(0);
        a.longstr(arguments).end();
    });
}

pub fn cancel(out: &mut Vec<u8>, channel: ChannelId, tag: &[u8]) {
    method(out, channel, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(tag).octet(0).end();
    });
}

pub fn get(out: &mut Vec<u8>, channel: ChannelId, queue: &[u8]) {
    method(out, channel, MethodId::BASIC_GET, |a| {
        a.short(0).shortstr(queue).octet(0).end();
    });
}

/// The caller appends the content.
pub fn publish(
    out: &mut Vec<u8>,
    channel: ChannelId,
    exchange: &[u8],
    routing_key: &[u8],
    mandatory: bool,
) {
    method(out, channel, MethodId::BASIC_PUBLISH, |a| {
        let a = a.short(0).shortstr(exchange).shortstr(routing_key);
        a.octet(u8::from(mandatory)).end();
    });
}

pub fn ack(out: &mut Vec<u8>, channel: ChannelId, tag: DeliveryTag, multiple: bool) {
    method(out, channel, MethodId::BASIC_ACK, |a| {
        a.longlong(tag.0).octet(u8::from(multiple)).end()
    });
}

pub fn nack(
    out: &mut Vec<u8>,
    channel: ChannelId,
    tag: DeliveryTag,
    multiple: bool,
    requeue: bool,
) {
    method(out, channel, MethodId::BASIC_NACK, |a| {
        a.longlong(tag.0)
            .octet(u8::from(multiple) | u8::from(requeue) << 1)
            .end()
    });
}

pub fn reject(out: &mut Vec<u8>, channel: ChannelId, tag: DeliveryTag, requeue: bool) {
    method(out, channel, MethodId::BASIC_REJECT, |a| {
        a.longlong(tag.0).octet(u8::from(requeue)).end()
    });
}

/// A client's `basic.nack` or `basic.reject`, as it was. From 4.3 on they differ (S3.6).
pub fn refuse(out: &mut Vec<u8>, channel: ChannelId, tag: DeliveryTag, nack: bool) {
    match nack {
        true => self::nack(out, channel, tag, false, false),
        false => reject(out, channel, tag, false),
    }
}

pub fn deliver(out: &mut Vec<u8>, channel: ChannelId, deliver: &Deliver<'_>) {
    method(out, channel, MethodId::BASIC_DELIVER, |a| {
        a.shortstr(deliver.consumer_tag)
            .longlong(deliver.delivery_tag.0)
            .octet(u8::from(deliver.redelivered))
            .shortstr(deliver.exchange)
            .shortstr(deliver.routing_key)
            .end()
    });
}

pub fn get_ok(out: &mut Vec<u8>, channel: ChannelId, got: &GetOk<'_>) {
    method(out, channel, MethodId::BASIC_GET_OK, |a| {
        a.longlong(got.delivery_tag.0)
            .octet(u8::from(got.redelivered))
            .shortstr(got.exchange)
            .shortstr(got.routing_key)
            .long(got.message_count)
            .end()
    });
}

/// `channel.close` or, on channel 0, `connection.close`. The text is cut at 255 octets.
pub fn close(out: &mut Vec<u8>, channel: ChannelId, code: u16, text: &[u8], failed: MethodId) {
    let id = if channel == ChannelId::CONNECTION {
        MethodId::CONNECTION_CLOSE
    } else {
        MethodId::CHANNEL_CLOSE
    };
    method(out, channel, id, |a| {
        a.short(code)
            .shortstr(text)
            .short(failed.0)
            .short(failed.1)
            .end()
    });
}

pub fn close_ok(out: &mut Vec<u8>, channel: ChannelId) {
    let id = if channel == ChannelId::CONNECTION {
        MethodId::CONNECTION_CLOSE_OK
    } else {
        MethodId::CHANNEL_CLOSE_OK
    };
    method(out, channel, id, |_| {});
}

pub fn channel_open(out: &mut Vec<u8>, channel: ChannelId) {
    method(out, channel, MethodId::CHANNEL_OPEN, |a| {
        a.shortstr(b"").end()
    });
}

/// `channel.flow(active=true)`: a barrier (S7.11).
pub fn channel_flow(out: &mut Vec<u8>, channel: ChannelId) {
    method(out, channel, MethodId::CHANNEL_FLOW, |a| a.octet(1).end());
}

/// `queue.declare` like `declare`, with other bits and arguments (a table without its length).
pub fn queue_declare(
    out: &mut Vec<u8>,
    channel: ChannelId,
    declare: &QueueDeclare<'_>,
    bits: u8,
    arguments: &[u8],
) {
    method(out, channel, MethodId::QUEUE_DECLARE, |a| {
        a.short(declare.ticket)
            .shortstr(declare.queue)
            .octet(bits)
            .longstr(arguments)
            .end()
    });
}

/// `queue.declare` of a queue of the proxy. `arguments`, here and below: a table without its
/// length.
pub fn declare_queue(
    out: &mut Vec<u8>,
    channel: ChannelId,
    queue: &[u8],
    bits: u8,
    arguments: &[u8],
) {
    method(out, channel, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue)
            .octet(bits)
            .longstr(arguments)
            .end()
    });
}

pub fn declare_exchange(
    out: &mut Vec<u8>,
    channel: ChannelId,
    (exchange, exchange_type): (&[u8], &[u8]),
    bits: u8,
    arguments: &[u8],
) {
    method(out, channel, MethodId::EXCHANGE_DECLARE, |a| {
        a.short(0)
            .shortstr(exchange)
            .shortstr(exchange_type)
            .octet(bits)
            .longstr(arguments)
            .end()
    });
}

/// `queue.bind` or `exchange.bind`, depending on `id`. `bits`: 1 is `no-wait`.
pub fn bind(
    out: &mut Vec<u8>,
    channel: ChannelId,
    id: MethodId,
    (from, routing_key, to): (&[u8], &[u8], &[u8]),
    bits: u8,
) {
    method(out, channel, id, |a| {
        a.short(0)
            .shortstr(to)
            .shortstr(from)
            .shortstr(routing_key)
            .octet(bits)
            .longstr(b"")
            .end()
    });
}

// === impl Arguments ===

impl Arguments<'_> {
    pub fn octet(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn short(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn long(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn longlong(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Cut at 255 octets.
    pub fn shortstr(&mut self, value: &[u8]) -> &mut Self {
        let value = value.get(..255).unwrap_or(value);
        self.0.push(value.len() as u8);
        self.0.extend_from_slice(value);
        self
    }

    pub fn longstr(&mut self, value: &[u8]) -> &mut Self {
        self.long(value.len() as u32);
        self.0.extend_from_slice(value);
        self
    }

    pub fn end(&mut self) {}
}
