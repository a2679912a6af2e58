//! Walks along queues as tasks: each has a connection of its own, in the name of whoever asked for it.

use std::future::Future;
use std::sync::Arc;
use std::task::Context;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tracing::debug;

use crate::letter::Letter;
use crate::machine::Now;
use crate::walk::{self, Ended, Failure, Input, Settings, Walk};

use super::clock::{Clock, SystemClock};
use super::drive::{Connector, Drive, Outlet};
use super::stream::Dialer;

/// Begins walks.
#[derive(Clone)]
pub struct Walks {
    /// The way to the broker.
    pub dialer: Dialer,
    /// The clock of all machines.
    pub clock: SystemClock,
}

/// Gives each message to a function, which says whether it wants more, and keeps how the walk ended.
struct WalkOutlet<F> {
    wants_more: F,
    stop: mpsc::Sender<Input>,
    ended: mpsc::Sender<Ended>,
}

// === impl Walks ===

impl Walks {
    /// Walks along a queue. `wants_more` gets each message, and says whether the walk goes on; when `stopped` is done it does not, either. If this
    /// future is dropped the connection is, too: the broker puts back what was taken, and may count it as failed deliveries.
    ///
    /// # Errors
    /// When the broker refuses, or cannot be reached.
    pub async fn walk(
        &self,
        settings: Settings,
        stopped: impl Future<Output = ()>,
        wants_more: impl FnMut(Letter) -> bool + Send,
    ) -> Ended {
        let (stop, inbox) = mpsc::channel(1);
        let (ended, mut told) = mpsc::channel(1);
        let outlet = WalkOutlet {
            wants_more,
            stop,
            ended,
        };
        let walk = Walk::new(settings, self.clock.now());
        let drive = Drive::link(walk, outlet, inbox, self.clock, self.connector());
        drive.run(stopped).await;
        told.try_recv().unwrap_or(Err(Failure::Silent))
    }

    fn connector(&self) -> Connector<TcpStream> {
        let dialer = Arc::new(self.dialer.clone());
        Box::new(move || {
            let dialer = dialer.clone();
            Box::pin(async move {
                let connected = dialer.dial().await;
                if let Err(error) = &connected {
                    debug!(broker = %dialer, %error, "cannot connect");
                }
                connected
            })
        })
    }
}

// === impl WalkOutlet ===

impl<F: FnMut(Letter) -> bool> Outlet<Walk> for WalkOutlet<F> {
    fn dispatch(&mut self, _: &Walk, fx: &mut walk::Effects, _: Now, _: &mut Context<'_>) {
        for letter in fx.out.letters.drain(..) {
            if !(self.wants_more)(letter) {
                // One is enough.
                let _ = self.stop.try_send(Input::Enough);
            }
        }
        if let Some(ended) = fx.out.ended.take() {
            let _ = self.ended.try_send(ended);
        }
    }
}
