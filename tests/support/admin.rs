//! The admin port of a proxy.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status and text of a page.
pub(crate) async fn page(admin: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    ask(admin, "GET", path, &[]).await
}

/// The same of any request without a body.
pub(crate) async fn ask(
    admin: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(admin).await?;
    let headers = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    let request = format!("{method} {path} HTTP/1.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let read = || {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    };
    read().ok_or_else(|| io::Error::other(format!("no HTTP: {answer}")))
}

/// The sum of all samples of a metric whose labels contain all of these; `text` is the page `/metrics`.
pub(crate) fn sum(text: &str, name: &str, labels: &[&str]) -> u64 {
    let fits = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    text.lines().filter(fits).filter_map(value).sum()
}
