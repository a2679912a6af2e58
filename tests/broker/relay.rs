//! A cable between the proxy and its broker that can be cut, plugged in again, or jammed or cut for one kind of connection: how a broker is away,
//! or slow, at a moment of the test's choice. It is no broker: what passes is a real one's.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The proxy's own connections, as they name themselves, up to the vhost.
pub(crate) const PUBLISHER: &str = "dlx-proxy publisher";
pub(crate) const INTAKE: &str = "dlx-proxy intake";

/// What is wrong with the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing more passes on connections of that name, in either direction; all others work.
    Jam(&'static str),
    /// Connections of that name are cut, again and again; all others work.
    Cut(&'static str),
}

/// A cable. It is cut at first.
pub(crate) struct Relay {
    address: SocketAddr,
    broker: String,
    fault: watch::Sender<Fault>,
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
            fault: watch::Sender::new(Fault::None),
            plugged: None,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on connections are accepted and passed on.
    pub(crate) async fn plug_in(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("our port");
        let (broker, fault) = (self.broker.clone(), self.fault.subscribe());
        self.plugged = Some(tokio::spawn(async move {
            let mut pumps = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&broker).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let name = Arc::new(OnceLock::new());
                pumps.spawn(pump(from_client, to_server, name.clone(), fault.clone()));
                pumps.spawn(pump(from_server, to_client, name, fault.clone()));
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

    /// From now on.
    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
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
    name: Arc<OnceLock<&'static str>>,
    mut fault: watch::Receiver<Fault>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let is = |fault: &Fault, of: fn(&'static str) -> Fault| {
            name.get().is_some_and(|name| *fault == of(name))
        };
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = fault.wait_for(|fault| is(fault, Fault::Cut)) => return,
        };
        let Ok(read @ 1..) = read else { return };
        let bytes = &buffer[..read];
        for known in [PUBLISHER, INTAKE] {
            if bytes
                .windows(known.len())
                .any(|window| window == known.as_bytes())
            {
                name.get_or_init(|| known);
            }
        }
        let free = fault
            .wait_for(|fault| !is(fault, Fault::Jam))
            .await
            .map(|fault| *fault);
        if free.is_err()
            || free.is_ok_and(|fault| is(&fault, Fault::Cut))
            || to.write_all(bytes).await.is_err()
        {
            return;
        }
    }
}
