//! What each part is told of the settings: the only place that knows both.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::config::{Config, History};
use crate::console::connection::Access;
use crate::console::doctor::Patient;
use crate::console::retries;
use crate::dead_letter::{HistoryForm, RuleSettings};
use crate::hook;
use crate::http::Place;
use crate::intake;
use crate::link::Login;
use crate::machine::{Budget, LiveLimits};
use crate::management;
use crate::net::clock::SystemClock;
use crate::net::dial::{Dialer, Way};
use crate::net::nodes::{self, Nodes};
use crate::net::walks::Walker;
use crate::own_user::OwnUser;
use crate::publisher;
use crate::recorder;
use crate::registry::delayed_exchanges::DelayedPublish;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Policies;
use crate::session;
use crate::telemetry::Metrics;
use crate::tls::{Certificates, Client, Connector};

use super::BindError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn session(config: &Config) -> session::Settings {
    session::Settings {
        mode: config.mode,
        lenient: config.lenient.clone(),
        names: config.names.clone(),
        user: login(config).user,
        policies: LivePolicies::new(Policies::new(config.reloadable.policies.clone())),
        delays: DelayedPublish::of(&config.delayed_publish),
        rules: rules(config),
        retained: Budget::new(config.reloadable.retained_bytes),
        catalogue: Default::default(),
        channel_limits: Default::default(),
        limits: LiveLimits::new(config.reloadable.limits.clone()),
    }
}

/// Without vhost, owner and delay queues, which each link adds.
pub(super) fn publisher(config: &Config, sessions: &session::Settings) -> publisher::Settings {
    let names = &sessions.names;
    publisher::Settings {
        login: login(config),
        names: names.clone(),
        on_unroutable: config.on_unroutable,
        limits: sessions.limits.clone(),
        intake: None,
        existing_delays: Default::default(),
        prefetch: config.intake_prefetch.into(),
        careful: false,
    }
}

/// Without the vhost, which each link adds.
pub(super) fn intake(config: &Config, sessions: &session::Settings) -> intake::Settings {
    intake::Settings {
        login: login(config),
        names: sessions.names.clone(),
        policies: sessions.policies.clone(),
        catalogue: sessions.catalogue.clone(),
        queue_type: config.intake_queue_type,
        prefetch: config.intake_prefetch,
        limits: sessions.limits.clone(),
        rules: sessions.rules,
        recorded: false,
    }
}

/// Without the vhost, which each link adds.
pub(super) fn recorder(config: &Config, sessions: &session::Settings) -> recorder::Settings {
    recorder::Settings {
        login: login(config),
        stream: sessions.names.redeclared().clone(),
        lenient: config.lenient.clone(),
        policies: sessions.policies.clone(),
    }
}

pub(super) fn own_user(config: &Config) -> OwnUser {
    OwnUser {
        name: config.upstream.user.clone(),
        prefix: config.names.prefix().to_string(),
    }
}

pub(super) fn management(config: &Config, tls: Option<Connector>) -> Option<management::Api> {
    let url = config.management_url.as_ref()?;
    let (user, password) = match &url.user {
        Some((user, password)) => (user.as_bytes(), password),
        None => (config.upstream.user.as_bytes(), &config.upstream.password),
    };
    Some(management::Api {
        place: Place {
            host: url.node.host.clone(),
            port: url.node.port,
            tls: tls.filter(|_| url.tls),
        },
        path: url.path.clone(),
        login: (
            Bytes::copy_from_slice(user),
            Bytes::copy_from_slice(password.reveal().as_bytes()),
        ),
    })
}

pub(super) fn hook(config: &Config, tls: Option<Connector>) -> Option<hook::Server> {
    let url = config.on_dead_letter.as_ref()?;
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let user = url.user.as_ref();
    Some(hook::Server {
        place: Place {
            host: url.node.host.clone(),
            port: url.node.port,
            tls,
        },
        target: url.path.clone(),
        login: user.map(|(user, password)| (bytes(user), bytes(password.reveal()))),
    })
}

/// For `dlx-proxy retries`.
///
/// # Errors
/// A certificate file has changed since the settings were read.
pub fn retries(config: &Config) -> Result<retries::Place, BindError> {
    let certificates = certificates(config)?;
    Ok(retries::Place {
        walker: Walker {
            dialer: dialer(config, &certificates, &Metrics::new()),
            clock: SystemClock::start(),
        },
        login: login(config),
        vhosts: config.vhosts.clone(),
        names: config.names.clone(),
        management: management(config, certificates.upstream()),
    })
}

/// For `dlx-proxy doctor`. `client`: user and password of a client to examine; `client_user`: a
/// user whose permissions to read.
///
/// # Errors
/// A certificate file has changed since the settings were read.
pub fn patient(
    config: &Config,
    client: Option<(ShortStr, String)>,
    client_user: Option<String>,
) -> Result<Patient, BindError> {
    let certificates = certificates(config)?;
    let access = access(config, &certificates);
    let client = client.map(|(user, password)| Access {
        user,
        password,
        ..access.clone()
    });
    let limits = &config.reloadable;
    Ok(Patient {
        nodes: config.upstream.nodes.clone(),
        resolver: nodes::resolver(),
        access,
        client,
        client_user,
        vhosts: config.vhosts.clone(),
        names: config.names.clone(),
        has_record: config.lenient.follows_targets()
            || Policies::new(limits.policies.clone()).any_follows_targets(),
        intake_queue_type: config.intake_queue_type,
        management: management(config, certificates.upstream()),
        admin: admin(config),
        certificates: certificates.expire(),
        max_connections: limits.max_connections,
        max_admin_connections: limits.max_admin_connections,
    })
}

fn admin(config: &Config) -> Option<Place> {
    match (config.admin, config.admin_tls) {
        (Some(address), _) => Some(Place::of(address, None)),
        (None, Some(address)) => {
            let tls = Client::of_own_admin().ok()?;
            Some(Place::of(address, Some(tls)))
        }
        (None, None) => None,
    }
}

pub(super) fn dialer(config: &Config, certificates: &Certificates, metrics: &Metrics) -> Dialer {
    let (nodes, order) = (&config.upstream.nodes, config.upstream_order);
    Dialer {
        nodes: Nodes::new(nodes, order, metrics.clone()),
        way: way(config, certificates),
        within: CONNECT_TIMEOUT,
    }
}

pub(super) fn way(config: &Config, certificates: &Certificates) -> Way {
    Way {
        tls: certificates.upstream().filter(|_| config.upstream.tls),
        told: config.upstream_proxy_protocol,
    }
}

fn access(config: &Config, certificates: &Certificates) -> Access {
    Access {
        user: config.upstream.user.clone(),
        password: config.upstream.password.reveal().to_owned(),
        way: way(config, certificates),
    }
}

fn certificates(config: &Config) -> Result<Certificates, BindError> {
    let (settings, uses) = (&config.reloadable.tls, config.tls_uses());
    Certificates::load(settings, uses, Metrics::new()).map_err(BindError::certificates)
}

/// Of the process. It differs between proxies, even if each is process 1 of a container, so they do not all reconnect at once.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

pub(super) fn login(config: &Config) -> Login {
    Login {
        vhost: Vhost::EMPTY,
        user: config.upstream.user.clone(),
        password: Bytes::copy_from_slice(config.upstream.password.reveal().as_bytes()),
        seed: *SEED,
    }
}

fn rules(config: &Config) -> RuleSettings {
    RuleSettings {
        continue_history: config.history == History::Continue,
        history_form: HistoryForm::WRITTEN,
    }
}
