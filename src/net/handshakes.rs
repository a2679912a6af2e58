//! The thread that answers the TLS handshakes of clients.
//!
//! Each handshake costs a signature, so clients that make one after another could hold up the sessions of all others. Here a flood of handshakes
//! waits for itself.

use std::io;

use super::background::{Background, NICER};
use super::stream::{Plain, Socket};
use super::workers;
use crate::tls::Acceptor;

/// Clones are the same thread; it ends with the last clone.
#[derive(Clone, Debug)]
pub struct Handshakes(Background);

// === impl Handshakes ===

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no more threads or pollers for us.
    pub fn start() -> io::Result<Handshakes> {
        Background::start("handshakes", NICER).map(Handshakes)
    }

    /// The same connection with TLS on it, on the poller of the caller's thread. It is closed if this future is dropped before.
    ///
    /// # Errors
    /// The client ends it, or says what cannot be understood or accepted.
    pub async fn accept(&self, acceptor: Acceptor, client: Plain) -> io::Result<Socket> {
        let answered = self.0.run(async move {
            let client = workers::adopt(client)?;
            acceptor.accept(client).await
        });
        let mut socket = answered.await??;
        if let Socket::Right(with_tls) = &mut socket {
            workers::fetch(with_tls.get_mut().0)?;
        }
        Ok(socket)
    }
}
