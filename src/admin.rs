//! The admin port: what other programs may ask about this one, and the asking itself, for containers that have no curl.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

mod api;
pub mod client;
mod listing;
mod login;
pub mod looks;
mod parameters;
mod problem;
pub mod readiness;
mod redeclared;
pub mod server;
mod slow_down;

pub use readiness::Readiness;

/// As long as Kubernetes gives a probe by default, and a little less.
const PATIENCE: Duration = Duration::from_millis(900);

/// A request that changes something has it: a page of somebody else's cannot make a browser send it.
const OWN_HEADER: &str = "x-dlx-proxy-request";

/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// Asks the admin port at `admin` whether the proxy is ready. The answer is empty, or one reason a line why it is not.
///
/// # Errors
/// Nobody answers there in time, or not as an admin port does.
pub fn ask(admin: SocketAddr) -> io::Result<String> {
    match get(admin, "/readyz")? {
        (true, _) => Ok(String::new()),
        (false, reasons) => Ok(reasons),
    }
}

/// Asks the admin port at `admin` which queues have another target than their arguments say: one line each below a heading, or nothing.
///
/// # Errors
/// As [`ask`].
pub fn ask_redeclared(admin: SocketAddr) -> io::Result<String> {
    get(admin, "/redeclared").map(|(_, list)| list)
}

/// A page: whether the proxy says yes (200) or no (503), and the text.
fn get(admin: SocketAddr, path: &str) -> io::Result<(bool, String)> {
    let mut stream = TcpStream::connect_timeout(&reachable(admin), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer ends with the connection, so nothing of HTTP must be parsed.
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split_whitespace().nth(1) {
        Some("200") => Ok((true, body.to_owned())),
        Some("503") => Ok((false, body.to_owned())),
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
