//! The frames that scripts are made of, and how they are shown.

use super::script::CH;
use crate::amqp::frame::{self, Front};
use crate::amqp::ids::{ChannelId, DeliveryTag};
use crate::amqp::method::MethodId;
use crate::amqp::reply;

pub(super) fn method(
    channel: ChannelId,
    id: MethodId,
    arguments: impl FnOnce(&mut reply::Arguments<'_>),
) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, channel, id, arguments);
    out
}

pub(super) fn ack(tag: u64, multiple: bool) -> Vec<u8> {
    let mut out = Vec::new();
    reply::ack(&mut out, CH, DeliveryTag(tag), multiple);
    out
}

pub(super) fn reject(tag: u64, requeue: bool) -> Vec<u8> {
    let mut out = Vec::new();
    reply::reject(&mut out, CH, DeliveryTag(tag), requeue);
    out
}

pub(super) fn nack(tag: u64, multiple: bool, requeue: bool) -> Vec<u8> {
    let mut out = Vec::new();
    reply::nack(&mut out, CH, DeliveryTag(tag), multiple, requeue);
    out
}

pub(super) fn header(octets: u64) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, 2, CH, |out| {
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&octets.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
    });
    out
}

pub(super) fn body(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, 3, CH, |out| out.extend_from_slice(bytes));
    out
}

pub(super) fn deliver(consumer: &str, tag: u64, bytes: &[u8]) -> Vec<u8> {
    let id = MethodId::BASIC_DELIVER;
    let mut out = method(CH, id, |a| {
        a.shortstr(consumer.as_bytes())
            .longlong(tag)
            .octet(0)
            .shortstr(b"")
            .shortstr(b"key")
            .end();
    });
    out.extend(header(bytes.len() as u64));
    if !bytes.is_empty() {
        out.extend(body(bytes));
    }
    out
}

pub(super) fn get(queue: &str) -> Vec<u8> {
    method(CH, MethodId::BASIC_GET, |a| {
        a.short(0).shortstr(queue.as_bytes()).octet(0).end();
    })
}

pub(super) fn got(tag: u64) -> Vec<u8> {
    let mut out = method(CH, MethodId::BASIC_GET_OK, |a| {
        a.longlong(tag)
            .octet(0)
            .shortstr(b"")
            .shortstr(b"q")
            .long(0)
            .end();
    });
    out.extend(header(0));
    out
}

pub(super) fn cancel(tag: &str, bits: u8) -> Vec<u8> {
    method(CH, MethodId::BASIC_CANCEL, |a| {
        a.shortstr(tag.as_bytes()).octet(bits).end()
    })
}

/// The frames in bytes, as `channel class.method` or what else they are: for readable failures.
pub(super) fn show(bytes: &[u8]) -> Vec<String> {
    let mut rest = bytes;
    let mut out = Vec::new();
    while let Front::Whole(head, payload, whole) = frame::front(rest) {
        out.push(format!(
            "{} {:?} {}",
            head.channel,
            head.kind,
            payload.escape_ascii()
        ));
        rest = &rest[whole..];
    }
    if !rest.is_empty() {
        out.push(format!("... {}", rest.escape_ascii()));
    }
    out
}
