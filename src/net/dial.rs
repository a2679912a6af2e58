//! How a connection to the broker is opened: to the first address of its nodes that accepts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::drive::Connector;
use super::nodes::{Address, Node, Nodes};
use super::proxy_protocol::{Ends, Origin, Told};
use super::stream::{Plain, Socket, plain};
use super::watched::{Watch, Watched};
use crate::machine::Mono;
use crate::tls;

/// After this time without an answer, the next node is tried in parallel.
const HEAD_START: Duration = Duration::from_secs(1);
/// For everything, including name lookup. Clients wait about as long for the first bytes.
const IN_ALL: Duration = Duration::from_secs(10);

pub type Line = Watched<Socket>;

#[derive(Clone, Debug)]
pub struct Dialer {
    pub nodes: Nodes,
    pub way: Way,
    /// To accept, including the TLS handshake.
    pub within: Duration,
}

#[derive(Clone, Debug)]
pub struct Way {
    pub tls: Option<tls::Connector>,
    pub told: Told,
}

#[derive(Debug)]
pub struct Dialed {
    pub socket: Line,
    pub address: Address,
    /// As of this connection; later ones may differ.
    pub tls: Option<Arc<tls::Client>>,
}

#[derive(Debug)]
pub struct Refused {
    pub node: Option<Node>,
    pub error: io::Error,
}

// === impl Dialer ===

impl Dialer {
    /// `client`: its origin; `None` for the proxy's own connections. Reports a refusal only after
    /// all nodes were tried.
    ///
    /// # Errors
    /// The last node's error, or a timeout.
    pub async fn dial(&self, client: Option<&Origin>) -> Result<Dialed, Refused> {
        // Who began to be tried when, as long as it has not said no.
        let mut open = Vec::new();
        let dialed = match timeout(IN_ALL, self.dial_all(client, &mut open)).await {
            Ok(dialed) => dialed,
            Err(_) => Err(Refused {
                node: open.first().map(|(address, _)| address.node.clone()),
                error: silent(),
            }),
        };
        // Who was outrun by one that had the harder start would make each client wait.
        let now = self.nodes.now();
        for (address, began) in open {
            if began.until(now) >= HEAD_START {
                self.nodes.failed(&address, began, &silent());
            }
        }
        dialed
    }

    async fn dial_all(
        &self,
        client: Option<&Origin>,
        open: &mut Vec<(Address, Mono)>,
    ) -> Result<Dialed, Refused> {
        let (addresses, nameless) = self.nodes.in_order().await;
        let mut refused = match nameless {
            Some((node, error)) => Refused {
                node: Some(node),
                error,
            },
            None => Refused {
                node: None,
                error: io::Error::new(io::ErrorKind::NotFound, "there is no node to connect to"),
            },
        };
        let mut next = addresses.into_iter();
        let mut trying = FuturesUnordered::new();
        loop {
            if let Some(address) = next.next() {
                open.push((address.clone(), self.nodes.tries(&address)));
                let tls = self.way.client();
                trying.push(async move {
                    let dialed = self.way.to_address_for(&address, client, tls.as_deref());
                    let dialed = timeout(self.within, dialed).await;
                    let dialed = dialed.unwrap_or_else(|_| Err(silent()));
                    (dialed.map(|socket| (socket, tls)), address)
                });
            } else if trying.is_empty() {
                return Err(refused);
            }
            let ended = match next.len() {
                0 => trying.next().await,
                _ => match timeout(HEAD_START, trying.next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            let Some((result, address)) = ended else {
                continue;
            };
            let at = open.iter().position(|(tried, _)| *tried == address);
            let began = at.map_or(self.nodes.now(), |at| open.swap_remove(at).1);
            match result {
                Ok((socket, tls)) => {
                    let nodes = self.nodes.clone();
                    let watch = Watch::new(nodes, address.clone(), began, tls.clone());
                    let socket = Watched::by(watch, socket);
                    return Ok(Dialed {
                        socket,
                        address,
                        tls,
                    });
                }
                Err(error) => refused = self.cannot_connect(address, began, error),
            }
        }
    }

    fn cannot_connect(&self, address: Address, began: Mono, error: io::Error) -> Refused {
        debug!(%address, %error, "cannot connect");
        if !is_of_this_machine(&error) {
            self.nodes.failed(&address, began, &error);
        }
        Refused {
            node: Some(address.node),
            error,
        }
    }

    /// For links. The machine reports failures; this reports the address.
    pub(super) fn connector(
        &self,
        told: impl Fn(&Address) + Send + Sync + 'static,
    ) -> Connector<Line> {
        let dialer = self.clone();
        let told = Arc::new(told);
        Box::new(move || {
            let (dialer, told) = (dialer.clone(), told.clone());
            Box::pin(async move {
                let dialed = dialer.dial(None).await.map_err(|refused| refused.error)?;
                told(&dialed.address);
                Ok(dialed.socket)
            })
        })
    }
}

// === impl Way ===

impl Way {
    /// For the proxy's own connections.
    ///
    /// # Errors
    /// From the system, or the TLS handshake.
    pub async fn to_address(&self, address: &Address) -> io::Result<Socket> {
        self.to_address_for(address, None, self.client().as_deref())
            .await
    }

    fn client(&self) -> Option<Arc<tls::Client>> {
        self.tls.as_ref().map(tls::Connector::client)
    }

    async fn to_address_for(
        &self,
        address: &Address,
        client: Option<&Origin>,
        tls: Option<&tls::Client>,
    ) -> io::Result<Socket> {
        let mut stream = TcpStream::connect(address.at).await?;
        if self.told != Told::Off {
            let own = Ends {
                source: stream.local_addr()?,
                destination: stream.peer_addr()?,
            };
            let header = client.unwrap_or(&Origin::LOCAL).header(own, self.told);
            // A new connection has room for it.
            stream.write_all(&header).await?;
        }
        dress(plain(stream), &address.node.host, tls).await
    }
}

/// Out of descriptors, ports or memory: says nothing about the node.
fn is_of_this_machine(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::MFILE
                | Errno::NFILE
                | Errno::ADDRNOTAVAIL
                | Errno::AGAIN
                | Errno::NOBUFS
                | Errno::NOMEM
        )
    )
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

pub async fn connect(host: &str, port: u16, tls: Option<&tls::Connector>) -> io::Result<Socket> {
    let stream = plain(TcpStream::connect((host, port)).await?);
    let tls = tls.map(tls::Connector::client);
    dress(stream, host, tls.as_deref()).await
}

async fn dress(stream: Plain, host: &str, tls: Option<&tls::Client>) -> io::Result<Socket> {
    match tls {
        Some(tls) => tls.connect(stream, host).await,
        None => Ok(Socket::Left(stream)),
    }
}

#[cfg(test)]
mod tests;
