//! The PROXY protocol, versions 1 and 2 (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>): where a connection really comes from,
//! as a load balancer tells us and as we tell the broker.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use ppp::{v1, v2};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

pub use self::origin::Origin;
pub use self::ssl::Ssl;

mod origin;
mod ssl;

const SIGNATURE: usize = v2::PROTOCOL_PREFIX.len();
const FIXED: usize = SIGNATURE + 4;
const LONGEST_LINE: usize = 107;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    #[default]
    Off,
    V2,
}

/// Networks whose connections must begin with a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted(pub Vec<IpNet>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `None`: the sender speaks for itself (a health check), or does not name its client.
    pub ends: Option<Ends>,
    pub ssl: Option<Ssl>,
}

#[derive(Debug, Error)]
pub enum BadHeader {
    #[error("the connection ended in its PROXY header: {0}")]
    Lost(#[from] io::Error),
    #[error("no PROXY header within `handshake-timeout`")]
    Late,
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    #[error("a PROXY header of version 1 that cannot be read: {0}")]
    One(v1::BinaryParseError),
    #[error("a PROXY header of version 2 that cannot be read: {0}")]
    Two(#[from] v2::ParseError),
}

/// Supports peeking, so that a line is not read byte by byte.
pub trait Peek: AsyncRead + Unpin {
    /// Unread bytes; none: end of stream.
    fn peek(&self, into: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Reads exactly one header.
///
/// # Errors
/// When there is none.
pub async fn read(stream: &mut impl Peek) -> Result<Header, BadHeader> {
    // Shorter than any header.
    let mut header = vec![0; SIGNATURE];
    stream.read_exact(&mut header).await?;
    if header == v2::PROTOCOL_PREFIX {
        header.resize(FIXED, 0);
        stream.read_exact(&mut header[SIGNATURE..]).await?;
        let rest = u16::from_be_bytes([header[FIXED - 2], header[FIXED - 1]]);
        header.resize(FIXED + usize::from(rest), 0);
        stream.read_exact(&mut header[FIXED..]).await?;
        return Ok(Header::of_second(&v2::Header::try_from(&header[..])?));
    }
    if !header.starts_with(b"PROXY ") {
        return Err(BadHeader::Missing);
    }
    while !header.ends_with(b"\r\n") && header.len() < LONGEST_LINE {
        let mut ahead = [0; LONGEST_LINE];
        let came = stream.peek(&mut ahead[header.len()..]).await?;
        let came = &ahead[header.len()..][..came];
        let line = came.iter().position(|byte| *byte == b'\n');
        let (read, more) = (header.len(), line.map_or(came.len(), |at| at + 1));
        // Nothing came: the connection has ended, as the read says.
        header.resize(read + more.max(1), 0);
        stream.read_exact(&mut header[read..]).await?;
    }
    let header = v1::Header::try_from(&header[..]).map_err(BadHeader::One)?;
    Ok(Header {
        ends: Ends::of_first(header.addresses),
        ssl: None,
    })
}

impl Peek for TcpStream {
    fn peek(&self, into: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
        TcpStream::peek(self, into)
    }
}

// === impl Header ===

impl Header {
    fn of_second(header: &v2::Header<'_>) -> Header {
        if header.command == v2::Command::Local {
            return Header::default();
        }
        let parts = header.tlvs().map_while(Result::ok);
        let mut ssl = parts.filter(|part| part.kind == ssl::TYPE);
        Header {
            ends: Ends::of_second(header.addresses),
            ssl: ssl.next().and_then(|part| Ssl::read(&part.value)),
        }
    }
}

/// The two ends of any of the headers' addresses, which have no trait in common.
macro_rules! between {
    ($of:ident) => {
        Ends {
            source: ($of.source_address, $of.source_port).into(),
            destination: ($of.destination_address, $of.destination_port).into(),
        }
    };
}

// === impl Ends ===

impl Ends {
    /// A header has one family for both ends: maps IPv4 to IPv6 where they differ.
    fn of_one_family(self) -> Ends {
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let ends = Ends {
            source: canonical(self.source),
            destination: canonical(self.destination),
        };
        if ends.source.is_ipv4() == ends.destination.is_ipv4() {
            return ends;
        }
        let mapped = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), end.port()).into(),
            IpAddr::V6(address) => (address, end.port()).into(),
        };
        Ends {
            source: mapped(ends.source),
            destination: mapped(ends.destination),
        }
    }

    fn of_first(addresses: v1::Addresses) -> Option<Ends> {
        match addresses {
            v1::Addresses::Unknown => None,
            v1::Addresses::Tcp4(of) => Some(between!(of)),
            v1::Addresses::Tcp6(of) => Some(between!(of)),
        }
    }

    fn of_second(addresses: v2::Addresses) -> Option<Ends> {
        match addresses {
            v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
            v2::Addresses::IPv4(of) => Some(between!(of)),
            v2::Addresses::IPv6(of) => Some(between!(of)),
        }
    }
}

// === impl Trusted ===

impl Trusted {
    pub fn contains(&self, address: IpAddr) -> bool {
        // What comes to an IPv6 socket by IPv4 is of the network that it is of.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Parses `10.0.0.0/8`, or one address.
    ///
    /// # Errors
    /// What to write instead.
    pub fn network(text: &str) -> Result<IpNet, String> {
        let one = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(one);
        let network =
            network.ok_or("write a network or an address, like \"10.0.0.0/8\" or \"::1\"")?;
        Ok(network.trunc())
    }
}

impl Serialize for Trusted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(IpNet::to_string))
    }
}

#[cfg(test)]
mod tests;
