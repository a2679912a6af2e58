//! Wiring only: settings become listeners, links and their tasks. Nothing is global, so several proxies run in one process.

mod first_line;
mod live;
mod parts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::files::Files;
use crate::admin::looks::Looks;
use crate::admin::room::Room;
use crate::admin::rooms::Rooms;
use crate::admin::server::Server;
use crate::admin::watches::Watches;
use crate::admin::{Api, Readiness};
use crate::amqp::ids::Vhost;
use crate::config::Config;
use crate::descriptors;
use crate::drain::{Drain, Ended, Phase};
use crate::hook::Hook;
use crate::known::{Handlings, KnownQueues};
use crate::management::Management;
use crate::net::background::{Background, NICE};
use crate::net::clock::{Clock, SystemClock};
use crate::net::dial::Dialer;
use crate::net::handshakes::Handshakes;
use crate::net::links::Opener;
use crate::net::listener::Listener;
use crate::net::nodes::Nodes;
use crate::net::permits::Permits;
use crate::net::ports::{At, Port, Ports};
use crate::net::vhosts::Hub;
use crate::net::walks::Walks;
use crate::net::workers::Workers;
use crate::recent::RecentDeaths;
use crate::redrives::Redrives;
use crate::telemetry::Metrics;
use crate::tls::{Acceptor, Certificates, Problem};

pub use first_line::first_line;
pub use live::Live;
pub use parts::{patient, retries};

/// How long a node of the broker may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// For so long clients wait for what was recorded of redeclared queues: not for the end of an alarm.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// A proxy whose ports are bound.
pub struct App {
    listener: Listener,
    client_ports: Ports,
    admin_ports: Ports,
    /// For all that is asked at these, so that nobody who asks much stands between a client and its session.
    admin_thread: Background,
    certificates: Certificates,
    management: Option<Management>,
    admin_server: Server,
    hook: Option<Hook>,
    readiness: Readiness,
    hub: Hub,
    vhosts: Vec<Vhost>,
    live: Live,
    /// Cancelled when clients are accepted.
    listens: CancellationToken,
    notes: Vec<(String, &'static str)>,
}

/// A proxy that cannot begin.
#[derive(Debug, Error)]
pub enum BindError {
    /// `worker-threads` is more than the system allows.
    #[error("cannot start the threads of `worker-threads`")]
    Threads(#[source] std::io::Error),
    /// A file of certificates was replaced by a wrong one since the settings were read.
    #[error("{0}")]
    Certificates(String),
    /// What the service manager handed over cannot be used.
    #[error("cannot use the socket that was handed over")]
    Handed(#[source] std::io::Error),
    /// The port is taken, or the address is not ours.
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
    /// Binds both ports; clients wait in the kernel's queue until [`App::run`]. `handed`: where clients come already, in place of `listen`.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn bind(
        config: &Config,
        handed: Option<std::net::TcpListener>,
        drain: &Drain,
    ) -> Result<App, BindError> {
        let metrics = Metrics::new();
        let certificates =
            Certificates::load(&config.reloadable.tls, config.tls_uses(), metrics.clone())
                .map_err(BindError::certificates)?;
        let client_ports = ports(
            ("listen", config.listen.clone().filter(|_| handed.is_none())),
            ("listen-tls", config.listen_tls),
            certificates.clients(),
        );
        let admin_ports = ports(
            ("admin", config.admin.map(At::Tcp)),
            ("admin-tls", config.admin_tls),
            certificates.admin(),
        );
        let (mut client_ports, admin_ports) = (client_ports.await?, admin_ports.await?);
        if let Some(socket) = handed {
            client_ports.plain = Some(adopt(socket).map_err(BindError::Handed)?);
        }
        let readiness = Readiness::new(config.vhosts.iter().cloned());
        let clock = SystemClock::start();
        let recent = RecentDeaths::new(clock.now().wall);
        let settings = Arc::new(parts::session(config));
        let dialer = Dialer {
            nodes: Nodes::new(
                &config.upstream.nodes,
                config.upstream_order,
                metrics.clone(),
            ),
            way: parts::way(config, &certificates),
            within: CONNECT_TIMEOUT,
        };
        readiness.behind(dialer.nodes.clone(), metrics.clone());
        readiness.logs_in_as(parts::own_user(config), config.ready_when_refused);
        let management = parts::management(config, certificates.upstream())
            .map(|api| Management::new(api, settings.policies.clone(), metrics.clone()));
        let hook = parts::hook(config, certificates.hook())
            .map(|server| Hook::new(server, settings.limits.clone(), metrics.clone()));
        let known = KnownQueues::new(Handlings {
            catalogue: settings.catalogue.clone(),
            policies: settings.policies.clone(),
            mode: settings.mode,
            names: settings.names.clone(),
            user: settings.user.clone(),
            metrics: metrics.clone(),
            clock,
        });
        let opener = Opener {
            dialer: dialer.clone(),
            publisher: parts::publisher(config, &settings),
            intake: parts::intake(config, &settings),
            recorder: parts::recorder(config, &settings),
            watchdog: management.as_ref().map(|management| {
                let (names, catalogue) = (config.names.clone(), settings.catalogue.clone());
                management.watchdog(names, known.clone(), catalogue, clock)
            }),
            known: known.clone(),
            hook: hook.clone(),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            recent: recent.clone(),
            drain: drain.clone(),
            clock,
        };
        let hub = Hub::new(Box::new(move |hub, vhost, inboxes| {
            opener.open(hub, vhost, inboxes)
        }));
        let permits = Permits::new(descriptors::permits(
            config.reloadable.max_connections,
            config.reloadable.max_admin_connections,
        ));
        let walks = Walks {
            dialer: dialer.clone(),
            clock,
            hub: hub.clone(),
            thread: Walks::start_thread().map_err(BindError::Threads)?,
        };
        let redrives = Redrives::new(
            walks.clone(),
            drain.clone(),
            (settings.user.clone(), config.names.clone()),
            (settings.limits.clone(), metrics.clone()),
        );
        let looks = Looks::new(
            walks,
            settings.limits.clone(),
            Permits::new(config.reloadable.max_looks),
            config.reloadable.error_headers.clone(),
            metrics.clone(),
        );
        let files = Files {
            looks: looks.clone(),
            own_user: settings.user.clone(),
            names: settings.names.clone(),
            rules: settings.rules,
            limits: settings.limits.clone(),
            room: Room::new(settings.limits.clone(), metrics.clone()),
            metrics: metrics.clone(),
            unread: Default::default(),
        };
        let workers = Workers::start(config.worker_threads).map_err(BindError::Threads)?;
        let watches = Watches::new(recent, config.reloadable.max_admin_connections);
        let admin_server = Server {
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            rooms: Rooms::new(config.reloadable.max_admin_connections),
            workers: workers.clone(),
            limits: settings.limits.clone(),
            api: config.admin_api.then(|| Api {
                looks: looks.clone(),
                redrives,
                files,
                watches: watches.clone(),
                known,
                vhosts: config.vhosts.iter().cloned().collect(),
            }),
        };
        let live = Live {
            policies: settings.policies.clone(),
            limits: settings.limits.clone(),
            retained: settings.retained.clone(),
            permits: permits.clone(),
            admin_rooms: admin_server.rooms.clone(),
            looks,
            watches,
            drain: drain.clone(),
            hub: hub.clone(),
            certificates: certificates.clone(),
        };
        let listener = Listener {
            settings,
            dialer,
            trusted: config.listen_proxy_protocol.clone(),
            permits,
            hub: hub.clone(),
            metrics: metrics.clone(),
            clock,
            workers,
            handshakes: Handshakes::start().map_err(BindError::Threads)?,
        };
        Ok(App {
            notes: config.notes(),
            live,
            listener,
            client_ports,
            admin_ports,
            admin_thread: Background::start("admin", NICE).map_err(BindError::Threads)?,
            certificates,
            management,
            admin_server,
            hook,
            readiness,
            hub,
            vhosts: config.vhosts.clone(),
            listens: CancellationToken::new(),
        })
    }

    /// What of it can be changed while it runs.
    pub fn live(&self) -> Live {
        self.live.clone()
    }

    /// The threads that serve clients.
    pub fn workers(&self) -> Workers {
        self.listener.workers.clone()
    }

    /// Done when clients are accepted.
    pub fn listens(&self) -> impl Future<Output = ()> + use<> {
        self.listens.clone().cancelled_owned()
    }

    /// Serves until the drain begins, then ends phase by phase.
    pub async fn run(self, drain: Drain) -> Ended {
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
        if let Some(management) = self.management {
            // When the first rejects arrive, the keys of the broker's policies should be known. Until then clients wait in the kernel's queue.
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
            self.listener.serve(self.client_ports, drain.clone()),
        );
        self.readiness.listening();
        self.listens.cancel();
        drain.begun().await;
        self.readiness.draining();
        drain.finish().await
    }
}

/// Where the admin port has no TLS.
fn warn_of_passwords(admin: &Ports) {
    let open = |(addr, tls): &(At, bool)| !tls && !addr.is_local();
    for (addr, _) in admin.addresses().filter(open) {
        warn!(%addr, "users of the API send their RabbitMQ passwords to the admin port in the clear: listen on a loopback address, use `admin-tls` instead, or set `admin-api = false`");
    }
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
