//! What each part is told of the settings: the only place that knows both.

use bytes::Bytes;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::config::{self, Bcc, Config, History};
use crate::dead_letter::{Dialect, Rules};
use crate::intake;
use crate::link::Login;
use crate::machine::{Budget, Limits, LiveLimits};
use crate::management;
use crate::publisher;
use crate::registry::intake_name::{BadPrefix, Names};
use crate::registry::live::LivePolicies;
use crate::registry::policy::{self, BadPolicy, Policies};
use crate::session;

/// Settings that the parts refuse although each of them is well-formed.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// `prefix`.
    #[error(transparent)]
    Prefix(#[from] BadPrefix),
    /// `[[policy]]`.
    #[error(transparent)]
    Policy(#[from] BadPolicy),
}

/// For every session.
pub(super) fn session(config: &Config) -> Result<session::Settings, BadSettings> {
    Ok(session::Settings {
        mode: mode(config.mode),
        names: Names::new(&config.prefix)?,
        policies: LivePolicies::new(policies(config)?),
        rules: rules(config),
        retained: Budget::new(config.retained_bytes),
        ended: Default::default(),
        limits: LiveLimits::new(limits(config)),
    })
}

/// For all machines.
pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        max_history: config.max_history,
        nack_retries: config.nack_retries,
        confirm_timeout: config.confirm_timeout,
        retry_for: config.retry_for,
        publisher_bytes: config.publisher_bytes,
        intake_bytes: config.intake_bytes,
        max_intake_exchanges: config.max_intake_exchanges,
        retained_per_connection: config.retained_bytes_per_connection,
        max_tickets: config.max_tickets_per_connection,
        max_queues: config.max_queues_per_connection,
        max_replies: config.max_replies_per_connection,
        close_wait: config.close_wait,
        probe_timeout: config.probe_timeout,
        handshake_timeout: config.handshake_timeout,
        admin_timeout: config.admin_timeout,
    }
}

/// For every publisher; vhost and owner are the link's own.
pub(super) fn publisher(config: &Config, sessions: &session::Settings) -> publisher::Settings {
    let names = &sessions.names;
    publisher::Settings {
        login: login(config),
        parking: names.parking().clone(),
        bridges: names.bridges().clone(),
        on_unroutable: match config.on_unroutable {
            config::OnUnroutable::Park => publisher::OnUnroutable::Park,
            config::OnUnroutable::Drop => publisher::OnUnroutable::Drop,
        },
        limits: sessions.limits.clone(),
        intake: None,
        prefetch: config.intake_prefetch.into(),
    }
}

/// For every intake; the vhost is the link's own.
pub(super) fn intake(config: &Config, sessions: &session::Settings) -> intake::Settings {
    intake::Settings {
        login: login(config),
        names: sessions.names.clone(),
        policies: sessions.policies.clone(),
        queue_type: match config.intake_queue_type {
            config::QueueType::Quorum => intake::QueueType::Quorum,
            config::QueueType::Classic => intake::QueueType::Classic,
        },
        prefetch: config.intake_prefetch,
        limits: sessions.limits.clone(),
        rules: sessions.rules,
        surveyed: false,
    }
}

/// Where the management API is, if it shall be read.
pub(super) fn management(config: &Config) -> Option<management::Api> {
    let url = config.management_url.as_ref()?;
    let (user, password) = match &url.user {
        Some((user, password)) => (user, password),
        None => (&config.upstream.user, &config.upstream.password),
    };
    Some(management::Api {
        host: url.host.clone(),
        port: url.port,
        path: url.path.clone(),
        user: user.clone(),
        password: password.reveal().to_owned(),
    })
}

/// As whom the links log in. The seed tells the proxies of one broker apart, so that they do not come back all at once.
fn login(config: &Config) -> Login {
    let short = |text: &str| ShortStr::copy(text.as_bytes()).unwrap_or_default();
    Login {
        vhost: Vhost::EMPTY,
        user: short(&config.upstream.user),
        password: Bytes::copy_from_slice(config.upstream.password.reveal().as_bytes()),
        seed: u64::from(std::process::id()),
    }
}

/// The dialect is the broker's, known when a connection is open.
fn rules(config: &Config) -> Rules {
    Rules {
        dialect: Dialect::V4,
        max_history: config.max_history,
        continue_history: config.history == History::Continue,
        carry_bcc: config.bcc == Bcc::Carry,
    }
}

fn mode(mode: config::Mode) -> policy::Mode {
    match mode {
        config::Mode::Takeover => policy::Mode::Takeover,
        config::Mode::Keep => policy::Mode::Keep,
    }
}

pub(super) fn policies(config: &Config) -> Result<Policies, BadPolicy> {
    let spec = |policy: &config::Policy| policy::Spec {
        name: policy.name.clone(),
        vhost: policy.vhost.clone(),
        pattern: policy.pattern.clone(),
        apply_to: match policy.apply_to {
            config::ApplyTo::Queues | config::ApplyTo::All => policy::ApplyTo::Queues,
            config::ApplyTo::ClassicQueues => policy::ApplyTo::ClassicQueues,
            config::ApplyTo::QuorumQueues => policy::ApplyTo::QuorumQueues,
        },
        priority: policy.priority,
        mode: policy.mode.map(mode),
        dead_letter_exchange: policy.definition.dead_letter_exchange.clone(),
        dead_letter_routing_key: policy.definition.dead_letter_routing_key.clone(),
    };
    Policies::new(&config.policies.iter().map(spec).collect::<Vec<_>>())
}
