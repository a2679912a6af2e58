//! An AMQP client that costs as little as possible: one blocking socket, frames built by hand, one write for many of them.
//!
//! The machine is shared by the broker, the proxy and this client, so what the client burns is missing from the figures. It uses the
//! crate's own codec, on one channel; the answers it does not expect are errors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use dlx_proxy::amqp::content::Content;
use dlx_proxy::amqp::frame::{self, Front, Head, Kind};
use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::{Close, Deliver, MethodId, Settle, Tune};
use dlx_proxy::amqp::reply;
use dlx_proxy::amqp::table::TableBuilder;

use crate::calls::{self, Call};
use crate::settings::Address;

/// The channel of all that is measured.
const CHANNEL: ChannelId = ChannelId(1);
/// Bytes of every body; the first eight carry a number, see [`Event::Message`].
pub(crate) const BODY: usize = 100;
/// Longer silence than this is a failure, not a slow broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One connection with one channel.
pub(crate) struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    from: usize,
    until: usize,
    /// Frames to send at the next [`Connection::flush`].
    out: Vec<u8>,
    /// The delivery whose content is coming.
    delivering: DeliveryTag,
}

/// Writes to the socket of a connection.
pub(crate) struct Writer(TcpStream);

/// What a channel in use hears.
pub(crate) enum Event {
    /// A message, whole: its tag and the first eight bytes of its body.
    Message(DeliveryTag, u64),
    /// The broker's `basic.ack` to a publisher.
    Confirmed(Settle),
}

/// What is published: the properties that matter here.
#[derive(Clone, Copy, Default)]
pub(crate) struct Message<'a> {
    /// delivery-mode 2.
    pub(crate) persistent: bool,
    /// The message's TTL in milliseconds.
    pub(crate) expiration: Option<u64>,
    /// The members of its header table; none, and it has no headers.
    pub(crate) headers: &'a [u8],
}

/// How a delivery is settled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// `basic.ack`.
    Ack,
    /// `basic.nack`, not multiple, without requeue.
    Nack,
    /// `basic.reject` without requeue.
    Reject,
    /// `basic.nack`, not multiple, with requeue.
    Return,
}

// === impl Connection ===

impl Connection {
    /// Connects, logs in and opens the channel.
    pub(crate) fn open(address: &Address) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect((address.host.as_str(), address.port))
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Connection {
            stream,
            inbox: vec![0; 256 * 1024],
            from: 0,
            until: 0,
            out: Vec::with_capacity(64 * 1024),
            delivering: DeliveryTag(0),
        };
        connection
            .log_in(address)
            .with_context(|| format!("no AMQP handshake with {address}"))?;
        Ok(connection)
    }

    fn log_in(&mut self, address: &Address) -> anyhow::Result<()> {
        self.out.extend_from_slice(&frame::PROTOCOL);
        self.flush()?;
        self.expect(MethodId::CONNECTION_START)?;
        let start_ok = calls::start_ok(&[], &address.user, &address.password);
        let mut tune = Tune::parse(&self.call(ChannelId::CONNECTION, start_ok)?)?;
        // No heartbeats: they would be noise in the figures.
        tune.heartbeat = 0;
        let open = calls::tune_ok_and_open(tune, &address.vhost);
        self.call(ChannelId::CONNECTION, open)?;
        self.call(CHANNEL, calls::open_channel()).map(drop)
    }

    /// Says goodbye and waits for the answer, so that the broker has let go of the connection's queues.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        reply::close(&mut self.out, ChannelId(0), 200, b"", MethodId(0, 0));
        self.flush()?;
        while let (_, payload) = self.frame()?
            && MethodId::peek(payload) != Some(MethodId::CONNECTION_CLOSE_OK)
        {}
        Ok(())
    }

    fn call(&mut self, channel: ChannelId, call: Call) -> anyhow::Result<Vec<u8>> {
        self.out.extend(call.on(channel));
        self.flush()?;
        self.expect(call.answer)
    }

    fn expect(&mut self, id: MethodId) -> anyhow::Result<Vec<u8>> {
        let (_, payload) = self.frame()?;
        if MethodId::peek(payload) != Some(id) {
            bail!("expected {id:?}, got {}", describe(payload));
        }
        Ok(payload.to_vec())
    }

    /// Sends what was put together.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Sends frames that were built elsewhere, once for many uses.
    pub(crate) fn write(&mut self, frames: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(frames)?)
    }

    /// The same socket for a second thread, which writes while this one reads.
    pub(crate) fn writer(&self) -> anyhow::Result<Writer> {
        Ok(Writer(self.stream.try_clone()?))
    }

    /// The same, for whoever shuts it.
    pub(crate) fn socket(&self) -> anyhow::Result<TcpStream> {
        Ok(self.stream.try_clone()?)
    }

    /// Whether a whole frame waits, so that [`Connection::event`] may not block.
    pub(crate) fn has_frame(&self) -> bool {
        matches!(self.front(), Front::Whole(..))
    }

    fn front(&self) -> Front<'_> {
        frame::front(self.inbox.get(self.from..self.until).unwrap_or_default())
    }

    fn frame(&mut self) -> anyhow::Result<(Head, &[u8])> {
        let whole = loop {
            match self.front() {
                Front::Whole(_, _, whole) => break whole,
                Front::Unterminated(head) => bail!("a frame without its end byte: {head:?}"),
                Front::Short | Front::Part(_) => self.fill()?,
            }
        };
        let at = self.from;
        self.from += whole;
        match frame::front(&self.inbox[at..self.from]) {
            Front::Whole(head, payload, _) => Ok((head, payload)),
            _ => bail!("the frame was whole a moment ago"),
        }
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        if self.from > 0 {
            self.inbox.copy_within(self.from..self.until, 0);
            self.until -= self.from;
            self.from = 0;
        }
        match self.stream.read(&mut self.inbox[self.until..])? {
            0 => bail!("the connection was closed, or a frame is larger than the inbox"),
            n => self.until += n,
        }
        Ok(())
    }

    /// The next message or confirm.
    pub(crate) fn event(&mut self) -> anyhow::Result<Event> {
        loop {
            let (head, payload) = self.frame()?;
            match (head.kind, MethodId::peek(payload)) {
                (Kind::Method, Some(MethodId::BASIC_DELIVER)) => {
                    self.delivering = Deliver::parse(payload)?.delivery_tag;
                }
                (Kind::Method, Some(MethodId::BASIC_ACK)) => {
                    return Ok(Event::Confirmed(Settle::parse(payload)?));
                }
                (Kind::Header | Kind::Heartbeat, _) => {}
                (Kind::Body, _) => {
                    let number = payload.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                    return Ok(Event::Message(self.delivering, number));
                }
                _ => bail!("unexpected: {}", describe(payload)),
            }
        }
    }

    /// The next message; a confirm is an error here.
    pub(crate) fn message(&mut self) -> anyhow::Result<(DeliveryTag, u64)> {
        match self.event()? {
            Event::Message(tag, number) => Ok((tag, number)),
            Event::Confirmed(_) => bail!("a confirm, but nothing was published here"),
        }
    }

    /// Settles one delivery at the next flush.
    pub(crate) fn settle(&mut self, tag: DeliveryTag, how: Settlement) {
        match how {
            Settlement::Ack => reply::ack(&mut self.out, CHANNEL, tag, false),
            Settlement::Nack => reply::nack(&mut self.out, CHANNEL, tag, false, false),
            Settlement::Reject => reply::reject(&mut self.out, CHANNEL, tag, false),
            Settlement::Return => reply::nack(&mut self.out, CHANNEL, tag, false, true),
        }
    }

    /// `queue.declare`. `bits`: of `QueueDeclare`.
    pub(crate) fn declare(
        &mut self,
        queue: &str,
        bits: u8,
        arguments: TableBuilder,
    ) -> anyhow::Result<()> {
        let call = calls::declare_queue(queue, bits, &arguments.finish());
        self.call(CHANNEL, call).map(drop)
    }

    /// Deletes a queue; that it does not exist is fine.
    pub(crate) fn delete_queue(&mut self, queue: &str) -> anyhow::Result<()> {
        self.call(CHANNEL, calls::delete_queue(queue)).map(drop)
    }

    /// Deletes an exchange; that it does not exist is fine.
    pub(crate) fn delete_exchange(&mut self, exchange: &str) -> anyhow::Result<()> {
        let delete_ok = MethodId(40, 21);
        let call = Call::new(MethodId::EXCHANGE_DELETE, delete_ok, |a| {
            a.short(0).shortstr(exchange.as_bytes()).octet(0).end();
        });
        self.call(CHANNEL, call).map(drop)
    }

    /// Puts the channel into confirm mode.
    pub(crate) fn confirms(&mut self) -> anyhow::Result<()> {
        self.call(CHANNEL, calls::confirms()).map(drop)
    }

    /// Consumes; with a prefetch deliveries must be settled, without one they are not (`no_ack`).
    pub(crate) fn consume(&mut self, queue: &str, prefetch: Option<u16>) -> anyhow::Result<()> {
        if let Some(prefetch) = prefetch {
            self.call(CHANNEL, calls::qos(prefetch))?;
        }
        let no_ack = prefetch.is_none();
        let call = calls::consume(queue, "bench", no_ack);
        self.call(CHANNEL, call).map(drop)
    }
}

// === impl Writer ===

impl Writer {
    /// Sends frames that were built elsewhere.
    pub(crate) fn write(&mut self, frames: &[u8]) -> anyhow::Result<()> {
        Ok(self.0.write_all(frames)?)
    }
}

/// Appends one publish to a queue through the default exchange.
pub(crate) fn publish(out: &mut Vec<u8>, queue: &str, message: Message<'_>, number: u64) {
    let mut flags = 0u16;
    let mut values = Vec::new();
    if !message.headers.is_empty() {
        flags |= 1 << 13;
        values.extend_from_slice(&(message.headers.len() as u32).to_be_bytes());
        values.extend_from_slice(message.headers);
    }
    if message.persistent {
        flags |= 1 << 12;
        values.push(2);
    }
    if let Some(milliseconds) = message.expiration {
        flags |= 1 << 8;
        let text = milliseconds.to_string();
        values.push(text.len() as u8);
        values.extend_from_slice(text.as_bytes());
    }
    let mut body = number.to_be_bytes().to_vec();
    body.resize(BODY, b'.');
    let content = Content {
        properties: Bytes::from([&flags.to_be_bytes()[..], &values].concat()),
        body: Bytes::from(body),
    };
    calls::publish(out, CHANNEL, ("", queue), &content, 0);
}

/// Of a classic queue, which may have a target behind the default exchange.
pub(crate) fn arguments(target: Option<&str>) -> TableBuilder {
    let mut arguments = TableBuilder::default();
    arguments.longstr(b"x-queue-type", b"classic");
    if let Some(target) = target {
        arguments.longstr(b"x-dead-letter-exchange", b"");
        arguments.longstr(b"x-dead-letter-routing-key", target.as_bytes());
    }
    arguments
}

/// Appends an ack of what a confirm names, where deliveries and publishes have the same numbers.
pub(crate) fn ack(out: &mut Vec<u8>, confirmed: Settle) {
    reply::ack(out, CHANNEL, confirmed.delivery_tag, confirmed.multiple);
}

/// A method for an error message; of a close, the broker's own words.
fn describe(payload: &[u8]) -> String {
    match (MethodId::peek(payload), Close::parse(payload)) {
        (Some(MethodId::CONNECTION_CLOSE | MethodId::CHANNEL_CLOSE), Ok(close)) => {
            format!("close {} {}", close.code, close.text.escape_ascii())
        }
        (id, _) => format!("{id:?}"),
    }
}
