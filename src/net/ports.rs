//! Where connections come in: a port without TLS, one with it, or both.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::either::Either;

use super::stream::{Plain, plain};
use super::unix::UnixPort;
use crate::telemetry::Metrics;
use crate::tls::Acceptor;

/// After a failed accept (no file descriptors left), so that some can be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const UNIX: &str = "unix:";
/// `sun_path` has 108 bytes with the final 0.
const LONGEST_PATH: usize = 107;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
pub enum Port {
    Tcp(TcpListener),
    Unix(UnixPort),
}

#[derive(Debug, Default)]
pub struct Ports {
    pub plain: Option<Port>,
    pub tls: Option<(Port, Acceptor)>,
}

#[derive(Debug)]
pub struct Came {
    pub stream: Plain,
    /// `None`: a Unix socket.
    pub peer: Option<SocketAddr>,
    pub tls: Option<Acceptor>,
}

// === impl At ===

impl At {
    /// Parses `127.0.0.1:5673` or `unix:/run/dlx-proxy/amqp.sock`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<At, &'static str> {
        let Some(path) = text.strip_prefix(UNIX) else {
            return text.parse().map(At::Tcp).map_err(|_| {
                "write an IP address and a port, like \"127.0.0.1:5673\" or \"[::]:5673\", or the path of a Unix socket, like \"unix:/run/dlx-proxy/amqp.sock\""
            });
        };
        let fits = Path::new(path).is_absolute() && path.len() <= LONGEST_PATH;
        match fits && !path.contains('\0') {
            true => Ok(At::Unix(path.into())),
            false => Err("write a path that begins with `/` and has at most 107 bytes"),
        }
    }

    pub fn is_any(&self) -> bool {
        matches!(self, At::Tcp(address) if address.port() == 0)
    }

    pub fn is_local(&self) -> bool {
        match self {
            At::Tcp(address) => address.ip().is_loopback(),
            At::Unix(_) => true,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Tcp(address) => address.fmt(f),
            At::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

// === impl Port ===

impl Port {
    /// # Errors
    /// From the system, or another process listens there.
    pub async fn bind(at: &At) -> io::Result<Port> {
        Ok(match at {
            At::Tcp(address) => Port::Tcp(TcpListener::bind(address).await?),
            At::Unix(path) => Port::Unix(UnixPort::bind(path).await?),
        })
    }

    async fn accept(&self) -> io::Result<(Plain, Option<SocketAddr>)> {
        Ok(match self {
            Port::Tcp(port) => {
                let (stream, peer) = port.accept().await?;
                (plain(stream), Some(peer))
            }
            Port::Unix(port) => (Either::Right(port.accept().await?), None),
        })
    }

    fn at(&self) -> Option<At> {
        match self {
            Port::Tcp(port) => port.local_addr().ok().map(At::Tcp),
            Port::Unix(port) => Some(At::Unix(port.path().to_owned())),
        }
    }
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Port {
        Port::Tcp(listener)
    }
}

// === impl Ports ===

impl Ports {
    /// Retries on errors. Cancel-safe.
    pub async fn accept(&self, metrics: &Metrics) -> Came {
        let tls = self.tls.as_ref();
        let ((stream, peer), tls) = tokio::select! {
            came = accept(self.plain.as_ref(), metrics) => (came, None),
            came = accept(tls.map(|(port, _)| port), metrics) => (came, tls.map(|(_, tls)| tls.clone())),
        };
        Came { stream, peer, tls }
    }

    pub fn addresses(&self) -> impl Iterator<Item = (At, bool)> {
        let plain = self.plain.iter().map(|port| (port, false));
        let tls = self.tls.iter().map(|(port, _)| (port, true));
        let all = plain.chain(tls);
        all.filter_map(|(port, tls)| Some((port.at()?, tls)))
    }
}

async fn accept(port: Option<&Port>, metrics: &Metrics) -> (Plain, Option<SocketAddr>) {
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

#[cfg(test)]
mod tests {
    use super::At;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for text in [
            "127.0.0.1:5673",
            "[::]:5673",
            "unix:/run/dlx-proxy/amqp.sock",
        ] {
            assert_eq!(At::parse(text).expect(text).to_string(), text);
        }
        let longest = format!("unix:/{}", "a".repeat(106));
        assert!(At::parse(&longest).is_ok());
        for (text, problem) in [
            ("localhost:5673", "\"unix:/run/dlx-proxy/amqp.sock\""),
            ("/run/amqp.sock", "\"unix:/run/dlx-proxy/amqp.sock\""),
            ("unix:amqp.sock", "begins with `/`"),
            ("unix:", "begins with `/`"),
            (&format!("{longest}a"), "at most 107 bytes"),
        ] {
            let said = At::parse(text).expect_err(text);
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
