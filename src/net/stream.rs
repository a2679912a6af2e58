//! What the driver needs of a connection, and how the one to the broker is opened. Whatever else a connection may be (TLS, one whose first bytes
//! were read already) is another [`Stream`], made where this one is: here and in `listener.rs`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::drive::Connector;

/// One connection. The driver writes, flushes, ends its side by `poll_shutdown`, and closes by dropping it.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// From now on, closing it shall look like a reset to the peer: no end that pretends to be orderly.
    fn reset_when_closed(&mut self);
}

impl Stream for TcpStream {
    fn reset_when_closed(&mut self) {
        // A socket that refuses the option is closed all the same.
        let _ = self.set_zero_linger();
    }
}

/// Opens connections to the broker.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// Host and port of the broker.
    pub broker: (String, u16),
    /// How long it may take to accept.
    pub within: Duration,
}

// === impl Dialer ===

impl Dialer {
    /// A connection.
    ///
    /// # Errors
    /// What the system says, or that it took too long.
    pub async fn dial(&self) -> io::Result<TcpStream> {
        let (host, port) = &self.broker;
        match timeout(self.within, TcpStream::connect((host.as_str(), *port))).await {
            Ok(connected) => connected.map(at_once),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        }
    }

    /// For a machine that wants connections of its own. Why there is none is told by that machine.
    pub(super) fn connector(&self) -> Connector<TcpStream> {
        let dialer = Arc::new(self.clone());
        Box::new(move || {
            let dialer = dialer.clone();
            Box::pin(async move {
                let connected = dialer.dial().await;
                if let Err(error) = &connected {
                    debug!(broker = %dialer, %error, "cannot connect");
                }
                connected
            })
        })
    }
}

impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = &self.broker;
        write!(f, "{host}:{port}")
    }
}

/// Acks and confirms are small frames that somebody waits for. A socket that refuses the option works all the same.
pub(super) fn at_once(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true);
    stream
}
