//! What of the settings can change while the proxy runs, and how.

use tracing::warn;

use crate::config::{Config, Definition, Mode, Policy};
use crate::drain::Drain;
use crate::machine::{Budget, LiveLimits};
use crate::net::permits::Permits;
use crate::registry::live::LivePolicies;
use crate::registry::policy::BadPolicy;

use super::parts;

/// The cells and bounds of a running proxy.
#[derive(Clone)]
pub struct Live {
    pub(super) policies: LivePolicies,
    pub(super) limits: LiveLimits,
    pub(super) retained: Budget,
    pub(super) permits: Permits,
    pub(super) admin_permits: Permits,
    pub(super) drain: Drain,
}

// === impl Live ===

impl Live {
    /// From now on those of these settings that can change are in force.
    ///
    /// # Errors
    /// A policy cannot be used. Then nothing has changed.
    pub fn apply(&self, config: &Config) -> Result<(), BadPolicy> {
        self.policies.set_ours(parts::policies(config)?);
        self.limits.set(parts::limits(config));
        self.retained.set_limit(config.retained_bytes);
        self.permits.resize(config.max_connections);
        self.admin_permits.resize(config.max_admin_connections);
        self.drain.set_grace(config.drain_timeout);
        warn_of_kept(&kept(config));
        Ok(())
    }
}

/// Policies with a target that act on rejects only.
pub(super) fn kept(config: &Config) -> Vec<String> {
    let kept = |policy: &&Policy| {
        policy.mode.unwrap_or(config.mode) == Mode::Keep
            && policy.definition != Definition::default()
    };
    let kept = config.policies.iter().filter(kept);
    kept.map(|policy| policy.name.clone()).collect()
}

pub(super) fn warn_of_kept(policies: &[String]) {
    for policy in policies {
        warn!(%policy, "in mode `keep` a policy acts on rejects only: the broker does not know it, so nothing expires or overflows into its exchange");
    }
}
