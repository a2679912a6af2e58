//! Accepts clients, and gives each a broker connection of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::amqp::ids::ShortStr;
use crate::drain::{Drain, Phase};
use crate::machine::{Event, Leg, Limit};
use crate::session::{External, Session, Settings};
use crate::telemetry::metrics::{ConnectionMeter, Levels};
use crate::telemetry::{Metrics, Reporter};
use crate::tls;

use super::clock::{Clock, SystemClock};
use super::dial::Dialer;
use super::drive::Drive;
use super::outlet::Observer;
use super::permits::Permits;
use super::ports::{Came, Ports};
use super::proxy_protocol::{self, BadHeader, Ends, Trusted};
use super::stream::{Plain, Socket, plain};
use super::vhosts::Hub;
use super::watched::Watched;
use super::workers::{self, Workers};

/// Accepts clients; has all that a session needs.
#[derive(Clone)]
pub struct Listener {
    /// Settings of sessions.
    pub settings: Arc<Settings>,
    /// The way to the broker.
    pub dialer: Dialer,
    /// Load balancers that say where their connections come from.
    pub trusted: Trusted,
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
    pub async fn serve(self, ports: Ports, drain: Drain) {
        let stopped = drain.stopped(Phase::Listener);
        tokio::pin!(stopped);
        loop {
            let met = || self.metrics.limit_met(Limit::Connections);
            let next = async { (self.permits.acquire(met).await, ports.accept().await) };
            let (permit, came) = tokio::select! {
                () = &mut stopped => return,
                next = next => next,
            };
            let Came { stream, peer, tls } = came;
            let listener = self.clone();
            let drained = drain.stopped(Phase::Sessions);
            let (runtime, seat) = self.workers.idlest();
            let session = async move {
                match workers::adopt(stream) {
                    Ok(client) => listener.session(client, peer, tls, drained).await,
                    Err(error) => debug!(%peer, %error, "lost at once"),
                }
                drop((permit, seat));
            };
            drain.spawn_on(Phase::Sessions, session, &runtime);
        }
    }

    async fn session(
        self,
        client: TcpStream,
        peer: SocketAddr,
        tls: Option<tls::Acceptor>,
        drained: impl Future<Output = ()>,
    ) {
        let meter = self.metrics.connection();
        let came = self.clock.now();
        let mut drained = std::pin::pin!(drained);
        let arrived = tokio::select! {
            arrived = self.arrived(client, peer, tls) => arrived,
            () = &mut drained => return,
        };
        // Before the broker hears of it: who does not come so far costs it nothing.
        let Some((client, ends, reporter)) = arrived else {
            return;
        };
        let connected = tokio::select! {
            connected = self.dialer.dial(Some(ends)) => connected,
            () = &mut drained => return,
        };
        let (broker, external) = match connected {
            Ok(dialed) => {
                reporter.connected(&dialed.address);
                // By the certificate of this very connection: the next one may show another, or none.
                let shows = dialed.tls.map(|tls| tls.shows_certificate());
                (dialed.socket, External::of(shows))
            }
            Err(refused) => {
                meter.refused();
                reporter.client_refused(&refused);
                return;
            }
        };
        let session = {
            let host = ShortStr::copy(ends.source.ip().to_string().as_bytes()).unwrap_or_default();
            Session::of_client(self.settings.clone(), host, external, came)
        };
        let tickets = session.max_tickets();
        let telemetry = SessionTelemetry { reporter, meter };
        let (outlet, inbox) = self.hub.session(tickets, Box::new(telemetry));
        let client = Watched::by_nobody(client);
        Drive::session(session, outlet, inbox, self.clock, client, broker)
            .run(drained)
            .await;
        debug!(peer = %ends.source, "session ended");
    }

    /// A client with all that comes before AMQP behind it, where it comes from, and who tells of it. `None`: it did not come so far.
    async fn arrived(
        &self,
        mut client: TcpStream,
        peer: SocketAddr,
        tls: Option<tls::Acceptor>,
    ) -> Option<(Socket, Ends, Reporter)> {
        let reporter = |peer| Reporter::session(self.metrics.clone(), peer);
        // One time for both, as for the handshake of AMQP behind them.
        let until = Instant::now() + self.settings.limits.now().handshake_timeout;
        let ends = self.ends(&mut client, peer, until).await;
        let ends = ends
            .map_err(|error| reporter(peer).header_refused(&error))
            .ok()?;
        let reporter = reporter(ends.source);
        let client = self.dress(plain(client), tls, until).await;
        let client = client
            .map_err(|error| reporter.handshake_failed(&error))
            .ok()?;
        Some((client, ends, reporter))
    }

    /// Where it comes from and where to: as the system says, or as a load balancer does that is trusted.
    async fn ends(
        &self,
        client: &mut TcpStream,
        peer: SocketAddr,
        until: Instant,
    ) -> Result<Ends, BadHeader> {
        let own = Ends {
            source: peer,
            destination: client.local_addr()?,
        };
        if !self.trusted.contains(peer.ip()) {
            return Ok(own);
        }
        let header = timeout_at(until, proxy_protocol::read(client)).await;
        Ok(header.map_err(|_| BadHeader::Late)??.unwrap_or(own))
    }

    /// The client's connection with TLS on it, if it came where TLS is spoken.
    async fn dress(
        &self,
        client: Plain,
        tls: Option<tls::Acceptor>,
        until: Instant,
    ) -> io::Result<Socket> {
        let Some(tls) = tls else {
            return Ok(Socket::Left(client));
        };
        match timeout_at(until, tls.accept(client)).await {
            Ok(accepted) => accepted,
            Err(_) => {
                self.metrics.limit_met(Limit::HandshakeTimeout);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
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
