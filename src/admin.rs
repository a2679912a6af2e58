//! The admin port: what other programs may ask about this one, and the asking itself, for containers that have no curl.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

mod api;
pub mod client;
mod elsewhere;
mod exported;
pub mod files;
mod incoming;
mod listing;
mod login;
pub mod looks;
mod newcomers;
mod pace;
mod parameters;
mod place;
mod problem;
pub mod readiness;
pub mod redeclared;
pub mod room;
pub mod rooms;
pub mod server;
mod slow_down;
pub mod watches;
mod web;

pub use api::Api;
pub use place::Place;
pub use readiness::Readiness;

/// As long as Kubernetes gives a probe by default, and a little less.
const PATIENCE: Duration = Duration::from_millis(900);

/// A request that changes something has it: a page of somebody else's cannot make a browser send it.
const OWN_HEADER: &str = "x-dlx-proxy-request";

/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// Asks the admin port whether the proxy is ready. The answer is empty, or one reason a line why it is not.
///
/// # Errors
/// Nobody answers there in time, or not as an admin port does.
pub fn ask(admin: &Place) -> io::Result<String> {
    match get(admin, "/readyz")? {
        (true, _) => Ok(String::new()),
        (false, reasons) => Ok(reasons),
    }
}

/// A page: whether the proxy says yes (200) or no (503), and the text.
fn get(admin: &Place, path: &str) -> io::Result<(bool, String)> {
    let Place { host, port, tls } = admin;
    let address = (host.as_str(), *port).to_socket_addrs()?.next();
    let address = address.ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match tls {
        Some(tls) => tls
            .over(stream, host)
            .and_then(|stream| exchange(stream, path))
            .map_err(|error| tls.words(&error, host)),
        None => exchange(stream, path),
    }
}

fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<(bool, String)> {
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
