//! A port on loopback that stays ours while nobody listens there: between two runs of a proxy, and before its first.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// The system gives the port to nobody until this is dropped. Whoever is told the address may listen there and stop, as often as they like: beside a
/// socket that is bound and never listens that is allowed, with SO_REUSEADDR on both.
#[derive(Debug)]
pub(crate) struct Port {
    pub address: SocketAddr,
    _bound: TcpSocket,
}

impl Port {
    pub(crate) fn free() -> io::Result<Port> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        Ok(Port {
            address: socket.local_addr()?,
            _bound: socket,
        })
    }
}
