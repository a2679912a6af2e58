//! What systemd, or another service manager with its protocol, is told of the process, and the socket that it may hand over. Without one
//! nothing happens here.

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::time::interval;
use tracing::{debug, warn};

use crate::drain::Drain;
use crate::net::workers::Workers;

/// The client socket bound by the service manager (`dlx-proxy.socket`).
///
/// # Errors
/// Anything but one listening TCP socket.
pub fn socket() -> io::Result<Option<TcpListener>> {
    let mut handed = ListenFd::from_env();
    if handed.len() > 1 {
        return Err(io::Error::other(
            "one socket is expected, the one for clients",
        ));
    }
    handed.take_tcp_listener(0)
}

/// Reports readiness, liveness and the end to the service manager.
pub async fn follow(listening: impl Future<Output = ()>, drain: Drain, workers: Workers) {
    let live = async {
        listening.await;
        tell(&[NotifyState::Ready]);
        watchdog(workers).await;
    };
    tokio::select! {
        () = live => {}
        () = drain.begun() => tell(&[NotifyState::Stopping]),
    }
}

/// Ends with [`reloaded`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => debug!(%error, "no clock"),
    }
}

pub fn reloaded() {
    tell(&[NotifyState::Ready]);
}

async fn watchdog(workers: Workers) {
    let Some(patience) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    // Three times, as systemd wants to be told at least twice.
    let mut ticks = interval(patience / 3);
    loop {
        ticks.tick().await;
        workers.answer().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the service manager cannot be told");
    }
}
