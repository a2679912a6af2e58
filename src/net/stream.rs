//! What the driver needs of a connection, and what a connection can be: TCP or a Unix socket, with TLS on it or without.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

/// One connection. The driver writes, flushes, ends its side by `poll_shutdown`, and closes by dropping it.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// When the connection is closed from now on, the peer should see a reset, and not an end that looks orderly.
    fn reset_when_closed(&mut self);
}

/// A connection of the system's.
pub type Plain = Either<TcpStream, UnixStream>;

/// A connection as machines have it. TLS is boxed: it is large, and most connections do without.
pub type Socket = Either<Plain, Box<TlsStream<Plain>>>;

impl Stream for TcpStream {
    fn reset_when_closed(&mut self) {
        // A socket that refuses the option is closed all the same.
        let _ = self.set_zero_linger();
    }
}

impl Stream for UnixStream {
    /// A Unix socket knows no resets.
    fn reset_when_closed(&mut self) {}
}

impl<S: Stream> Stream for Box<TlsStream<S>> {
    /// Without TLS's own end, which is only written by `poll_shutdown`.
    fn reset_when_closed(&mut self) {
        match &mut **self {
            TlsStream::Client(stream) => stream.get_mut().0.reset_when_closed(),
            TlsStream::Server(stream) => stream.get_mut().0.reset_when_closed(),
        }
    }
}

impl<A: Stream, B: Stream> Stream for Either<A, B> {
    fn reset_when_closed(&mut self) {
        match self {
            Either::Left(stream) => stream.reset_when_closed(),
            Either::Right(stream) => stream.reset_when_closed(),
        }
    }
}

/// TCP as it is. Acks and confirms are small frames that somebody waits for, so nothing is held back to be sent with more. A socket that
/// refuses the option works all the same.
pub fn plain(stream: TcpStream) -> Plain {
    let _ = stream.set_nodelay(true);
    Either::Left(stream)
}

/// Waits for the first octet of the peer, and leaves it where it is. `false`: the peer has ended its side without one, as far as the kind of
/// connection can tell.
///
/// # Errors
/// The connection is lost.
pub async fn begins(socket: &mut Socket) -> io::Result<bool> {
    match socket {
        Either::Left(Either::Left(tcp)) => Ok(tcp.peek(&mut [0]).await? > 0),
        Either::Left(Either::Right(unix)) => unix.readable().await.map(|()| true),
        Either::Right(with_tls) => Ok(!with_tls.fill_buf().await?.is_empty()),
    }
}
