//! What each part is told of the settings: the only place that knows both.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;

use crate::amqp::ids::Vhost;
use crate::config::{Bcc, Config, History};
use crate::dead_letter::RuleSettings;
use crate::intake;
use crate::link::Login;
use crate::machine::{Budget, LiveLimits};
use crate::management;
use crate::publisher;
use crate::recorder;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Policies;
use crate::retries::Place;
use crate::session;

/// For every session.
pub(super) fn session(config: &Config) -> session::Settings {
    session::Settings {
        mode: config.mode,
        declares: config.declares,
        names: config.names.clone(),
        user: login(config).user,
        policies: LivePolicies::new(Policies::new(config.reloadable.policies.clone())),
        rules: rules(config),
        retained: Budget::new(config.reloadable.retained_bytes),
        ended: Default::default(),
        types: Default::default(),
        limits: LiveLimits::new(config.reloadable.limits.clone()),
    }
}

/// For every publisher; vhost, owner and what is known of delay queues are the link's own.
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
    }
}

/// For every intake; the vhost is the link's own.
pub(super) fn intake(config: &Config, sessions: &session::Settings) -> intake::Settings {
    intake::Settings {
        login: login(config),
        names: sessions.names.clone(),
        policies: sessions.policies.clone(),
        queue_type: config.intake_queue_type,
        prefetch: config.intake_prefetch,
        limits: sessions.limits.clone(),
        rules: sessions.rules,
        surveyed: false,
        recorded: false,
    }
}

/// For every recorder; the vhost is the link's own.
pub(super) fn recorder(config: &Config, sessions: &session::Settings) -> recorder::Settings {
    recorder::Settings {
        login: login(config),
        stream: sessions.names.redeclared().clone(),
        declares: config.declares,
        policies: sessions.policies.clone(),
    }
}

/// Where the management API is, if it shall be read.
pub(super) fn management(config: &Config) -> Option<management::Api> {
    let url = config.management_url.as_ref()?;
    let (user, password) = match &url.user {
        Some((user, password)) => (user.as_bytes(), password),
        None => (config.upstream.user.as_bytes(), &config.upstream.password),
    };
    Some(management::Api {
        host: url.host.clone(),
        port: url.port,
        path: url.path.clone(),
        user: Bytes::copy_from_slice(user),
        password: Bytes::copy_from_slice(password.reveal().as_bytes()),
    })
}

/// For `dlx-proxy retries`.
pub fn retries(config: &Config) -> Place {
    Place {
        host: config.upstream.host.clone(),
        port: config.upstream.port,
        user: config.upstream.user.clone(),
        password: config.upstream.password.reveal().to_owned(),
        vhosts: config.vhosts.clone(),
        names: config.names.clone(),
        management: management(config),
    }
}

/// As whom the links log in. The seed tells the proxies of one broker apart, though each be process 1 of a container: so they do not come
/// back all at once.
fn login(config: &Config) -> Login {
    Login {
        vhost: Vhost::EMPTY,
        user: config.upstream.user.clone(),
        password: Bytes::copy_from_slice(config.upstream.password.reveal().as_bytes()),
        seed: RandomState::new().hash_one(std::process::id()),
    }
}

fn rules(config: &Config) -> RuleSettings {
    RuleSettings {
        continue_history: config.history == History::Continue,
        carry_bcc: config.bcc == Bcc::Carry,
    }
}
