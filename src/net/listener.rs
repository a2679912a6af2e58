//! Accepts clients, and gives each a broker connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use crate::drain::{Drain, Phase};
use crate::machine::{Event, Leg, Limit};
use crate::session::{Session, Settings};
use crate::telemetry::metrics::{ConnectionMeter, Levels};
use crate::telemetry::{Metrics, Reporter};

use super::clock::{Clock, SystemClock};
use super::drive::Drive;
use super::outlet::Observer;
use super::permits::Permits;
use super::stream::{Dialer, at_once};
use super::vhosts::Hub;
use super::workers::{self, Workers};

/// Accepts clients; has all that a session needs.
#[derive(Clone)]
pub struct Listener {
    /// Settings of sessions.
    pub settings: Arc<Settings>,
    /// The way to the broker.
    pub dialer: Dialer,
    /// How many clients at once.
    pub permits: Permits,
    /// The links.
    pub hub: Hub,
    /// The counters.
    pub metrics: Metrics,
    /// The clock of all machines.
    pub clock: SystemClock,
    /// Where sessions run.
    pub workers: Workers,
}

/// Writes and counts what one session says.
struct SessionTelemetry {
    reporter: Reporter,
    meter: ConnectionMeter,
}

// === impl Listener ===

impl Listener {
    /// Accepts until the drain begins.
    pub async fn serve(self, socket: TcpListener, drain: Drain) {
        let stopped = drain.stopped(Phase::Listener);
        tokio::pin!(stopped);
        loop {
            let met = || self.metrics.limit_met(Limit::Connections);
            let (client, peer, permit) = tokio::select! {
                () = &mut stopped => return,
                accepted = self.permits.accept(&socket, met) => accepted,
            };
            let listener = self.clone();
            let drained = drain.stopped(Phase::Sessions);
            let (runtime, seat) = self.workers.idlest();
            let session = async move {
                match workers::adopt(client) {
                    Ok(client) => listener.session(client, peer, drained).await,
                    Err(error) => debug!(%peer, %error, "lost at once"),
                }
                drop((permit, seat));
            };
            drain.spawn_on(Phase::Sessions, session, &runtime);
        }
    }

    async fn session(self, client: TcpStream, peer: SocketAddr, drained: impl Future<Output = ()>) {
        let meter = self.metrics.connection();
        let reporter = Reporter::session(self.metrics.clone(), peer);
        let mut drained = std::pin::pin!(drained);
        let connected = tokio::select! {
            connected = self.dialer.dial() => connected,
            () = &mut drained => return,
        };
        let broker = match connected {
            Ok(broker) => broker,
            Err(error) => {
                meter.refused();
                reporter.client_refused(&self.dialer.broker, &error);
                return;
            }
        };
        let session = Session::new(self.settings.clone(), self.clock.now());
        let tickets = session.max_tickets();
        let telemetry = SessionTelemetry { reporter, meter };
        let (outlet, inbox) = self.hub.session(tickets, Box::new(telemetry));
        let client = at_once(client);
        Drive::session(session, outlet, inbox, self.clock, client, broker)
            .run(drained)
            .await;
        debug!(%peer, "session ended");
    }
}

// === impl SessionTelemetry ===

impl Observer for SessionTelemetry {
    fn event(&mut self, event: &Event) {
        self.reporter.report(event);
    }

    fn passed(&mut self, from: Leg, frames: u64, bytes: u64) {
        self.meter.passed(from, frames, bytes);
    }

    fn levels(&mut self, now: Levels) {
        self.meter.levels(now);
    }
}
