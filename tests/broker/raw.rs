//! A client that sends frames as it is told and shows what comes back: client libraries hide too much, and forbid the rest.

use std::collections::{BTreeSet, VecDeque};

use dlx_proxy::amqp::content::{Assembly, Content};
use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::{Close, MethodId, QueueDeclare, QueueDeclareOk, Settle, Tune};
use dlx_proxy::amqp::reply::{self, Arguments};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::lab::{Broker, within};

/// One connection.
pub(crate) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
    /// Frames of channels that nobody asked for yet.
    waiting: VecDeque<Frame>,
    /// As the broker proposed and the client took it.
    pub tune: Tune,
    /// Heartbeats that came.
    pub heartbeats: usize,
    /// The largest frame that came.
    pub largest: usize,
}

/// A frame of the broker's; heartbeats are only counted.
#[derive(Debug)]
pub(crate) struct Frame {
    pub channel: u16,
    pub kind: Kind,
    pub payload: Vec<u8>,
}

/// Code, text, and the method at fault.
pub(crate) type Closed = (u16, String, (u16, u16));

/// A queue.declare of a durable queue.
pub(crate) fn declare(out: &mut Vec<u8>, channel: u16, queue: &str, arguments: &[(&str, &str)]) {
    let mut table = dlx_proxy::amqp::table::TableBuilder::default();
    for (name, value) in arguments {
        table.longstr(name.as_bytes(), value.as_bytes());
    }
    let table = table.finish();
    method(out, channel, MethodId::QUEUE_DECLARE, |a| {
        a.short(0)
            .shortstr(queue.as_bytes())
            .octet(2)
            .longstr(&table)
            .end();
    });
}

/// A basic.publish to a queue by the default exchange, persistent.
pub(crate) fn publish(out: &mut Vec<u8>, channel: u16, queue: &str, body: &[u8], frame_max: u32) {
    method(out, channel, MethodId::BASIC_PUBLISH, |a| {
        a.short(0)
            .shortstr(b"")
            .shortstr(queue.as_bytes())
            .octet(0)
            .end();
    });
    let content = Content {
        properties: vec![0x10, 0, 2].into(),
        body: body.to_vec().into(),
    };
    content.put(out, ChannelId(channel), frame_max as usize);
}

/// A basic.consume whose consumer tag is the queue's name.
pub(crate) fn consume(out: &mut Vec<u8>, channel: u16, queue: &str, no_ack: bool) {
    method(out, channel, MethodId::BASIC_CONSUME, |a| {
        let bits = u8::from(no_ack) << 1;
        a.short(0)
            .shortstr(queue.as_bytes())
            .shortstr(queue.as_bytes())
            .octet(bits)
            .longstr(b"")
            .end();
    });
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
    /// Connects to a port of the broker's host and logs in. `wanted`: what to answer to connection.tune, 0 for what is proposed.
    pub(crate) async fn open(broker: &Broker, port: u16, vhost: &str, wanted: Tune) -> Raw {
        Raw::open_as(broker, port, vhost, wanted, b"").await
    }

    /// The same as a client with these properties.
    pub(crate) async fn open_as(
        broker: &Broker,
        port: u16,
        vhost: &str,
        wanted: Tune,
        properties: &[u8],
    ) -> Raw {
        let host = broker.uri.authority.host.as_str();
        let stream = within("a connection", TcpStream::connect((host, port)))
            .await
            .expect("connected");
        stream.set_nodelay(true).expect("an option");
        let mut raw = Raw {
            stream,
            unread: Vec::new(),
            waiting: VecDeque::new(),
            tune: Tune::default(),
            heartbeats: 0,
            largest: 0,
        };
        raw.send(&frame::PROTOCOL).await;
        raw.reply(0, MethodId::CONNECTION_START).await;
        let userinfo = &broker.uri.authority.userinfo;
        let response = format!("\0{}\0{}", userinfo.username, userinfo.password);
        raw.call(0, MethodId::CONNECTION_START_OK, |a| {
            a.longstr(properties)
                .shortstr(b"PLAIN")
                .longstr(response.as_bytes())
                .shortstr(b"en_US")
                .end();
        })
        .await;
        let offered = raw.reply(0, MethodId::CONNECTION_TUNE).await;
        let offered = Tune::parse(&offered).expect("tune");
        let or = |wanted: u32, offered: u32| if wanted == 0 { offered } else { wanted };
        raw.tune = Tune {
            channel_max: or(wanted.channel_max.into(), offered.channel_max.into()) as u16,
            frame_max: or(wanted.frame_max, offered.frame_max),
            heartbeat: wanted.heartbeat,
        };
        let tune = raw.tune;
        raw.call(0, MethodId::CONNECTION_TUNE_OK, |a| {
            a.short(tune.channel_max)
                .long(tune.frame_max)
                .short(tune.heartbeat)
                .end();
        })
        .await;
        raw.call(0, MethodId::CONNECTION_OPEN, |a| {
            a.shortstr(vhost.as_bytes()).shortstr(b"").octet(0).end()
        })
        .await;
        raw.reply(0, MethodId::CONNECTION_OPEN_OK).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        within("sending", self.stream.write_all(bytes))
            .await
            .expect("sent");
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

    pub(crate) async fn open_channel(&mut self, channel: u16) {
        self.call(channel, MethodId::CHANNEL_OPEN, |a| a.shortstr(b"").end())
            .await;
        self.reply(channel, MethodId::CHANNEL_OPEN_OK).await;
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
        self.call(channel, MethodId::QUEUE_DECLARE, |a| {
            a.short(0)
                .shortstr(queue.as_bytes())
                .octet(QueueDeclare::PASSIVE)
                .longstr(b"")
                .end();
        })
        .await;
        let ok = self.reply(channel, MethodId::QUEUE_DECLARE_OK).await;
        QueueDeclareOk::parse(&ok)
            .expect("queue.declare-ok")
            .message_count
    }

    /// Consumes, and waits for the answer.
    pub(crate) async fn consume(&mut self, channel: u16, queue: &str, no_ack: bool) {
        let mut out = Vec::new();
        consume(&mut out, channel, queue, no_ack);
        self.send(&out).await;
        self.reply(channel, MethodId::BASIC_CONSUME_OK).await;
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

    /// Has a frame come again.
    pub(crate) fn put_back(&mut self, frame: Frame) {
        self.waiting.push_front(frame);
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

    /// A method that carries a content, on any channel: which, and its arguments.
    pub(crate) async fn any_content(&mut self, id: MethodId) -> (u16, Vec<u8>) {
        let frame = match self.waiting.pop_front() {
            Some(frame) => frame,
            None => within("a delivery", self.read())
                .await
                .expect("the connection is open"),
        };
        let channel = frame.channel;
        self.waiting.push_front(frame);
        let (arguments, _) = self.content(channel, id).await;
        (channel, arguments)
    }

    /// Whether more has been received already than was asked for.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty() || !self.waiting.is_empty()
    }

    /// Waits until all publishes of that channel up to this number are confirmed.
    pub(crate) async fn confirmed(&mut self, channel: u16, from: u64, to: u64) {
        let mut open: BTreeSet<u64> = (from..=to).collect();
        while !open.is_empty() {
            let ack = self.reply(channel, MethodId::BASIC_ACK).await;
            let Settle {
                delivery_tag,
                multiple,
                ..
            } = Settle::parse(&ack).expect("basic.ack");
            open.retain(|number| {
                *number != delivery_tag.0 && !(multiple && *number < delivery_tag.0)
            });
        }
    }

    /// Declares a fanout exchange, and binds the queue of the same name to it.
    pub(crate) async fn fanout(&mut self, channel: u16, name: &str) {
        self.call(channel, MethodId::EXCHANGE_DECLARE, |a| {
            a.short(0)
                .shortstr(name.as_bytes())
                .shortstr(b"fanout")
                .octet(2)
                .longstr(b"")
                .end();
        })
        .await;
        self.reply(channel, MethodId::EXCHANGE_DECLARE_OK).await;
        self.call(channel, MethodId::QUEUE_BIND, |a| {
            a.short(0)
                .shortstr(name.as_bytes())
                .shortstr(name.as_bytes())
                .shortstr(b"")
                .octet(0)
                .longstr(b"")
                .end();
        })
        .await;
        self.reply(channel, MethodId::QUEUE_BIND_OK).await;
    }

    /// The next frame of any channel; none when the connection has ended. Safe to drop and to call again.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        loop {
            match frame::front(&self.unread) {
                Front::Whole(head, payload, whole) => {
                    let frame = Frame {
                        channel: head.channel.0,
                        kind: head.kind,
                        payload: payload.to_vec(),
                    };
                    self.unread.drain(..whole);
                    self.largest = self.largest.max(whole);
                    if frame.kind != Kind::Heartbeat {
                        return Some(frame);
                    }
                    self.heartbeats += 1;
                }
                Front::Unterminated(head) => unreachable!("a broken frame: {head:?}"),
                Front::Short | Front::Part(_) => match self.stream.read_buf(&mut self.unread).await
                {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
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
        self.call(0, MethodId::CONNECTION_CLOSE, |a| {
            a.short(200).shortstr(b"done").short(0).short(0).end()
        })
        .await;
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

/// What a channel.close or connection.close says.
pub(crate) fn closed(payload: &[u8]) -> Option<Closed> {
    let id = MethodId::peek(payload);
    if id != Some(MethodId::CHANNEL_CLOSE) && id != Some(MethodId::CONNECTION_CLOSE) {
        return None;
    }
    let close = Close::parse(payload).ok()?;
    let text = String::from_utf8_lossy(close.text).into_owned();
    Some((close.code, text, (close.class, close.method)))
}
