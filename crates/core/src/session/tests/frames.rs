//! The frames that scripts are made of.

use super::words::{frames, quoted};
use crate::amqp::ids::ChannelId;
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

fn bit(name: &'static str, is_set: bool) -> &'static str {
    if is_set { name } else { "" }
}

pub(super) fn ack(tag: u64, multiple: bool) -> Vec<u8> {
    frames(&format!("ack {tag} {}", bit("+multiple", multiple)))
}

pub(super) fn reject(tag: u64, requeue: bool) -> Vec<u8> {
    frames(&format!("reject {tag} {}", bit("+requeue", requeue)))
}

pub(super) fn nack(tag: u64, multiple: bool, requeue: bool) -> Vec<u8> {
    let (multiple, requeue) = (bit("+multiple", multiple), bit("+requeue", requeue));
    frames(&format!("nack {tag} {multiple} {requeue}"))
}

pub(super) fn body(bytes: &[u8]) -> Vec<u8> {
    frames(&format!("body {}", quoted(bytes)))
}

pub(super) fn deliver(consumer: &str, tag: u64, bytes: &[u8]) -> Vec<u8> {
    let content = match bytes {
        [] => "header 0".to_owned(),
        bytes => format!("content {}", quoted(bytes)),
    };
    frames(&format!("deliver {consumer} {tag} \"\" key ; {content}"))
}

pub(super) fn get(queue: &str) -> Vec<u8> {
    frames(&format!("get {queue}"))
}

pub(super) fn got(tag: u64) -> Vec<u8> {
    frames(&format!("get-ok {tag} \"\" q ; header 0"))
}

pub(super) fn cancel_without_reply(tag: &str) -> Vec<u8> {
    frames(&format!("cancel {tag} +no-wait"))
}
