//! What the driver needs of a connection, and what a connection can be: TCP or a Unix socket, with TLS on it or without.

use std::io;
use std::os::fd::AsFd;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

/// The driver writes, flushes, ends its side by `poll_shutdown`, and closes by dropping.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// From now on, dropping the connection sends a reset instead of an orderly end.
    fn reset_when_closed(&mut self);

    /// Moves the connection to the calling thread's poller.
    ///
    /// # Errors
    /// The system has no room or descriptor; the connection stays with its poller.
    fn adopt(&mut self) -> io::Result<()>;
}

pub type Plain = Either<TcpStream, UnixStream>;

/// TLS is boxed, because it is large and rarely used.
pub type Socket = Either<Plain, Box<TlsStream<Plain>>>;

impl Stream for TcpStream {
    fn reset_when_closed(&mut self) {
        // A socket that refuses the option is closed all the same.
        let _ = self.set_zero_linger();
    }

    fn adopt(&mut self) -> io::Result<()> {
        let same = self.as_fd().try_clone_to_owned()?;
        *self = TcpStream::from_std(same.into())?;
        Ok(())
    }
}

impl Stream for UnixStream {
    /// Unix sockets have no resets.
    fn reset_when_closed(&mut self) {}

    fn adopt(&mut self) -> io::Result<()> {
        let same = self.as_fd().try_clone_to_owned()?;
        *self = UnixStream::from_std(same.into())?;
        Ok(())
    }
}

impl<S: Stream> Stream for Box<TlsStream<S>> {
    /// Omits the end of TLS, which only `poll_shutdown` writes.
    fn reset_when_closed(&mut self) {
        match &mut **self {
            TlsStream::Client(stream) => stream.get_mut().0.reset_when_closed(),
            TlsStream::Server(stream) => stream.get_mut().0.reset_when_closed(),
        }
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.get_mut().0.adopt()
    }
}

impl<A: Stream, B: Stream> Stream for Either<A, B> {
    fn reset_when_closed(&mut self) {
        match self {
            Either::Left(stream) => stream.reset_when_closed(),
            Either::Right(stream) => stream.reset_when_closed(),
        }
    }

    fn adopt(&mut self) -> io::Result<()> {
        match self {
            Either::Left(stream) => stream.adopt(),
            Either::Right(stream) => stream.adopt(),
        }
    }
}

/// Sets TCP_NODELAY: acks and confirms are small and urgent. Ignores refusals.
pub fn plain(stream: TcpStream) -> Plain {
    let _ = stream.set_nodelay(true);
    Either::Left(stream)
}

/// Waits for the peer's first byte without reading it. `false`: the peer has ended its side first,
/// as far as this kind of connection shows.
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

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Stream, plain};
    use crate::net::background::Background;

    #[tokio::test]
    async fn a_connection_goes_on_on_another_thread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let mut stream = plain(listener.accept().await.unwrap().0);
        peer.write_all(b"a").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'a');
        let other = Background::start("another", 0).unwrap();
        let reads = other.run(async move {
            stream.adopt().unwrap();
            // Not there yet: the poller of this thread has to say when it is.
            let read = stream.read_u8().await.unwrap();
            (thread::current().name().map(str::to_owned), read)
        });
        peer.write_all(b"b").await.unwrap();
        let (thread, read) = reads.await.unwrap();
        assert_eq!((thread.as_deref(), read), (Some("another"), b'b'));
    }
}
