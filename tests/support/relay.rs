//! A cable between the proxy and its broker, or a client and the proxy, that can be cut, plugged in again, half open, or jammed or cut for one
//! kind of connection: how a peer is away, or slow, at a moment of the test's choice. It is no broker: what passes is a real one's.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
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
    /// Nothing more passes on any connection, in either direction.
    Silent,
    /// Half open: those who connected see their connection end, or those whom they connected to; the others hear nothing more until this is over.
    HalfOpen(Gone),
}

/// Whose end of a half open connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Near,
    Far,
}

/// A cable. It is cut at first.
pub(crate) struct Relay {
    address: SocketAddr,
    /// Never listens, and keeps the port ours while it is cut.
    _port: TcpSocket,
    broker: String,
    fault: watch::Sender<Fault>,
    plugged: Option<JoinHandle<()>>,
}

// === impl Relay ===

impl Relay {
    /// To the broker at this address, `host:port`.
    pub(crate) async fn new(broker: String) -> Relay {
        let port = shared(SocketAddr::from(([127, 0, 0, 1], 0)));
        Relay {
            address: port.local_addr().expect("bound"),
            _port: port,
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
        let listener = shared(self.address).listen(1024).expect("our port");
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
                let there = pump(
                    from_client,
                    to_server,
                    Gone::Near,
                    name.clone(),
                    fault.clone(),
                );
                let back = pump(from_server, to_client, Gone::Far, name, fault.clone());
                pumps.spawn(there);
                pumps.spawn(back);
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

/// A socket at an address that only sockets like it may have too.
fn shared(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.set_reuseport(true).expect("an option");
    socket.bind(address).expect("a free port");
    socket
}

/// `side`: where it reads.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    side: Gone,
    name: Arc<OnceLock<&'static str>>,
    mut fault: watch::Receiver<Fault>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let is_named = |of: &str| name.get().is_some_and(|name| *name == of);
        let ends = |fault: &Fault| match fault {
            Fault::Cut(of) => is_named(of),
            Fault::HalfOpen(_) => true,
            _ => false,
        };
        let stops = |fault: &Fault| match fault {
            Fault::Jam(of) => is_named(of),
            Fault::Silent => true,
            _ => false,
        };
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = fault.wait_for(ends) => break,
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
        let Ok(free) = fault
            .wait_for(|fault| !stops(fault))
            .await
            .map(|fault| *fault)
        else {
            return;
        };
        if ends(&free) {
            break;
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
    // The other pump of a connection does the same, so that one end is closed and the other held.
    let Fault::HalfOpen(gone) = *fault.borrow() else {
        return;
    };
    let held: Box<dyn Any + Send> = if gone == side {
        Box::new(to)
    } else {
        Box::new(from)
    };
    let _ = fault.wait_for(|fault| *fault == Fault::None).await;
    drop(held);
}
