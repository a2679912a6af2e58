//! The thread that answers the TLS handshakes of clients.
//!
//! Each handshake costs a signature, so clients that make one after another could hold up the sessions of all others. Here a flood of handshakes
//! waits for itself.

use std::io;

use super::background::{Background, NICER};
use super::stream::{Plain, Socket, Stream};
use super::workers;
use crate::tls::Acceptor;

/// Clones share one thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub struct Handshakes(Background);

// === impl Handshakes ===

impl Handshakes {
    /// # Errors
    /// The system has no more threads or pollers.
    pub fn start() -> io::Result<Handshakes> {
        Background::start("handshakes", NICER).map(Handshakes)
    }

    /// Performs the handshake there; the result is on the caller's poller. Dropping this closes the
    /// connection.
    ///
    /// # Errors
    /// The client ends it, or violates the protocol.
    pub async fn accept(&self, acceptor: Acceptor, client: Plain) -> io::Result<Socket> {
        let answered = self.0.run(async move {
            let client = workers::adopt(client)?;
            acceptor.accept(client).await
        });
        let mut socket = answered.await??;
        socket.adopt()?;
        Ok(socket)
    }
}
