//! A client that sends frames as it is told and shows what comes back: client libraries hide too much, and forbid the rest.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use dlx_proxy::amqp::content::{Assembly, Content};
use dlx_proxy::amqp::frame::Kind;
use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::{MethodId, QueueDeclare, QueueDeclareOk, Tune};
use dlx_proxy::amqp::reply::{self, Arguments};
use dlx_proxy::amqp::table::TableBuilder;

use super::calls::{self, Call};
use super::connection::{Connection, Frame, Login};
use super::lab::within;
use super::node::Broker;

pub(crate) use super::connection::{Closed, closed};

/// One connection.
pub(crate) struct Raw {
    pub connection: Connection,
    pub tune: Tune,
    /// Frames of channels that nobody asked for yet.
    waiting: VecDeque<Frame>,
}

/// Arguments of a queue whose dead letters go to the queue `dead`.
pub(crate) const TO_DEAD: [(&str, &str); 2] = [
    ("x-dead-letter-exchange", ""),
    ("x-dead-letter-routing-key", "dead"),
];

/// A queue.declare of a durable queue.
pub(crate) fn declare(out: &mut Vec<u8>, channel: u16, queue: &str, arguments: &[(&str, &str)]) {
    let mut table = TableBuilder::default();
    for (name, value) in arguments {
        table.longstr(name.as_bytes(), value.as_bytes());
    }
    let call = calls::declare_queue(queue, QueueDeclare::DURABLE, &table.finish());
    out.extend(call.on(ChannelId(channel)));
}

/// A basic.publish to a queue by the default exchange, persistent.
pub(crate) fn publish(out: &mut Vec<u8>, channel: u16, queue: &str, body: &[u8], frame_max: u32) {
    let content = Content {
        properties: vec![0x10, 0, 2].into(),
        body: body.to_vec().into(),
    };
    let (channel, frame_max) = (ChannelId(channel), frame_max as usize);
    calls::publish(out, channel, ("", queue), &content, frame_max);
}

/// A basic.consume whose consumer tag is the queue's name.
pub(crate) fn consume(out: &mut Vec<u8>, channel: u16, queue: &str, no_ack: bool) {
    let call = calls::consume(queue, queue, no_ack);
    out.extend(call.on(ChannelId(channel)));
}

/// A basic.reject without requeue.
pub(crate) fn reject(out: &mut Vec<u8>, channel: u16, tag: u64) {
    reply::reject(out, ChannelId(channel), DeliveryTag(tag), false);
}

/// A channel.close.
pub(crate) fn close_channel(out: &mut Vec<u8>, channel: u16) {
    reply::close(out, ChannelId(channel), 200, b"", MethodId(0, 0));
}

/// Any method.
pub(crate) fn method(
    out: &mut Vec<u8>,
    channel: u16,
    id: MethodId,
    arguments: impl FnOnce(&mut Arguments<'_>),
) {
    reply::method(out, ChannelId(channel), id, arguments);
}

// === impl Raw ===

impl Raw {
    /// Connects to a port of the broker's host and logs in. `tune`: what to answer to connection.tune, 0 for what is proposed.
    pub(crate) async fn open(broker: &Broker, port: u16, vhost: &str, tune: Tune) -> Raw {
        Raw::open_as(broker, port, vhost, tune, b"").await
    }

    /// A connection to the broker itself.
    pub(crate) async fn direct(broker: &Broker, vhost: &str) -> Raw {
        let port = broker.uri.authority.port;
        Raw::open(broker, port, vhost, Tune::default()).await
    }

    /// The same as `open`, as a client with these properties.
    pub(crate) async fn open_as(
        broker: &Broker,
        port: u16,
        vhost: &str,
        tune: Tune,
        properties: &[u8],
    ) -> Raw {
        let authority = &broker.uri.authority;
        let login = Login {
            user: &authority.userinfo.username,
            password: &authority.userinfo.password,
            vhost,
            properties,
            tune,
        };
        let opening = Connection::open((authority.host.as_str(), port), login);
        let connection = within("a connection", opening).await.expect("open");
        Raw {
            tune: connection.tune,
            connection,
            waiting: VecDeque::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("sent");
    }

    /// The same to a peer that may have closed.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        within("sending", self.connection.send(bytes)).await
    }

    /// Sends one method.
    pub(crate) async fn call(
        &mut self,
        channel: u16,
        id: MethodId,
        arguments: impl FnOnce(&mut Arguments<'_>),
    ) {
        let mut out = Vec::new();
        method(&mut out, channel, id, arguments);
        self.send(&out).await;
    }

    /// Waits for the answer, too.
    pub(crate) async fn ask(&mut self, channel: u16, call: Call) -> Vec<u8> {
        self.send(&call.on(ChannelId(channel))).await;
        self.reply(channel, call.answer).await
    }

    pub(crate) async fn open_channel(&mut self, channel: u16) {
        self.ask(channel, calls::open_channel()).await;
    }

    /// Declares, and waits for the answer.
    pub(crate) async fn declare(&mut self, channel: u16, queue: &str, arguments: &[(&str, &str)]) {
        let mut out = Vec::new();
        declare(&mut out, channel, queue, arguments);
        self.send(&out).await;
        self.reply(channel, MethodId::QUEUE_DECLARE_OK).await;
    }

    /// Ready messages of a queue.
    pub(crate) async fn ready(&mut self, channel: u16, queue: &str) -> u32 {
        let call = calls::declare_queue(queue, QueueDeclare::PASSIVE, b"");
        let ok = self.ask(channel, call).await;
        let ok = QueueDeclareOk::parse(&ok);
        ok.expect("queue.declare-ok").message_count
    }

    /// Consumes, and waits for the answer.
    pub(crate) async fn consume(&mut self, channel: u16, queue: &str, no_ack: bool) {
        let call = calls::consume(queue, queue, no_ack);
        self.ask(channel, call).await;
    }

    /// Publishes a message to an empty queue, consumes the queue, and has the delivery. Returns its body.
    pub(crate) async fn deliver(&mut self, channel: u16, queue: &str, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        publish(&mut out, channel, queue, body, self.tune.frame_max);
        consume(&mut out, channel, queue, false);
        self.send(&out).await;
        self.reply(channel, MethodId::BASIC_CONSUME_OK).await;
        self.content(channel, MethodId::BASIC_DELIVER).await.1
    }

    pub(crate) async fn reject(&mut self, channel: u16, tag: u64) {
        let mut out = Vec::new();
        reject(&mut out, channel, tag);
        self.send(&out).await;
    }

    /// The arguments of the next method on that channel, which must be this one.
    pub(crate) async fn reply(&mut self, channel: u16, id: MethodId) -> Vec<u8> {
        let frame = self.next(channel).await;
        let came = MethodId::peek(&frame.payload);
        let said = closed(&frame.payload);
        assert_eq!(
            (frame.kind, came),
            (Kind::Method, Some(id)),
            "on channel {channel}: {said:?}"
        );
        frame.payload
    }

    /// The next frame on that channel.
    pub(crate) async fn next(&mut self, channel: u16) -> Frame {
        if let Some(at) = self
            .waiting
            .iter()
            .position(|frame| frame.channel == channel)
        {
            return self.waiting.remove(at).expect("it is there");
        }
        loop {
            let frame = within(format_args!("a frame on channel {channel}"), self.read())
                .await
                .expect("the connection is open");
            if frame.channel == channel {
                return frame;
            }
            assert!(
                frame.channel != 0,
                "connection: {:?}",
                closed(&frame.payload)
            );
            self.waiting.push_back(frame);
        }
    }

    /// A method that carries a content, and its body.
    pub(crate) async fn content(&mut self, channel: u16, id: MethodId) -> (Vec<u8>, Vec<u8>) {
        let arguments = self.reply(channel, id).await;
        let header = self.next(channel).await;
        assert_eq!(header.kind, Kind::Header);
        let mut assembly = Assembly::begin(&header.payload, usize::MAX).expect("a header");
        while !assembly.is_complete() {
            let body = self.next(channel).await;
            assert_eq!(body.kind, Kind::Body);
            assembly.push(&body.payload);
        }
        (arguments, assembly.finish().body.to_vec())
    }

    /// The next frame of any channel; none when the connection has ended. Safe to drop and to call again.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        let frame = self.connection.read().await;
        if let Err(error) = &frame {
            assert_ne!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
        frame.ok()
    }

    /// Reads until the proxy ends the connection, as RabbitMQ does when it is stopped, and answers.
    pub(crate) async fn hears_of_the_end(&mut self) {
        let said = self.last_words().await.expect("connection.close");
        let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
        assert_eq!(said, (320, text.to_owned(), (0, 0)));
        self.call(0, MethodId::CONNECTION_CLOSE_OK, |_| {}).await;
    }

    /// Reads until the connection is closed, by a method or not.
    pub(crate) async fn last_words(&mut self) -> Option<Closed> {
        loop {
            let frame = within("the end of a connection", self.read()).await?;
            if frame.channel == 0 {
                return closed(&frame.payload);
            }
        }
    }

    /// Ends the connection in order.
    pub(crate) async fn close(mut self) {
        let mut out = Vec::new();
        close_channel(&mut out, 0);
        self.send(&out).await;
        self.waiting.clear();
        loop {
            let frame = within("connection.close-ok", self.read())
                .await
                .expect("an answer");
            if frame.channel == 0 {
                assert_eq!(
                    MethodId::peek(&frame.payload),
                    Some(MethodId::CONNECTION_CLOSE_OK)
                );
                return;
            }
        }
    }
}
