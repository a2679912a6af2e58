//! A cable between the proxy and its broker that can be cut, plugged in again, or jammed for one kind of connection: how a broker is away,
//! or slow, at a moment of the test's choice. It is no broker: what passes is a real one's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How the proxy names its publisher's connection, up to the vhost.
const PUBLISHER: &[u8] = b"dlx-proxy publisher";

/// A cable. It is cut at first.
pub(crate) struct Relay {
    address: SocketAddr,
    broker: String,
    jammed: watch::Sender<bool>,
    plugged: Option<JoinHandle<()>>,
}

// === impl Relay ===

impl Relay {
    /// To the broker at this address, `host:port`.
    pub(crate) async fn new(broker: String) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Relay {
            address: listener.local_addr().expect("bound"),
            broker,
            jammed: watch::Sender::new(false),
            plugged: None,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on connections are accepted and passed on.
    pub(crate) async fn plug_in(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("our port");
        let (broker, jammed) = (self.broker.clone(), self.jammed.subscribe());
        self.plugged = Some(tokio::spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&broker).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let publisher = Arc::new(AtomicBool::new(false));
                pumps.spawn(pump(
                    from_client,
                    to_server,
                    publisher.clone(),
                    jammed.clone(),
                ));
                pumps.spawn(pump(from_server, to_client, publisher, jammed.clone()));
            }
        }));
    }

    /// All connections are cut, and new ones refused.
    pub(crate) async fn cut(&mut self) {
        if let Some(plugged) = self.plugged.take() {
            plugged.abort();
            assert!(plugged.await.is_err(), "it accepts until it is told not to");
        }
    }

    /// While jammed, nothing more passes on the publisher's connection, in either direction; all others work.
    pub(crate) fn jam_publisher(&self, jammed: bool) {
        self.jammed.send_replace(jammed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(plugged) = &self.plugged {
            plugged.abort();
        }
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    publisher: Arc<AtomicBool>,
    mut jammed: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..read];
        if bytes
            .windows(PUBLISHER.len())
            .any(|window| window == PUBLISHER)
        {
            publisher.store(true, Ordering::Relaxed);
        }
        if publisher.load(Ordering::Relaxed) && jammed.wait_for(|jammed| !jammed).await.is_err() {
            return;
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
