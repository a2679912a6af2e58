//! The admin port: what other programs may ask about this one, and the asking itself, for containers that have no curl.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

pub mod readiness;
mod redeclared;
pub mod server;

pub use readiness::Readiness;

/// As long as Kubernetes gives a probe by default, and a little less.
const PATIENCE: Duration = Duration::from_millis(900);

/// Asks the admin port at `admin` whether the proxy is ready. The answer is empty, or one reason a line why it is not.
///
/// # Errors
/// Nobody answers there in time, or not as an admin port does.
pub fn ask(admin: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&reachable(admin), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer ends with the connection, so nothing of HTTP must be parsed.
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(64 * 1024).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(String::new()),
        Some("503") => Ok(body.to_owned()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is not that of an admin port",
        )),
    }
}

/// "All addresses" can be listened to, but not connected to.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, admin.port())
}
