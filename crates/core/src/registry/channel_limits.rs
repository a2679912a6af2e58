//! Users that met a limit on channels: a probe would cost them one more.
//!
//! They are kept by the name that a client claims, so no permissions are kept beside them. (Who claims another's name has its queues native.)

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::amqp::ids::ShortStr;
use crate::machine::Mono;

use super::believed::Believed;

/// How long a user at its channel limit is not probed. A day costs its clients almost nothing, and
/// after raising the limit no restart is needed.
pub const LIMITED_FOR: Duration = Duration::from_secs(24 * 3600);
pub const MOST: usize = 10_000;

/// For all vhosts, like the limit. Clones share it.
#[derive(Clone, Debug)]
pub struct ChannelLimits(Arc<ArcSwap<Believed<ShortStr, ()>>>);

impl Default for ChannelLimits {
    fn default() -> ChannelLimits {
        let nobody = Believed::new(LIMITED_FOR, MOST);
        ChannelLimits(Arc::new(ArcSwap::from_pointee(nobody)))
    }
}

// === impl ChannelLimits ===

impl ChannelLimits {
    pub fn learn(&self, user: &ShortStr, now: Mono) {
        self.0.rcu(|limited| {
            let mut limited = Believed::clone(limited);
            limited.insert(user.clone(), (), now);
            limited
        });
    }

    /// Whether one more channel may cost the user a connection.
    pub fn has(&self, user: &ShortStr, now: Mono) -> bool {
        self.0.load().get(user, now).is_some()
    }
}
