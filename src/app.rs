//! Wiring only: settings become listeners, links and their tasks. Nothing is global, so several proxies run in one process.

mod live;
mod parts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::admin::Readiness;
use crate::admin::looks::Looks;
use crate::admin::server::Server;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::config::Config;
use crate::drain::{Drain, Ended, Phase};
use crate::management::Management;
use crate::net::clock::SystemClock;
use crate::net::links::Opener;
use crate::net::listener::Listener;
use crate::net::permits::Permits;
use crate::net::stream::Dialer;
use crate::net::vhosts::Hub;
use crate::net::walks::Walks;
use crate::net::workers::Workers;
use crate::redrives::Redrives;
use crate::telemetry::Metrics;

pub use live::Live;
pub use parts::retries;

/// How long the broker may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// For so long clients wait for what was recorded of redeclared queues: not for the end of an alarm.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// A proxy whose ports are bound.
pub struct App {
    listener: Listener,
    client_socket: TcpListener,
    admin_socket: TcpListener,
    management: Option<Management>,
    admin_server: Server,
    readiness: Readiness,
    hub: Hub,
    vhosts: Vec<Vhost>,
    live: Live,
    kept_policies: Vec<ShortStr>,
}

/// A proxy that cannot begin.
#[derive(Debug, Error)]
pub enum BindError {
    /// `worker-threads` is more than the system allows.
    #[error("cannot start the threads of `worker-threads`")]
    Threads(#[source] std::io::Error),
    /// The port is taken, or the address is not ours.
    #[error("cannot listen on `{setting}` {address}")]
    Listen {
        /// The setting.
        setting: &'static str,
        /// Its value.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

// === impl App ===

impl App {
    /// Binds both ports; clients wait in the kernel's queue until [`App::run`].
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn bind(config: &Config, drain: &Drain) -> Result<App, BindError> {
        let client_socket = listen("listen", config.listen).await?;
        let admin_socket = listen("admin", config.admin).await?;
        let metrics = Metrics::new();
        let readiness = Readiness::new(config.vhosts.iter().cloned());
        let clock = SystemClock::start();
        let settings = Arc::new(parts::session(config));
        let dialer = Dialer {
            broker: (config.upstream.host.clone(), config.upstream.port),
            within: CONNECT_TIMEOUT,
        };
        let management = parts::management(config)
            .map(|api| Management::new(api, settings.policies.clone(), metrics.clone()));
        let opener = Opener {
            dialer: dialer.clone(),
            publisher: parts::publisher(config, &settings),
            intake: parts::intake(config, &settings),
            recorder: parts::recorder(config, &settings),
            surveyor: management
                .as_ref()
                .map(|management| management.surveyor(clock)),
            watchdog: management
                .as_ref()
                .map(|management| management.watchdog(config.names.clone())),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            drain: drain.clone(),
            clock,
        };
        let hub = Hub::new(Box::new(move |hub, vhost, inboxes| {
            opener.open(hub, vhost, inboxes)
        }));
        let permits = Permits::new(config.reloadable.max_connections);
        let walks = Walks {
            dialer: dialer.clone(),
            clock,
            hub: hub.clone(),
        };
        let redrives = Redrives::new(
            walks.clone(),
            drain.clone(),
            settings.user.clone(),
            config.names.clone(),
        );
        let looks = Looks::new(
            walks,
            settings.limits.clone(),
            Permits::new(config.reloadable.max_looks),
            config.reloadable.error_headers.clone(),
            metrics.clone(),
        );
        let admin_server = Server {
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            redeclared: (settings.policies.clone(), settings.names.clone()),
            permits: Permits::new(config.reloadable.max_admin_connections),
            limits: settings.limits.clone(),
            api: config.admin_api.then(|| (looks.clone(), redrives)),
        };
        let live = Live {
            policies: settings.policies.clone(),
            limits: settings.limits.clone(),
            retained: settings.retained.clone(),
            permits: permits.clone(),
            admin_permits: admin_server.permits.clone(),
            looks,
            drain: drain.clone(),
            hub: hub.clone(),
        };
        let listener = Listener {
            settings,
            dialer,
            permits,
            hub: hub.clone(),
            metrics: metrics.clone(),
            clock,
            workers: Workers::start(config.worker_threads).map_err(BindError::Threads)?,
        };
        Ok(App {
            kept_policies: config.policies_of_rejects_only(),
            live,
            listener,
            client_socket,
            admin_socket,
            management,
            admin_server,
            readiness,
            hub,
            vhosts: config.vhosts.clone(),
        })
    }

    /// What of it can be changed while it runs.
    pub fn live(&self) -> Live {
        self.live.clone()
    }

    /// Serves until the drain begins, then ends phase by phase.
    pub async fn run(self, drain: Drain) -> Ended {
        for (leg, listener) in [
            ("client", &self.client_socket),
            ("admin", &self.admin_socket),
        ] {
            if let Ok(addr) = listener.local_addr() {
                info!(leg, %addr, "listening");
            }
        }
        live::warn_of_kept(&self.kept_policies);
        live::warn_of_shared(&self.listener.settings.user);
        if self.admin_server.api.is_some() {
            warn_of_passwords(&self.admin_socket);
        }
        for vhost in &self.vhosts {
            self.hub.open(vhost);
        }
        let stopped = drain.stopped(Phase::Admin);
        drain.spawn(
            Phase::Admin,
            self.admin_server.serve(self.admin_socket, stopped),
        );
        if let Some(management) = self.management {
            // The first rejects shall have their keys already. Clients that come meanwhile wait in the kernel's queue.
            let (first, read) = oneshot::channel();
            let stopped = drain.stopped(Phase::Intake);
            drain.spawn(Phase::Intake, management.run(first, stopped));
            tokio::select! {
                _ = read => {}
                () = drain.begun() => {}
            }
        }
        // Their targets, too, where a declare may have changed them.
        for vhost in &self.vhosts {
            let recorded = timeout(RECORD_TIMEOUT, self.hub.recorded(vhost));
            tokio::select! {
                _ = recorded => {}
                () = drain.begun() => {}
            }
        }
        drain.spawn(
            Phase::Listener,
            self.listener.serve(self.client_socket, drain.clone()),
        );
        self.readiness.listening();
        drain.begun().await;
        self.readiness.draining();
        drain.finish().await
    }
}

/// There is no TLS on the admin port.
fn warn_of_passwords(admin: &TcpListener) {
    if let Ok(addr) = admin.local_addr()
        && !addr.ip().is_loopback()
    {
        warn!(%addr, "whoever uses the API of the admin port sends a password of the broker's over the network in the clear: listen on a loopback address, put TLS in front of it, or set `admin-api = false`");
    }
}

async fn listen(setting: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError::Listen {
            setting,
            address,
            source,
        })
}
