//! Accepts clients, and gives each a broker connection of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tracing::debug;

use crate::drain::{Drain, Phase};
use crate::machine::Bound;
use crate::session::{Session, Settings};
use crate::telemetry::{Metrics, Reporter};

use super::drive::{Clock, Drive};
use super::permits::Permits;
use super::vhosts::Hub;

/// All that a session needs.
#[derive(Clone)]
pub struct Door {
    /// Settings of sessions.
    pub settings: Arc<Settings>,
    /// Host and port of the broker.
    pub broker: (String, u16),
    /// How long the broker may take to accept.
    pub connect_timeout: Duration,
    /// How many clients at once.
    pub permits: Permits,
    /// The links.
    pub hub: Hub,
    /// The counters.
    pub metrics: Metrics,
    /// The clock of all machines.
    pub clock: Clock,
}

// === impl Door ===

impl Door {
    /// Accepts until the drain begins.
    pub async fn serve(self, listener: TcpListener, drain: Drain) {
        let stopped = drain.stopped(Phase::Listener);
        tokio::pin!(stopped);
        loop {
            let met = || self.metrics.bound_met(Bound::Connections);
            let (client, peer, permit) = tokio::select! {
                () = &mut stopped => return,
                accepted = self.permits.accept(&listener, met) => accepted,
            };
            let door = self.clone();
            let drained = drain.stopped(Phase::Sessions);
            drain.spawn(Phase::Sessions, async move {
                door.session(client, peer, drained).await;
                drop(permit);
            });
        }
    }

    async fn session(self, client: TcpStream, peer: SocketAddr, drained: impl Future<Output = ()>) {
        let meter = self.metrics.connection();
        let reporter = Reporter::session(self.metrics.clone(), peer);
        let mut drained = std::pin::pin!(drained);
        let connected = tokio::select! {
            connected = connect(&self.broker, self.connect_timeout) => connected,
            () = &mut drained => return,
        };
        let broker = match connected {
            Ok(broker) => broker,
            Err(error) => {
                meter.refused();
                reporter.client_refused(&self.broker, &error);
                return;
            }
        };
        let session = Session::new(self.settings.clone(), self.clock.now());
        let tickets = session.max_tickets();
        let (outlet, inbox) = self.hub.session(tickets, reporter, meter, self.clock);
        Drive::session(session, outlet, inbox, self.clock, client, broker)
            .run(drained)
            .await;
        debug!(%peer, "session ended");
    }
}

/// Connects to the broker, within a bound.
///
/// # Errors
/// What the system says, or that it took too long.
pub async fn connect(broker: &(String, u16), within: Duration) -> io::Result<TcpStream> {
    match timeout(within, TcpStream::connect((broker.0.as_str(), broker.1))).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    }
}
