//! The thread that answers the TLS handshakes of clients.
//!
//! Each handshake costs a signature, so clients that make one after another could hold up the sessions of all others. This thread yields the
//! processor to the session threads where both want it: a flood of handshakes waits for itself.

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::stream::{Plain, Socket};
use super::workers;
use crate::tls::Acceptor;

/// What is added to the thread's niceness: a tenth of the share that a session thread gets when there is too little for all.
const NICER: i32 = 10;

/// Clones are the same thread; it ends with the last clone.
#[derive(Clone, Debug)]
pub struct Handshakes {
    runtime: Handle,
    _running: Arc<watch::Sender<()>>,
}

// === impl Handshakes ===

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no more threads or pollers for us.
    pub fn start() -> io::Result<Handshakes> {
        let (running, ended) = watch::channel(());
        let runtime = workers::start_thread("handshakes".to_owned(), ended, || {
            // On Linux it is the calling thread's. One that may not change it answers handshakes all the same.
            let _ = rustix::process::nice(NICER);
        })?;
        Ok(Handshakes {
            runtime,
            _running: Arc::new(running),
        })
    }

    /// The same connection with TLS on it, on the poller of the caller's thread. It is closed if this future is dropped before.
    ///
    /// # Errors
    /// The client ends it, or says what cannot be understood or accepted.
    pub async fn accept(&self, acceptor: Acceptor, client: Plain) -> io::Result<Socket> {
        let answered = self.runtime.spawn(async move {
            let client = workers::adopt(client)?;
            acceptor.accept(client).await
        });
        let mut socket = AbortOnDropHandle::new(answered).await??;
        if let Socket::Right(with_tls) = &mut socket {
            workers::fetch(with_tls.get_mut().0)?;
        }
        Ok(socket)
    }
}
