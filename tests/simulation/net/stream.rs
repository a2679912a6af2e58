//! A proxy's end of a connection, as its driver has it: who finds nothing there is woken when there is something, and only then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dlx_proxy::net::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Found, Net, TcpId};

pub(crate) struct Stream {
    net: Net,
    tcp: TcpId,
    end: End,
    resets: bool,
}

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
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.finish(self.tcp, self.end);
        Poll::Ready(Ok(()))
    }
}
