//! A connection that the books of the nodes hear of: how long it is open, and whether the broker ever said anything on it.
//!
//! A node that accepts connections and then says nothing, or hangs up before `connection.start`, is no better than one that refuses: it is
//! counted as that. Whoever met it is not sent elsewhere: the broker speaks only after the client, whose words are on their way by then.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::nodes::{Address, Nodes};
use super::stream::Stream;
use crate::machine::Mono;
use crate::tls;

/// A broker is silent after this time without an answer to a protocol header.
const SILENCE: Duration = Duration::from_secs(2);
const HEADER: usize = 8;

#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    /// Boxed; client connections have none.
    watch: Option<Box<Watch>>,
}

#[derive(Debug)]
pub struct Watch {
    nodes: Nodes,
    address: Address,
    began: Mono,
    tls: Option<Arc<tls::Client>>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Greeting(usize),
    Asked(Mono),
    /// Answered, or counted as silent.
    Known,
}

// === impl Watch ===

impl Watch {
    /// `began`: start of the attempt.
    pub(super) fn new(
        nodes: Nodes,
        address: Address,
        began: Mono,
        tls: Option<Arc<tls::Client>>,
    ) -> Watch {
        nodes.opened(&address);
        Watch {
            nodes,
            address,
            began,
            tls,
            stage: Stage::Greeting(0),
        }
    }

    fn written(&mut self, bytes: usize) {
        if let Stage::Greeting(before) = self.stage {
            self.stage = match before + bytes {
                enough if enough >= HEADER => Stage::Asked(self.nodes.now()),
                few => Stage::Greeting(few),
            };
        }
    }

    fn heard(&mut self) {
        self.stage = Stage::Known;
        self.nodes.answered(&self.address);
    }

    /// The broker closed it without a word, as RabbitMQ does after ten silent seconds.
    fn ended(&mut self) {
        let patient = self.began.until(self.nodes.now()) >= SILENCE;
        if matches!(self.stage, Stage::Asked(_)) || !patient {
            self.fails(&"it hung up before it said anything");
        }
    }

    /// The connection or TLS failed. With TLS 1.3 a broker refuses the proxy's certificate only
    /// after the handshake.
    fn broke(&mut self, error: io::Error) -> io::Error {
        match &self.tls {
            Some(tls) if tls::words::is_of_tls(&error) => {
                let error = tls.failed(&error, &self.address.node.host);
                self.fails(&error);
                error
            }
            _ => {
                self.ended();
                error
            }
        }
    }

    fn fails(&mut self, why: &dyn fmt::Display) {
        self.stage = Stage::Known;
        self.nodes.failed(&self.address, self.began, why);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Stage::Asked(since) = self.stage
            && since.until(self.nodes.now()) >= SILENCE
        {
            self.fails(&"it accepts connections, and says nothing");
        }
        self.nodes.closed(&self.address);
    }
}

// === impl Watched ===

impl<S> Watched<S> {
    pub(super) fn by(watch: Watch, stream: S) -> Watched<S> {
        Watched {
            stream,
            watch: Some(Box::new(watch)),
        }
    }

    pub(super) fn by_nobody(stream: S) -> Watched<S> {
        Watched {
            stream,
            watch: None,
        }
    }

    fn unknown(&mut self) -> Option<&mut Watch> {
        let watch = self.watch.as_deref_mut()?;
        (!matches!(watch.stage, Stage::Known)).then_some(watch)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let (Poll::Ready(done), Some(watch)) = (&read, self.unknown()) else {
            return read;
        };
        match done {
            Ok(()) if buffer.filled().len() > before => watch.heard(),
            Ok(()) => watch.ended(),
            Err(_) => return read.map_err(|error| watch.broke(error)),
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let (Poll::Ready(Ok(bytes)), Some(watch)) = (&written, self.unknown()) {
            watch.written(*bytes);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Stream> Stream for Watched<S> {
    fn reset_when_closed(&mut self) {
        self.stream.reset_when_closed();
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.stream.adopt()
    }
}
