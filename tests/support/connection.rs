//! An AMQP connection, frame by frame: the handshake, and then what is sent and what comes. What a frame means is its owner's to say.

use std::io::{self, ErrorKind};

use bytes::{Buf, BytesMut};
use dlx_proxy::amqp::frame::{self, Front, Kind};
use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::{Close, MethodId, Tune};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

use super::calls::{self, Call};

/// An open connection.
pub(crate) struct Connection {
    stream: TcpStream,
    unread: BytesMut,
    /// As the broker proposed and the client took it.
    pub tune: Tune,
    /// Heartbeats that came.
    pub heartbeats: usize,
    /// The largest frame that came.
    pub largest: usize,
}

/// Who logs in, and where.
pub(crate) struct Login<'a> {
    pub user: &'a str,
    pub password: &'a str,
    pub vhost: &'a str,
    /// The members of the table of client properties.
    pub properties: &'a [u8],
    /// What to answer to connection.tune; 0 for what is proposed, but for no heartbeats.
    pub tune: Tune,
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

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(
        address: impl ToSocketAddrs,
        login: Login<'_>,
    ) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection {
            stream,
            unread: BytesMut::new(),
            tune: login.tune,
            heartbeats: 0,
            largest: 0,
        };
        connection.send(&frame::PROTOCOL).await?;
        connection.answer(MethodId::CONNECTION_START).await?;
        let start_ok = calls::start_ok(login.properties, login.user, login.password);
        let offered = connection.ask(start_ok).await?;
        let offered = Tune::parse(&offered).map_err(io::Error::other)?;
        let tune = &mut connection.tune;
        if tune.channel_max == 0 {
            tune.channel_max = offered.channel_max;
        }
        if tune.frame_max == 0 {
            tune.frame_max = offered.frame_max;
        }
        let open = calls::tune_ok_and_open(*tune, login.vhost);
        connection.ask(open).await?;
        Ok(connection)
    }

    async fn ask(&mut self, call: Call) -> io::Result<Vec<u8>> {
        self.send(&call.on(ChannelId::CONNECTION)).await?;
        self.answer(call.answer).await
    }

    /// The next step of the handshake.
    async fn answer(&mut self, id: MethodId) -> io::Result<Vec<u8>> {
        let Frame {
            channel, payload, ..
        } = self.read().await?;
        match MethodId::peek(&payload) {
            Some(came) if came == id && channel == 0 => Ok(payload),
            came => {
                let said = closed(&payload);
                Err(io::Error::other(format!("not {id:?}: {came:?} {said:?}")))
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next frame of any channel. Safe to drop and to call again. The error of a broken frame is `InvalidData`.
    pub(crate) async fn read(&mut self) -> io::Result<Frame> {
        loop {
            match frame::front(&self.unread) {
                Front::Whole(head, payload, whole) => {
                    let frame = Frame {
                        channel: head.channel.0,
                        kind: head.kind,
                        payload: payload.to_vec(),
                    };
                    self.unread.advance(whole);
                    self.largest = self.largest.max(whole);
                    if frame.kind != Kind::Heartbeat {
                        return Ok(frame);
                    }
                    self.heartbeats += 1;
                }
                Front::Unterminated(head) => {
                    let problem = format!("a broken frame: {head:?}");
                    return Err(io::Error::new(ErrorKind::InvalidData, problem));
                }
                Front::Short | Front::Part(_) => {
                    if self.stream.read_buf(&mut self.unread).await? == 0 {
                        return Err(io::Error::other("the connection has ended"));
                    }
                }
            }
        }
    }

    /// Whether more has been received already than was asked for.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
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
