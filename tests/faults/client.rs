//! A client for load in bad times: one connection, one channel, and whatever happens to it is an error that its owner answers by another one.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use dlx_proxy::amqp::content::{Assembly, Content};
use dlx_proxy::amqp::frame::Kind;
use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::{Deliver, MethodId, QueueDeclare, QueueDeclareOk, Settle, Tune};
use dlx_proxy::amqp::properties::Properties;
use dlx_proxy::amqp::reply;
use dlx_proxy::amqp::table::{Table, TableBuilder};

use super::calls::{self, Call};
use super::connection::{Connection, Login, closed};
use super::lab::Fallible;

const CHANNEL: ChannelId = ChannelId(1);

/// An open connection with an open channel.
pub(crate) struct Client {
    connection: Connection,
    /// A content that is not complete, after the method that it belongs to.
    half: Option<(Vec<u8>, Option<Assembly>)>,
    /// How long it waits for anything.
    patience: Duration,
}

/// What came, for those who are not waiting for an answer.
#[derive(Debug)]
pub(crate) enum Came {
    Delivery {
        queue: String,
        tag: u64,
        body: Vec<u8>,
        /// How often it says that it has come back.
        count: u64,
    },
    /// `basic.ack` or, not taken, `basic.nack`.
    Settled {
        tag: u64,
        multiple: bool,
        taken: bool,
    },
    Answer(MethodId, Vec<u8>),
}

/// What a queue or exchange is declared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    pub durable: bool,
    pub internal: bool,
}

impl Client {
    /// Logs in as guest. The connection's name is for those who shall find it.
    pub(crate) async fn open(
        address: SocketAddr,
        vhost: &str,
        name: &str,
        patience: Duration,
    ) -> Fallible<Client> {
        let mut properties = TableBuilder::default();
        properties.longstr(b"connection_name", name.as_bytes());
        let login = Login {
            user: "guest",
            password: "guest",
            vhost,
            properties: &properties.finish(),
            // No heartbeat: `patience` serves.
            tune: Tune::default(),
        };
        let opening = async {
            let mut client = Client {
                connection: Connection::open(address, login).await.map_err(text)?,
                half: None,
                patience,
            };
            let opened = client.call(calls::open_channel());
            opened.await.map(|_| client)
        };
        let opened = tokio::time::timeout(patience, opening).await;
        opened.unwrap_or(Err("no answer to a login".to_owned()))
    }

    // --- what goes out

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Fallible<()> {
        let sent = tokio::time::timeout(self.patience, self.connection.send(bytes)).await;
        sent.map_err(|_| "nothing is read from us".to_owned())?
            .map_err(text)
    }

    /// Waits for the answer.
    async fn call(&mut self, call: Call) -> Fallible<Vec<u8>> {
        self.send(&call.on(CHANNEL)).await?;
        self.answer(call.answer).await
    }

    /// Returns how many messages are ready in it.
    pub(crate) async fn declare_queue(
        &mut self,
        queue: &str,
        durable: bool,
        arguments: &[u8],
    ) -> Fallible<u32> {
        self.queue_declare(queue, u8::from(durable) << 1, arguments)
            .await
    }

    /// How many messages are ready in a queue.
    pub(crate) async fn ready(&mut self, queue: &str) -> Fallible<u32> {
        self.queue_declare(queue, QueueDeclare::PASSIVE, b"").await
    }

    async fn queue_declare(&mut self, queue: &str, bits: u8, arguments: &[u8]) -> Fallible<u32> {
        let call = calls::declare_queue(queue, bits, arguments);
        let ok = self.call(call).await?;
        let ok = QueueDeclareOk::parse(&ok);
        Ok(ok.map_err(text)?.message_count)
    }

    /// A fanout exchange, and the queue that is bound to it.
    pub(crate) async fn declare_exchange(
        &mut self,
        exchange: &str,
        queue: &str,
        bits: Bits,
    ) -> Fallible<()> {
        let flags = u8::from(bits.durable) << 1 | u8::from(bits.internal) << 3;
        self.call(calls::declare_fanout(exchange, flags)).await?;
        self.call(calls::bind(queue, exchange)).await.map(|_| ())
    }

    /// An exchange on which publishes may be delayed, and the queue that is bound to it.
    pub(crate) async fn declare_delayed(&mut self, exchange: &str, queue: &str) -> Fallible<()> {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-delayed-type", b"fanout");
        let arguments = arguments.finish();
        let declare_ok = MethodId::EXCHANGE_DECLARE_OK;
        let call = Call::new(MethodId::EXCHANGE_DECLARE, declare_ok, |a| {
            a.short(0).shortstr(exchange.as_bytes());
            a.shortstr(b"x-delayed-message");
            a.octet(2).longstr(&arguments);
        });
        self.call(call).await?;
        self.call(calls::bind(queue, exchange)).await.map(|_| ())
    }

    pub(crate) async fn delete_exchange(&mut self, exchange: &str) -> Fallible<()> {
        let delete_ok = MethodId(40, 21);
        let call = Call::new(MethodId::EXCHANGE_DELETE, delete_ok, |a| {
            a.short(0).shortstr(exchange.as_bytes()).octet(0).end();
        });
        self.call(call).await.map(|_| ())
    }

    /// Returns how many messages went with it.
    pub(crate) async fn delete_queue(&mut self, queue: &str) -> Fallible<u32> {
        let ok = self.call(calls::delete_queue(queue)).await?;
        Ok(ok
            .last_chunk()
            .map_or(0, |count| u32::from_be_bytes(*count)))
    }

    pub(crate) async fn confirm(&mut self) -> Fallible<()> {
        self.call(calls::confirms()).await.map(|_| ())
    }

    pub(crate) async fn qos(&mut self, prefetch: u16) -> Fallible<()> {
        self.call(calls::qos(prefetch)).await.map(|_| ())
    }

    /// Consumes; the tag is the queue's name. Deliveries come from now on, so nothing is waited for.
    pub(crate) async fn consume(&mut self, queue: &str, no_ack: bool) -> Fallible<()> {
        let call = calls::consume(queue, queue, no_ack);
        self.send(&call.on(CHANNEL)).await
    }

    /// Appends a publish to a queue by the default exchange.
    pub(crate) fn publish(&self, out: &mut Vec<u8>, queue: &str, body: &[u8], persistent: bool) {
        let properties = vec![0x10, 0, 1 + u8::from(persistent)];
        self.publish_to(out, ("", queue), properties, body);
    }

    /// Appends a persistent publish to an exchange, with this delay.
    pub(crate) fn publish_later(
        &self,
        out: &mut Vec<u8>,
        exchange: &str,
        body: &[u8],
        delay: Duration,
    ) {
        let mut headers = TableBuilder::default();
        headers.long(b"x-delay", delay.as_millis() as i64);
        let headers = headers.finish();
        let size = (headers.len() as u32).to_be_bytes();
        let properties = [&[0x30, 0], &size[..], &headers, &[2]].concat();
        self.publish_to(out, (exchange, ""), properties, body);
    }

    fn publish_to(&self, out: &mut Vec<u8>, to: (&str, &str), properties: Vec<u8>, body: &[u8]) {
        let content = Content {
            properties: properties.into(),
            body: body.to_vec().into(),
        };
        let frame_max = self.connection.tune.frame_max as usize;
        calls::publish(out, CHANNEL, to, &content, frame_max);
    }

    /// Appends a `basic.reject` without requeue.
    pub(crate) fn reject(out: &mut Vec<u8>, tag: u64) {
        reply::reject(out, CHANNEL, DeliveryTag(tag), false);
    }

    /// Appends a `basic.nack` without requeue.
    pub(crate) fn nack(out: &mut Vec<u8>, tag: u64, multiple: bool) {
        reply::nack(out, CHANNEL, DeliveryTag(tag), multiple, false);
    }

    pub(crate) fn ack(out: &mut Vec<u8>, tag: u64) {
        reply::ack(out, CHANNEL, DeliveryTag(tag), false);
    }

    /// Returns one to its queue.
    pub(crate) fn give_back(out: &mut Vec<u8>, tag: u64) {
        reply::nack(out, CHANNEL, DeliveryTag(tag), false, true);
    }

    /// Acks all deliveries up to this one.
    pub(crate) async fn ack_all(&mut self, tag: u64) -> Fallible<()> {
        let mut out = Vec::new();
        reply::ack(&mut out, CHANNEL, DeliveryTag(tag), true);
        self.send(&out).await
    }

    /// In order, if the other side still answers.
    pub(crate) async fn close(mut self) {
        let mut out = Vec::new();
        reply::close(&mut out, ChannelId(0), 200, b"done", MethodId(0, 0));
        if self.send(&out).await.is_err() {
            return;
        }
        while !matches!(
            self.next().await,
            Err(_) | Ok(Came::Answer(MethodId::CONNECTION_CLOSE_OK, _))
        ) {}
    }

    // --- what comes in

    /// The next answer; deliveries and confirms do not come before it.
    async fn answer(&mut self, id: MethodId) -> Fallible<Vec<u8>> {
        match self.next().await? {
            Came::Answer(came, payload) if came == id => Ok(payload),
            other => Err(format!("not {id:?}: {other:?}")),
        }
    }

    /// The next thing that matters; fails if nothing comes for too long.
    pub(crate) async fn next(&mut self) -> Fallible<Came> {
        let next = tokio::time::timeout(self.patience, self.coming()).await;
        next.unwrap_or(Err("nothing comes".to_owned()))
    }

    /// The same without patience. Safe to drop and to call again.
    pub(crate) async fn coming(&mut self) -> Fallible<Came> {
        loop {
            let frame = self.connection.read().await.map_err(text)?;
            if let Some(came) = self.frame(frame.kind, frame.payload)? {
                return Ok(came);
            }
        }
    }

    /// Whether more has come already than was asked for.
    pub(crate) fn has_unread(&self) -> bool {
        self.connection.has_unread()
    }

    fn frame(&mut self, kind: Kind, payload: Vec<u8>) -> Fallible<Option<Came>> {
        match kind {
            Kind::Method => return self.method(payload),
            Kind::Header => {
                let (_, half) = self.half.as_mut().ok_or("a header alone")?;
                *half = Assembly::begin(&payload, usize::MAX);
            }
            Kind::Body => {
                let half = self.half.as_mut().and_then(|(_, half)| half.as_mut());
                half.ok_or("a body alone")?.push(&payload);
            }
            _ => {}
        }
        let is_complete =
            |half: &mut (_, Option<Assembly>)| half.1.as_ref().is_some_and(Assembly::is_complete);
        let Some((method, Some(assembly))) = self.half.take_if(is_complete) else {
            return Ok(None);
        };
        let deliver = Deliver::parse(&method).map_err(text)?;
        let content = assembly.finish();
        Ok(Some(Came::Delivery {
            queue: String::from_utf8_lossy(deliver.consumer_tag).into_owned(),
            tag: deliver.delivery_tag.0,
            count: count(&content),
            body: content.body.to_vec(),
        }))
    }

    fn method(&mut self, payload: Vec<u8>) -> Fallible<Option<Came>> {
        let id = MethodId::peek(&payload).ok_or("a method without a name")?;
        if let Some((code, text, _)) = closed(&payload) {
            return Err(format!("{code} {text}"));
        }
        match id {
            MethodId::BASIC_CANCEL => Err("the consumer was cancelled".to_owned()),
            MethodId::BASIC_DELIVER => {
                self.half = Some((payload, None));
                Ok(None)
            }
            MethodId::BASIC_ACK | MethodId::BASIC_NACK => {
                let settle = Settle::parse(&payload).map_err(text)?;
                Ok(Some(Came::Settled {
                    tag: settle.delivery_tag.0,
                    multiple: settle.multiple,
                    taken: id == MethodId::BASIC_ACK,
                }))
            }
            MethodId::BASIC_CONSUME_OK
            | MethodId::CONNECTION_BLOCKED
            | MethodId::CONNECTION_UNBLOCKED => Ok(None),
            _ => Ok(Some(Came::Answer(id, payload))),
        }
    }
}

/// 4.3 has a second number for it, which counts each return.
fn count(content: &Content) -> u64 {
    let properties = Properties::parse(&content.properties).ok();
    let headers = properties
        .as_ref()
        .and_then(|properties| properties.headers());
    let count = |name: &[u8]| Table(headers?).get(name).ok()??.as_integer();
    let counts = [count(b"x-delivery-count"), count(b"x-acquired-count")];
    let most = counts.into_iter().flatten().max();
    most.and_then(|count| count.try_into().ok()).unwrap_or(0)
}

fn text(error: impl Display) -> String {
    error.to_string()
}
