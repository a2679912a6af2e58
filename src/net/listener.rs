//! Accepts clients, and gives each a broker connection of its own.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
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
use super::handshakes::Handshakes;
use super::outlet::{Observer, SessionOutlet};
use super::permits::{Permit, Permits};
use super::ports::{Came, Ports};
use super::proxy_protocol::{self, BadHeader, Ends, Origin, Ssl, Trusted};
use super::stream::{self, Plain, Socket};
use super::vhosts::Hub;
use super::watched::Watched;
use super::workers::{self, Seat, Workers};

#[derive(Clone)]
pub struct Listener {
    pub settings: Arc<Settings>,
    pub dialer: Dialer,
    /// Load balancers that send a PROXY header.
    pub trusted: Trusted,
    pub permits: Permits,
    pub hub: Hub,
    pub metrics: Metrics,
    pub clock: SystemClock,
    pub workers: Workers,
    pub handshakes: Handshakes,
}

type SessionDrive = Drive<Session, SessionOutlet, Watched<Socket>, SystemClock>;

/// A session on its thread.
struct Running {
    drive: Box<SessionDrive>,
    origin: Origin,
    seat: Seat,
    _permit: Permit,
    workers: Workers,
    drain: Drain,
}

struct SessionTelemetry {
    reporter: Reporter,
    meter: ConnectionMeter,
}

// === impl Listener ===

impl Listener {
    pub async fn serve(self, ports: Ports, drain: Drain) {
        let stopped = drain.stopped(Phase::Listener);
        tokio::pin!(stopped);
        loop {
            let met = || self.metrics.limit_met(Limit::Connections);
            let next = async {
                (
                    self.permits.acquire(met).await,
                    ports.accept(&self.metrics).await,
                )
            };
            let (permit, came) = tokio::select! {
                () = &mut stopped => return,
                next = next => next,
            };
            let Came { stream, peer, tls } = came;
            let (runtime, seat) = self.workers.seat();
            let session = self
                .clone()
                .session(stream, peer, tls, (permit, seat, drain.clone()));
            drain.spawn_on(Phase::Sessions, session, &runtime);
        }
    }

    async fn session(
        self,
        client: Plain,
        peer: Option<SocketAddr>,
        tls: Option<tls::Acceptor>,
        (permit, seat, drain): (Permit, Seat, Drain),
    ) {
        let client = match workers::adopt(client) {
            Ok(client) => client,
            Err(error) => return debug!(peer = ?peer, %error, "lost at once"),
        };
        // Boxed: else the task would keep the memory that the beginning needs for as long as the session lasts, beside the session's own.
        let begun = tokio::select! {
            begun = Box::pin(self.begin(client, peer, tls)) => begun,
            () = drain.stopped(Phase::Sessions) => return,
        };
        if let Some((drive, origin)) = begun {
            let workers = self.workers.clone();
            drop(self);
            let running = Running {
                drive,
                origin,
                seat,
                _permit: permit,
                workers,
                drain,
            };
            running.run().await;
        }
    }

    /// A session with both connections, and its client's origin. `None`: failed before.
    async fn begin(
        &self,
        client: Plain,
        peer: Option<SocketAddr>,
        tls: Option<tls::Acceptor>,
    ) -> Option<(Box<SessionDrive>, Origin)> {
        let meter = self.metrics.connection();
        let came = self.clock.now();
        // Before the broker hears of it: who does not come so far costs it nothing.
        let (client, origin, reporter) = self.arrived(client, peer, tls).await?;
        let dialed = match self.dialer.dial(Some(&origin)).await {
            Ok(dialed) => dialed,
            Err(refused) => {
                reporter.client_refused(&refused);
                return None;
            }
        };
        reporter.connected(&dialed.address);
        // By the certificate of this very connection: the next one may show another, or none.
        let external = External::of(dialed.tls.map(|tls| tls.shows_certificate()));
        let host = ShortStr::copy(origin.host().as_bytes()).unwrap_or_default();
        let session = Session::of_client(self.settings.clone(), host, external, came);
        let telemetry = Box::new(SessionTelemetry { reporter, meter });
        let (outlet, inbox) = self.hub.session(session.max_tickets(), telemetry);
        let client = Watched::by_nobody(client);
        let drive = Drive::session(session, outlet, inbox, self.clock, client, dialed.socket);
        Some((Box::new(drive), origin))
    }

    /// The client's connection after TLS and PROXY header, with its origin and reporter. `None`:
    /// failed before.
    async fn arrived(
        &self,
        mut client: Plain,
        peer: Option<SocketAddr>,
        tls: Option<tls::Acceptor>,
    ) -> Option<(Socket, Origin, Reporter)> {
        let reporter = |peer: &dyn fmt::Display| Reporter::session(self.metrics.clone(), peer);
        // One time for both, as for the handshake of AMQP behind them.
        let until = Instant::now() + self.settings.limits.now().handshake_timeout;
        let mut origin = match (peer, &mut client) {
            (Some(peer), Plain::Left(client)) => {
                let origin = self.origin(client, peer, until).await;
                origin
                    .map_err(|error| reporter(&peer).header_refused(&error))
                    .ok()?
            }
            _ => Origin::LOCAL,
        };
        let reporter = reporter(&origin);
        let client = self.dress(client, tls, until).await;
        let mut client = client
            .map_err(|error| reporter.handshake_failed(&error))
            .ok()?;
        if !self.begins(&mut client, until).await {
            return None;
        }
        // A load balancer that ends TLS itself, and begins it anew, has said more of the client already.
        if let (None, Socket::Right(with_tls)) = (&origin.ssl, &client) {
            origin.ssl = Some(Ssl::of(&tls::Facts::of(with_tls.get_ref().1)));
        }
        Some((client, origin, reporter))
    }

    async fn origin(
        &self,
        client: &mut TcpStream,
        peer: SocketAddr,
        until: Instant,
    ) -> Result<Origin, BadHeader> {
        let own = Ends {
            source: peer,
            destination: client.local_addr()?,
        };
        if !self.trusted.contains(peer.ip()) {
            return Ok(own.into());
        }
        let header = timeout_at(until, proxy_protocol::read(client)).await;
        let header = header.map_err(|_| BadHeader::Late)??;
        Ok(Origin {
            ends: Some(header.ends.unwrap_or(own)),
            ssl: header.ssl,
        })
    }

    async fn dress(
        &self,
        client: Plain,
        tls: Option<tls::Acceptor>,
        until: Instant,
    ) -> io::Result<Socket> {
        let Some(tls) = tls else {
            return Ok(Socket::Left(client));
        };
        self.in_time(until, self.handshakes.accept(tls, client))
            .await
    }

    /// Waits for the client's first byte. In AMQP the client speaks first, so probes of load
    /// balancers, and clients that end after the TLS handshake, cost no connection to the broker.
    async fn begins(&self, client: &mut Socket, until: Instant) -> bool {
        let begins = self.in_time(until, stream::begins(client)).await;
        begins.unwrap_or(false)
    }

    async fn in_time<T>(
        &self,
        until: Instant,
        done: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        timeout_at(until, done).await.unwrap_or_else(|_| {
            self.metrics.limit_met(Limit::HandshakeTimeout);
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

// === impl Running ===

impl Running {
    /// Until it ends, or another thread takes it.
    async fn run(mut self) {
        let Some((runtime, seat)) = self.stays().await else {
            return debug!(peer = %self.origin, "session ended");
        };
        self.seat = seat;
        let drain = self.drain.clone();
        drain.spawn_on(Phase::Sessions, self.again(), &runtime);
    }

    /// Where it goes. `None`: it has ended. One that is drained stays to its end.
    async fn stays(&mut self) -> Option<(Handle, Seat)> {
        let mut running = pin!(self.drive.run(self.drain.stopped(Phase::Sessions)));
        poll_fn(|cx| {
            if running.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            match self.workers.leaves(&self.seat) {
                Some(place) if !self.drain.has_stopped(Phase::Sessions) => Poll::Ready(Some(place)),
                _ => Poll::Pending,
            }
        })
        .await
    }

    fn again(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.drive.adopt();
            self.run().await;
        })
    }
}

// === impl SessionTelemetry ===

impl Observer for SessionTelemetry {
    fn event(&mut self, event: &Event) {
        self.reporter.report(event);
    }

    fn passed(&mut self, from: Leg, bytes: u64) {
        self.meter.passed(from, bytes);
    }

    fn levels(&mut self, now: Levels) {
        self.meter.levels(now);
    }
}
