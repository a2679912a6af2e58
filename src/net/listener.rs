//! Accepts clients, and gives each a broker connection of its own: a permit first, then `accept`, so that what is over the bound waits in the
//! kernel's queue.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::drain::{Drain, Phase};
use crate::machine::Bound;
use crate::session::{Session, Settings};
use crate::telemetry::{Metrics, Reporter};

use super::drive::{Clock, Drive};
use super::vhosts::Hub;

/// After an accept that failed (no file descriptors left), others get time to close some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// One for each client. Clones are the same.
#[derive(Clone, Debug)]
pub struct Permits {
    free: Arc<Semaphore>,
    all: Arc<AtomicUsize>,
}

// === impl Permits ===

impl Permits {
    /// So many.
    pub fn new(all: usize) -> Permits {
        Permits {
            free: Arc::new(Semaphore::new(all)),
            all: Arc::new(AtomicUsize::new(all)),
        }
    }

    /// From now on so many. Clients that are there stay; nobody is accepted until there are fewer.
    pub fn resize(&self, all: usize) {
        let before = self.all.swap(all, Ordering::Relaxed);
        if all > before {
            self.free.add_permits(all - before);
        } else if all < before {
            let less = u32::try_from(before - all).unwrap_or(u32::MAX);
            let free = self.free.clone();
            // Whoever waits for a permit already is the last to get one.
            tokio::spawn(async move {
                if let Ok(taken) = free.acquire_many(less).await {
                    taken.forget();
                }
            });
        }
    }

    /// Waits for one; `met` is called if none is free.
    async fn acquire(&self, met: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(permit);
        }
        met();
        self.free.clone().acquire_owned().await.ok()
    }
}

// === impl Door ===

impl Door {
    /// Accepts until the drain begins.
    pub async fn serve(self, listener: TcpListener, drain: Drain) {
        let stopped = drain.stopped(Phase::Listener);
        tokio::pin!(stopped);
        loop {
            let accepted = async {
                let met = || self.metrics.bound_met(Bound::Connections);
                let permit = self.permits.acquire(met).await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut stopped => return,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((client, peer)) => {
                    let door = self.clone();
                    let drained = drain.stopped(Phase::Sessions);
                    drain.spawn(Phase::Sessions, async move {
                        door.session(client, peer, drained).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
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
