//! The first line of the log: which program this is, with which settings, and where it is found.

use std::net::TcpListener;

use tracing::info;

use crate::config::{Config, Sources};
use crate::descriptors;
use crate::http::Place;
use crate::net::ports::At;

/// Logs it before anything can fail. `handed`: the socket used instead of `listen`.
pub fn first_line(config: &Config, sources: &Sources, handed: Option<&TcpListener>) {
    let settings = sources.path();
    let settings = settings.map_or("none".to_owned(), |path| path.display().to_string());
    let listen = handed.and_then(|socket| socket.local_addr().ok());
    let listen = listen.map(At::Tcp).or_else(|| config.listen.clone());
    let listen = listen.into_iter().chain(config.listen_tls.map(At::Tcp));
    let listen: Vec<_> = listen.map(|at| at.to_string()).collect();
    let Config { reloadable, .. } = config;
    info!(
        version = %env!("CARGO_PKG_VERSION"),
        %settings,
        listen = %listen.join(","),
        page = page(config),
        clients = descriptors::permits(reloadable.max_connections, reloadable.max_admin_connections),
        "dlx-proxy starts"
    );
}

/// None without pages, or if the system has yet to choose the port.
fn page(config: &Config) -> Option<String> {
    let (scheme, address) = match (config.admin, config.admin_tls) {
        (Some(address), _) => ("http", address),
        (_, Some(address)) => ("https", address),
        _ => return None,
    };
    let is_known = config.admin_api && address.port() != 0;
    is_known.then(|| format!("{scheme}://{}/", Place::of(address, None)))
}
