//! A proxy's end of a connection, as its driver has it: who finds nothing there is woken when there is something, and only then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dlx_proxy::net::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Found, Net, TcpId};

pub(crate) struct Stream {
    net: Net,
    tcp: TcpId,
    end: End,
    resets: bool,
    /// It keeps what is written until it is flushed, as TLS does: every other connection.
    keeps: bool,
    kept: Vec<u8>,
}

/// So much is taken before a flush.
const MOST_KEPT: usize = 4096;

impl Stream {
    pub(crate) fn tcp(&self) -> TcpId {
        self.tcp
    }

    pub(crate) fn new(net: &Net, tcp: TcpId, end: End) -> Stream {
        Stream {
            net: net.clone(),
            tcp,
            end,
            resets: false,
            keeps: tcp.0.is_multiple_of(2),
            kept: Vec::new(),
        }
    }

    /// What it keeps could go on its way.
    pub(crate) fn is_flushable(&self) -> bool {
        !self.kept.is_empty() && self.is_writable()
    }

    fn send(&self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut all = self.net.lock();
        let most = all.most.min(bytes.len());
        match all.write(self.tcp, self.end, &bytes[..most]) {
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(0) => {
                all.tcps[self.tcp.0].writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(taken) => Poll::Ready(Ok(taken)),
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.net.has_arrived(self.tcp, self.end)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.net.writable(self.tcp, self.end)
    }
}

impl stream::Stream for Stream {
    fn adopt(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reset_when_closed(&mut self) {
        self.resets = true;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        match self.resets {
            true => self.net.cut(self.tcp),
            false => self.net.close(self.tcp, self.end),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut all = self.net.lock();
        let most = all.most.min(buffer.remaining());
        match all.read(self.tcp, self.end, most) {
            Found::Bytes(bytes) => buffer.put_slice(&bytes),
            Found::Fin => {}
            Found::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Found::Nothing => {
                all.tcps[self.tcp.0].reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.keeps {
            return self.send(bytes, cx);
        }
        if self.kept.len() >= MOST_KEPT {
            ready!(self.as_mut().poll_flush(cx))?;
        }
        let taken = bytes.len().min(MOST_KEPT);
        self.kept.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            match ready!(self.send(&self.kept, cx)) {
                Ok(sent) => drop(self.kept.drain(..sent)),
                Err(error) => {
                    self.kept.clear();
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.net.finish(self.tcp, self.end);
        Poll::Ready(Ok(()))
    }
}
