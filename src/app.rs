//! Wiring only: settings become listeners, links and their tasks. Nothing is global, so several proxies run in one process.

mod first_line;
mod live;
mod parts;
mod shared;

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::amqp::ids::Vhost;
use crate::config::Config;
use crate::console::admin::server::Server;
use crate::descriptors;
use crate::drain::{Drain, Ended, Phase};
use crate::hook::Hook;
use crate::management::{Adoption, Management};
use crate::net::background::{Background, NICE, NICER};
use crate::net::handshakes::Handshakes;
use crate::net::listener::Listener;
use crate::net::permits::Permits;
use crate::net::ports::{At, Port, Ports};
use crate::net::vhosts::Hub;
use crate::net::workers::Workers;
use crate::readiness::Readiness;
use crate::telemetry::Metrics;
use crate::tls::{Acceptor, Certificates, Problem};

pub use first_line::first_line;
pub use live::Live;
pub use parts::{patient, retries};

use shared::Shared;

/// How long clients wait for the record of redeclared queues: not for the end of an alarm.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

pub struct App {
    listener: Listener,
    client_ports: Ports,
    admin_ports: Ports,
    /// Runs the admin port, so that many requests there do not delay sessions.
    admin_thread: Background,
    certificates: Certificates,
    management: Option<(Management, Adoption)>,
    admin_server: Server,
    hook: Option<Hook>,
    readiness: Readiness,
    hub: Hub,
    vhosts: Vec<Vhost>,
    live: Live,
    listens: CancellationToken,
    notes: Vec<(String, &'static str)>,
}

#[derive(Debug, Error)]
pub enum BindError {
    #[error("cannot start the threads of `worker-threads`")]
    Threads(#[source] std::io::Error),
    /// A certificate file was replaced by an invalid one after the settings were read.
    #[error("{0}")]
    Certificates(String),
    #[error("cannot use the socket that was handed over")]
    Handed(#[source] std::io::Error),
    /// The port is in use, or the address is not local.
    #[error("cannot listen on `{setting}` {address}")]
    Listen {
        setting: &'static str,
        address: At,
        source: std::io::Error,
    },
}

// === impl BindError ===

impl BindError {
    fn certificates(problems: Vec<Problem>) -> BindError {
        let all = problems.iter();
        let all: Vec<_> = all
            .map(|Problem { setting, what }| format!("{setting}: {what}"))
            .collect();
        BindError::Certificates(all.join("; "))
    }
}

// === impl App ===

impl App {
    /// Binds both ports; clients wait in the kernel's queue until [`App::run`]. `handed`: a
    /// listening socket from the service manager, instead of `listen`.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn bind(
        config: &Config,
        handed: Option<std::net::TcpListener>,
        drain: &Drain,
    ) -> Result<App, BindError> {
        let metrics = Metrics::new();
        let tls = &config.reloadable.tls;
        let certificates = Certificates::load(tls, config.tls_uses(), metrics.clone())
            .map_err(BindError::certificates)?;
        let (client_ports, admin_ports) = bind_ports(config, handed, &certificates).await?;
        let shared = Shared::new(config, drain, certificates, metrics);
        let hub = shared.hub();
        let most = &config.reloadable;
        let permits = descriptors::permits(most.max_connections, most.max_admin_connections);
        let permits = Permits::new(permits);
        let workers = Workers::start(config.worker_threads).map_err(BindError::Threads)?;
        let thread = Background::start("redrives", NICER).map_err(BindError::Threads)?;
        let api = shared.api(shared.walks(&hub, thread));
        let live = shared.live(&api, &hub, permits.clone());
        let listener = Listener {
            settings: shared.settings.clone(),
            dialer: shared.dialer.clone(),
            trusted: config.listen_proxy_protocol.clone(),
            permits,
            hub: hub.clone(),
            metrics: shared.metrics.clone(),
            clock: shared.clock,
            workers: workers.clone(),
            handshakes: Handshakes::start().map_err(BindError::Threads)?,
        };
        if let (Some(management), Some(alterations)) = (&shared.management, &api.alterations) {
            // Once: this is the only place.
            let _ = management.alterations.set(alterations.clone());
        }
        let management = shared.management.clone().zip(shared.adoption(&hub));
        let admin_server = Server {
            metrics: shared.metrics,
            readiness: shared.readiness.clone(),
            rooms: live.admin_rooms.clone(),
            workers,
            limits: shared.settings.limits.clone(),
            api: config.admin_api.then_some(api),
        };
        Ok(App {
            notes: config.notes(),
            live,
            listener,
            client_ports,
            admin_ports,
            admin_thread: Background::start("admin", NICE).map_err(BindError::Threads)?,
            certificates: shared.certificates,
            management,
            admin_server,
            hook: shared.hook,
            readiness: shared.readiness,
            hub,
            vhosts: config.vhosts.clone(),
            listens: CancellationToken::new(),
        })
    }

    pub fn live(&self) -> Live {
        self.live.clone()
    }

    pub fn workers(&self) -> Workers {
        self.listener.workers.clone()
    }

    pub fn listens(&self) -> impl Future<Output = ()> + use<> {
        self.listens.clone().cancelled_owned()
    }

    pub async fn run(self, drain: Drain) -> Ended {
        self.log_ports();
        for vhost in &self.vhosts {
            self.hub.open(vhost);
        }
        let stopped = drain.stopped(Phase::Admin);
        // To the end: redrives are watched from there, too.
        let admin_thread = self.admin_thread;
        drain.spawn_on(
            Phase::Admin,
            self.admin_server.serve(self.admin_ports, stopped),
            admin_thread.runtime(),
        );
        let (watching, stopped) = (self.certificates.watch(), drain.stopped(Phase::Admin));
        drain.spawn(Phase::Admin, async {
            tokio::select! { () = watching => {}, () = stopped => {} }
        });
        if let Some(hook) = self.hook {
            // Behind all that could tell it something.
            drain.spawn(Phase::Admin, hook.run(drain.stopped(Phase::Admin)));
        }
        if let Some((management, adoption)) = self.management {
            // When the first rejects arrive, the keys of the broker's policies should be known. Until then clients wait in the kernel's queue.
            let (first, read) = oneshot::channel();
            let stopped = drain.stopped(Phase::Intake);
            drain.spawn(Phase::Intake, management.run(adoption, first, stopped));
            unless_draining(&drain, read).await;
        }
        // Their targets, too, where a declare may have changed them.
        for vhost in &self.vhosts {
            let recorded = timeout(RECORD_TIMEOUT, self.hub.recorded(vhost));
            unless_draining(&drain, recorded).await;
        }
        drain.spawn(
            Phase::Listener,
            self.listener.serve(self.client_ports, drain.clone()),
        );
        self.readiness.listening();
        self.listens.cancel();
        drain.begun().await;
        self.readiness.draining();
        drain.finish().await
    }

    fn log_ports(&self) {
        for (leg, with_tls, ports) in [
            ("client", "client-tls", &self.client_ports),
            ("admin", "admin-tls", &self.admin_ports),
        ] {
            for (addr, tls) in ports.addresses() {
                let leg = if tls { with_tls } else { leg };
                info!(leg, %addr, "listening");
            }
        }
        live::warn_of(&self.notes);
        live::warn_of_shared(&self.listener.settings.user);
        if self.admin_server.api.is_some() {
            warn_of_passwords(&self.admin_ports);
        }
    }
}

async fn unless_draining(drain: &Drain, future: impl Future) {
    tokio::select! {
        _ = future => {}
        () = drain.begun() => {}
    }
}

fn warn_of_passwords(admin: &Ports) {
    let open = |(addr, tls): &(At, bool)| !tls && !addr.is_local();
    for (addr, _) in admin.addresses().filter(open) {
        warn!(%addr, "users of the API send their RabbitMQ passwords to the admin port in the clear: listen on a loopback address, use `admin-tls` instead, or set `admin-api = false`");
    }
}

async fn bind_ports(
    config: &Config,
    handed: Option<std::net::TcpListener>,
    certificates: &Certificates,
) -> Result<(Ports, Ports), BindError> {
    let mut clients = ports(
        ("listen", config.listen.clone().filter(|_| handed.is_none())),
        ("listen-tls", config.listen_tls),
        certificates.clients(),
    )
    .await?;
    let admin = ports(
        ("admin", config.admin.map(At::Tcp)),
        ("admin-tls", config.admin_tls),
        certificates.admin(),
    )
    .await?;
    if let Some(socket) = handed {
        clients.plain = Some(adopt(socket).map_err(BindError::Handed)?);
    }
    Ok((clients, admin))
}

async fn ports(
    plain: (&'static str, Option<At>),
    tls: (&'static str, Option<SocketAddr>),
    acceptor: Option<Acceptor>,
) -> Result<Ports, BindError> {
    let mut ports = Ports::default();
    if let (setting, Some(address)) = plain {
        ports.plain = Some(listen(setting, address).await?);
    }
    if let ((setting, Some(address)), Some(acceptor)) = (tls, acceptor) {
        ports.tls = Some((listen(setting, At::Tcp(address)).await?, acceptor));
    }
    Ok(ports)
}

fn adopt(socket: std::net::TcpListener) -> std::io::Result<Port> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket).map(Port::Tcp)
}

async fn listen(setting: &'static str, address: At) -> Result<Port, BindError> {
    Port::bind(&address)
        .await
        .map_err(|source| BindError::Listen {
            setting,
            address,
            source,
        })
}

#[cfg(test)]
pub(crate) mod tests;
