//! Frames of a broker; the tests of the API use them, too.

use crate::amqp::ids::ChannelId;
use crate::amqp::method::MethodId;
use crate::amqp::reply::{self, Arguments};
use crate::amqp::table::TableBuilder;

pub(crate) fn method(
    channel: u16,
    id: MethodId,
    arguments: impl FnOnce(&mut Arguments<'_>),
) -> Vec<u8> {
    let mut out = Vec::new();
    reply::method(&mut out, ChannelId(channel), id, arguments);
    out
}

/// `channel.close`, or `connection.close` on channel 0.
pub(crate) fn close(channel: u16, code: u16, text: &str, failed: MethodId) -> Vec<u8> {
    let mut out = Vec::new();
    reply::close(&mut out, ChannelId(channel), code, text.as_bytes(), failed);
    out
}

pub(crate) fn start(version: &str) -> Vec<u8> {
    let mut properties = TableBuilder::default();
    properties
        .longstr(b"product", b"RabbitMQ")
        .longstr(b"version", version.as_bytes());
    method(0, MethodId::CONNECTION_START, |a| {
        a.short(9)
            .longstr(&properties.finish())
            .longstr(b"PLAIN AMQPLAIN")
            .longstr(b"en_US")
            .end();
    })
}

pub(crate) fn tune(channel_max: u16, frame_max: u32, heartbeat: u16) -> Vec<u8> {
    method(0, MethodId::CONNECTION_TUNE, |a| {
        a.short(channel_max).long(frame_max).short(heartbeat).end();
    })
}

pub(crate) fn open_ok() -> Vec<u8> {
    method(0, MethodId::CONNECTION_OPEN_OK, |a| a.shortstr(b"").end())
}
