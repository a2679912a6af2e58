//! Where connections come in: a port without TLS, one with it, or both.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::telemetry::Metrics;
use crate::tls::Acceptor;

/// After an accept that failed (no file descriptors left), others get time to close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The ports of one kind of peer.
#[derive(Debug, Default)]
pub struct Ports {
    /// Without TLS.
    pub plain: Option<TcpListener>,
    /// With it.
    pub tls: Option<(TcpListener, Acceptor)>,
}

/// A connection that came in.
#[derive(Debug)]
pub struct Came {
    /// Nothing of it is read yet.
    pub stream: TcpStream,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// How its handshake is answered, if it came where TLS is spoken.
    pub tls: Option<Acceptor>,
}

// === impl Ports ===

impl Ports {
    /// The next connection, whatever that takes. Nothing is lost when this is dropped before.
    pub async fn accept(&self, metrics: &Metrics) -> Came {
        let tls = self.tls.as_ref();
        let ((stream, peer), tls) = tokio::select! {
            came = accept(self.plain.as_ref(), metrics) => (came, None),
            came = accept(tls.map(|(port, _)| port), metrics) => (came, tls.map(|(_, tls)| tls.clone())),
        };
        Came { stream, peer, tls }
    }

    /// Their addresses, and whether TLS is spoken there.
    pub fn addresses(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        let plain = self.plain.iter().map(|port| (port, false));
        let tls = self.tls.iter().map(|(port, _)| (port, true));
        let all = plain.chain(tls);
        all.filter_map(|(port, tls)| Some((port.local_addr().ok()?, tls)))
    }
}

async fn accept(port: Option<&TcpListener>, metrics: &Metrics) -> (TcpStream, SocketAddr) {
    let Some(port) = port else {
        return std::future::pending().await;
    };
    loop {
        match port.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                metrics.cannot_accept(&error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
