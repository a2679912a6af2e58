//! What a client of the tests asks a broker.

use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::{MethodId, Tune};
use dlx_proxy::amqp::reply::{Arguments, method};

/// A method and its answer.
pub(crate) struct Call {
    /// Of channel 0.
    frame: Vec<u8>,
    pub answer: MethodId,
}

impl Call {
    pub(crate) fn new(
        id: MethodId,
        answer: MethodId,
        arguments: impl FnOnce(&mut Arguments<'_>),
    ) -> Call {
        let mut frame = Vec::new();
        method(&mut frame, ChannelId::CONNECTION, id, arguments);
        Call { frame, answer }
    }

    /// Its frame on that channel.
    pub(crate) fn on(&self, channel: ChannelId) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[1..3].copy_from_slice(&channel.0.to_be_bytes());
        frame
    }
}

/// Logs in by name and password. `properties`: the members of a table.
pub(crate) fn start_ok(properties: &[u8], user: &str, password: &str) -> Call {
    let response = format!("\0{user}\0{password}");
    let (id, answer) = (MethodId::CONNECTION_START_OK, MethodId::CONNECTION_TUNE);
    Call::new(id, answer, |a| {
        a.longstr(properties).shortstr(b"PLAIN");
        a.longstr(response.as_bytes()).shortstr(b"en_US");
    })
}

/// Accepts these bounds, and opens the vhost.
pub(crate) fn tune_ok_and_open(tune: Tune, vhost: &str) -> Call {
    let (id, answer) = (MethodId::CONNECTION_OPEN, MethodId::CONNECTION_OPEN_OK);
    let open = Call::new(id, answer, |a| {
        a.shortstr(vhost.as_bytes()).shortstr(b"").octet(0).end();
    });
    let mut both = Call::new(MethodId::CONNECTION_TUNE_OK, answer, |a| {
        a.short(tune.channel_max).long(tune.frame_max);
        a.short(tune.heartbeat);
    });
    both.frame.extend(open.frame);
    both
}

pub(crate) fn open_channel() -> Call {
    let (id, answer) = (MethodId::CHANNEL_OPEN, MethodId::CHANNEL_OPEN_OK);
    Call::new(id, answer, |a| a.shortstr(b"").end())
}

/// `bits`: of `QueueDeclare`; `arguments`: the members of a table.
pub(crate) fn declare_queue(queue: &str, bits: u8, arguments: &[u8]) -> Call {
    let (id, answer) = (MethodId::QUEUE_DECLARE, MethodId::QUEUE_DECLARE_OK);
    Call::new(id, answer, |a| {
        a.short(0).shortstr(queue.as_bytes()).octet(bits);
        a.longstr(arguments);
    })
}

/// `bits`: 2 is durable, 8 is internal.
pub(crate) fn declare_fanout(exchange: &str, bits: u8) -> Call {
    let (id, answer) = (MethodId::EXCHANGE_DECLARE, MethodId::EXCHANGE_DECLARE_OK);
    Call::new(id, answer, |a| {
        a.short(0).shortstr(exchange.as_bytes()).shortstr(b"fanout");
        a.octet(bits).longstr(b"");
    })
}

/// Binds a queue, without a key.
pub(crate) fn bind(queue: &str, exchange: &str) -> Call {
    let (id, answer) = (MethodId::QUEUE_BIND, MethodId::QUEUE_BIND_OK);
    Call::new(id, answer, |a| {
        a.short(0).shortstr(queue.as_bytes());
        a.shortstr(exchange.as_bytes()).shortstr(b"");
        a.octet(0).longstr(b"");
    })
}

pub(crate) fn delete_queue(queue: &str) -> Call {
    let (id, answer) = (MethodId::QUEUE_DELETE, MethodId::QUEUE_DELETE_OK);
    Call::new(id, answer, |a| {
        a.short(0).shortstr(queue.as_bytes()).octet(0).end();
    })
}

pub(crate) fn confirms() -> Call {
    let (id, answer) = (MethodId::CONFIRM_SELECT, MethodId::CONFIRM_SELECT_OK);
    Call::new(id, answer, |a| a.octet(0).end())
}

pub(crate) fn qos(prefetch: u16) -> Call {
    let (id, answer) = (MethodId::BASIC_QOS, MethodId::BASIC_QOS_OK);
    Call::new(id, answer, |a| a.long(0).short(prefetch).octet(0).end())
}

pub(crate) fn consume(queue: &str, consumer_tag: &str, no_ack: bool) -> Call {
    let (id, answer) = (MethodId::BASIC_CONSUME, MethodId::BASIC_CONSUME_OK);
    Call::new(id, answer, |a| {
        a.short(0).shortstr(queue.as_bytes());
        a.shortstr(consumer_tag.as_bytes());
        a.octet(u8::from(no_ack) << 1).longstr(b"");
    })
}

/// Appends a basic.publish, which has no answer. `frame_max`: 0 for one frame, however large the body is.
pub(crate) fn publish(
    out: &mut Vec<u8>,
    channel: ChannelId,
    (exchange, key): (&str, &str),
    content: &Content,
    frame_max: usize,
) {
    method(out, channel, MethodId::BASIC_PUBLISH, |a| {
        a.short(0).shortstr(exchange.as_bytes());
        a.shortstr(key.as_bytes()).octet(0);
    });
    content.put(out, channel, frame_max);
}
