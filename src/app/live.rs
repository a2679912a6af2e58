//! What of the settings can change while the proxy runs, and how.

use tracing::warn;

use crate::amqp::ids::ShortStr;
use crate::config::{Config, Reloadable};
use crate::console::admin::looks::Looks;
use crate::console::admin::rooms::Rooms;
use crate::descriptors;
use crate::drain::Drain;
use crate::machine::{Budget, LiveLimits};
use crate::net::permits::Permits;
use crate::net::vhosts::Hub;
use crate::registry::live::LivePolicies;
use crate::tls::{Certificates, Uses};

#[derive(Clone)]
pub struct Live {
    pub(super) policies: LivePolicies,
    pub(super) limits: LiveLimits,
    pub(super) retained: Budget,
    pub(super) permits: Permits,
    pub(super) admin_rooms: Rooms,
    pub(super) looks: Looks,
    pub(super) drain: Drain,
    pub(super) hub: Hub,
    pub(super) certificates: Certificates,
}

// === impl Live ===

impl Live {
    /// Applies the reloadable settings. `uses`: which sides speak TLS after a restart.
    pub fn apply(&self, config: &Config, uses: Uses) {
        let Reloadable {
            limits,
            memory: _, // its parts are in force
            max_connections,
            retained_bytes,
            max_admin_connections,
            max_browses,
            error_headers,
            tls,
            drain_timeout,
            log_level: _, // `Reload` has the log
            policies,
        } = &config.reloadable;
        self.hub.change_policies(&self.policies, policies.clone());
        self.limits.set(limits.clone());
        self.retained.set_limit(*retained_bytes);
        let permits = descriptors::permits(*max_connections, *max_admin_connections);
        self.permits.resize(permits);
        self.admin_rooms.change(*max_admin_connections);
        self.looks.change(*max_browses, error_headers.clone());
        self.certificates.change(tls, uses);
        self.drain.set_grace(*drain_timeout);
        warn_of(&config.notes());
        descriptors::warn_of_few(*max_connections, *max_admin_connections);
    }
}

pub(super) fn warn_of(notes: &[(String, &'static str)]) {
    for (about, why) in notes {
        warn!("{about}: {why}");
    }
}

/// Warns about RabbitMQ's default user, which many clients share.
pub(super) fn warn_of_shared(user: &ShortStr) {
    if **user == *b"guest" {
        warn!(%user, "clients may use the same user as the proxy: whoever connects to the broker itself as that user can forge what the proxy takes for its own, such as the user-id of others and where a parked message goes");
    }
}
